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

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats
from trimtab.learn.choice_model import (
    Effects,
    coefficient_errors,
    effect_variance,
    fit_coefficients,
    fit_effects,
)
from trimtab.learn.forecasts import (
    NO_FORECAST,
    Forecast,
    Lifts,
    forecast_lift,
    forecasts_by_strength,
)
from trimtab.learn.level_units import Fit, LevelUnits, Subset
from trimtab.learn.scales import Scale
from trimtab.progress import Progress

_PRECISION = 10.0  # of the prior of categories and own parts
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance
_INSTEAD_OF_LOSS = 2.0  # the same, if the default length loses
# Own parts count the chance in an item's sales a second time, after its features: the shorter, the
# better known is the bias. Learned on windows before the one they are used in they may be longer.
_OWN_LENGTH, _LATER_OWN_LENGTH = 0.25, 0.5
_OWN_GAIN = 1.0  # standard errors by which they must gain there
_MISFIT = 0.09  # what one bias for all users misses, over the spread of true biases
_PER_BUYER = 0.6  # information on an item's rise
_NONE: tuple[Forecast, dict[str, list[float]]] = (NO_FORECAST, {})
_PREFERRED = 2.0  # standard errors by which another scale than the first must be better
FEWEST_UNITS = 10  # with a hit; with fewer nothing can be told


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


def fit_trend(sample: LevelUnits, subset: Subset, start: Fit | None) -> Fit:
    """The coefficients of the trend on some of the units."""
    begin = None if start is None else start.coefficients
    return Fit(subset, fit_coefficients(sample.choices(subset), begin))


def choose_scale(engine_scores: LevelUnits, scales: Sequence[Scale]) -> Scale:
    """The scale on which the trend gains most on what is held out; the first unless it is clear.

    Scales on which the coefficients do not converge do not count.

    Args:
        engine_scores: a sample of the units, with the engine's scores as they are.
        scales: to choose from.
    """
    if len(scales) == 1 or engine_scores.data.n_units == 0:
        return scales[0]
    first, best = None, (0.0, scales[0])
    for scale in scales:
        sample = engine_scores.on_scale(scale)
        whole = fit_trend(sample, Subset(), None)
        folds = [fit_trend(sample, Subset(fold), whole) for fold in range(sample.shared.n_folds)]
        if not all(fit.coefficients.converged for fit in (whole, *folds)):
            continue
        values = sample.held_out_values(folds, {"trend": 1.0})
        if first is None:
            first, best = values, (0.0, scale)
        better = values - first
        gain, error = float(better.sum()), float(np.sqrt((better * better).sum()))
        if gain > max(best[0], _PREFERRED * error):
            best = gain, scale
    return best[1]


def learn_levels(units: LevelUnits, progress: Progress | None = None) -> Learned:
    """Learn the levels, and how far held-out units support each of them."""
    return _LevelFits(units, progress).learn()


class _LevelFits:
    """Fits of all levels: on all units, and on all folds but one."""

    def __init__(self, units: LevelUnits, progress: Progress | None) -> None:
        self._units, self._shared = units, units.shared
        self._progress, self._done = progress, 0
        self.names, now = self._shared.tonight()
        self._bought, listed = self._shared.counts(self._shared.n_windows - 1)
        seen = listed / max(float(listed.sum()), 1.0)
        # A matrix product would depend on the machine in its last bits.
        self._centred: Floats = now - (seen[:, None] * now).sum(axis=0)

    def learn(self) -> Learned:
        """Fit on all units and without each fold, choose the lengths, and add up the levels."""
        if self._shared.sizes.n_units < FEWEST_UNITS:
            return self._nothing()
        self._sample = self._units.sample("trend")
        self._held_out = self._units.sample("curves")
        whole = self._fit_trend(Subset(), None)
        folds = [self._fit_trend(Subset(fold), whole) for fold in range(self._shared.n_folds)]
        if not all(fit.coefficients.converged for fit in (whole, *folds)):
            return self._nothing()._replace(converged=False)
        add_levels = self._add_later_levels if self._shared.as_of else self._add_levels
        whole, folds, kept = add_levels(whole, folds)
        n_units = self._shared.sizes.n_units
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
        gained = self._held_out.compare(later, kept, "own", 0.0, _LATER_OWN_LENGTH)
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
        n_groups, kept = self._shared.n_groups, {"trend": 1.0}
        found = (self._effects("category", fit, kept, n_groups) for fit in fits)
        return [fit._replace(category=own) for fit, own in zip(fits, found, strict=True)]

    def _fit_own(self, fits: list[Fit], kept: dict[str, float]) -> list[Fit]:
        found = []
        for fit in fits:
            own = self._effects("own", fit, kept, self._shared.n_items)
            found.append(fit._replace(own=own))
            self._step()
        return found

    def _effects(self, level: str, fit: Fit, kept: dict[str, float], n_groups: int) -> Effects:
        def sums(effects: Floats) -> Floats:
            return self._units.effect_sums(level, fit, kept, effects)

        return fit_effects(sums, n_groups, _PRECISION)

    def _errors(self, fit: Fit) -> Floats:
        """The standard error of each item's bias.

        The information on an item comes from its buyers (part of each, because a rise is a ratio
        of two counts) or from the choices of those who list it, whichever is more. With the
        variance of true biases over all items, that gives the error of a shrunken mean. An item's
        change differs between the users who list it: one number misses that, of however many
        users it is learned.
        """
        assert fit.own is not None
        none = np.zeros(self._shared.n_items)
        spread = effect_variance(self._units.effect_sums("spread", fit, {}, none))
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
            return self._held_out.compare(fold_fits, kept, level, start, end)

        better = lifts(default, best)
        if better.gain > _CLEARLY * better.gain_error:
            return best
        if default == 0:
            return default
        # A default that loses would end in biases of 0, even where a shorter level surely gains.
        from_none = lifts(0.0, best)
        gains = from_none.gain > _INSTEAD_OF_LOSS * from_none.gain_error
        return best if gains and lifts(0.0, default).gain <= 0 else default

    def _forecast(self, folds: list[Fit], kept: dict[str, float]) -> Forecast:
        return self._forecast_of(self._held_out.forecast(folds, kept))

    def _forecast_of(self, lifts: Lifts) -> Forecast:
        return forecast_lift(lifts, self._shared.as_of, self._shared.histories.window_ticks)

    def _forecast_newest(self, kept: dict[str, float]) -> Forecast | None:
        """The gain in the newest window from what earlier windows teach; None with one window."""
        filled = np.unique(self._units.window)
        if len(filled) < 2:
            return None
        newest = int(filled[-1])
        fit = self._fit_trend(Subset(before=newest), None)
        if self._shared.groups is not None:
            (fit,) = self._fit_categories([fit])
        (fit,) = self._fit_own([fit], kept)
        return self._forecast_of(self._units.forecast_newest(fit, kept, newest))

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
            self._shared.n_windows, self._shared.sizes.n_units,
            score_coefficient=fit.score_coefficient,
        )  # fmt: skip

    def _nothing(self) -> Learned:
        zero = np.zeros(self._shared.n_items)
        wide = np.full(self._shared.n_items, self._shared.score_unit / np.sqrt(_PRECISION))
        none = {"trend": 0.0, "category": 0.0, "own": 0.0}
        flat = dict.fromkeys(self.names, 0.0)
        return Learned(
            zero, zero, zero, wide, flat, none, NO_FORECAST, self._shared.n_windows,
            self._shared.sizes.n_units,
        )  # fmt: skip


def _shorten(kept: dict[str, float], share: float) -> dict[str, float]:
    return {level: length * share for level, length in kept.items()}
