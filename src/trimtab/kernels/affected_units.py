"""The units that an item affects, and where it passes other items in their rankings.

A unit is affected by item i if it lists i, bought i, or has i in its top k without listing it.
All other units share their breakpoints: see `rows.losses`.

For one unit with i taken out of its ranking, let t_p be the score in slot p, r_p = 1 if that item
is relevant, y = 1 if i is, and a the unit's own score of i. As the bias b grows, i passes slot p at
the breakpoint b = t_p - a, which adds delta_p = (y - r_p) * w_p to the metric; w_p is explained in
`top_rows`. For an unlisted item, the breakpoint is max(t_p, 0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, prefetch, unpacker
from trimtab.kernels.short_sorts import STACK
from trimtab.kernels.top_rows import GROUP, hit_step, start_of_items

PREFETCH_AHEAD = 8  # rows loaded ahead of their use
LISTER = 1  # marks: why a unit is affected
BUYER = 2


class Scratch(NamedTuple):
    """Working memory, large enough for any item."""

    affected: Ints  # units affected by the item: unit * 4 + relevant * 2 + listed
    own_scores: Floats  # their own scores of the item; 0 if unlisted
    postponed: Ints  # entries of listers that matter only for higher biases
    up: Floats  # breakpoints not passed at b = 0, and their deltas
    up_deltas: Ints
    down: Floats  # breakpoints passed at b = 0, and their deltas
    down_deltas: Ints
    counts: Ints  # breakpoints up, breakpoints down, searches over all units
    stack: Ints  # for sorting
    marks: Codes  # unit -> 4 * number of the visit + why the unit is affected


unpack_scratch = unpacker(Scratch)


def make_scratch(n_units: int, n_hits: int, most_buyers: int, k: int) -> Scratch:
    """Working memory for any item of a problem.

    A unit has at most one breakpoint per hit of its own, and another to cancel the shared one; a
    unit that bought the item has up to k of its own.
    """
    room = 2 * n_hits + most_buyers * (k + 1) + 1
    return Scratch(
        affected=np.empty(n_units, np.int64),
        own_scores=np.empty(n_units),
        postponed=np.empty(n_units, np.int64),
        up=np.empty(room),
        up_deltas=np.empty(room, np.int64),
        down=np.empty(room),
        down_deltas=np.empty(room, np.int64),
        counts=np.zeros(3, np.int64),
        stack=np.empty(STACK, np.int64),
        marks=np.zeros(n_units, np.int32),
    )


@helper
def _prefetch_slots(problem, rows, unit):
    """Load a unit's row into the cache."""
    for word in range(unit * problem.stride, (unit + 1) * problem.stride, 8):
        prefetch(rows.scores, word)


@helper
def prefetch_row(problem, rows, unit):
    """Load a unit's row and its bounds into the cache."""
    _prefetch_slots(problem, rows, unit)
    prefetch(rows.exact_above, unit)
    prefetch(rows.lowest_hit, unit)
    prefetch(rows.score_after_k, unit)


@helper
def add_breakpoints(problem, rows, item, scratch, n_affected):
    """Append the affected units' breakpoints to `up` (not passed at b = 0) and `down` (passed).

    Updates their numbers in `scratch.counts` and cancels these units' part of the shared losses.
    Returns the metric of these units at the current bias less their metric at b = 0.
    """
    k = problem.k
    affected = scratch.affected
    up = scratch.up
    up_deltas = scratch.up_deltas
    down = scratch.down
    down_deltas = scratch.down_deltas
    n_up = scratch.counts[0]
    n_down = scratch.counts[1]
    current = np.int64(0)
    for x in range(n_affected):
        if x + PREFETCH_AHEAD < n_affected:
            _prefetch_slots(problem, rows, affected[x + PREFETCH_AHEAD] >> 2)
            prefetch(problem.max_hits, affected[x + PREFETCH_AHEAD] >> 2)
        unit = affected[x] >> 2
        relevant = (affected[x] >> 1) & 1
        listed = affected[x] & 1
        own_score = scratch.own_scores[x]
        scores_start = unit * problem.stride
        items_start = start_of_items(problem, unit)
        slot = np.int64(0)  # of the other items
        hits = np.int64(0)
        all_hits = np.int64(0)  # including this item
        above = False  # whether the item is now above this entry
        for p in range(np.int64(rows.marked_items[items_start + problem.width])):
            marked = np.int64(rows.marked_items[items_start + p])
            score = rows.scores[scores_start + p]
            hit = marked & 1
            if problem.reaches_unlisted and hit == 1 and p < k:
                if p >= problem.first_counted_slot:
                    step = hit_step(problem, unit, p, all_hits)
                    if step != 0:
                        up[n_up] = max(score, 0.0)
                        up_deltas[n_up] = step
                        n_up += 1
                all_hits += 1
            if marked >> 1 == item:
                above = True
                continue
            if slot == k:
                break
            if hit != relevant and slot >= problem.first_counted_slot:
                step = hit_step(problem, unit, slot, hits)
                if step != 0:
                    delta = step if relevant == 1 else -step
                    passed = own_score > score or (own_score == score and item < marked >> 1)
                    if listed == 1 and passed:
                        down[n_down] = score - own_score
                        down_deltas[n_down] = delta
                        n_down += 1
                        if not above:
                            current -= delta
                    else:
                        up[n_up] = score - own_score if listed == 1 else max(score, 0.0)
                        up_deltas[n_up] = delta
                        n_up += 1
                        if above:
                            current += delta
            slot += 1
            hits += hit
        if relevant == 1 and listed == 0:
            # Empty slots: the item takes the first of them as soon as b > 0.
            delta = np.int64(0)
            for empty_slot in range(max(slot, problem.first_counted_slot), k):
                delta += hit_step(problem, unit, empty_slot, hits)
            if delta != 0:
                up[n_up] = 0.0
                up_deltas[n_up] = delta
                n_up += 1
                if above:
                    current += delta
    scratch.counts[0] = n_up
    scratch.counts[1] = n_down
    return current


@helper
def mark_affected(by_item, item, scratch, visit):
    """Mark the units that list the item, and those that bought it without listing it."""
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        scratch.marks[by_item.listers[e] >> 1] = visit * 4 + LISTER
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        scratch.marks[by_item.buyers[e]] = visit * 4 + BUYER


@helper
def find_listers(rows, by_item, item, bias, cap, scratch):
    """Write the listers that always matter to `affected`, those that may matter to `postponed`.

    A lister matters if it bought the item or if the item can push down a hit of the unit. Listers
    without a hit, or whose hits are out of reach even at the cap, are left out.
    """
    n_affected = np.int64(0)
    n_postponed = np.int64(0)
    highest = max(bias, 0.0)
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e])
        own_score = by_item.scores[e]
        lowest_hit = rows.lowest_hit[lister >> 1]
        if lister & 1 == 1 or lowest_hit <= own_score + highest:
            scratch.affected[n_affected] = lister * 2 + 1
            scratch.own_scores[n_affected] = own_score
            n_affected += 1
        else:
            # Added up instead of branched on, because it cannot be predicted.
            scratch.postponed[n_postponed] = e
            n_postponed += np.int64((lowest_hit <= own_score + cap) & (lowest_hit < np.inf))
    return n_affected, n_postponed


@helper
def take_postponed(rows, by_item, n_postponed, limit, scratch):
    """Move the postponed listers that a bias up to `limit` can matter to into `affected`."""
    n_affected = np.int64(0)
    n_left = np.int64(0)
    for x in range(n_postponed):
        e = scratch.postponed[x]
        lister = np.int64(by_item.listers[e])
        own_score = by_item.scores[e]
        matters = np.int64(rows.lowest_hit[lister >> 1] <= own_score + limit)
        scratch.affected[n_affected] = lister * 2 + 1
        scratch.own_scores[n_affected] = own_score
        n_affected += matters
        scratch.postponed[n_left] = e
        n_left += 1 - matters
    return n_affected, n_left


@helper
def add_units_showing_item(problem, rows, bias, visit, scratch, n_affected):
    """Add the units with a hit that may show the raised item without listing it."""
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_score_after_k[group] <= bias:
            lowest = np.float32(np.inf)
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                score_after_k = rows.score_after_k[unit]
                lowest = min(lowest, score_after_k)
                is_marked = scratch.marks[unit] >> 2 == visit
                if score_after_k <= bias and rows.lowest_hit[unit] < np.inf and not is_marked:
                    scratch.affected[n_affected] = unit * 4
                    scratch.own_scores[n_affected] = 0.0
                    n_affected += 1
            rows.group_score_after_k[group] = lowest
    return n_affected


@helper
def add_buyers(rows, by_item, item, above, limit, scratch, n_affected):
    """Add the buyers that do not list the item and whose slot k + 1 scores in (above, limit]."""
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        unit = np.int64(by_item.buyers[e])
        score_after_k = np.float64(rows.score_after_k[unit])
        if score_after_k <= limit and (score_after_k > above or above == -np.inf):
            scratch.affected[n_affected] = unit * 4 + 2
            scratch.own_scores[n_affected] = 0.0
            n_affected += 1
    return n_affected
