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
    PRECISION,
    Fit,
    HeldOut,
    Kept,
    LevelUnits,
    Scale,
    Subset,
    coefficient_errors,
    fit_folds,
    scales_to_try,
)
from trimtab.learn.counted import Counted, count_top_k, sum_parts
from trimtab.learn.features import Shared
from trimtab.learn.held_out import NO_FORECAST, Forecast, Lifts, forecasts_by_strength
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import FOR_CURVES, FOR_TREND, HitLists, join, take_hits
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import WIDTH_90, Summary
from trimtab.progress import Progress

HIERARCHY = "hierarchy"
LEVELS = ("trend", "category", "own")
CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance
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
    kept: Kept = MappingProxyType(dict.fromkeys(LEVELS, 0.0))
    forecast: Forecast = NO_FORECAST
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
    choice, histories = counted.choose_windows()
    data: HitLists = join(list(counted.parts.map(take_hits, counted.plan, choice)))
    units = LevelUnits(data, Shared.of(counted, choice.learned_from, histories, data))
    scales = scales_to_try(settings.scale, counted.counts)
    n_steps, done = (len(scales) + 1) * (units.shared.n_folds + 1), itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(1, min(next(done), n_steps), n_steps)

    trend = choose_trend(units.sample(FOR_TREND), scales, step) if data.n_units else None
    units = units.on_scale(trend.scale if trend else scales[0])
    if trend and trend.converged and data.n_units >= FEWEST_UNITS:
        learned = LevelFits(units, trend, step).learn()
    else:
        learned = _nothing_learned(units.shared, data.n_units < FEWEST_UNITS)
    return BiasFit(_build_result(settings, learned, counted, units.shared), learned, units.shared)


def _nothing_learned(shared: Shared, converged: bool) -> Learned:
    """Biases of 0, with what is known of items before anything is learned."""
    zero = np.zeros(shared.n_items)
    wide = np.full(shared.n_items, shared.score_unit / np.sqrt(PRECISION))
    coefficients = dict.fromkeys(shared.tonight()[0], 0.0)
    return Learned(zero, zero, zero, wide, coefficients, converged=converged)


# The levels ---------------------------------------------------------------------------------------


class Trend(NamedTuple):
    """The trend on one scale: its fits on a sample of all units, and without each fold."""

    scale: Scale
    sample: LevelUnits
    whole: Fit
    folds: list[Fit]

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
    trends = [fit_trend(engine_scores, scale, step) for scale in scales]
    best, most, before = trends[0], 0.0, None
    for trend in trends if len(trends) > 1 else []:
        if not trend.converged:
            continue
        values = HeldOut(trend.sample, trend.folds, ["trend"]).values({"trend": 1.0})
        if before is None:
            before, best = values, trend
        better = values - before
        gain, error = float(better.sum()), float(np.sqrt((better * better).sum()))
        if gain > max(most, _PREFERRED * error):
            most, best = gain, trend
    return best


def fit_trend(engine_scores: LevelUnits, scale: Scale, step: Callable[[], None]) -> Trend:
    """Fit the trend on a scale, from units with the engine's scores as they are."""
    sample = engine_scores.on_scale(scale)
    whole, *folds = fit_folds(sample, sample.shared.n_folds, step)
    fits = [Fit(Subset(fold), found) for fold, found in enumerate(folds)]
    return Trend(scale, sample, Fit(Subset(), whole), fits)


class LevelFits:
    """Fits of all levels: on all units, and on all folds but one.

    Args:
        units: all of them, on the scale of the trend.
        trend: fitted on a sample of them.
        step: called after each fit of own parts.
    """

    def __init__(self, units: LevelUnits, trend: Trend, step: Callable[[], None]) -> None:
        self._units, self._shared, self._trend, self._step = units, units.shared, trend, step
        self._fits = [trend.whole, *trend.folds]
        self._judged = units.sample(FOR_CURVES)
        self._held_out = HeldOut(self._judged, trend.folds, ["trend"])
        self._kept = dict.fromkeys(LEVELS, 0.0)

    def learn(self) -> Learned:
        """Learn the levels, and how far held-out units support each of them.

        With several windows, categories and own parts are judged on later windows than those they
        were learned on. With one window as of an instant there is no later one: they stay 0. With
        features of a window's own sales, users are held out.
        """
        self._kept["trend"] = self._length("trend", 1.0)
        if self._shared.folds_are_windows:
            self._learn_from_earlier_windows()
        elif self._shared.as_of:  # no window is later: own parts are for their information only
            self._fit_own(1)
        else:
            self._add_categories()
            self._fit_own(len(self._fits))
            self._kept["own"] = self._length("own", _OWN_LENGTH)
        n_units = self._shared.sizes.n_units
        supported = self._forecast().supported_share(n_units)
        self._kept = self._shortened(supported)
        forecast = self._forecast() if supported else NO_FORECAST
        if not forecast.is_clear(n_units):
            self._kept, forecast = self._shortened(0.0), NO_FORECAST
        by_strength = forecasts_by_strength(forecast, self._forecast)
        whole, *folds = self._fits
        levels = [level for level, length in self._kept.items() if length]
        seen = HeldOut(self._judged, [whole] * len(folds), levels)
        fitted = self._shared.forecast(seen.lifts({}, self._kept)).lift
        return self._add_up(forecast)._replace(
            fitted_lift=fitted, folds=tuple(folds), by_strength=by_strength
        )

    def _learn_from_earlier_windows(self) -> None:
        """Categories and own parts, judged on windows after those they were learned on."""
        whole, *folds = self._fits
        later = [fit._replace(subset=Subset(before=window)) for window, fit in enumerate(folds)]
        self._fits = [whole, *later]
        self._add_categories()
        self._fit_own(len(self._fits))
        gained = self._lifts("own", 0.0, _LATER_OWN_LENGTH)
        if gained.gain > _OWN_GAIN * gained.gain_error:
            self._kept["own"] = _LATER_OWN_LENGTH

    def _add_categories(self) -> None:
        if self._shared.groups is None:
            return
        for place, fit in enumerate(self._fits):
            effects = self._units.effects("category", fit, {"trend": 1.0})
            self._fits[place] = fit._replace(category=effects)
        self._held_out.add("category", self._fits[1:])
        self._kept["category"] = self._length("category", 0.0)

    def _fit_own(self, n_fits: int) -> None:
        for place, fit in enumerate(self._fits[:n_fits]):
            effects = self._units.effects("own", fit, self._kept)
            self._fits[place] = fit._replace(own=effects)
            self._step()
        if n_fits > 1:
            self._held_out.add("own", self._fits[1:])

    def _length(self, level: str, default: float) -> float:
        """The length of a level: the default, unless another is clearly better, or it loses."""
        best, _ = self._held_out.line(self._kept, level).best(default)
        if best == default:
            return default
        better = self._lifts(level, default, best)
        if better.gain > CLEARLY * better.gain_error:
            return best
        if default == 0:
            return default
        # A default that loses would end in biases of 0, even where a shorter level surely gains.
        from_none = self._lifts(level, 0.0, best)
        gains = from_none.gain > _INSTEAD_OF_LOSS * from_none.gain_error
        return best if gains and self._lifts(level, 0.0, default).gain <= 0 else default

    def _lifts(self, level: str, start: float, end: float) -> Lifts:
        """What held-out units gain from one length of a level to another."""
        return self._held_out.lifts(self._kept | {level: start}, self._kept | {level: end})

    def _shortened(self, share: float) -> dict[str, float]:
        return {level: length * share for level, length in self._kept.items()}

    def _forecast(self, strength: float = 1.0) -> Forecast:
        return self._shared.forecast(self._held_out.lifts({}, self._shortened(strength)))

    def _add_up(self, forecast: Forecast) -> Learned:
        """The parts of all biases in the newest window; 0 is the average over listed items."""
        fit, unit, kept = self._fits[0], self._shared.score_unit, self._kept
        names, now = self._shared.tonight()
        centred = self._shared.centre(now)
        category = np.zeros(self._shared.n_items)
        if fit.category is not None:
            category = kept["category"] * self._units.by_item(fit, "category")
        return Learned(
            trend=kept["trend"] * (centred @ fit.slopes) * unit,
            category=category * unit,
            own=kept["own"] * self._units.by_item(fit, "own") * unit,
            error=self._errors(fit, centred) * unit,
            coefficients=dict(zip(names, fit.slopes.tolist(), strict=True)),
            kept=kept,
            forecast=forecast,
            score_coefficient=fit.score_coefficient,
        )

    def _errors(self, fit: Fit, centred: Floats) -> Floats:
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
        of_trend = ((centred @ covariance[1:, 1:]) * centred).sum(axis=1)
        errors: Floats = np.sqrt(np.maximum(of_trend, 0.0) + shrunken + _MISFIT**2 * spread)
        return errors / fit.score_coefficient


# The result ---------------------------------------------------------------------------------------


def _build_result(
    settings: LearnerSettings, learned: Learned, counted: Counted, shared: Shared
) -> ItemBias:
    """What was learned, as an `ItemBias`; warns before anyone ships biases that may not help."""
    plan, counts, before = counted.plan, counted.counts, counted.counts.before
    sold = counts.support.astype(np.float64)
    if shared.histories.before:
        sold += shared.histories.before[-1]["long"]
    fresh = (counts.listed < _FEW) & (sold < _FEW)  # too rare for their bias to be known
    bias, learned = _centre(learned, before.shown, fresh, counted.categories)
    after = sum_parts(counted.parts.map(count_top_k, plan, shared.scale, bias))
    value_before, value_after = (own.hit_values / plan.quanta for own in (before, after))
    forecast, low, high = learned.forecast.interval()
    n_items = len(bias)
    summary = Summary(
        **counted.figures(after),
        objective_before=float(value_before.sum()),
        objective_after=float(value_after.sum()),
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
    name, told = f"{summary.metric.upper()}@{summary.k}", None
    advice = "keep the current biases, or learn from more users or days"
    if n_units < FEWEST_UNITS:
        told = (
            f"too little to tell: {n_units} users bought something that was listed to "
            f"them, at least {FEWEST_UNITS} are needed; all biases set to 0; {advice}"
        )
    elif not summary.converged:
        told = f"the trend did not converge; all biases set to 0; {advice}"
    elif not any(summary.kept.values()):
        told = f"no clear gain in {name} on held-out data; all biases set to 0; {advice}"
    elif not learned.forecast.is_told:
        told = ONE_DAY
    elif not (learned.forecast.is_clear() or np.isnan(learned.forecast.share)):
        told = f"no clear gain in {name} on held-out data; {advice}"
    elif summary.forecast is not None and learned.fitted_lift < _FAR_BELOW * summary.forecast:
        told = (
            f"the lift in {name} of the users learned from, {learned.fitted_lift:+.1%}, is far "
            f"below the forecast, {summary.forecast:+.1%}: the fit does not describe them; {advice}"
        )
    if told:
        warn(told, GuardWarning)
    before, after = summary.concentration_before or 0.0, summary.concentration_after or 0.0
    if after > before + _MORE_SLOTS and after > _TIMES_MORE * before:
        warn(
            f"the {_MOST_SHOWN} most shown items would take {after:.0%} of all slots, up from "
            f"{before:.0%}: lists would become too similar; look at the largest biases before "
            f"shipping",
            SimilarListsWarning,
        )
