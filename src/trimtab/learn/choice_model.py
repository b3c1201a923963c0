"""The choice model: coefficients of features, and effects of items, with priors; and its units.

The model is a smooth approximation of the metric. It finds the direction to move in; the exact
metric on what is held out decides how far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.counted import Counts, quanta_below
from trimtab.learn.features import Shared, number_items
from trimtab.learn.held_out import Lifts, LineCurve
from trimtab.learn.units import FOR_CURVES, FOR_TREND, HitLists, hash_units
from trimtab.models.list_ranking import model_scores, to_scale
from trimtab.threads import run_ranges

RIDGE = 10.0  # units; weight of the prior of coefficients
PRECISION = 10.0  # of the prior of categories and own parts
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
_MOST_FOR_TREND = 20_000  # units; enough for a few coefficients
_MOST_FOR_CURVES, _MOST_CROSSINGS = 100_000, 30_000_000
_LEAST_SPREAD = 0.05  # of a feature within lists; features are logs
LEAST_SCORE_COEFFICIENT = 0.2  # a smaller one would make biases too large


# The model ----------------------------------------------------------------------------------------


class Choices(NamedTuple):
    """What the choice model explains, and by what."""

    data: HitLists  # lists, and which of their items were bought
    weights: Floats  # of units in the likelihood
    table_of: Ints  # the feature table of each unit
    tables: Floats  # features by [table, item, feature]
    terms: Floats | None = None  # further features, by [entry, feature]


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
    n_terms = 0 if choices.terms is None else choices.terms.shape[1]
    prior = np.zeros(1 + choices.tables.shape[2] + n_terms)
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
    from trimtab.kernels.levels import coefficient_sums

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

    n_ranges = max(1, min(_PARTS, data.n_units // _LEAST_PART))
    parts = run_ranges(part, data.n_units, n_ranges=n_ranges)
    likelihood, gradient, lower, squares = (
        np.asarray(sum(column)) for column in zip(*parts, strict=True)
    )
    whole, squared = (half + np.tril(half, -1).T for half in (lower, squares))
    return _Sums(float(likelihood[0]), gradient, whole, squared)


def fit_effects(sums: Callable[[Floats], Floats], n_groups: int, precision: float) -> Effects:
    """The most likely effects of groups of items, shrunk to 0 by a prior.

    Args:
        sums: returns gradient, curvature and noise by group, at the given effects.
        n_groups: number of groups.
        precision: of the prior, in units that list items of the group.
    """
    effects, information = np.zeros((2, n_groups))
    for _ in range(_EFFECT_STEPS):
        gradient, information, _ = sums(effects)
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
    data: HitLists, weights: Floats, logits: Floats, groups: Codes, effects: Floats, quanta: float
) -> Ints:
    """Gradient, curvature and noise of each group, in quanta; sums over parts of the units add.

    Args:
        data: lists, and which of their items were bought.
        weights: of units in the likelihood.
        logits: of list entries, without the effects.
        groups: of list entries.
        effects: by group.
        quanta: per 1.
    """
    from trimtab.kernels.levels import effect_sums

    def part(start: int, stop: int) -> Ints:
        sums = np.zeros((3, len(effects)), np.int64)
        effect_sums(
            start, stop, data.lists.indptr, groups, logits, data.hits, weights, effects, quanta,
            *sums,
        )  # fmt: skip
        return sums

    total: Ints = sum(run_ranges(part, data.n_units))
    return total


# Units that it is fitted on, and the levels made of it --------------------------------------------


class Scale(NamedTuple):
    """A scale that biases can be added on."""

    name: str  # "additive", "log" or "list"
    unit: float  # the size, in scores on it, of 1 in the choice model


def scales_to_try(setting: str, counts: Counts) -> list[Scale]:
    """The scales that a setting ("auto" or a scale) allows, the one to prefer first.

    That is log if the typical k-th score is above 0, additive otherwise (and without any score).
    The choice model counts as 1 a factor of e, or the gap from the first to the k-th score: for the
    scale "list" of each list; for "additive" the median gap, or the largest score without any.
    """
    kth_score, gap = counts.median_ends()
    names = [setting]
    if setting == "auto":
        names = ["log", "additive"] if kth_score > 0 else ["additive", "log"]
        names.append("list")
    unit = gap if gap > 0 else float(counts.largest[0]) or 1.0
    return [Scale(name, unit if name == "additive" else 1.0) for name in names]


class Subset(NamedTuple):
    """The units of a fit: all, all but one fold, or those of the windows before one."""

    left_out: int | None = None
    before: int | None = None


class Fit(NamedTuple):
    """What the choice model found on some units."""

    subset: Subset
    coefficients: Coefficients
    category: Effects | None = None
    own: Effects | None = None  # by item

    @property
    def score_coefficient(self) -> float:
        """The coefficient of the engine's score; at least a minimum."""
        return max(float(self.coefficients.beta[0]), LEAST_SCORE_COEFFICIENT)

    @property
    def slopes(self) -> Floats:
        """The coefficients of the features, in units of score."""
        return self.coefficients.beta[1:] / self.score_coefficient


Kept = Mapping[str, float]  # how far each level is carried


class ChoiceUnits:
    """Units with hits, and what the choice model explains these by.

    Args:
        data: with lists on the scale that biases are added on, or as the choice model takes them.
        shared: what all units share.
        mean_to_gain: what counts as 1 of the most that a unit's hits can add to the metric; the
            mean of these units if None.
        terms: further features, by [entry, feature].
    """

    def __init__(
        self, data: HitLists, shared: Shared, mean_to_gain: float | None = None,
        terms: Floats | None = None,
    ) -> None:  # fmt: skip
        self.data, self.shared, self.terms = data, shared, terms
        self.fold = shared.folds_of(data.windows, data.hashes)
        to_gain = data.most_to_gain(shared.k, shared.metric)
        self.to_gain = to_gain / (
            mean_to_gain or max(float(to_gain.sum()) / max(len(to_gain), 1), 1e-300)
        )
        # Features are computed for the items on these lists only, which get numbers of their own.
        self._items, self._local = number_items(data.lists.items, shared.n_items)

    @property
    def model(self) -> HitLists:
        """The lists with the scores that the choice model uses."""
        return self.data

    @cached_property
    def _tables(self) -> Floats:
        return self.shared.tables(self._items)

    def choices(self, subset: Subset) -> Choices:
        """What the choice model explains: the purchases of the units of a fit."""
        data = self.model._replace(lists=self.model.lists._replace(items=self._local))
        tables = self._table_of(subset), self._tables
        return Choices(data, self._weights(subset), *tables, self.terms)

    def _weights(self, subset: Subset) -> Floats:
        """How much each unit counts in a fit; 0 for those that it leaves out."""
        weights: Floats = self.to_gain
        if subset.before is not None:
            weights = weights * (self.data.windows < subset.before)
        elif subset.left_out is not None:
            weights = weights * (self.fold != subset.left_out)
        return weights

    def _table_of(self, subset: Subset) -> Ints:
        """The feature table of each unit."""
        return self.shared.table_of(self.data.windows, self.fold, subset.left_out)


def fit_folds(
    units: ChoiceUnits, n_folds: int, step: Callable[[], None] = lambda: None
) -> list[Coefficients]:
    """Coefficients of all units, and then without each fold.

    Args:
        units: to fit on.
        n_folds: number of parts that are held out in turn.
        step: called after each fit.
    """
    found: list[Coefficients] = []
    for left_out in (None, *range(n_folds)):
        start = found[0] if found else None
        found.append(fit_coefficients(units.choices(Subset(left_out)), start))
        step()
    return found


class LevelUnits(ChoiceUnits):
    """Some or all of the units with hits, on a scale that biases are added on."""

    def __init__(self, data: HitLists, shared: Shared) -> None:
        super().__init__(data, shared, shared.sizes.mean_to_gain)

    @cached_property
    def model(self) -> HitLists:
        """The lists with the scores that the choice model uses."""
        lists = self.data.lists
        taken = model_scores(lists, self.shared.scale, self.shared.score_unit, self.shared.k)
        return self.data._replace(lists=lists._replace(scores=taken))

    def on_scale(self, scale: Scale) -> LevelUnits:
        """These units on another scale; they must have the engine's scores as they are."""
        shared = replace(self.shared, scale=scale.name, score_unit=scale.unit)
        lists = to_scale(self.data.lists, scale.name, shared.k).lists
        return LevelUnits(self.data._replace(lists=lists), shared)

    def sample(self, purpose: int) -> LevelUnits:
        """A sample of the units, to fit coefficients (FOR_TREND) or to choose lengths (FOR_CURVES).

        Curves use as many units as fit into memory.
        """
        sizes, most = (
            self.shared.sizes,
            _MOST_FOR_TREND if purpose == FOR_TREND else _MOST_FOR_CURVES,
        )
        share = most / max(sizes.n_units, 1)
        if purpose == FOR_CURVES:
            share = min(share, _MOST_CROSSINGS / max(sizes.crossings, 1))
        if share >= 1.0:
            return self
        drawn = hash_units(self.data.hashes, self.data.windows, self.shared.seed, purpose)
        return LevelUnits(self.data.take(np.flatnonzero(drawn < share)), self.shared)

    def effects(self, level: str, fit: Fit, kept: dict[str, float]) -> Effects:
        """The effects of categories ("category") or items ("own") beyond the kept levels."""
        lists = self.model.lists
        logits, none = lists.scores.copy(), np.zeros(self.data.n_units, np.int64)
        self._add("trend", fit, kept["trend"], self._table_of(fit.subset), logits)
        if fit.category is not None and kept["category"]:
            self._add("category", fit, kept["category"], none, logits)
        logits *= fit.score_coefficient
        groups, n_groups = lists.items, self.shared.n_items
        if level == "category":
            assert self.shared.groups is not None
            groups, n_groups = self.shared.groups[groups], int(self.shared.groups.max()) + 1
        weights, quanta = self._weights(fit.subset), self._quanta

        def sums(effects: Floats) -> Floats:
            return sum_effects(self.model, weights, logits, groups, effects, quanta) / quanta

        return fit_effects(sums, n_groups, PRECISION)

    def effect_variance(self, fit: Fit) -> float:
        """The variance over items of true effects, beyond the engine's score alone."""
        lists, none = self.model.lists, np.zeros(self.shared.n_items)
        logits, weights = fit.score_coefficient * lists.scores, self._weights(fit.subset)
        sums = sum_effects(self.model, weights, logits, lists.items, none, self._quanta)
        return effect_variance(sums / self._quanta)

    @property
    def _quanta(self) -> float:
        heaviest = max(1.0, float(self.to_gain.max(initial=0.0)))
        return quanta_below(4.0 * self.data.n_units * heaviest**2)

    def by_item(self, fit: Fit, level: str) -> Floats:
        """What a level below the trend says of each item."""
        effects = fit.category if level == "category" else fit.own
        assert effects is not None
        values = effects.values / fit.score_coefficient
        return values[self.shared.groups] if level == "category" else values

    def _trend_of(self, fit: Fit) -> Floats:
        """The trend of the items on these lists, by [table, item]."""
        # A matrix product would depend on the number of rows in its last bits.
        total: Floats = self._tables[:, :, 0] * fit.slopes[0]
        for place in range(1, len(fit.slopes)):
            total += self._tables[:, :, place] * fit.slopes[place]
        return total

    def _add(self, level: str, fit: Fit, length: float, table_of: Ints, out: Floats) -> None:
        """Add a level to list entries, but for units of table -1."""
        from trimtab.kernels.levels import add_level

        items, values = self._local, None
        if level == "trend":
            values = self._trend_of(fit)
        else:
            items, values = self.data.lists.items, self.by_item(fit, level)[None]
        indptr, n_units = self.data.lists.indptr, self.data.n_units
        run_ranges(add_level, n_units, indptr, items, table_of, values, float(length), out)

    def held_out_level(self, level: str, fold_fits: Sequence[Fit]) -> Floats:
        """A level at every list entry, from the fit that left out the entry's unit."""
        out, tables = np.zeros(len(self.data.lists.items)), np.zeros(self.data.n_units, np.int64)
        for left_out, fit in enumerate(fold_fits):
            if level == "trend":
                tables = self.shared.table_of(self.data.windows, left_out)
            table_of = np.where(self.fold == left_out, tables, -1)
            self._add(level, fit, self.shared.score_unit, table_of, out)
        return out


class HeldOut:
    """Units ranked by levels that were learned without them.

    Args:
        units: on the scale that biases are added on.
        fold_fits: fits without each fold.
        levels: that they have.
    """

    def __init__(
        self, units: LevelUnits, fold_fits: Sequence[Fit] = (), levels: Sequence[str] = ()
    ) -> None:
        self._units, self._shared, self._moves = units, units.shared, dict[str, Floats]()
        for level in levels:
            self.add(level, fold_fits)

    def add(self, level: str, fold_fits: Sequence[Fit]) -> None:
        """Add a level to the fits, or replace it."""
        self._moves[level] = self._units.held_out_level(level, fold_fits)

    def move(self, kept: Kept) -> Floats:
        """How far levels move every list entry, each as far as it is kept."""
        moved = np.zeros(len(self._units.data.lists.items))
        for level, length in kept.items():
            if length:
                moved += length * self._moves[level]
        return moved

    def values(self, kept: Kept) -> Floats:
        """The weighted metric of each unit with the kept levels."""
        return self._shared.values_at(self._units.data, self.move(kept), 1.0)

    def lifts(self, before: Kept, after: Kept) -> Lifts:
        """What units gain from some kept levels to others."""
        return self._shared.lifts(self.values(before), self.values(after), self._units.fold)

    def line(self, kept: Kept, level: str) -> LineCurve:
        """The metric along another level."""
        lists = self._units.data.lists
        moved = lists._replace(scores=lists.scores + self.move(kept))
        return self._shared.line(self._units.data._replace(lists=moved), self._moves[level])
