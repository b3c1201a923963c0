"""The default learner: a trend shared by all items, then categories, then each item's own part.

    bias = kept_trend·θ·x + kept_category·c + kept_own·r

The choice model finds θ, c and r (see `choice_model`), on features that leave out a user's own
group. How far each level is carried (its length, `kept_*`) is decided by the exact metric on
held-out users: trend and own parts keep the model's length unless another one is clearly better;
categories are used only if they clearly help. The gain of the held-out users is the forecast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.learn.hierarchy.choice_model import (
    Effects,
    coefficient_errors,
    effect_variance,
    fit_coefficients,
    fit_effects,
)
from trimtab.learn.hierarchy.line_search import gather_hits
from trimtab.learn.hierarchy.shared_inputs import (
    N_FOLDS,
    SharedInputs,
    count_folds,
    count_hit_units,
    hit_value_quanta,
)
from trimtab.learn.hierarchy.unit_data import Fit, Lifts, Subset, UnitData
from trimtab.learn.history import History
from trimtab.progress import Progress

_RIDGE = 10.0  # units; weight of the prior of trend coefficients
_OWN_PRECISION = 10.0
_CATEGORY_PRECISION = 10.0
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance
_SHRINKAGE = 0.5  # how much an uncertain gain shortens all levels
_PROGRESS_STEPS = 2 * (N_FOLDS + 1)


@dataclass(frozen=True)
class HierarchyInputs:
    """The inputs of the hierarchy.

    Args:
        lists: scored items by unit, on the scale that biases are added on.
        scale: "additive" or "log".
        score_unit: the size, in scores of `lists`, of 1 in the choice model.
        bought: by unit.
        weights: by unit.
        users: code of each unit's user.
        windows: code of each unit's window; the last is the newest.
        history: before each window, or empty.
        categories: of items, -1 for unknown; or None.
        n_items: number of item codes.
    """

    lists: Lists
    scale: str
    score_unit: float
    bought: Sets
    weights: Floats
    users: Codes
    windows: Codes
    history: tuple[History, ...]
    categories: Ints | None
    n_items: int


class Forecast(NamedTuple):
    """The gain of held-out users."""

    z_score: float  # the gain in standard errors
    lift: float  # nan if the metric was 0 before
    error: float  # standard error of `lift`


class Learned(NamedTuple):
    """The parts of each item's bias, which add up to it; and how they were found."""

    trend: Floats
    category: Floats
    own: Floats
    error: Floats  # standard error of the sum
    coefficients: dict[str, float]
    kept: dict[str, float]
    forecast: Forecast
    converged: bool = True  # the trend's coefficients, in every fit


class HierarchyBackend(Protocol):
    """All units with hits, in one place or in partitions."""

    @property
    def shared(self) -> SharedInputs:
        """The inputs that all parts share."""
        ...

    def sample(self, purpose: str) -> UnitData:
        """A sample of the units in one place: "trend", to fit coefficients, or "curves"."""
        ...

    def total(self, method: str, *given: Any) -> Ints:
        """The result of a method of `UnitData`, summed over all parts."""
        ...

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """The effects of groups of items, for each fit."""
        ...


def size_of_level(shared: SharedInputs, level: str) -> tuple[int, float]:
    """The number of groups of a level, and the precision of its prior."""
    if level == "category":
        return shared.n_groups, _CATEGORY_PRECISION
    return shared.n_items, _OWN_PRECISION


class LocalBackend:
    """All units in one place."""

    def __init__(self, inputs: HierarchyInputs, k: int, metric: str, seed: int) -> None:
        data = gather_hits(inputs.lists, inputs.bought, inputs.weights)
        quanta = hit_value_quanta(inputs.lists.n_units, float(inputs.weights.max(initial=0.0)), k)
        n_windows = int(inputs.windows.max(initial=0)) + 1
        counts = count_folds(
            inputs.lists, inputs.bought, inputs.weights, inputs.users, inputs.windows, seed,
            n_windows, inputs.n_items,
        )  # fmt: skip
        groups = None if inputs.categories is None else group_items(inputs.categories)
        self.shared = SharedInputs(
            inputs.scale, inputs.score_unit, k, metric, seed, *counts, inputs.history, groups,
            count_hit_units(data, k, metric, quanta), quanta,
        )  # fmt: skip
        users, windows = inputs.users[data.source].astype(np.int64), inputs.windows[data.source]
        self._units = UnitData(data, users, windows, self.shared)

    def sample(self, purpose: str) -> UnitData:
        """A sample of the units: "trend", to fit coefficients, or "curves"."""
        return self._units.sample(purpose)

    def total(self, method: str, *given: Any) -> Ints:
        """The result of a method of `UnitData`."""
        sums: Ints = getattr(self._units, method)(*given)
        return sums

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """Effects of one fit after the other, which needs less memory than all at once."""
        n_groups, precision = size_of_level(self.shared, level)

        def fitted(fit: Fit) -> Effects:
            def sums(_: list[int], effects: Floats) -> Floats:
                found = self.total("effect_sums", level, [fit], kept, effects)
                return found / self.shared.effect_quanta

            return fit_effects(sums, 1, n_groups, precision)[0]

        return [fitted(fit) for fit in fits]


def group_items(categories: Ints) -> Codes:
    """Categories as groups of items; items of unknown category form one more group."""
    return np.where(categories < 0, categories.max(initial=-1) + 1, categories).astype(np.int32)


def learn_hierarchy(backend: HierarchyBackend, progress: Progress | None = None) -> Learned:
    """Learn the levels, and how far held-out units support each of them."""
    return _LevelFits(backend, progress).learn()


class _LevelFits:
    """Fits of all levels: on all units, and on all folds but one."""

    def __init__(self, backend: HierarchyBackend, progress: Progress | None) -> None:
        self._backend, self._shared = backend, backend.shared
        self._progress, self._done = progress, 0
        newest = self._shared.n_windows - 1
        features = self._shared.features(newest)
        self.names = features.names
        self._bought, listed = self._shared.counts(newest)
        now = features.build(self._bought, listed)
        seen = listed / max(float(listed.sum()), 1.0)
        # A matrix product would depend on the machine in its last bits.
        self._centred: Floats = now - (seen[:, None] * now).sum(axis=0)

    def learn(self) -> Learned:
        """Fit on all units and without each fold, choose the lengths, and add up the levels."""
        if self._shared.unit_counts.n_units == 0:
            return self._nothing()
        self._sample = self._backend.sample("trend")
        self._held_out = self._backend.sample("curves")
        whole = self._fit_trend(Subset(), None)
        fold_fits = [self._fit_trend(Subset(fold), whole) for fold in range(N_FOLDS)]
        if not all(fit.coefficients.converged for fit in (whole, *fold_fits)):
            return self._nothing()._replace(converged=False)
        if self._shared.groups is not None:
            whole, *fold_fits = self._fit_categories([whole, *fold_fits])
        kept: dict[str, float] = {}
        kept["trend"] = self._length(fold_fits, kept, "trend", 1.0)
        kept["category"] = 0.0
        if self._shared.groups is not None:
            kept["category"] = self._length(fold_fits, self._used(kept), "category", 0.0)
        whole, *fold_fits = self._fit_own([whole, *fold_fits], kept)
        kept["own"] = self._length(fold_fits, self._used(kept), "own", 1.0)
        supported = _supported_share(self._forecast(fold_fits, self._used(kept)))
        kept = {level: length * supported for level, length in kept.items()}
        forecast = self._forecast(fold_fits, self._used(kept))
        if self._shared.n_windows > 1:
            newest = self._forecast_newest(kept)
            forecast = forecast if newest is None or np.isnan(newest.lift) else newest
        return self._add_up(whole, kept, forecast)

    def _used(self, kept: dict[str, float]) -> dict[str, float]:
        """The levels that exist, in the order in which they are added."""
        return {
            level: length
            for level, length in kept.items()
            if level != "category" or self._shared.groups is not None
        }

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(1, min(self._done, _PROGRESS_STEPS), _PROGRESS_STEPS)

    def _fit_trend(self, subset: Subset, start: Fit | None) -> Fit:
        coefficients = fit_coefficients(
            *self._sample.likelihood(subset), _RIDGE, None if start is None else start.coefficients
        )
        self._step()
        return Fit(subset, coefficients)

    def _fit_categories(self, fits: list[Fit]) -> list[Fit]:
        found = self._backend.effects("category", fits, {"trend": 1.0})
        return [fit._replace(category=own) for fit, own in zip(fits, found, strict=True)]

    def _fit_own(self, fits: list[Fit], kept: dict[str, float]) -> list[Fit]:
        found = self._backend.effects("own", fits, kept)
        for _ in fits:
            self._step()
        return [fit._replace(own=own) for fit, own in zip(fits, found, strict=True)]

    def _errors(self, fit: Fit) -> Floats:
        """The standard error of each item's bias.

        The information on an item comes from its buyers (half of each, because a rise is a ratio
        of two counts) or from the choices of those who list it, whichever is more. With the
        variance of true biases over all items, that gives the error of a shrunken mean.
        """
        assert fit.own is not None
        none = np.zeros((1, self._shared.n_items))
        sums = self._backend.total("effect_sums", "spread", [fit], {}, none)
        spread = effect_variance(sums[0] / self._shared.effect_quanta)
        information = 0.5 * self._bought / fit.score_coefficient**2
        shrunken = spread / (1.0 + spread * np.maximum(information, fit.own.information))
        covariance = coefficient_errors(*self._sample.likelihood(fit.subset), fit.coefficients)
        of_trend = ((self._centred @ covariance[1:, 1:]) * self._centred).sum(axis=1)
        errors: Floats = np.sqrt(np.maximum(of_trend, 0.0) + shrunken) / fit.score_coefficient
        return errors

    def _length(
        self, fold_fits: list[Fit], kept: dict[str, float], level: str, default: float
    ) -> float:
        """The length of a level: the default, unless another is clearly better."""
        best, _ = self._held_out.line(fold_fits, kept, level).best(default)
        if best == default:
            return default
        lifts = self._lifts(self._held_out.compare(fold_fits, kept, level, default, best))
        return best if lifts.gain > _CLEARLY * lifts.gain_error else default

    def _lifts(self, sums: Ints) -> Lifts:
        return Lifts(sums, self._shared.lift_quanta)

    def _forecast(self, fold_fits: list[Fit], kept: dict[str, float]) -> Forecast:
        return _lift_of(self._lifts(self._held_out.forecast(fold_fits, kept)))

    def _forecast_newest(self, kept: dict[str, float]) -> Forecast | None:
        """The gain in the newest window from what earlier windows teach; None with one window."""
        filled = np.flatnonzero(self._backend.total("count_windows"))
        if len(filled) < 2:
            return None
        newest = int(filled[-1])
        fit = self._fit_trend(Subset(before=newest), None)
        if self._shared.groups is not None:
            (fit,) = self._fit_categories([fit])
        (fit,) = self._fit_own([fit], kept)
        sums = self._backend.total("forecast_newest", fit, kept, newest)
        return _lift_of(self._lifts(sums))

    def _add_up(self, fit: Fit, kept: dict[str, float], forecast: Forecast) -> Learned:
        """The parts of all biases in the newest window; 0 is the average over listed items."""
        unit = self._shared.score_unit
        trend = kept["trend"] * (self._centred @ fit.slopes)
        category = np.zeros(self._shared.n_items)
        if fit.category is not None:
            category = (
                kept["category"] * fit.category.values[self._shared.groups] / fit.score_coefficient
            )
        assert fit.own is not None
        own = kept["own"] * fit.own.values / fit.score_coefficient
        error = self._errors(fit)
        beta = dict(zip(self.names, (float(b) for b in fit.slopes), strict=True))
        return Learned(
            trend * unit, category * unit, own * unit, error * unit, beta, kept, forecast
        )

    def _nothing(self) -> Learned:
        zero = np.zeros(self._shared.n_items)
        wide = np.full(self._shared.n_items, self._shared.score_unit / np.sqrt(_OWN_PRECISION))
        none = {"trend": 0.0, "category": 0.0, "own": 0.0}
        flat = dict.fromkeys(self.names, 0.0)
        return Learned(zero, zero, zero, wide, flat, none, Forecast(0.0, np.nan, np.nan))


def _supported_share(forecast: Forecast) -> float:
    """The share of all levels to keep: near 1 for a clear gain, 0 below 0.7 standard errors."""
    if not forecast.z_score > 0:
        return 0.0
    return max(0.0, 1.0 - _SHRINKAGE / forecast.z_score**2)


def _lift_of(lifts: Lifts) -> Forecast:
    """The lift of a move, with its standard error over units."""
    z_score = lifts.gain / max(lifts.gain_error, 1e-300)
    if lifts.before <= 0:
        return Forecast(z_score, np.nan, np.nan)
    return Forecast(z_score, lifts.gain / lifts.before, lifts.lift_error)
