"""The choice model: coefficients of features, and effects of items, with priors.

A smooth stand-in for the metric. It says which way to move; how far is then settled by the exact
metric on users that were held out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.hierarchy.line_search import HitLists
from trimtab.threads import ranges, thread_count

_PARTS = 8  # summed in order, so that the number of threads changes nothing
_LEAST_PART = 512
_NEWTON_STEPS = 25
_NEWTON_CLOSE = 1e-6  # of a coefficient times the spread of its feature
_LONGEST_STEP = 2.0
_EFFECT_STEPS = 60
_EFFECT_DAMPING = 0.8
_EFFECT_CLOSE = 1e-3
_LONGEST_EFFECT_STEP = 1.0  # further, chances and with them curvatures are others
_LEAST_SPREAD = 0.05  # of a feature within lists; features are logs
LEAST_TRUST = 0.2  # in the engine's own score


class Coefficients(NamedTuple):
    """What the model found of the score (first) and the features."""

    beta: Floats
    pull: Floats  # the prior's precision, by coefficient


class Effects(NamedTuple):
    """What the model found of groups of items."""

    values: Floats
    information: Floats  # what the units say of each, without its prior


def fit_coefficients(
    data: HitLists, weights: Floats, table_of: Ints, tables: Floats, ridge: float,
    start: Coefficients | None = None,
) -> Coefficients:  # fmt: skip
    """The most likely coefficients, by Newton's method; that of the score has 1 as prior mean.

    Args:
        data: what was chosen.
        weights: of units in the likelihood.
        table_of: which table of features a unit sees.
        tables: features by [table, item, feature].
        ridge: the prior's weight in units, features measured by their spread within lists.
        start: found on other units of the same data: where to start, and the prior.
    """
    prior = np.zeros(tables.shape[2] + 1)
    prior[0] = 1.0
    if start is None:
        none = np.zeros(len(prior))
        _, curvature, _ = _coefficient_sums(data, weights, table_of, tables, none)
        variance = np.diag(curvature) / max(float(weights.sum()), 1e-300)
        start = Coefficients(prior, ridge * np.maximum(variance, _LEAST_SPREAD**2))
    beta, pull = start
    spread = np.sqrt(pull / ridge)
    for _ in range(_NEWTON_STEPS):
        gradient, curvature, _ = _coefficient_sums(data, weights, table_of, tables, beta)
        step = np.linalg.solve(curvature + np.diag(pull), gradient - pull * (beta - prior))
        furthest = float(np.abs(step * spread).max())
        beta = beta + step * min(1.0, _LONGEST_STEP / max(furthest, 1e-300))
        if furthest < _NEWTON_CLOSE:
            break
    return Coefficients(beta, pull)


def coefficient_errors(
    data: HitLists, weights: Floats, table_of: Ints, tables: Floats, found: Coefficients
) -> Floats:
    """The covariance of coefficients, units being independent of each other."""
    _, curvature, squares = _coefficient_sums(data, weights, table_of, tables, found.beta)
    inverse = np.linalg.inv(curvature + np.diag(found.pull))
    covariance: Floats = inverse @ (squares + np.diag(found.pull)) @ inverse
    return covariance


def _coefficient_sums(
    data: HitLists, weights: Floats, table_of: Ints, tables: Floats, beta: Floats
) -> tuple[Floats, Floats, Floats]:
    """Gradient, curvature and squared gradients."""
    from trimtab.kernels.choice_sums import coefficient_sums

    p = len(beta)

    def part(start: int, stop: int) -> tuple[Floats, Floats, Floats]:
        sums = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
        coefficient_sums(
            start, stop, data.lists.indptr, data.lists.items, data.lists.scores, data.hits,
            weights, table_of, tables, beta, *sums,
        )  # fmt: skip
        return sums

    gradient, curvature, squares = (
        sum(column) for column in zip(*_run(part, data.n_units), strict=True)
    )
    curvature, squares = (
        m + np.tril(m, -1).T for m in (np.asarray(curvature), np.asarray(squares))
    )
    return np.asarray(gradient), curvature, squares


Sums = Callable[[list[int], Floats], Floats]


def fit_effects(sums: Sums, n_fits: int, n_groups: int, precision: float) -> list[Effects]:
    """The most likely effects of groups of items, drawn to 0 by a prior; of several fits at once.

    Args:
        sums: of the fits asked for, at these effects: gradient, curvature and noise, by [fit, sum,
            group].
        n_fits: number of fits.
        n_groups: number of groups.
        precision: the prior's, in units that see the group's items.
    """
    effects, information = np.zeros((2, n_fits, n_groups))
    moving = list(range(n_fits))
    for _ in range(_EFFECT_STEPS):
        found = sums(moving, effects[moving])
        for fit, (gradient, curvature, _) in zip(tuple(moving), found, strict=True):
            now = effects[fit]
            step = _EFFECT_DAMPING * (gradient - precision * now) / (curvature + precision)
            step = np.clip(step, -_LONGEST_EFFECT_STEP, _LONGEST_EFFECT_STEP)
            effects[fit], information[fit] = now + step, curvature
            if np.abs(step).max(initial=0.0) < _EFFECT_CLOSE:
                moving.remove(fit)
        if not moving:
            break
    return [Effects(*found) for found in zip(effects, information, strict=True)]


def effect_variance(sums: Floats) -> float:
    """How far true effects spread around 0: what their gradients have beyond chance.

    The expected square of a group's gradient at 0 is its noise plus its squared information times
    the variance; summed over groups that gives the variance.

    Args:
        sums: gradient, curvature and noise of each group at effects of 0.
    """
    gradient, curvature, noise = sums
    beyond = float((gradient**2 - noise).sum())
    return max(0.0, beyond) / max(float((curvature**2).sum()), 1e-300)


def sum_effects(
    data: HitLists, weights: Floats, logits: Floats, groups: Codes, effects: Floats, quanta: float
) -> Ints:
    """Gradient, curvature and noise of each group, in quanta: sums over parts of the units add up.

    Args:
        data: what was chosen.
        weights: of units in the likelihood.
        logits: of entries, without the effects.
        groups: of entries.
        effects: by group.
        quanta: in 1.
    """
    from trimtab.kernels.choice_sums import effect_sums

    def part(start: int, stop: int) -> Ints:
        sums = np.zeros((3, len(effects)), np.int64)
        effect_sums(
            start, stop, data.lists.indptr, groups, logits, data.hits, weights, effects, quanta,
            *sums,
        )  # fmt: skip
        return sums

    total: Ints = functools.reduce(np.add, _run(part, data.n_units))
    return total


def _run(part: Any, n_units: int) -> list[Any]:
    """`part` over a fixed number of ranges, on the threads there are; results in their order."""
    cut = ranges(n_units, max(1, min(_PARTS, n_units // _LEAST_PART)))
    n_threads = min(thread_count(), len(cut))
    if n_threads <= 1:
        return [part(*span) for span in cut]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(lambda span: part(*span), cut))
