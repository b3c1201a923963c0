"""Turns lists by unit into what the learner reads: raw places, and lists by item."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, kernel, unpacker
from trimtab.kernels.top_rows import (
    hit_value_at,
    is_bought,
    is_listed,
    tags_of,
    unpack_problem,
    unpack_rows,
)


class ByItem(NamedTuple):
    """For each item: who lists it, at which score, and who bought it without listing it."""

    indptr: Ints
    listers: Codes  # unit * 2 + relevant, units ascending
    scores: Floats
    buyers_indptr: Ints
    buyers: Codes  # units that do not list the item


unpack_by_item = unpacker(ByItem)


@helper
def _place_in_top(top_scores, top_items, n, k, score, item):
    """Insert into a sorted top k of length n; returns the new length."""
    if n == k:
        last = top_scores[n - 1]
        if score < last or (score == last and item > top_items[n - 1]):
            return n
        n -= 1
    p = n
    while p > 0 and (
        top_scores[p - 1] < score or (top_scores[p - 1] == score and top_items[p - 1] > item)
    ):
        top_scores[p] = top_scores[p - 1]
        top_items[p] = top_items[p - 1]
        p -= 1
    top_scores[p] = score
    top_items[p] = item
    return n + 1


@helper
def _in_set(items, low, high, item):
    """Whether the ascending items[low:high] hold the item."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low < end and items[low] == item


@kernel
def rank_by_engine(
    start, stop, k, is_map, indptr, items, scores, bought_indptr, bought_items, hit_values,
    kth_score, value, exposure,
):  # fmt: skip
    """Rank each row as the engine did: k-th score, metric, and how often items are in a top k.

    A row shorter than k has its last score, an empty one nan; the metric of a unit that bought
    nothing is nan. `hit_values` is by [min(k, relevant items), place].
    """
    top_scores = np.empty(k, np.float64)
    top_items = np.empty(k, np.int32)
    for row in range(start, stop):
        n = 0
        for e in range(indptr[row], indptr[row + 1]):
            n = _place_in_top(top_scores, top_items, n, k, scores[e], items[e])
        kth_score[row] = top_scores[n - 1] if n > 0 else np.nan
        low = bought_indptr[row]
        high = bought_indptr[row + 1]
        total = 0.0 if high > low else np.nan
        hits = 0
        for p in range(n):
            exposure[top_items[p]] += 1
            if high > low and _in_set(bought_items, low, high, top_items[p]):
                hits += 1
                total += hit_values[min(k, high - low), p] * (hits if is_map else 1)
        value[row] = total


@kernel
def row_values(start, stop, packed, packed_rows, hit_values, value):
    """The metric of each unit's current ranking, written at its source row; the sum in quanta."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    quanta = np.int64(0)
    for unit in range(start, stop):
        total = 0.0
        hits = 0
        tags = tags_of(problem, unit)
        for p in range(min(problem.k, np.int64(rows.codes[tags + problem.width]))):
            if rows.codes[tags + p] & 1:
                hits += 1
                times = hits if problem.is_map else 1
                total += hit_values[problem.needs[unit], p] * times
                quanta += hit_value_at(problem, unit, p) * times
        value[problem.source[unit]] = total
    return quanta


@kernel
def count_listers(start, stop, packed, wanted, counts):
    """Count, for the wanted items, the list entries of the units from `start` to `stop`."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            if wanted[item]:
                counts[item] += 1


@kernel
def write_listers(start, stop, packed, wanted, cursors, listers, scores):
    """Write the counted entries at the items' cursors, which move on."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.indptr[source], problem.indptr[source + 1]):
            item = np.int64(problem.items[e])
            if wanted[item]:
                at = cursors[item]
                cursors[item] = at + 1
                listers[at] = unit * 2 + is_bought(problem, source, item)
                scores[at] = problem.scores[e]


@kernel
def count_buyers(start, stop, packed, wanted, counts):
    """Count, for the wanted items, the units that bought without listing."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
            item = np.int64(problem.bought_items[e])
            if wanted[item] and not is_listed(problem, source, item):
                counts[item] += 1


@kernel
def write_buyers(start, stop, packed, wanted, cursors, buyers):
    """Write the counted buyers at the items' cursors, which move on."""
    problem = unpack_problem(packed)
    for unit in range(start, stop):
        source = np.int64(problem.source[unit])
        for e in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
            item = np.int64(problem.bought_items[e])
            if wanted[item] and not is_listed(problem, source, item):
                buyers[cursors[item]] = unit
                cursors[item] += 1
