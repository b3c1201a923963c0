"""The default fit: counts everybody, learns from the units with hits, and counts again.

It learns a trend shared by all items, then categories, then each item's own part:

    bias = kept_trend·θ·x + kept_category·c + kept_own·r

The choice model finds θ, c and r (see `choice_model`). How far each level is carried (its length,
`kept_*`) is decided by the exact metric on what is held out, and so is the forecast.

With timestamps, features are as of each window's start and windows are held out in turn: the trend
keeps the model's length unless another one is clearly better; categories and own parts, learned on
the windows before, must gain on a later one. Without, features leave out a user's own group, and
groups of users are held out: trend and own parts keep their usual length unless another one is
clearly better; categories are used only if they clearly help.

What is learned becomes an `ItemBias`, with gains, intervals, forecast and warnings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints
from trimtab.errors import GuardWarning, SimilarListsWarning, warn
from trimtab.learn.choice_model import (
    Coefficients,
    Fit,
    LevelUnits,
    Scale,
    Subset,
    coefficient_errors,
    fit_coefficients,
    scales_to_try,
)
from trimtab.learn.counted import Counted, Counts, count_top_k, sum_parts
from trimtab.learn.features import Shared
from trimtab.learn.held_out import NO_FORECAST, Forecast, Lifts, forecasts_by_strength
from trimtab.learn.sales import Histories
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import HitLists, join, take_hits
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import WIDTH_90, Summary
from trimtab.progress import Progress

HIERARCHY = "hierarchy"
_PRECISION = 10.0  # of the prior of categories and own parts
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance
_INSTEAD_OF_LOSS = 2.0  # the same, if the default length loses
# Own parts count the chance in an item's sales a second time, after its features: the shorter, the
# better known is the bias. Learned on windows before the one they are used in they may be longer.
_OWN_LENGTH, _LATER_OWN_LENGTH = 0.25, 0.5
_OWN_GAIN = 1.0  # standard errors by which they must gain there
_MISFIT = 0.09  # what one bias for all users misses, over the spread of true biases
_PER_BUYER = 0.6  # information on an item's rise
_PREFERRED = 2.0  # standard errors by which another scale than the first must be better
FEWEST_UNITS = 10  # with a hit; with fewer nothing can be told
_MOST_SHOWN = 10
_MORE_SLOTS, _TIMES_MORE = 0.1, 1.5  # limits on how much the share of the most shown items may grow
_FEW = 10  # lists, or sales
ONE_DAY = (
    "one window of one day says nothing of other days: there is no forecast; learn from more days "
    "before you ship"
)
_FAR_BELOW = 0.5  # of the forecast; what a fit has seen should gain more than what it has not


class Learned(NamedTuple):
    """The parts of each item's bias, which add up to it; and how they were found."""

    trend: Floats
    category: Floats
    own: Floats
    error: Floats  # standard error of the sum
    coefficients: dict[str, float]
    kept: dict[str, float]
    forecast: Forecast
    fitted_lift: float = np.nan  # of what the fit has seen, by the same lengths as the forecast
    converged: bool = True  # the trend's coefficients, in every fit
    folds: tuple[Fit, ...] = ()  # fits without each fold; none if there is too little to learn from
    score_coefficient: float = 1.0  # of the engine's score
    by_strength: Mapping[str, list[float]] = MappingProxyType({})  # forecast and its interval


class BiasFit(NamedTuple):
    """The biases of a fit, how they were learned, and what all units share."""

    bias: ItemBias
    learned: Learned
    shared: Shared  # on the scale of the biases


def fit_biases(settings: LearnerSettings, counted: Counted, progress: Progress | None) -> BiasFit:
    """Learn biases by levels, with forecast and intervals."""
    choice, histories = counted.choose_units()
    data: HitLists = join(list(counted.parts.map(take_hits, counted.plan, choice)))
    shared = Shared.of(counted, choice.learned_from, histories, data)
    scales = scales_to_try(settings.scale, counted.counts)
    learned, shared = _learn(LevelUnits(data, shared), scales, progress)
    return BiasFit(_build_result(settings, learned, counted, shared), learned, shared)


def _learn(
    units: LevelUnits, scales: Sequence[Scale], progress: Progress | None
) -> tuple[Learned, Shared]:
    """Choose a scale, and learn the levels on it."""
    n_steps, done = (len(scales) + 1) * (units.shared.n_folds + 1), itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(1, min(next(done), n_steps), n_steps)

    if units.data.n_units == 0:
        shared = units.on_scale(scales[0]).shared
        return nothing_learned(shared), shared
    trend = choose_trend(units.sample("trend"), scales, step)
    units = units.on_scale(trend.scale)
    if units.data.n_units < FEWEST_UNITS:
        return nothing_learned(units.shared), units.shared
    if not trend.converged:
        return nothing_learned(units.shared)._replace(converged=False), units.shared
    return LevelFits(units, trend, step).learn(), units.shared


# The levels ---------------------------------------------------------------------------------------


class Trend(NamedTuple):
    """The trend on one scale: its fits on a sample of all units, and without each fold."""

    scale: Scale
    sample: LevelUnits
    whole: Fit
    folds: list[Fit]

    @staticmethod
    def on(engine_scores: LevelUnits, scale: Scale, step: Callable[[], None]) -> Trend:
        """Fit the trend on a scale, from units with the engine's scores as they are."""
        sample = engine_scores.on_scale(scale)

        def fit(subset: Subset, start: Coefficients | None = None) -> Fit:
            found = Fit(subset, fit_coefficients(sample.choices(subset), start))
            step()
            return found

        whole = fit(Subset())
        folds = [fit(Subset(fold), whole.coefficients) for fold in range(sample.shared.n_folds)]
        return Trend(scale, sample, whole, folds)

    @property
    def converged(self) -> bool:
        """Whether the coefficients did, in every fit."""
        return all(fit.coefficients.converged for fit in (self.whole, *self.folds))


def choose_trend(
    engine_scores: LevelUnits, scales: Sequence[Scale], step: Callable[[], None]
) -> Trend:
    """The trend on the scale that gains most on what is held out; the first unless it is clear.

    Scales on which the coefficients do not converge do not count.

    Args:
        engine_scores: a sample of the units, with the engine's scores as they are.
        scales: to choose from.
        step: called after each fit.
    """
    best = preferred = Trend.on(engine_scores, scales[0], step)
    if len(scales) == 1:
        return preferred
    others = (Trend.on(engine_scores, scale, step) for scale in scales[1:])
    most, before = 0.0, None
    for trend in itertools.chain([preferred], others):
        if not trend.converged:
            continue
        values = trend.sample.held_out_values(trend.folds, {"trend": 1.0})
        if before is None:
            before, best = values, trend
        better = values - before
        gain, error = float(better.sum()), float(np.sqrt((better * better).sum()))
        if gain > max(most, _PREFERRED * error):
            most, best = gain, trend
    return best


class LevelFits:
    """Fits of all levels: on all units, and on all folds but one.

    Args:
        units: all of them, on the scale of the trend.
        trend: fitted on a sample of them.
        step: called after each fit of own parts.
    """

    def __init__(self, units: LevelUnits, trend: Trend, step: Callable[[], None]) -> None:
        self._units, self._shared, self._trend, self._step = units, units.shared, trend, step
        self._names, now = self._shared.tonight()
        self._centred = self._shared.centre(now)

    def learn(self) -> Learned:
        """Learn the levels, and how far held-out units support each of them."""
        self._held_out = self._units.sample("curves")
        add_levels = self._add_later_levels if self._shared.as_of else self._add_levels
        whole, folds, kept = add_levels(self._trend.whole, self._trend.folds)
        n_units = self._shared.sizes.n_units
        supported = self._forecast(folds, kept).supported_share(n_units)
        kept = _shorten(kept, supported)
        forecast = self._forecast(folds, kept) if supported else NO_FORECAST
        if not forecast.is_clear(n_units):
            kept, forecast = _shorten(kept, 0.0), NO_FORECAST
        by_strength = forecasts_by_strength(
            forecast, lambda strength: self._forecast(folds, _shorten(kept, strength))
        )
        fitted = self._forecast([whole] * len(folds), kept).lift
        added_up = self._add_up(whole, kept, forecast)
        return added_up._replace(fitted_lift=fitted, folds=tuple(folds), by_strength=by_strength)

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

    def _fit_categories(self, fits: list[Fit]) -> list[Fit]:
        return [
            fit._replace(category=self._units.effects("category", fit, {"trend": 1.0}, _PRECISION))
            for fit in fits
        ]

    def _fit_own(self, fits: list[Fit], kept: dict[str, float]) -> list[Fit]:
        found = []
        for fit in fits:
            found.append(fit._replace(own=self._units.effects("own", fit, kept, _PRECISION)))
            self._step()
        return found

    def _errors(self, fit: Fit) -> Floats:
        """The standard error of each item's bias.

        The information on an item comes from its buyers (part of each, because a rise is a ratio
        of two counts) or from the choices of those who list it, whichever is more. With the
        variance of true biases over all items, that gives the error of a shrunken mean. An item's
        change differs between the users who list it: one number misses that, of however many
        users it is learned.
        """
        assert fit.own is not None
        spread = self._units.effect_variance(fit)
        bought, _ = self._shared.counts(self._shared.n_windows - 1)
        information = _PER_BUYER * bought / fit.score_coefficient**2
        shrunken = spread / (1.0 + spread * np.maximum(information, fit.own.information))
        covariance = coefficient_errors(self._trend.sample.choices(fit.subset), fit.coefficients)
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
        return self._shared.forecast(self._held_out.forecast(folds, kept))

    def _add_up(self, fit: Fit, kept: dict[str, float], forecast: Forecast) -> Learned:
        """The parts of all biases in the newest window; 0 is the average over listed items."""
        unit = self._shared.score_unit
        trend = kept["trend"] * (self._centred @ fit.slopes)
        category = np.zeros(self._shared.n_items)
        if fit.category is not None:
            category = kept["category"] * self._units.by_item(fit, "category")
        own = kept["own"] * self._units.by_item(fit, "own")
        error = self._errors(fit)
        beta = dict(zip(self._names, (float(b) for b in fit.slopes), strict=True))
        return Learned(
            trend * unit, category * unit, own * unit, error * unit, beta, kept, forecast,
            score_coefficient=fit.score_coefficient,
        )  # fmt: skip


def nothing_learned(shared: Shared) -> Learned:
    """Biases of 0, with what is known of items before anything is learned."""
    zero = np.zeros(shared.n_items)
    wide = np.full(shared.n_items, shared.score_unit / np.sqrt(_PRECISION))
    none = {"trend": 0.0, "category": 0.0, "own": 0.0}
    return Learned(
        zero, zero, zero, wide, dict.fromkeys(shared.tonight()[0], 0.0), none, NO_FORECAST
    )


def _shorten(kept: dict[str, float], share: float) -> dict[str, float]:
    return {level: length * share for level, length in kept.items()}


# The result ---------------------------------------------------------------------------------------


def _build_result(
    settings: LearnerSettings, learned: Learned, counted: Counted, shared: Shared
) -> ItemBias:
    """What was learned, as an `ItemBias`; warns before anyone ships biases that may not help."""
    plan, counts, before = counted.plan, counted.counts, counted.counts.before
    fresh = _find_fresh(counts, shared.histories)
    bias, learned = _centre(learned, before.shown, fresh, counted.categories)
    after = sum_parts(counted.parts.map(count_top_k, plan, shared.scale, bias))
    value_before, value_after = (own.hit_values / plan.quanta for own in (before, after))
    weight = counts.weight_of_buyers(plan)
    forecast, low, high = learned.forecast.interval()
    n_items = len(bias)
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(value_before.sum() / weight),
        after=float(value_after.sum() / weight),
        objective_before=float(value_before.sum()),
        objective_after=float(value_after.sum()),
        n_users=counts.n_buyers,
        n_skipped=counted.survey.n_units - counts.n_buyers,
        n_items=n_items,
        n_candidates=n_items,
        n_excluded=0,
        cycles=1,
        updates=int(np.count_nonzero(bias)),
        converged=learned.converged,
        unit=shared.score_unit,
        method=HIERARCHY,
        forecast=forecast,
        forecast_low=low,
        forecast_high=high,
        forecast_windows=learned.forecast.n_windows,
        n_windows=shared.n_windows,
        concentration_before=_concentration(before.shown),
        concentration_after=_concentration(after.shown),
        kept=learned.kept,
        coefficients=learned.coefficients,
        forecast_by_strength=dict(learned.by_strength),
    )
    _warn_before_shipping(summary, learned, shared.sizes.n_units)
    width = WIDTH_90 * learned.error
    return ItemBias(
        item_ids=plan.item_ids,
        bias=bias,
        excluded=np.zeros(n_items, bool),
        gain=value_after - value_before,
        support=counts.support,
        low=bias - width,
        high=bias + width,
        trend=learned.trend,
        category=learned.category,
        fresh=fresh,
        scale=shared.scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=counted.window,
        depth=common_depth(counts.lengths),
    )


def _find_fresh(counts: Counts, histories: Histories) -> Flags:
    """Items that were listed and sold too rarely for their bias to be known."""
    sold = counts.support.astype(np.float64)
    if histories.before:
        sold = sold + histories.before[-1].long
    return (counts.listed < _FEW) & (sold < _FEW)


def _centre(learned: Learned, shown: Ints, fresh: Flags, categories: Any) -> tuple[Floats, Learned]:
    """Biases that are 0 on average over what the engine shows; fresh items get their category's.

    Only differences change a ranking. Items that the table does not know have bias 0: centring
    makes that neither an advantage nor a disadvantage.
    """
    trend, category, own = learned.trend, learned.category, learned.own
    share_shown = shown / max(float(shown.sum()), 1.0)
    trend = trend - float((share_shown * (trend + category + own)).sum())
    total = trend + category + own
    if fresh.any():
        pooled = np.zeros(len(total))
        if categories is not None:
            pooled = _pooled(total, shown * ~fresh, categories)
        trend = np.where(fresh, 0.0, trend)
        category = np.where(fresh, pooled, category)
        total = np.where(fresh, pooled, total)
    return total, learned._replace(trend=trend, category=category, own=total - trend - category)


def _pooled(total: Floats, shown: Ints, categories: Ints) -> Floats:
    """The mean bias of each item's category over what is shown; shrunk to 0 if that is little."""
    group = np.where(categories < 0, categories.max(initial=-1) + 1, categories)
    sums = np.bincount(group, shown * total)
    counts = np.bincount(group, shown)
    means = sums / (counts + _FEW)
    return np.where(categories < 0, 0.0, means[group])


def _concentration(shown: Ints) -> float:
    """The share of all slots that the most shown items take."""
    if len(shown) <= _MOST_SHOWN:
        return 1.0
    most = np.partition(shown, -_MOST_SHOWN)[-_MOST_SHOWN:]
    return float(most.sum() / max(int(shown.sum()), 1))


def _warn_before_shipping(summary: Summary, learned: Learned, n_units: int) -> None:
    """Warn of biases that may not help, or that show everybody the same items."""
    name = f"{summary.metric.upper()}@{summary.k}"
    advice = "keep the current biases, or learn from more users or days"
    if n_units < FEWEST_UNITS:
        warn(
            f"too little to tell: {n_units} users bought something that was listed to "
            f"them, at least {FEWEST_UNITS} are needed; all biases set to 0; {advice}",
            GuardWarning,
        )
    elif not summary.converged:
        warn(f"the trend did not converge; all biases set to 0; {advice}", GuardWarning)
    elif not any(summary.kept.values()):
        warn(
            f"no clear gain in {name} on held-out data; all biases set to 0; {advice}",
            GuardWarning,
        )
    elif not learned.forecast.is_told:
        warn(ONE_DAY, GuardWarning)
    elif not (learned.forecast.is_clear() or np.isnan(learned.forecast.share)):
        warn(f"no clear gain in {name} on held-out data; {advice}", GuardWarning)
    elif summary.forecast is not None and learned.fitted_lift < _FAR_BELOW * summary.forecast:
        warn(
            f"the lift in {name} of the users learned from, {learned.fitted_lift:+.1%}, is far "
            f"below the forecast, {summary.forecast:+.1%}: the fit does not describe them; "
            f"{advice}",
            GuardWarning,
        )
    before, after = summary.concentration_before or 0.0, summary.concentration_after or 0.0
    if after > before + _MORE_SLOTS and after > _TIMES_MORE * before:
        warn(
            f"the {_MOST_SHOWN} most shown items would take {after:.0%} of all slots, up from "
            f"{before:.0%}: lists would become too similar; look at the largest biases before "
            f"shipping",
            SimilarListsWarning,
        )
