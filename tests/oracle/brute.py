"""The objective by its definition: rank every unit from scratch and count.

Nothing here is shared with the package, and there are no curves: a bias is judged by ranking with
it. Compiled and cached, because thousands of problems are checked.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from problems import METRICS, Case

ACC, MAP, NDCG = range(3)


class Dense(NamedTuple):
    """A problem as full matrices."""

    scores: np.ndarray  # [unit, item], nan where not listed
    bought: np.ndarray  # [unit, item]
    weights: np.ndarray
    k: int
    metric: int
    reaches_unlisted: bool


def to_dense(case: Case) -> Dense:
    n_units = case.lists.n_units
    scores = np.full((n_units, case.n_items), np.nan)
    listers = np.repeat(np.arange(n_units), np.diff(case.lists.indptr))
    scores[listers, case.lists.items] = case.lists.scores
    bought = np.zeros(scores.shape, np.bool_)
    buyers = np.repeat(np.arange(n_units), np.diff(case.bought.indptr))
    bought[buyers, case.bought.items] = True
    weights = np.ones(n_units) if case.weights is None else case.weights
    metric = METRICS.index(case.settings.metric)
    return Dense(scores, bought, weights, case.settings.k, metric, case.settings.unlisted == "zero")


@numba.njit(cache=True)
def rank(dense, unit, bias, length):
    """Items of a unit, best first, up to `length`; excluded items have a bias of -inf.

    A unit with an empty list gets no items, not even raised ones.
    """
    n_items = len(bias)
    total = np.full(n_items, -np.inf)
    if np.isnan(dense.scores[unit]).all():
        length = 0
    for item in range(n_items):
        if not np.isnan(dense.scores[unit, item]):
            total[item] = dense.scores[unit, item] + bias[item]
        elif dense.reaches_unlisted and bias[item] > 0:
            total[item] = bias[item]
    ranked = np.empty(min(length, n_items), np.int64)
    for place in range(len(ranked)):
        best = 0
        for item in range(1, n_items):
            if total[item] > total[best]:
                best = item
        if total[best] == -np.inf:
            return ranked[:place]
        ranked[place] = best
        total[best] = -np.inf
    return ranked


@numba.njit(cache=True)
def unit_metric(dense, unit, bias):
    """ACC, AP or NDCG of one unit by definition; 0 for a unit that bought nothing."""
    n_relevant = dense.bought[unit].sum()
    if n_relevant == 0:
        return 0.0
    reachable = min(dense.k, n_relevant)
    ideal = 0.0
    for p in range(1, reachable + 1):
        ideal += 1.0 / np.log2(1.0 + p)
    hits = 0
    total = 0.0
    for place, item in enumerate(rank(dense, unit, bias, dense.k)):
        p = place + 1
        if dense.bought[unit, item]:
            hits += 1
            if dense.metric == ACC:
                total += 1.0 / dense.k
            elif dense.metric == MAP:
                total += hits / p / reachable
            else:
                total += 1.0 / np.log2(1.0 + p) / ideal
    return total


@numba.njit(cache=True)
def metric_sum(dense, bias):
    """The weighted sum of the metric."""
    total = 0.0
    for unit in range(len(dense.weights)):
        total += dense.weights[unit] * unit_metric(dense, unit, bias)
    return total


@numba.njit(cache=True)
def metric_at(dense, bias, item, value):
    """The weighted sum with one item's bias changed."""
    changed = bias.copy()
    changed[item] = value
    return metric_sum(dense, changed)


@numba.njit(cache=True)
def crossings(dense, bias, item, cap):
    """Every bias at which the item ties with another item of a unit, 0 and the cap, ascending."""
    n_units, n_items = dense.scores.shape
    found = np.empty(n_units * n_items + 3)
    found[0] = 0.0
    found[1] = -cap
    found[2] = cap
    n = 3
    for unit in range(n_units):
        own = dense.scores[unit, item]
        if np.isnan(own) and not dense.reaches_unlisted:
            continue
        for other in rank(dense, unit, bias, n_items):
            score = dense.scores[unit, other]
            if other != item:
                total = bias[other] + (0.0 if np.isnan(score) else score)
                found[n] = total - (0.0 if np.isnan(own) else own)
                n += 1
    return np.unique(found[:n])


@numba.njit(cache=True)
def inside(low, high):
    """A point well inside an open interval."""
    if low == -np.inf:
        return high - max(1.0, abs(high))
    if high == np.inf:
        return low + max(1.0, abs(low))
    return low + (high - low) / 2


@numba.njit(cache=True)
def best_total(dense, bias, item, rate, cap, narrow):
    """The best objective over the open intervals that are wide enough, 0 and the current bias.

    The penalty of an interval is taken at its end nearer to 0, which no bias quite reaches.
    """
    best = metric_at(dense, bias, item, 0.0)
    best = max(best, metric_at(dense, bias, item, bias[item]) - rate * abs(bias[item]))
    ends = crossings(dense, bias, item, cap)
    for e in range(len(ends) + 1):
        low = ends[e - 1] if e > 0 else -np.inf
        high = ends[e] if e < len(ends) else np.inf
        if low >= -cap and high <= cap and high - low > narrow:
            nearer = min(abs(low), abs(high))
            best = max(best, metric_at(dense, bias, item, inside(low, high)) - rate * nearer)
    return best
