"""The choice model: coefficients of features, and effects of items, with priors.

The model is a smooth approximation of the metric. It finds the direction to move in; the exact
metric on what is held out decides how far.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.units import HitLists
from trimtab.threads import ranges, thread_count

RIDGE = 10.0  # units; weight of the prior of coefficients
_PARTS = 8  # summed in order: the number of threads changes nothing
_LEAST_PART = 512
_NEWTON_STEPS = 100
_HALVINGS = 40  # of a step that lowers the penalised likelihood
_ROUNDING = 1e-12  # of the likelihood
_NEWTON_CLOSE = 1e-6  # of a coefficient times the spread of its feature
_LONGEST_STEP = 2.0
_EFFECT_STEPS = 60
_EFFECT_DAMPING = 0.8
_EFFECT_CLOSE = 1e-3
_LONGEST_EFFECT_STEP = 1.0  # beyond it the curvature is no longer valid
_LEAST_SPREAD = 0.05  # of a feature within lists; features are logs
LEAST_SCORE_COEFFICIENT = 0.2  # a smaller one would make biases too large


class Choices(NamedTuple):
    """What the choice model explains, and by what."""

    data: HitLists  # lists, and which of their items were bought
    weights: Floats  # of units in the likelihood
    table_of: Ints  # the feature table of each unit
    tables: Floats  # features by [table, item, feature]
    terms: Floats | None = None  # further features, by [entry, feature]

    @property
    def n_features(self) -> int:
        """Number of features, without the engine's score."""
        return int(self.tables.shape[2]) + (0 if self.terms is None else self.terms.shape[1])


class Coefficients(NamedTuple):
    """Coefficients of the engine's score (first), of the features, and of the terms."""

    beta: Floats
    prior_precision: Floats
    converged: bool = True


class Effects(NamedTuple):
    """Effects of groups of items."""

    values: Floats
    information: Floats  # from the data, without the prior


def fit_coefficients(choices: Choices, start: Coefficients | None = None) -> Coefficients:
    """The most likely coefficients, by Newton's method; the prior mean of the score's is 1.

    The prior weighs as much as a few units; features are measured by their spread within lists.

    Args:
        choices: what to explain.
        start: a fit on other units of the same data: its prior, and where to start.
    """
    prior = np.zeros(1 + choices.n_features)
    prior[0] = 1.0
    if start is None:
        none = np.zeros(len(prior))
        curvature = _coefficient_sums(choices, none).curvature
        variance = np.diag(curvature) / max(float(choices.weights.sum()), 1e-300)
        start = Coefficients(prior, RIDGE * np.maximum(variance, _LEAST_SPREAD**2))
    beta, precision, _ = start
    spread = np.sqrt(precision / RIDGE)

    def sums_at(beta: Floats) -> tuple[_Sums, float]:
        sums = _coefficient_sums(choices, beta)
        return sums, sums.likelihood - 0.5 * float((precision * (beta - prior) ** 2).sum())

    sums, value = sums_at(beta)
    for _ in range(_NEWTON_STEPS):
        slope = sums.gradient - precision * (beta - prior)
        step = np.linalg.solve(sums.curvature + np.diag(precision), slope)
        furthest = float(np.abs(step * spread).max())
        if furthest < _NEWTON_CLOSE:
            return Coefficients(beta + step, precision)
        step *= min(1.0, _LONGEST_STEP / furthest)
        before = value
        for _ in range(_HALVINGS):
            sums, value = sums_at(beta + step)
            if value >= before - _ROUNDING * abs(before):
                break
            step /= 2.0
        else:
            break
        beta = beta + step
    return Coefficients(beta, precision, converged=False)


def coefficient_errors(choices: Choices, found: Coefficients) -> Floats:
    """The covariance of coefficients, for independent units."""
    sums = _coefficient_sums(choices, found.beta)
    inverse = np.linalg.inv(sums.curvature + np.diag(found.prior_precision))
    covariance: Floats = inverse @ (sums.squares + np.diag(found.prior_precision)) @ inverse
    return covariance


class _Sums(NamedTuple):
    likelihood: float
    gradient: Floats
    curvature: Floats
    squares: Floats  # of the gradients of units


def _coefficient_sums(choices: Choices, beta: Floats) -> _Sums:
    """The log-likelihood of coefficients, and its derivatives."""
    from trimtab.kernels.choice import coefficient_sums

    p = len(beta)
    data, weights, table_of, tables, terms = choices
    terms = np.empty((len(data.hits), 0)) if terms is None else terms

    def part(start: int, stop: int) -> tuple[Floats, ...]:
        sums = np.zeros(1), np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
        coefficient_sums(
            start, stop, data.lists.indptr, data.lists.items, data.lists.scores, data.hits,
            weights, table_of, tables, terms, beta, *sums,
        )  # fmt: skip
        return sums

    likelihood, gradient, lower, squares = (
        np.asarray(sum(column)) for column in zip(*_run(part, data.n_units), strict=True)
    )
    whole, squared = (half + np.tril(half, -1).T for half in (lower, squares))
    return _Sums(float(likelihood[0]), gradient, whole, squared)


def fit_effects(sums: Callable[[Floats], Floats], n_groups: int, precision: float) -> Effects:
    """The most likely effects of groups of items, shrunk to 0 by a prior.

    Args:
        sums: returns gradient and curvature by group, at the given effects.
        n_groups: number of groups.
        precision: of the prior, in units that list items of the group.
    """
    effects, information = np.zeros((2, n_groups))
    for _ in range(_EFFECT_STEPS):
        gradient, information = sums(effects)
        step = _EFFECT_DAMPING * (gradient - precision * effects) / (information + precision)
        step = np.clip(step, -_LONGEST_EFFECT_STEP, _LONGEST_EFFECT_STEP)
        effects = effects + step
        if np.abs(step).max(initial=0.0) < _EFFECT_CLOSE:
            break
    return Effects(effects, information)


def effect_variance(sums: Floats) -> float:
    """The variance of true effects: the part of their squared gradients that is not noise.

    The expected square of a group's gradient at 0 is its noise plus its squared information times
    the variance; summed over groups that gives the variance.

    Args:
        sums: gradient, curvature and noise of each group at effects of 0.
    """
    gradient, curvature, noise = sums
    beyond = float((gradient**2 - noise).sum())
    return max(0.0, beyond) / max(float((curvature**2).sum()), 1e-300)


def sum_effects(
    data: HitLists, weights: Floats, logits: Floats, groups: Codes, effects: Floats, quanta: float,
    with_noise: bool = True,
) -> Ints:  # fmt: skip
    """Gradient, curvature and noise of each group, in quanta; sums over parts of the units add.

    Args:
        data: lists, and which of their items were bought.
        weights: of units in the likelihood.
        logits: of list entries, without the effects.
        groups: of list entries.
        effects: by group.
        quanta: per 1.
        with_noise: whether the noise is needed; without it there are two sums.
    """
    from trimtab.kernels.choice import effect_sums

    def part(start: int, stop: int) -> Ints:
        sums = np.zeros((3 if with_noise else 2, len(effects)), np.int64)
        noise = sums[2] if with_noise else sums[0, :0]
        effect_sums(
            start, stop, data.lists.indptr, groups, logits, data.hits, weights, effects, quanta,
            sums[0], sums[1], noise,
        )  # fmt: skip
        return sums

    total: Ints = functools.reduce(np.add, _run(part, data.n_units))
    return total


def _run(part: Any, n_units: int) -> list[Any]:
    """Results of `part` over a fixed number of ranges, in order; uses all threads."""
    cut = ranges(n_units, max(1, min(_PARTS, n_units // _LEAST_PART)))
    n_threads = min(thread_count(), len(cut))
    if n_threads <= 1:
        return [part(*span) for span in cut]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(lambda span: part(*span), cut))
