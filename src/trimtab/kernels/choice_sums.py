"""Sums for the choice model: which of its listed items a unit bought.

Each hit of a unit is a draw from the unit's list with probabilities

    P(e) ~ exp(beta_0 * score(e) + beta_1 * x_1(e) + ... + effect(group of e))

where x are the features of the item in entry e, and then terms of the entry itself. Kernels sum
gradients and curvatures of the weighted log-likelihood over a range of units. The hits of a unit
share its weight: in equal parts, or by relevance if events have weights. `hits` are then numbers
between 0 and 1 rather than flags.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_sorts import STACK, sort_curve


@helper
def _highest(values, n):
    """The highest of the first n values; four at a time, because each `max` waits for the last."""
    a = values[0]
    b = a
    c = a
    d = a
    for e in range(0, n - 3, 4):
        a = max(a, values[e])
        b = max(b, values[e + 1])
        c = max(c, values[e + 2])
        d = max(d, values[e + 3])
    for e in range(n - n % 4, n):
        a = max(a, values[e])
    return max(max(a, b), max(c, d))


@helper
def _to_probabilities(probabilities, n):
    """Replace the first n logits by probabilities; returns log(sum of exp(logit))."""
    top = _highest(probabilities, n)
    total = 0.0
    for e in range(n):
        probabilities[e] = np.exp(probabilities[e] - top)
        total += probabilities[e]
    for e in range(n):
        probabilities[e] /= total
    return top + np.log(total)


@helper
def _longest_list(start, stop, indptr):
    """Length of the longest list in a range; at least 1."""
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    return longest


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
    probabilities = np.empty(_longest_list(start, stop, indptr))
    mean = np.empty(n_coefficients)
    unit_gradient = np.empty(n_coefficients)
    features = np.empty(n_coefficients)
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
            logit = beta[0] * scores[first + e]
            for j in range(n_item_features):
                logit += beta[1 + j] * tables[table, item, j]
            for j in range(first_term, n_coefficients):
                logit += beta[j] * terms[first + e, j - first_term]
            probabilities[e] = logit
            if hits[first + e]:
                all_hits += hits[first + e]
                hit_logits += hits[first + e] * logit
        likelihood[0] += weight * (hit_logits / all_hits - _to_probabilities(probabilities, n))
        for j in range(n_coefficients):
            mean[j] = 0.0
            unit_gradient[j] = 0.0
        for e in range(n):
            item = items[first + e]
            features[0] = scores[first + e]
            for j in range(n_item_features):
                features[1 + j] = tables[table, item, j]
            for j in range(first_term, n_coefficients):
                features[j] = terms[first + e, j - first_term]
            probability = probabilities[e]
            scaled = weight * probability
            for j in range(n_coefficients):
                mean[j] += probability * features[j]
                part = scaled * features[j]
                for i in range(j + 1):
                    curvature[j, i] += part * features[i]
            if hits[first + e]:
                for j in range(n_coefficients):
                    unit_gradient[j] += hits[first + e] * features[j] / all_hits
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
        squares: sums of squared gradients of units, by group, added to; empty if not needed.
    """
    with_squares = len(squares) > 0
    probabilities = np.empty(_longest_list(start, stop, indptr))
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
            step = -probability
            if hits[first + e]:
                step += hits[first + e] / all_hits
            own = weight * step
            gradient[group] += np.int64(np.rint(own * quanta))
            if with_squares:
                squares[group] += np.int64(np.rint(own * own * quanta))
            curvature[group] += np.int64(
                np.rint(weight * probability * (1.0 - probability) * quanta)
            )


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
def group_events(items, users, days, starts, grouped):
    """Group (user, day) of events by item; events of an item keep their order.

    Args:
        items: item of each event.
        users: user of each event.
        days: day of each event.
        starts: index of the first event of each item; advanced.
        grouped: rows of user and day; filled.
    """
    for event in range(len(items)):
        row = starts[items[event]]
        starts[items[event]] = row + 1
        grouped[row, 0] = users[event]
        grouped[row, 1] = days[event]


@kernel
def count_visits(starts, grouped, weights, horizons, seen, counts, first_visits, since, age):
    """Count the visits (user and day with a purchase) and the buyers of each item.

    Args:
        starts: index of the first event of each item, and the number of events.
        grouped: rows of user and days before the window, by item and then by time.
        weights: of these events, the same for all events of a visit; all True if they have none.
        horizons: numbers of days to count the visits of.
        seen: by user: the last item counted and its day; -1 at first.
        counts: by [visits, buyers, visits within each horizon; item]; added to. Visits count by
            their weights, buyers do not.
        first_visits: by item: the visits that were a buyer's first; added to.
        since: by item: days since the last sale; lowered.
        age: by item: days since the first sale; raised.
    """
    for item in range(len(starts) - 1):
        for row in range(starts[item], starts[item + 1]):
            user = grouped[row, 0]
            day = grouped[row, 1]
            since[item] = min(since[item], day)
            age[item] = max(age[item], day)
            new = seen[user, 0] != item
            if new or seen[user, 1] != day:
                counts[0, item] += weights[row]
                counts[1, item] += new
                if new:
                    first_visits[item] += weights[row]
                for place in range(len(horizons)):
                    if day < horizons[place]:
                        counts[2 + place, item] += weights[row]
                seen[user, 0] = item
                seen[user, 1] = day


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
    longest = _longest_list(start, stop, out_indptr)
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
