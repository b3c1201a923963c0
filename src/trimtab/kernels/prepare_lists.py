"""Prepares lists for the ascent: the engine's own ranking, and the same lists by item."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, kernel, unpacker
from trimtab.kernels.membership import in_ascending_range
from trimtab.kernels.top_k import insert_in_top_k
from trimtab.kernels.top_rows import (
    hash_bought,
    hit_value_at,
    is_bought,
    is_listed,
    may_be_bought,
    prefetch_lists_after,
    start_of_items,
    unpack_problem,
    unpack_rows,
)


class ByItem(NamedTuple):
    """By item: the units that list it, their scores of it, and the units that only bought it."""

    indptr: Ints
    listers: Codes  # unit * 2 + relevant, units ascending
    scores: Floats
    buyers_indptr: Ints
    buyers: Codes  # units that do not list the item


unpack_by_item = unpacker(ByItem)


@kernel
def rank_by_engine(
    start, stop, k, counts_hits_above, indptr, items, scores, bought_indptr, bought_items,
    hit_values, kth_score, value, exposure,
):  # fmt: skip
    """Rank each list by the engine's scores: k-th score, metric, and how often a top k has an item.

    The k-th score of a shorter list is its last score, of an empty list nan; the metric of a unit
    that bought nothing is nan. `hit_values` are v_p by [min(k, relevant items), slot].
    """
    top_scores = np.empty(k, np.float64)
    top_items = np.empty(k, np.int32)
    first_slot = np.int64(0)  # numba would compile again for a literal
    for row in range(start, stop):
        n = 0
        for e in range(indptr[row], indptr[row + 1]):
            n = insert_in_top_k(top_items, top_scores, first_slot, n, k, scores[e], items[e])
        kth_score[row] = top_scores[n - 1] if n > 0 else np.nan
        low = bought_indptr[row]
        high = bought_indptr[row + 1]
        total = 0.0 if high > low else np.nan
        hits = 0
        for p in range(n):
            exposure[top_items[p]] += 1
            if high > low and in_ascending_range(bought_items, low, high, top_items[p]):
                hits += 1
                total += hit_values[min(k, high - low), p] * (hits if counts_hits_above else 1)
        value[row] = total


@kernel
def row_values(start, stop, packed, packed_rows, hit_values, value):
    """Write the metric of each unit's ranking at its source row; returns the sum in quanta."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    quanta = np.int64(0)
    for unit in range(start, stop):
        total = 0.0
        hits = 0
        items_start = start_of_items(problem, unit)
        for p in range(min(problem.k, np.int64(rows.marked_items[items_start + problem.width]))):
            if rows.marked_items[items_start + p] & 1:
                hits += 1
                n_counted = hits if problem.counts_hits_above else 1
                total += hit_values[problem.max_hits[unit], p] * n_counted
                quanta += hit_value_at(problem, unit, p) * n_counted
        value[problem.source[unit]] = total
    return quanta


@helper
def _place_in(items, first, end, item):
    """The place of an item in items[first:end], from 0; -1 if it is not there."""
    for e in range(first, end):
        if items[e] == item:
            return np.int64(e - first)
    return np.int64(-1)


@kernel
def count_entries(start, stop, packed, is_candidate, listers, buyers):
    """Count the units that list each candidate, and those that bought it without listing it.

    Args:
        start: first unit.
        stop: one past the last.
        packed: the problem.
        is_candidate: by item.
        listers: by item; added to.
        buyers: by item; added to, unless nobody reaches unlisted items.
    """
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        prefetch_lists_after(problem, unit, stop)
        source = np.int64(problem.source[unit])
        bits = np.uint64(0)
        if problem.reaches_unlisted:
            bits = hash_bought(problem, source)
            for b in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
                buyers[problem.bought_items[b]] += is_candidate[problem.bought_items[b]]
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            listers[item] += is_candidate[item]
            if may_be_bought(bits, item) and is_bought(problem, source, item):
                buyers[item] -= is_candidate[item]


@kernel
def write_entries(
    start, stop, packed, is_candidate, lister_cursors, buyer_cursors, listers, scores, buyers
):
    """Write what `count_entries` counted at the items' cursors, and advance the cursors.

    Args:
        start: first unit.
        stop: one past the last.
        packed: the problem.
        is_candidate: by item.
        lister_cursors: by item: where its next lister goes.
        buyer_cursors: by item: where its next buyer goes.
        listers: unit * 2 + relevant, by item; filled.
        scores: of the listers; filled.
        buyers: units; filled.
    """
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        prefetch_lists_after(problem, unit, stop)
        source = np.int64(problem.source[unit])
        first_bought = problem.bought_indptr[source]
        end_bought = problem.bought_indptr[source + 1]
        bits = hash_bought(problem, source)
        listed = np.uint64(0)  # one bit for each of the first 64 purchases
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            if not is_candidate[item]:
                continue
            relevant = np.int64(0)
            if may_be_bought(bits, item):
                place = _place_in(problem.bought_items, first_bought, end_bought, item)
                if place >= 0:
                    relevant = np.int64(1)
                    if place < 64:
                        listed |= np.uint64(1) << np.uint64(place)
            at = lister_cursors[item]
            lister_cursors[item] = at + 1
            listers[at] = unit * 2 + relevant
            scores[at] = problem.scores[e]
        if not problem.reaches_unlisted:
            continue
        for place in range(end_bought - first_bought):
            item = np.int64(problem.bought_items[first_bought + place])
            if place < 64:
                is_new = (listed >> np.uint64(place)) & np.uint64(1) == np.uint64(0)
            else:
                is_new = not is_listed(problem, source, item)
            if is_candidate[item] and is_new:
                buyers[buyer_cursors[item]] = unit
                buyer_cursors[item] += 1
