"""The default learner: a trend shared by all items, then categories, then each item's own part.

    bias = kept_trend·θ·x + kept_category·c + kept_own·r

The choice model finds θ, c and r (see `choice_model`). How far each level is carried (its length,
`kept_*`) is decided by the exact metric on what is held out, and so is the forecast.

With timestamps, features are as of each window's start and windows are held out in turn: the trend
keeps the model's length unless another one is clearly better; categories and own parts, learned on
the windows before, must gain on a later one. Without, features leave out a user's own group, and
groups of users are held out: trend and own parts keep their usual length unless another one is
clearly better; categories are used only if they clearly help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.learn.hierarchy.choice_model import (
    Effects,
    coefficient_errors,
    effect_variance,
    fit_effects,
)
from trimtab.learn.hierarchy.forecasts import (
    NO_FORECAST,
    Forecast,
    Lifts,
    forecast_lift,
    forecasts_by_strength,
)
from trimtab.learn.hierarchy.line_search import gather_hits
from trimtab.learn.hierarchy.shared_inputs import (
    SharedInputs,
    count_folds,
    count_hit_units,
    count_shown,
    hit_value_quanta,
)
from trimtab.learn.hierarchy.trends import fit_trend
from trimtab.learn.hierarchy.unit_data import Fit, Subset, UnitData
from trimtab.learn.history import Histories
from trimtab.learn.scales import Scale
from trimtab.progress import Progress

_OWN_PRECISION = 10.0
_CATEGORY_PRECISION = 10.0
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance
_INSTEAD_OF_LOSS = 2.0  # the same, if the default length loses
# Own parts count the chance in an item's sales a second time, after its features: the shorter, the
# better known is the bias. Learned on windows before the one they are used in they may be longer.
_OWN_LENGTH, _LATER_OWN_LENGTH = 0.25, 0.5
_OWN_GAIN = 1.0  # standard errors by which they must gain there
_MISFIT = 0.09  # what one bias for all users misses, over the spread of true biases
_PER_BUYER = 0.6  # information on an item's rise
_NONE: tuple[Forecast, dict[str, list[float]]] = (NO_FORECAST, {})
FEWEST_UNITS = 10  # with a hit; with fewer nothing can be told


@dataclass(frozen=True)
class HierarchyInputs:
    """The inputs of the hierarchy.

    Args:
        lists: scored items by unit.
        bought: by unit.
        weights: by unit.
        users: code of each unit's user.
        windows: code of each unit's window; the last is the newest. -1: not to be learned from.
        histories: sales before each window and before now.
        categories: of items, -1 for unknown; or None.
        n_items: number of item codes.
        relevance: of the purchases, if events have weights.
        sales: how many sales each purchase counts as in features; 1 each if None.
    """

    lists: Lists
    bought: Sets
    weights: Floats
    users: Codes
    windows: Codes
    histories: Histories
    categories: Ints | None
    n_items: int
    relevance: Floats | None = None
    sales: Floats | None = None


class Learned(NamedTuple):
    """The parts of each item's bias, which add up to it; and how they were found."""

    trend: Floats
    category: Floats
    own: Floats
    error: Floats  # standard error of the sum
    coefficients: dict[str, float]
    kept: dict[str, float]
    forecast: Forecast
    n_windows: int  # learned from
    n_hit_units: int
    fitted_lift: float = np.nan  # of what the fit has seen, by the same lengths as the forecast
    converged: bool = True  # the trend's coefficients, in every fit
    folds: tuple[Fit, ...] = ()  # fits without each fold; none if there is too little to learn from
    score_coefficient: float = 1.0  # of the engine's score
    by_strength: Mapping[str, list[float]] = MappingProxyType({})  # forecast and its interval

    @property
    def too_little(self) -> bool:
        """Whether too few users bought what was listed to them to tell anything."""
        return self.n_hit_units < FEWEST_UNITS


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

    def __init__(self, units: UnitData) -> None:
        self._units, self.shared = units, units.shared

    @staticmethod
    def on_engine_scores(inputs: HierarchyInputs, k: int, metric: str, seed: int) -> LocalBackend:
        """All units, with the engine's scores as they are."""
        weights = np.where(inputs.windows < 0, 0.0, inputs.weights)
        windows = np.maximum(inputs.windows, 0)
        data = gather_hits(inputs.lists, inputs.bought, weights, inputs.relevance)
        quanta = hit_value_quanta(inputs.lists.n_units, float(weights.max(initial=0.0)), k)
        n_windows = int(windows.max(initial=0)) + 1
        counts = count_folds(
            inputs.lists, inputs.bought, weights, inputs.users, windows, seed, n_windows,
            inputs.n_items, inputs.sales,
        )  # fmt: skip
        shown = count_shown(
            inputs.lists, inputs.bought, weights, windows, k, n_windows, inputs.n_items
        )
        groups = None if inputs.categories is None else group_items(inputs.categories)
        shared = SharedInputs(
            "additive", 1.0, k, metric, seed, *counts, shown, inputs.histories,
            groups, count_hit_units(data, k, metric, quanta), quanta,
        ).with_listed_range()  # fmt: skip
        users = inputs.users[data.source].astype(np.int64)
        return LocalBackend(UnitData(data, users, windows[data.source], shared))

    def on_scale(self, scale: Scale) -> LocalBackend:
        """The units on another scale than that of the engine's scores."""
        return LocalBackend(self._units.on_scale(scale))

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
        self.names, now = self._shared.tonight()
        self._bought, listed = self._shared.counts(self._shared.n_windows - 1)
        seen = listed / max(float(listed.sum()), 1.0)
        # A matrix product would depend on the machine in its last bits.
        self._centred: Floats = now - (seen[:, None] * now).sum(axis=0)

    def learn(self) -> Learned:
        """Fit on all units and without each fold, choose the lengths, and add up the levels."""
        if self._shared.unit_counts.n_units < FEWEST_UNITS:
            return self._nothing()
        self._sample = self._backend.sample("trend")
        self._held_out = self._backend.sample("curves")
        whole = self._fit_trend(Subset(), None)
        folds = [self._fit_trend(Subset(fold), whole) for fold in range(self._shared.n_folds)]
        if not all(fit.coefficients.converged for fit in (whole, *folds)):
            return self._nothing()._replace(converged=False)
        add_levels = self._add_later_levels if self._shared.as_of else self._add_levels
        whole, folds, kept = add_levels(whole, folds)
        n_units = self._shared.unit_counts.n_units
        supported = self._forecast(folds, kept).supported_share(n_units)
        kept = _shorten(kept, supported)
        forecast, by_strength = self._forecast_strengths(folds, kept) if supported else _NONE
        if not forecast.is_clear(n_units):
            kept, (forecast, by_strength) = _shorten(kept, 0.0), _NONE
        fitted = self._forecast([whole] * len(folds), kept).lift
        added_up = self._add_up(whole, kept, forecast)
        return added_up._replace(fitted_lift=fitted, folds=tuple(folds), by_strength=by_strength)

    def _forecast_strengths(
        self, folds: list[Fit], kept: dict[str, float]
    ) -> tuple[Forecast, dict[str, list[float]]]:
        """The forecast, and that of each strength; only the first if windows cannot be held out."""
        forecast = self._forecast(folds, kept)
        if self._shared.n_windows > 1 and not self._shared.as_of:
            newest = self._forecast_newest(kept)
            return forecast if newest is None or np.isnan(newest.share) else newest, {}
        return forecast, forecasts_by_strength(
            forecast, lambda strength: self._forecast(folds, _shorten(kept, strength))
        )

    def _add_levels(self, whole: Fit, folds: list[Fit]) -> tuple[Fit, list[Fit], dict[str, float]]:
        """Categories and own parts, judged on held-out users of the same windows."""
        has_groups = self._shared.groups is not None
        if has_groups:
            whole, *folds = self._fit_categories([whole, *folds])
        kept = {"trend": self._length(folds, {}, "trend", 1.0), "category": 0.0, "own": 0.0}
        if has_groups:
            kept["category"] = self._length(folds, kept, "category", 0.0)
        whole, *folds = self._fit_own([whole, *folds], kept)
        kept["own"] = self._length(folds, kept, "own", _OWN_LENGTH)
        return whole, folds, kept

    def _add_later_levels(
        self, whole: Fit, folds: list[Fit]
    ) -> tuple[Fit, list[Fit], dict[str, float]]:
        """Categories and own parts, judged on windows after those they were learned on."""
        kept = {"trend": self._length(folds, {}, "trend", 1.0), "category": 0.0, "own": 0.0}
        if not self._shared.folds_are_windows:
            (whole,) = self._fit_own([whole], kept)  # for its information; no window is later
            return whole, folds, kept
        later = [fit._replace(subset=Subset(before=window)) for window, fit in enumerate(folds)]
        if self._shared.groups is not None:
            whole, *later = self._fit_categories([whole, *later])
            kept["category"] = self._length(later, kept, "category", 0.0)
        whole, *later = self._fit_own([whole, *later], kept)
        gained = self._lifts(self._held_out.compare(later, kept, "own", 0.0, _LATER_OWN_LENGTH))
        if gained.gain > _OWN_GAIN * gained.gain_error:
            kept["own"] = _LATER_OWN_LENGTH
        return whole, later, kept

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            steps = 2 * (self._shared.n_folds + 1)
            self._progress(1, min(self._done, steps), steps)

    def _fit_trend(self, subset: Subset, start: Fit | None) -> Fit:
        fit = fit_trend(self._sample, subset, start)
        self._step()
        return fit

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

        The information on an item comes from its buyers (part of each, because a rise is a ratio
        of two counts) or from the choices of those who list it, whichever is more. With the
        variance of true biases over all items, that gives the error of a shrunken mean. An item's
        change differs between the users who list it: one number misses that, of however many
        users it is learned.
        """
        assert fit.own is not None
        none = np.zeros((1, self._shared.n_items))
        sums = self._backend.total("effect_sums", "spread", [fit], {}, none)
        spread = effect_variance(sums[0] / self._shared.effect_quanta)
        information = _PER_BUYER * self._bought / fit.score_coefficient**2
        shrunken = spread / (1.0 + spread * np.maximum(information, fit.own.information))
        covariance = coefficient_errors(self._sample.choices(fit.subset), fit.coefficients)
        of_trend = ((self._centred @ covariance[1:, 1:]) * self._centred).sum(axis=1)
        errors: Floats = np.sqrt(np.maximum(of_trend, 0.0) + shrunken + _MISFIT**2 * spread)
        errors /= fit.score_coefficient
        return errors

    def _length(
        self, fold_fits: list[Fit], kept: dict[str, float], level: str, default: float
    ) -> float:
        """The length of a level: the default, unless another is clearly better, or it loses."""
        best, _ = self._held_out.line(fold_fits, kept, level).best(default)
        if best == default:
            return default

        def lifts(start: float, end: float) -> Lifts:
            return self._lifts(self._held_out.compare(fold_fits, kept, level, start, end))

        better = lifts(default, best)
        if better.gain > _CLEARLY * better.gain_error:
            return best
        if default == 0:
            return default
        # A default that loses would end in biases of 0, even where a shorter level surely gains.
        from_none = lifts(0.0, best)
        gains = from_none.gain > _INSTEAD_OF_LOSS * from_none.gain_error
        return best if gains and lifts(0.0, default).gain <= 0 else default

    def _lifts(self, sums: Ints) -> Lifts:
        return Lifts(sums, self._shared.lift_quanta, self._shared.folds_are_windows)

    def _forecast(self, folds: list[Fit], kept: dict[str, float]) -> Forecast:
        lifts = self._lifts(self._held_out.forecast(folds, kept))
        return forecast_lift(lifts, self._shared.as_of, self._shared.histories.window_days)

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
        lifts = self._lifts(sums)
        return forecast_lift(lifts, self._shared.as_of, self._shared.histories.window_days)

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
            trend * unit, category * unit, own * unit, error * unit, beta, kept, forecast,
            self._shared.n_windows, self._shared.unit_counts.n_units,
            score_coefficient=fit.score_coefficient,
        )  # fmt: skip

    def _nothing(self) -> Learned:
        zero = np.zeros(self._shared.n_items)
        wide = np.full(self._shared.n_items, self._shared.score_unit / np.sqrt(_OWN_PRECISION))
        none = {"trend": 0.0, "category": 0.0, "own": 0.0}
        flat = dict.fromkeys(self.names, 0.0)
        return Learned(
            zero, zero, zero, wide, flat, none, NO_FORECAST, self._shared.n_windows,
            self._shared.unit_counts.n_units,
        )  # fmt: skip


def _shorten(kept: dict[str, float], share: float) -> dict[str, float]:
    return {level: length * share for level, length in kept.items()}
