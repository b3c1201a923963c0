"""Sums for the choice model: which of its listed items a unit bought.

A unit with hits draws each of them from its list with chances

    P(e) ~ exp(beta[0]·log score(e) + beta[1:]·features(e) + effect(e))

Kernels sum gradients and curvatures of the weighted log-likelihood over a range of units. Within a
unit the hits share its weight.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.short_sorts import STACK, sort_curve


@helper
def _to_chances(chances, n):
    """Turn the first n logits into chances, in place."""
    top = chances[0]
    for e in range(1, n):
        top = max(top, chances[e])
    total = 0.0
    for e in range(n):
        chances[e] = np.exp(chances[e] - top)
        total += chances[e]
    for e in range(n):
        chances[e] /= total


@helper
def _longest(start, stop, indptr):
    """Entries of the longest list in a range; at least 1."""
    longest = 1
    for unit in range(start, stop):
        longest = max(longest, indptr[unit + 1] - indptr[unit])
    return longest


@kernel
def coefficient_sums(
    start, stop, indptr, items, scores, hits, weights, table_of, tables, beta, gradient, curvature,
    spread,
):  # fmt: skip
    """Add a range's gradient, curvature and sum of squared gradients by the coefficients.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: lists of units with hits.
        items: their items.
        scores: their scores, as logs or in units.
        hits: whether the unit bought it, by entry.
        weights: of the units; those of weight 0 are passed over.
        table_of: which table of features a unit sees.
        tables: features by [table, item, feature].
        beta: coefficients; that of the score first.
        gradient: added to.
        curvature: added to; the lower triangle only.
        spread: the sum of squared gradients, added to; the lower triangle only.
    """
    p = len(beta)
    chances = np.empty(_longest(start, stop, indptr))
    mean = np.empty(p)
    own = np.empty(p)
    z = np.empty(p)
    for unit in range(start, stop):
        weight = weights[unit]
        if weight == 0.0:
            continue
        first = indptr[unit]
        n = indptr[unit + 1] - first
        table = table_of[unit]
        n_hits = 0
        for e in range(n):
            item = items[first + e]
            logit = beta[0] * scores[first + e]
            for j in range(1, p):
                logit += beta[j] * tables[table, item, j - 1]
            chances[e] = logit
            n_hits += hits[first + e]
        _to_chances(chances, n)
        for j in range(p):
            mean[j] = 0.0
            own[j] = 0.0
        for e in range(n):
            item = items[first + e]
            z[0] = scores[first + e]
            for j in range(1, p):
                z[j] = tables[table, item, j - 1]
            chance = chances[e]
            scaled = weight * chance
            for j in range(p):
                mean[j] += chance * z[j]
                part = scaled * z[j]
                for i in range(j + 1):
                    curvature[j, i] += part * z[i]
            if hits[first + e]:
                for j in range(p):
                    own[j] += z[j] / n_hits
        for j in range(p):
            own[j] = weight * (own[j] - mean[j])
            gradient[j] += own[j]
            for i in range(j + 1):
                curvature[j, i] -= weight * mean[j] * mean[i]
                spread[j, i] += own[j] * own[i]


@kernel
def effect_sums(
    start, stop, indptr, groups, logits, hits, weights, effects, quanta, gradient, curvature,
    squares,
):  # fmt: skip
    """Add a range's gradient and (at least) its curvature by the effects of groups of items.

    Sums are fixed-point, so that neither their order nor their division changes them.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: lists of units with hits.
        groups: group of each entry.
        logits: of each entry, without the effects.
        hits: whether the unit bought it, by entry.
        weights: of the units; those of weight 0 are passed over.
        effects: by group.
        quanta: in 1.
        gradient: by group, added to.
        curvature: by group, added to.
        squares: sums of squared gradients of units, by group, added to.
    """
    chances = np.empty(_longest(start, stop, indptr))
    for unit in range(start, stop):
        weight = weights[unit]
        if weight == 0.0:
            continue
        first = indptr[unit]
        n = indptr[unit + 1] - first
        n_hits = 0
        for e in range(n):
            chances[e] = logits[first + e] + effects[groups[first + e]]
            n_hits += hits[first + e]
        _to_chances(chances, n)
        for e in range(n):
            chance = chances[e]
            group = groups[first + e]
            step = -chance
            if hits[first + e]:
                step += 1.0 / n_hits
            own = weight * step
            gradient[group] += np.int64(np.rint(own * quanta))
            squares[group] += np.int64(np.rint(own * own * quanta))
            curvature[group] += np.int64(np.rint(weight * chance * (1.0 - chance) * quanta))


@kernel
def mark_bought(start, stop, indptr, items, bought_indptr, bought_items, hits, has_hit):
    """Mark the entries of a range of lists that the unit bought, and the units with one.

    `hits` and `has_hit` are all False before.
    """
    for unit in range(start, stop):
        for b in range(bought_indptr[unit], bought_indptr[unit + 1]):
            item = bought_items[b]
            for e in range(indptr[unit], indptr[unit + 1]):
                if items[e] == item:
                    hits[e] = True
                    has_hit[unit] = True
                    break


@kernel
def count_listed(start, stop, indptr, items, group_of, counts):
    """Count the lists of each group that have an item; groups below 0 are passed over."""
    for unit in range(start, stop):
        group = group_of[unit]
        if group < 0:
            continue
        for e in range(indptr[unit], indptr[unit + 1]):
            counts[group, items[e]] += 1


@kernel
def group_events(items, users, days, starts, grouped):
    """Put (user, day) of each item's events side by side, in the order they come in.

    Args:
        items: of events.
        users: of events.
        days: of events.
        starts: by item: where its events begin; moved on.
        grouped: rows of user and day, filled.
    """
    for event in range(len(items)):
        place = starts[items[event]]
        starts[items[event]] = place + 1
        grouped[place, 0] = users[event]
        grouped[place, 1] = days[event]


@kernel
def count_visits(starts, grouped, month, week, seen, counts, since):
    """Count days on which a user bought an item, ever and of late, and users who did.

    Args:
        starts: by item, one more: where its events begin.
        grouped: user and day before the window of each event, in the order of time in an item.
        month: days in a month.
        week: days in a week.
        seen: by user: the last item and its day; -1 before.
        counts: by [visits, visits of the month, of the week, buyers; item], added to.
        since: by item: days since its last sale, lowered.
    """
    for item in range(len(starts) - 1):
        for place in range(starts[item], starts[item + 1]):
            user = grouped[place, 0]
            day = grouped[place, 1]
            since[item] = min(since[item], day)
            new = seen[user, 0] != item
            if new or seen[user, 1] != day:
                counts[0, item] += 1
                counts[1, item] += day < month
                counts[2, item] += day < week
                counts[3, item] += new
                seen[user, 0] = item
                seen[user, 1] = day


@kernel
def gather_lists(start, stop, source, indptr, items, scores, hits, out_indptr, out):
    """Copy the lists of chosen units, items ascending in each.

    Args:
        start: first place in `source`.
        stop: one past the last.
        source: units to copy.
        indptr: all lists.
        items: their items.
        scores: their scores.
        hits: by entry.
        out_indptr: where each copy goes.
        out: items, scores and hits, filled.
    """
    out_items, out_scores, out_hits = out
    longest = _longest(start, stop, out_indptr)
    keys = np.empty(longest)
    entries = np.empty(longest, np.int64)
    stack = np.empty(STACK, np.int64)
    for place in range(start, stop):
        first = indptr[source[place]]
        n = out_indptr[place + 1] - out_indptr[place]
        for e in range(n):
            keys[e] = items[first + e]
            entries[e] = first + e
        sort_curve(keys, entries, n, stack)
        for e in range(n):
            to = out_indptr[place] + e
            out_items[to] = items[entries[e]]
            out_scores[to] = scores[entries[e]]
            out_hits[to] = hits[entries[e]]


@kernel
def add_hit_values(
    start, stop, k, metric_is_map, indptr, items, bought_indptr, bought_items, weights, hit_values,
    quanta, by_item,
):  # fmt: skip
    """Add what hits in the top k of a range of units are worth to their items.

    Args:
        start: first unit.
        stop: one past the last.
        k: places that count.
        metric_is_map: whether a hit also counts the hits above it.
        indptr: the top k by unit.
        items: their items.
        bought_indptr: by unit.
        bought_items: ascending in each.
        weights: of units.
        hit_values: of a hit by [min(k, bought), place].
        quanta: in 1.
        by_item: added to, in quanta.
    """
    for unit in range(start, stop):
        first = bought_indptr[unit]
        end = bought_indptr[unit + 1]
        need = min(k, end - first)
        hits = 0
        for place in range(indptr[unit + 1] - indptr[unit]):
            item = items[indptr[unit] + place]
            for b in range(first, end):
                if bought_items[b] == item:
                    hits += 1
                    value = hit_values[need, place] * (hits if metric_is_map else 1)
                    by_item[item] += np.int64(np.rint(weights[unit] * value * quanta))
                    break
