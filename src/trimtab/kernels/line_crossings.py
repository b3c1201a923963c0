"""The metric along a direction: the exact staircase when all items move at once.

Listed item e of a unit scores s_e + t·x_e. Only hits count, so each bought item on a list is
followed by itself: it passes, or is passed by, item j at

    t = (s_j - s_e) / (x_e - x_j)

and its place changes by one there. What it is worth at its place (times the hits down to it, for
MAP) changes by so much; the changes of all hits of all units, sorted by t, are the curve. Where two
hits pass each other both changes are written down at the same t and cancel. Changes telescope: the
curve is exact at every t that is on no crossing, whatever rounding does to crossings that coincide.

This is Och's line search for minimum error rate training; an item's indicator as the direction
gives that item's own staircase.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_sorts import STACK, sort_curve


@helper
def _is_above(score, item, other_score, other_item):
    return score > other_score or (score == other_score and item < other_item)


@helper
def _term(place, hits, need, k, hit_values, metric_is_map):
    """What a hit is worth at a place, from 0, with so many hits down to it."""
    if place >= k:
        return 0.0
    return hit_values[need, place] * (hits if metric_is_map else 1)


@helper
def _crossings(own, first, end, items, scores, slopes, low, high, at, what):
    """Crossings of entry `own` within (low, high], unsorted; its place and rivals above at `low`.

    `what` is +1 where another item passes `own`, -1 where it falls behind; the sign of a relevant
    one is written by the caller.
    """
    place = 0
    n = 0
    height = scores[own] + low * slopes[own]
    for e in range(first, end):
        if e == own:
            continue
        was_above = _is_above(scores[e] + low * slopes[e], items[e], height, items[own])
        place += was_above
        if slopes[e] == slopes[own]:
            continue
        t = (scores[e] - scores[own]) / (slopes[own] - slopes[e])
        will_be_above = slopes[e] > slopes[own] if t <= high else was_above
        if will_be_above != was_above:
            at[n] = max(t, low)
            what[n] = 2 * e + (1 if will_be_above else 0)
            n += 1
    return place, n


@kernel
def trace_units(
    start, stop, k, metric_is_map, low, high, quanta, indptr, items, scores, slopes, relevant,
    n_relevant, weights, hit_values, out_at, out_delta, out_lengths, values,
):  # fmt: skip
    """Write each unit's curve over (low, high], and its value at `low`.

    Args:
        start: first unit.
        stop: one past the last.
        k: places that count.
        metric_is_map: whether a hit also counts the hits above it.
        low: where the curve begins.
        high: where it ends.
        quanta: fixed-point units of one unit's metric.
        indptr: lists by unit.
        items: their items.
        scores: their scores at 0.
        slopes: how fast each moves.
        relevant: whether the unit bought it, by entry.
        n_relevant: items the unit bought, listed or not.
        weights: of the units.
        hit_values: of a hit by [min(k, n_relevant), place].
        out_at: breakpoints; those of a unit begin at `out_lengths[unit]`.
        out_delta: changes there, in quanta.
        out_lengths: in: where the unit's breakpoints go; out: how many there are.
        values: filled with the unit's value at `low`, in quanta.
    """
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    at = np.empty(longest)
    what = np.empty(longest, np.int64)
    stack = np.empty(STACK, np.int64)
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        out = out_lengths[unit]
        begin = out
        need = min(k, n_relevant[unit])
        values[unit] = 0
        scale = weights[unit] * quanta
        for own in range(first, end):
            if not relevant[own]:
                continue
            place, n = _crossings(own, first, end, items, scores, slopes, low, high, at, what)
            hits = 1
            if metric_is_map:
                height = scores[own] + low * slopes[own]
                for e in range(first, end):
                    if relevant[e] and e != own:
                        hits += _is_above(scores[e] + low * slopes[e], items[e], height, items[own])
            now = np.int64(np.rint(_term(place, hits, need, k, hit_values, metric_is_map) * scale))
            values[unit] += now
            sort_curve(at, what, n, stack)
            for c in range(n):
                other = what[c] >> 1
                step = 1 if what[c] & 1 else -1
                place += step
                if relevant[other]:
                    hits += step
                then = np.int64(
                    np.rint(_term(place, hits, need, k, hit_values, metric_is_map) * scale)
                )
                if then != now:
                    out_at[out] = at[c]
                    out_delta[out] = then - now
                    out += 1
                    now = then
        out_lengths[unit] = out - begin
