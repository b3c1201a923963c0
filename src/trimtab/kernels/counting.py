"""Counts over lists and events: what was bought, listed, shown and sold."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_sorts import STACK, sort_curve


@helper
def longest_list(start, stop, indptr):
    """Length of the longest list in a range; at least 1."""
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    return longest


@kernel
def count_hits(start, stop, indptr, hits, counts):
    """Count the entries of each list with a hit."""
    for unit in range(start, stop):
        n = np.int64(0)
        for e in range(indptr[unit], indptr[unit + 1]):
            n += hits[e] > 0
        counts[unit] = n


@kernel
def mark_bought(start, stop, indptr, items, bought_indptr, bought_items, relevance, hits, has_hit):
    """Write the relevance of what a unit bought to its list, and mark the units with such an entry.

    `relevance` is by purchase; all True without weights of events. `hits` and `has_hit` must be all
    0 before.
    """
    for unit in range(start, stop):
        for b in range(bought_indptr[unit], bought_indptr[unit + 1]):
            item = bought_items[b]
            for e in range(indptr[unit], indptr[unit + 1]):
                if items[e] == item:
                    hits[e] = relevance[b]
                    has_hit[unit] = True
                    break


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
def count_runs_of_ticks(starts, grouped):
    """Return the number of different (item, tick) pairs of grouped events."""
    n = 0
    for item in range(len(starts) - 1):
        for row in range(starts[item], starts[item + 1]):
            n += row == starts[item] or grouped[row, 1] != grouped[row - 1, 1]
    return n


@kernel
def count_sales(starts, grouped, weights, seen, items, ticks, visits, buyers, firsts):
    """Count visits (user and tick with a purchase) and new buyers by item and tick.

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
