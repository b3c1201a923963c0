"""Rows to codes and lists, by counting instead of sorting; and what was bought, listed and sold.

Kernels take whole arrays and offsets, because slices share a reference count that threads compete
for (two threads would take as long as one). Random numbers are splitmix64's (Steele, Lea and Flood
2014), whose state is one uint64.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import bare_kernel, helper, kernel
from trimtab.kernels.short_arrays import STACK, first_not_below, sort_curve

# FNV-1a (Fowler, Noll and Vo), finished by `mix`: alone, its high bits know little of the last byte
_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_S32 = np.uint64(32)


# Ids to codes, rows to lists, hashes and random draws ---------------------------------------------


@kernel
def look_up(start, stop, ids, lowest, codes, out):
    """Write the code of each id; `codes` is indexed by id - lowest."""
    for row in range(start, stop):
        out[row] = codes[ids[row] - lowest]


@kernel
def group_scored_rows(units, items, scores, cursors, out, out_scores):
    """Write items and scores by unit; `cursors` hold each unit's next index and are advanced."""
    for row in range(len(units)):
        at = cursors[units[row]]
        out[at] = items[row]
        out_scores[at] = scores[row]
        cursors[units[row]] = at + 1


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
def mix(state):
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit depends on all others."""
    bits = (state ^ (state >> _S30)) * _FIRST
    bits = (bits ^ (bits >> _S27)) * _SECOND
    return bits ^ (bits >> _S31)


@kernel
def hash_texts(start, stop, offsets, text, out):
    """Write the hash of each text; that of row r is text[offsets[r]:offsets[r + 1]]."""
    for row in range(start, stop):
        state = _FNV_START
        for at in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(text[at])) * _FNV_PRIME
        out[row] = mix(state)


@helper
def start_stream(key, number):
    """The first state of a numbered stream."""
    return mix(key ^ mix((np.uint64(number) + _ONE) * GAMMA))


@bare_kernel
def sum_redistributed(units, moments, cells, indptr, paths, assigned, begins, moving, key, sums):
    """Fill sums[draw, cell, moment]: over the rows that are treated once units swap their paths.

    Units, from 0, are sorted by stratum, which `begins` bounds. Only the first `moving` paths of a
    stratum are treated anywhere, so each draw swaps that many units to its front, where the draw
    before left them: every order of the units stays as likely.
    """
    for draw in range(len(sums)):
        state = start_stream(key, draw)
        for stratum in range(len(moving)):
            begin, end = begins[stratum], begins[stratum + 1]
            for place in range(begin, begin + moving[stratum]):
                state += GAMMA
                rest = np.uint64(end - place)
                chosen = place + np.int64(((mix(state) >> _S32) * rest) >> _S32)
                unit = units[chosen]
                units[chosen] = units[place]
                units[place] = unit
                for row in range(indptr[unit], indptr[unit + 1]):
                    if assigned[paths[place], cells[row]]:
                        own = sums[draw, cells[row]]
                        for moment in range(moments.shape[1]):
                            own[moment] += moments[row, moment]


# Counts and sums over lists and events ------------------------------------------------------------


@helper
def longest_list(start, stop, indptr):
    """Length of the longest list in a range; at least 1."""
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    return longest


@kernel
def count_listed(start, stop, indptr, items, group_of, counts):
    """Count the lists of each group of units that hold an item; groups below 0 are skipped."""
    for unit in range(start, stop):
        group = group_of[unit]
        if group < 0:
            continue
        for e in range(indptr[unit], indptr[unit + 1]):
            counts[group, items[e]] += 1


@kernel
def group_events(items, users, ticks, starts, grouped):
    """Group (user, tick) of events by item; events of an item keep their order.

    Args:
        items: item of each event.
        users: user of each event.
        ticks: tick of each event.
        starts: index of the first event of each item; advanced.
        grouped: rows of user and tick; filled.
    """
    for event in range(len(items)):
        row = starts[items[event]]
        starts[items[event]] = row + 1
        grouped[row, 0] = users[event]
        grouped[row, 1] = ticks[event]


@kernel
def count_sales(starts, grouped, weights, seen, items, ticks, visits, buyers, firsts):
    """Count visits (user and tick with a purchase) and new buyers by item and tick.

    Returns the number of (item, tick) pairs; there are at most as many as events.

    Args:
        starts: index of the first event of each item, and the number of events.
        grouped: rows of user and tick, by item and then by time.
        weights: of these events, the same for all events of a visit; all True if they have none.
        seen: by user: the last item counted and its tick; -1 at first.
        items: of each (item, tick) pair, ascending; filled.
        ticks: of each pair; filled.
        visits: of each pair, by their weights; filled.
        buyers: users whose first visit it was, of each pair; filled.
        firsts: those first visits by their weights, of each pair; filled.
    """
    at = -1
    for item in range(len(starts) - 1):
        for row in range(starts[item], starts[item + 1]):
            user = grouped[row, 0]
            tick = grouped[row, 1]
            if row == starts[item] or tick != ticks[at]:
                at += 1
                items[at] = item
                ticks[at] = tick
                visits[at] = 0.0
                buyers[at] = 0
                firsts[at] = 0.0
            new = seen[user, 0] != item
            if new or seen[user, 1] != tick:
                visits[at] += weights[row]
                if new:
                    buyers[at] += 1
                    firsts[at] += weights[row]
                seen[user, 0] = item
                seen[user, 1] = tick
    return at + 1


@kernel
def gather_lists(start, stop, source, indptr, items, scores, hits, out_indptr, out):
    """Copy the lists of chosen units, with the items of each list ascending.

    Args:
        start: first index into `source`.
        stop: one past the last.
        source: units to copy.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists.
        hits: whether the unit bought the item, or how relevant it was, by entry.
        out_indptr: start of each copy.
        out: items, scores and hits of the copies; filled.
    """
    out_items, out_scores, out_hits = out
    longest = longest_list(start, stop, out_indptr)
    keys = np.empty(longest)
    entries = np.empty(longest, np.int64)
    stack = np.empty(STACK, np.int64)
    for copy in range(start, stop):
        first = indptr[source[copy]]
        n = out_indptr[copy + 1] - out_indptr[copy]
        for e in range(n):
            keys[e] = items[first + e]
            entries[e] = first + e
        sort_curve(keys, entries, n, stack)
        for e in range(n):
            to = out_indptr[copy] + e
            out_items[to] = items[entries[e]]
            out_scores[to] = scores[entries[e]]
            out_hits[to] = hits[entries[e]]


@kernel
def add_hit_values(
    start, stop, k, counts_hits_above, indptr, items, bought_indptr, bought_items, relevance,
    weights, hit_values, quanta, by_item,
):  # fmt: skip
    """Add the value of each hit in the top k of a range of units to its item.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots that count.
        counts_hits_above: whether the value of a hit is multiplied by the hits down to it.
        indptr: start of each unit's top k.
        items: items of the top k.
        bought_indptr: start of each unit's purchases.
        bought_items: items bought, ascending for each unit.
        relevance: of the items bought; all True without weights of events.
        weights: weights of the units.
        hit_values: value of a hit by [min(k, items bought), slot].
        quanta: quanta in 1.
        by_item: sum of values by item, in quanta; added to.
    """
    for unit in range(start, stop):
        first = bought_indptr[unit]
        end = bought_indptr[unit + 1]
        max_hits = min(k, end - first)
        hits = 0.0
        for slot in range(indptr[unit + 1] - indptr[unit]):
            item = items[indptr[unit] + slot]
            for b in range(first, end):
                if bought_items[b] == item:
                    hits += relevance[b]
                    value = hit_values[max_hits, slot] * (hits if counts_hits_above else 1)
                    by_item[item] += np.int64(
                        np.rint(weights[unit] * value * quanta * relevance[b])
                    )
                    break


# The sums that metrics are made of -------------------------------------------------------------
#
# A listed item has the relevance r of the unit's purchase of it, or 0 if there is none. With r(p)
# at rank p and gain(p) = 1 / log2(1 + p), a list of relevances has the sums
#
#     total      = sum of r(p)
#     precisions = sum of r(p) * (r(1) + ... + r(p)) / p
#     gained     = sum of r(p) * gain(p)
#     highest    = the largest r(p)
#     first      = the largest r(p) / p
#
# over p = 1..k. In the code p counts from 0. `metrics/per_user.py` makes metrics of them.
#
# Each unit is computed by itself, in rank order: any division into ranges gives the same bytes.


@kernel
def find_relevance(start, stop, top_indptr, top_items, indptr, bought, relevance, k, top_relevance):
    """Write the relevance of each of the first k listed items; a repeated item has it once.

    `bought` is ascending within each unit. All of `top_relevance` must be 0 before.
    """
    left = np.empty(longest_list(start, stop, indptr), relevance.dtype)
    for unit in range(start, stop):
        begin, end = indptr[unit], indptr[unit + 1]
        for e in range(begin, end):
            left[e - begin] = relevance[e]
        for p in range(top_indptr[unit], min(top_indptr[unit] + k, top_indptr[unit + 1])):
            e = first_not_below(bought, begin, end, top_items[p])
            if e < end and bought[e] == top_items[p]:
                top_relevance[p] = left[e - begin]
                left[e - begin] = 0


@kernel
def sum_lists(start, stop, indptr, relevance, gains, k, sums):
    """Write the sums of each unit's list of relevances, by [sum, unit], in the order above."""
    for unit in range(start, stop):
        first = indptr[unit]
        total, precisions, gained, highest, quickest = 0.0, 0.0, 0.0, 0.0, 0.0
        for p in range(min(k, indptr[unit + 1] - first)):
            r = relevance[first + p]
            if r > 0:
                total += r
                precisions += r * total / (p + 1)
                gained += r * gains[p]
                highest = max(highest, r)
                quickest = max(quickest, r / (p + 1))
        sums[0, unit], sums[1, unit], sums[2, unit] = total, precisions, gained
        sums[3, unit], sums[4, unit] = highest, quickest
