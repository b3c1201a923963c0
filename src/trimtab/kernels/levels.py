"""The kernels that levels are learned by: a direction, and the exact metric along it.

**The choice model** says which of its listed items a unit bought. Each hit of a unit is a draw from
the unit's list with probabilities

    P(e) ~ exp(beta_0 * score(e) + beta_1 * x_1(e) + ... + effect(group of e))

where x are the features of the item in entry e, and then terms of the entry itself. Kernels sum
gradients and curvatures of the weighted log-likelihood over a range of units. The hits of a unit
share its weight: in equal parts, or by relevance if events have weights. `hits` are then numbers
between 0 and 1 rather than flags. What the levels say of entries is in `values`, by [table, item];
each unit has its table.

**The exact metric along a direction**, where all items move at once: listed item e of a unit scores
s_e + t * x_e. Each bought item e on a list is followed along t. It passes, or is passed by, item j
at the crossing

    t = (s_j - s_e) / (x_e - x_j)

and its slot changes by one there. Its value in its slot (for MAP times the hits down to it) changes
with it. These changes over all hits of all units, sorted by t, are the curve. Where two hits pass
each other, both write a change at the same t. The curve is exact at every t that is not a crossing,
even if rounding changes the order of crossings that coincide, because changes add up to the value
at the end. If events have weights, a hit counts by its relevance.

This is Och's line search for minimum error rate training. With the indicator of one item as the
direction, it gives the item's own staircase.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.counting import longest_list
from trimtab.kernels.ranking import is_above
from trimtab.kernels.short_arrays import STACK, sort_curve

# The choice model ---------------------------------------------------------------------------------


@helper
def _to_probabilities(probabilities, n):
    """Replace the first n logits by probabilities; returns log(sum of exp(logit))."""
    top = probabilities[0]
    for e in range(1, n):
        top = max(top, probabilities[e])
    total = 0.0
    for e in range(n):
        probabilities[e] = np.exp(probabilities[e] - top)
        total += probabilities[e]
    for e in range(n):
        probabilities[e] /= total
    return top + np.log(total)


@kernel
def coefficient_sums(
    start, stop, indptr, items, scores, hits, weights, table_of, tables, terms, beta, likelihood,
    gradient, curvature, squared_gradients,
):  # fmt: skip
    """Add the log-likelihood of a range and, by coefficient, its gradient and curvature.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list; all units have hits.
        items: items of the lists.
        scores: scores of the lists, as logs or in units.
        hits: whether the unit bought the item, or how relevant it was, by entry.
        weights: weights of the units; those of weight 0 are skipped.
        table_of: table of features for each unit.
        tables: features by [table, item, feature].
        terms: further features, by [entry, feature].
        beta: coefficients of the score, the features and the terms.
        likelihood: one number, added to.
        gradient: added to.
        curvature: added to; only the lower triangle.
        squared_gradients: sum over units, added to; only the lower triangle.
    """
    n_coefficients = len(beta)
    n_item_features = tables.shape[2]
    first_term = 1 + n_item_features
    longest = longest_list(start, stop, indptr)
    probabilities = np.empty(longest)
    features = np.empty((longest, n_coefficients))
    mean = np.empty(n_coefficients)
    unit_gradient = np.empty(n_coefficients)
    for unit in range(start, stop):
        weight = weights[unit]
        if weight == 0.0:
            continue
        first = indptr[unit]
        n = indptr[unit + 1] - first
        table = table_of[unit]
        all_hits = 0.0
        hit_logits = 0.0
        for e in range(n):
            item = items[first + e]
            features[e, 0] = scores[first + e]
            for j in range(n_item_features):
                features[e, 1 + j] = tables[table, item, j]
            for j in range(first_term, n_coefficients):
                features[e, j] = terms[first + e, j - first_term]
            logit = 0.0
            for j in range(n_coefficients):
                logit += beta[j] * features[e, j]
            probabilities[e] = logit
            if hits[first + e]:
                all_hits += hits[first + e]
                hit_logits += hits[first + e] * logit
        likelihood[0] += weight * (hit_logits / all_hits - _to_probabilities(probabilities, n))
        for j in range(n_coefficients):
            mean[j] = 0.0
            unit_gradient[j] = 0.0
        for e in range(n):
            probability = probabilities[e]
            scaled = weight * probability
            for j in range(n_coefficients):
                mean[j] += probability * features[e, j]
                part = scaled * features[e, j]
                for i in range(j + 1):
                    curvature[j, i] += part * features[e, i]
            if hits[first + e]:
                for j in range(n_coefficients):
                    unit_gradient[j] += hits[first + e] * features[e, j] / all_hits
        for j in range(n_coefficients):
            unit_gradient[j] = weight * (unit_gradient[j] - mean[j])
            gradient[j] += unit_gradient[j]
            for i in range(j + 1):
                curvature[j, i] -= weight * mean[j] * mean[i]
                squared_gradients[j, i] += unit_gradient[j] * unit_gradient[i]


@kernel
def effect_sums(
    start, stop, indptr, groups, logits, hits, weights, effects, quanta, gradient, curvature,
    squares,
):  # fmt: skip
    """Add the gradient and an upper bound of the curvature of a range, by group of items.

    Sums are fixed-point: they do not depend on the order of units or the division into ranges.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list; all units have hits.
        groups: group of the item, by entry.
        logits: logits without the effects, by entry.
        hits: whether the unit bought the item, or how relevant it was, by entry.
        weights: weights of the units; those of weight 0 are skipped.
        effects: effect by group.
        quanta: quanta in 1.
        gradient: by group, added to.
        curvature: by group, added to.
        squares: sums of squared gradients of units, by group, added to.
    """
    probabilities = np.empty(longest_list(start, stop, indptr))
    for unit in range(start, stop):
        weight = weights[unit]
        if weight == 0.0:
            continue
        first = indptr[unit]
        n = indptr[unit + 1] - first
        all_hits = 0.0
        for e in range(n):
            probabilities[e] = logits[first + e] + effects[groups[first + e]]
            all_hits += hits[first + e]
        _to_probabilities(probabilities, n)
        for e in range(n):
            probability = probabilities[e]
            group = groups[first + e]
            own = weight * (hits[first + e] / all_hits - probability)
            gradient[group] += np.int64(np.rint(own * quanta))
            squares[group] += np.int64(np.rint(own * own * quanta))
            curvature[group] += np.int64(
                np.rint(weight * probability * (1.0 - probability) * quanta)
            )


@kernel
def add_level(start, stop, indptr, items, table_of, values, length, out):
    """Add `length` times a level to the entries of a range of units.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list.
        items: items of the lists, as numbered in `values`.
        table_of: table of each unit; units of table -1 are left alone.
        values: the level by [table, item].
        length: of the level.
        out: by entry; added to.
    """
    for unit in range(start, stop):
        if table_of[unit] >= 0:
            own = values[table_of[unit]]
            for e in range(indptr[unit], indptr[unit + 1]):
                out[e] += length * own[items[e]]


# The metric along a direction ---------------------------------------------------------------------


@helper
def _hit_value(slot, hits, max_hits, k, hit_values, counts_hits_above):
    """The value of a hit in a slot, with `hits` hits down to it."""
    if slot >= k:
        return 0.0
    return hit_values[max_hits, slot] * (hits if counts_hits_above else 1)


@helper
def _find_crossings(own, first, end, items, scores, slopes, relevant, low, high, at, events):
    """Write the crossings of entry `own` in (low, high].

    An event is 2 * the other entry, plus 1 if the other passes `own` and 0 if it falls behind.
    Returns the first slot of `own`, the hits down to it, and the number of crossings.
    """
    slot = 0
    hits = 1.0 * relevant[own]
    n = 0
    own_score = scores[own] + low * slopes[own]
    for e in range(first, end):
        if e == own:
            continue
        was_above = is_above(scores[e] + low * slopes[e], items[e], own_score, items[own])
        if was_above:
            slot += 1
            hits += relevant[e]
        if slopes[e] == slopes[own]:
            continue
        t = (scores[e] - scores[own]) / (slopes[own] - slopes[e])
        will_be_above = slopes[e] > slopes[own] if t <= high else was_above
        if will_be_above != was_above:
            at[n] = max(t, low)
            events[n] = 2 * e + (1 if will_be_above else 0)
            n += 1
    return slot, hits, n


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
    longest = longest_list(start, stop, indptr)
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
            slot, hits, n = _find_crossings(
                own, first, end, items, scores, slopes, relevant, low, high, at, events
            )
            own_scale = scale * relevant[own]
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
