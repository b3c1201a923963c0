"""Prepares lists for the ascent: the engine's own ranking, and the same lists by item."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import kernel, unpacker
from trimtab.kernels.membership import in_ascending_range
from trimtab.kernels.top_k import insert_in_top_k
from trimtab.kernels.top_rows import (
    hit_value_at,
    is_bought,
    is_listed,
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


@kernel
def count_listers(start, stop, packed, is_candidate, counts):
    """Count the list entries of each candidate item in the units from `start` to `stop`."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            if is_candidate[item]:
                counts[item] += 1


@kernel
def write_listers(start, stop, packed, is_candidate, cursors, listers, scores):
    """Write the counted entries at the items' cursors, and advance the cursors."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            if is_candidate[item]:
                at = cursors[item]
                cursors[item] = at + 1
                listers[at] = unit * 2 + is_bought(problem, source, item)
                scores[at] = problem.scores[e]


@kernel
def count_buyers(start, stop, packed, is_candidate, counts):
    """Count the units that bought each candidate item without listing it."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
            item = np.int64(problem.bought_items[e])
            if is_candidate[item] and not is_listed(problem, source, item):
                counts[item] += 1


@kernel
def write_buyers(start, stop, packed, is_candidate, cursors, buyers):
    """Write the counted buyers at the items' cursors, and advance the cursors."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
            item = np.int64(problem.bought_items[e])
            if is_candidate[item] and not is_listed(problem, source, item):
                buyers[cursors[item]] = unit
                cursors[item] += 1
