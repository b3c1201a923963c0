"""Ids to codes and rows to CSR, by counting rather than sorting."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel


@kernel
def extremes(start, stop, ids):
    """The smallest and the largest id."""
    low = ids[start]
    high = ids[start]
    for row in range(start, stop):
        low = min(low, ids[row])
        high = max(high, ids[row])
    return low, high


@kernel
def mark_seen(start, stop, ids, lowest, seen):
    """Flag the ids that occur, counted from the lowest."""
    for row in range(start, stop):
        seen[ids[row] - lowest] = True


@kernel
def look_up(start, stop, ids, lowest, codes, out):
    """Write the codes of ids, given a table from the lowest id on."""
    for row in range(start, stop):
        out[row] = codes[ids[row] - lowest]


@kernel
def recode(start, stop, old, table, out):
    """Write table[old] row by row."""
    for row in range(start, stop):
        out[row] = table[old[row]]


@kernel
def pair_up(start, stop, users, windows, n_windows, out):
    """Write one number for each (user, window)."""
    for row in range(start, stop):
        out[row] = np.int64(users[row]) * n_windows + windows[row]


@kernel
def count_rows(units, indptr):
    """Count rows by unit into indptr[1:]; returns whether units already ascend."""
    ascending = True
    last = np.int32(-1)
    for row in range(len(units)):
        unit = units[row]
        indptr[unit + 1] += 1
        ascending = ascending and unit >= last
        last = unit
    for unit in range(len(indptr) - 1):
        indptr[unit + 1] += indptr[unit]
    return ascending


@kernel
def group_rows(units, items, cursors, out):
    """Write items by unit; `cursors` are the units' starts and move on."""
    for row in range(len(units)):
        out[cursors[units[row]]] = items[row]
        cursors[units[row]] += 1


@kernel
def group_scored_rows(units, items, scores, cursors, out, out_scores):
    """Write items and scores by unit; `cursors` are the units' starts and move on."""
    for row in range(len(units)):
        at = cursors[units[row]]
        out[at] = items[row]
        out_scores[at] = scores[row]
        cursors[units[row]] = at + 1


@kernel
def copy_scores(start, stop, scores, out):
    """Copy scores; returns the first row that is not finite (-1: none) and the lowest score."""
    bad = -1
    lowest = np.inf
    for row in range(start, stop):
        score = scores[row]
        if bad < 0 and not np.isfinite(score):
            bad = row
        lowest = min(lowest, score)
        out[row] = score
    return bad, lowest


@kernel
def find_repeat(start, stop, indptr, items, n_items):
    """The first unit whose list holds an item twice, and the item; (-1, -1) when there is none."""
    last_seen = np.full(n_items, -1, np.int32)
    for unit in range(start, stop):
        for e in range(indptr[unit], indptr[unit + 1]):
            if last_seen[items[e]] == unit:
                return unit, items[e]
            last_seen[items[e]] = unit
    return -1, -1


@helper
def _sort_span(items, first, end):
    """Sort items[first:end] by Shell's method: NumPy's sort takes seconds to compile in."""
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
    """Sort each unit's items in place, each once, at the front; writes how many remain."""
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        _sort_span(items, first, end)
        kept = first
        for e in range(first, end):
            if e == first or items[e] != items[e - 1]:
                value = items[e]
                items[kept] = value
                kept += 1
        lengths[unit] = kept - first


@kernel
def close_gaps(indptr, items, lengths, new_indptr, out):
    """Copy the first `lengths` items of each unit next to each other."""
    at = 0
    for unit in range(len(lengths)):
        for e in range(indptr[unit], indptr[unit] + lengths[unit]):
            out[at] = items[e]
            at += 1
        new_indptr[unit + 1] = at
