"""The exact metric along a direction, where all items move at once.

Listed item e of a unit scores s_e + t * x_e. Each bought item e on a list is followed along t. It
passes, or is passed by, item j at the crossing

    t = (s_j - s_e) / (x_e - x_j)

and its slot changes by one there. Its value in its slot (for MAP times the hits down to it) changes
with it. These changes over all hits of all units, sorted by t, are the curve. Where two hits pass
each other, both write a change at the same t. The curve is exact at every t that is not a crossing,
even if rounding changes the order of crossings that coincide, because changes add up to the value
at the end.

If events have weights, `relevant` are numbers between 0 and 1, and a hit counts by its number.

This is Och's line search for minimum error rate training. With the indicator of one item as the
direction, it gives the item's own staircase.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_sorts import STACK, sort_curve


@helper
def _is_above(score, item, other_score, other_item):
    """Whether an item ranks above another, by the tie rule of `top_k`."""
    return score > other_score or (score == other_score and item < other_item)


@helper
def _hit_value(slot, hits, max_hits, k, hit_values, counts_hits_above):
    """The value of a hit in a slot, with `hits` hits down to it."""
    if slot >= k:
        return 0.0
    return hit_values[max_hits, slot] * (hits if counts_hits_above else 1)


@helper
def _find_crossings(own, first, end, items, scores, slopes, low, high, at, events):
    """Write the crossings of entry `own` in (low, high]; returns its first slot and their number.

    An event is 2 * the other entry, plus 1 if the other passes `own` and 0 if it falls behind.
    """
    slot = 0
    n = 0
    own_score = scores[own] + low * slopes[own]
    for e in range(first, end):
        if e == own:
            continue
        was_above = _is_above(scores[e] + low * slopes[e], items[e], own_score, items[own])
        slot += was_above
        if slopes[e] == slopes[own]:
            continue
        t = (scores[e] - scores[own]) / (slopes[own] - slopes[e])
        will_be_above = slopes[e] > slopes[own] if t <= high else was_above
        if will_be_above != was_above:
            at[n] = max(t, low)
            events[n] = 2 * e + (1 if will_be_above else 0)
            n += 1
    return slot, n


@kernel
def trace_units(
    start, stop, k, counts_hits_above, low, high, quanta, indptr, items, scores, slopes, relevant,
    n_relevant, weights, hit_values, out_at, out_delta, out_lengths, values,
):  # fmt: skip
    """Write each unit's curve over (low, high], and its value at `low`.

    Args:
        start: first unit.
        stop: one past the last.
        k: slots that count.
        counts_hits_above: whether the value of a hit is multiplied by the hits down to it.
        low: start of the curve.
        high: end of the curve.
        quanta: fixed-point quanta in one unit's metric.
        indptr: start of each unit's list.
        items: items of the lists.
        scores: scores of the lists at t = 0.
        slopes: x by entry.
        relevant: whether the unit bought the item, or how relevant it was, by entry.
        n_relevant: number of items the unit bought, listed or not.
        weights: weights of the units.
        hit_values: value of a hit by [min(k, n_relevant), slot].
        out_at: breakpoints; those of a unit start at the incoming `out_lengths[unit]`.
        out_delta: changes at the breakpoints, in quanta.
        out_lengths: in: start of the unit's breakpoints; out: their number.
        values: the unit's value at `low`, in quanta; filled.
    """
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    at = np.empty(longest)
    events = np.empty(longest, np.int64)
    stack = np.empty(STACK, np.int64)
    for unit in range(start, stop):
        first = indptr[unit]
        end = indptr[unit + 1]
        out = out_lengths[unit]
        begin = out
        max_hits = min(k, n_relevant[unit])
        values[unit] = 0
        scale = weights[unit] * quanta
        for own in range(first, end):
            if not relevant[own]:
                continue
            slot, n = _find_crossings(own, first, end, items, scores, slopes, low, high, at, events)
            own_scale = scale * relevant[own]
            hits = 1.0 * relevant[own]
            if counts_hits_above:
                own_score = scores[own] + low * slopes[own]
                for e in range(first, end):
                    if (
                        relevant[e]
                        and e != own
                        and _is_above(scores[e] + low * slopes[e], items[e], own_score, items[own])
                    ):
                        hits += relevant[e]
            value = _hit_value(slot, hits, max_hits, k, hit_values, counts_hits_above)
            now = np.int64(np.rint(value * own_scale))
            values[unit] += now
            sort_curve(at, events, n, stack)
            for c in range(n):
                other = events[c] >> 1
                step = 1 if events[c] & 1 else -1
                slot += step
                if relevant[other]:
                    hits += step * relevant[other]
                value = _hit_value(slot, hits, max_hits, k, hit_values, counts_hits_above)
                then = np.int64(np.rint(value * own_scale))
                if then != now:
                    out_at[out] = at[c]
                    out_delta[out] = then - now
                    out += 1
                    now = then
        out_lengths[unit] = out - begin
