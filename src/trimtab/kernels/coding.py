"""Ids to codes and rows to CSR form, by counting instead of sorting; and hashes of ids."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel

# FNV-1a (Fowler, Noll and Vo), finished by `mix`: alone, its high bits know little of the last byte
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_MINUS, _ZERO, _TEN = np.uint64(ord("-")), np.uint64(ord("0")), np.uint64(10)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


@kernel
def extremes(start, stop, ids):
    """The smallest and the largest id."""
    part = ids[start:stop]  # indices known to be at least 0 compile to vector instructions
    low = part[0]
    high = part[0]
    for row in range(len(part)):
        low = min(low, part[row])
        high = max(high, part[row])
    return low, high


@kernel
def mark_seen(start, stop, ids, lowest, seen):
    """Set `seen` at id - lowest for every id that occurs."""
    for row in range(start, stop):
        seen[ids[row] - lowest] = True


@kernel
def look_up(start, stop, ids, lowest, codes, out):
    """Write the code of each id; `codes` is indexed by id - lowest."""
    for row in range(start, stop):
        out[row] = codes[ids[row] - lowest]


@kernel
def recode(start, stop, old, table, out):
    """Write the new code of each old code."""
    for row in range(start, stop):
        out[row] = table[old[row]]


@kernel
def pair_up(start, stop, users, windows, n_windows, out):
    """Write one number per (user, window)."""
    for row in range(start, stop):
        out[row] = np.int64(users[row]) * n_windows + windows[row]


@kernel
def count_runs(start, stop, ids):
    """The start, and the number of runs of equal ids that begin in a range; -1 if ids descend."""
    runs = 0
    if start == 0:
        last = ids[0]
        runs = 1
    else:
        last = ids[start - 1]
    for row in range(start, stop):
        if ids[row] < last:
            return start, -1
        runs += ids[row] != last
        last = ids[row]
    return start, runs


@kernel
def write_runs(start, stop, ids, starts, runs_before, distinct, indptr):
    """Write the id and the first row of each run that begins in a range of ascending ids.

    `starts` are those of all ranges, and `runs_before` how many runs begin before each.
    """
    place = 0
    while starts[place] != start:
        place += 1
    run = runs_before[place]
    for row in range(start, stop):
        if row == 0 or ids[row] != ids[row - 1]:
            distinct[run] = ids[row]
            indptr[run] = row
            run += 1


@kernel
def find_starts(start, stop, units, indptr):
    """Fill `indptr` from the unit of each row in a range; returns whether the units ascend there.

    If they ascend in all ranges, `indptr` is filled.
    """
    last = np.int64(units[start - 1]) if start > 0 else np.int64(-1)
    for row in range(start, stop):
        unit = np.int64(units[row])
        if unit < last:
            return False
        for other in range(last + 1, unit + 1):
            indptr[other] = row
        last = unit
    if stop == len(units):
        for other in range(last + 1, len(indptr)):
            indptr[other] = stop
    return True


@kernel
def count_rows(units, indptr):
    """Fill `indptr`, all 0 before, from the unit of each row."""
    for row in range(len(units)):
        indptr[units[row] + 1] += 1
    for unit in range(len(indptr) - 1):
        indptr[unit + 1] += indptr[unit]


@kernel
def spread_units(start, stop, indptr, units, ranks):
    """Write the unit of each entry, and its rank from 1."""
    for unit in range(start, stop):
        for e in range(indptr[unit], indptr[unit + 1]):
            units[e] = unit
            ranks[e] = e - indptr[unit] + 1


@kernel
def group_rows(units, items, cursors, out):
    """Write items by unit; `cursors` hold each unit's next index and are advanced."""
    for row in range(len(units)):
        out[cursors[units[row]]] = items[row]
        cursors[units[row]] += 1


@kernel
def group_scored_rows(units, items, scores, cursors, out, out_scores):
    """Write items and scores by unit; `cursors` hold each unit's next index and are advanced."""
    for row in range(len(units)):
        at = cursors[units[row]]
        out[at] = items[row]
        out_scores[at] = scores[row]
        cursors[units[row]] = at + 1


@kernel
def check_scores(start, stop, scores):
    """The first row that is not finite (or -1), and the lowest score."""
    not_finite = -1
    lowest = np.inf
    for row in range(start, stop):
        score = scores[row]
        if not_finite < 0 and not np.isfinite(score):
            not_finite = row
        lowest = min(lowest, score)
    return not_finite, lowest


@kernel
def copy_values(start, stop, values, out):
    """Copy a range of values."""
    for row in range(start, stop):
        out[row] = values[row]


@kernel
def find_repeat(start, stop, indptr, items, n_items):
    """The first unit whose list holds an item twice, and the item; (-1, -1) if there is none."""
    last_seen = np.full(n_items, -1, np.int32)
    for unit in range(start, stop):
        for e in range(indptr[unit], indptr[unit + 1]):
            if last_seen[items[e]] == unit:
                return unit, items[e]
            last_seen[items[e]] = unit
    return -1, -1


@helper
def _sort_range(items, first, end):
    """Sort items[first:end] by Shell's method; NumPy's sort takes seconds to compile."""
    gap = 1
    while gap < (end - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for e in range(first + gap, end):
            item = items[e]
            p = e
            while p >= first + gap and items[p - gap] > item:
                items[p] = items[p - gap]
                p -= gap
            items[p] = item
        gap //= 3


@kernel
def distinct_sorted(start, stop, indptr, items, lengths):
    """Sort each unit's items and move the distinct ones to the front; writes their number."""
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        _sort_range(items, first, end)
        kept = first
        for e in range(first, end):
            if e == first or items[e] != items[e - 1]:
                value = items[e]
                items[kept] = value
                kept += 1
        lengths[unit] = kept - first


@kernel
def close_gaps(indptr, items, lengths, new_indptr, out):
    """Copy the first `lengths` items of each unit, without gaps between units."""
    at = 0
    for unit in range(len(lengths)):
        for e in range(indptr[unit], indptr[unit] + lengths[unit]):
            out[at] = items[e]
            at += 1
        new_indptr[unit + 1] = at


@helper
def mix(state):
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit depends on all others."""
    bits = (state ^ (state >> _S30)) * _FIRST
    bits = (bits ^ (bits >> _S27)) * _SECOND
    return bits ^ (bits >> _S31)


@helper
def _add_byte(state, byte):
    """The state of FNV-1a after one more byte."""
    return (state ^ byte) * _FNV_PRIME


@kernel
def hash_texts(start, stop, offsets, text, out):
    """Write the hash of each text; that of row r is text[offsets[r]:offsets[r + 1]]."""
    for row in range(start, stop):
        state = _FNV_START
        for at in range(offsets[row], offsets[row + 1]):
            state = _add_byte(state, np.uint64(text[at]))
        out[row] = mix(state)


@kernel
def hash_whole_numbers(start, stop, ids, out):
    """Write the hash of each number's decimal text."""
    digits = np.empty(20, np.uint64)
    for row in range(start, stop):
        state = _FNV_START
        left = np.uint64(ids[row])
        if ids[row] < 0:
            state = _add_byte(state, _MINUS)
            left = ~left + np.uint64(1)
        n = 0
        while n == 0 or left > 0:
            digits[n] = _ZERO + left % _TEN
            left //= _TEN
            n += 1
        for place in range(n - 1, -1, -1):
            state = _add_byte(state, digits[place])
        out[row] = mix(state)
