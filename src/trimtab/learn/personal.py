"""The fit of a Reranker: biases, then what users with purchases add.

Held-out units decide how far. Sources of wider lists are taken one after the other, the best first,
while they gain. Then the way from the biases to the choice model is carried to its end, unless
another length is clearly better; and less of it is kept the less clear its gain is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import OWN, TRENDING, Floats, Ints
from trimtab.errors import GuardWarning, TrimtabWarning, warn
from trimtab.learn.bias_fit import CLEARLY, FEWEST_UNITS, LEVELS, ONE_DAY, BiasFit, fit_biases
from trimtab.learn.choice_model import (
    Coefficients,
    HeldOut,
    LevelUnits,
    Subset,
    coefficient_errors,
    fit_folds,
)
from trimtab.learn.counted import Counted
from trimtab.learn.features import Shared, popularity
from trimtab.learn.held_out import PERSONAL, TREND, Forecast, Lifts, forecasts_by_strength
from trimtab.learn.personal_units import (
    WHOLE_WAY,
    PersonalUnits,
    Way,
    lists_hold_own,
    personal_units,
    sample_units,
    trending_items,
    widen_units,
)
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import Units
from trimtab.models.item_bias import ItemBias
from trimtab.models.model import Coefficient, RerankSummary
from trimtab.models.reranker import Reranker
from trimtab.models.widening import PRODUCTS, SOURCES, TERMS, WiderLists
from trimtab.progress import Progress

_GAIN = 1.0  # standard errors by which a source of wider lists must gain


class LearnedPersonal(NamedTuple):
    """What was learned of users with purchases; a way of length 0 means nothing."""

    n_units: int  # learned from
    lifts: dict[str, float]  # over the engine, held out: of biases, with terms, with each source
    forecast: Forecast  # of the lift over the engine, for all users
    by_strength: Mapping[str, list[float]]  # forecast and its interval
    way: Way = Way(0.0)
    sources: tuple[str, ...] = ()  # of wider lists
    coefficients: Coefficients | None = None
    covariance: Floats | None = None
    shared: Shared | None = None  # with the range of features that the coefficients are for


def nothing_personal(
    fit: BiasFit, n_units: int = 0, lifts: dict[str, float] | None = None
) -> LearnedPersonal:
    """Everybody is ranked by the biases."""
    return LearnedPersonal(n_units, lifts or {}, fit.learned.forecast, fit.learned.by_strength)


def fit_rerank(
    biases: LearnerSettings, settings: Mapping[str, Any], counted: Counted,
    progress: Progress | None,
) -> Reranker:  # fmt: skip
    """The Reranker that the tables of a fit teach.

    Args:
        biases: settings of the biases.
        settings: of the Reranker.
        counted: tables of the fit.
        progress: called after each step of the biases.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fit_biases(biases, counted, progress)
    personal, may_repeat = _learn(fit, counted, settings)
    _pass_on(caught, fit.bias, personal)
    return build_reranker(settings, counted, fit, personal, may_repeat)


def _learn(
    fit: BiasFit, counted: Counted, settings: Mapping[str, Any]
) -> tuple[LearnedPersonal, bool]:
    """What users with purchases add, and whether lists may repeat what a user bought."""
    if not (fit.shared.as_of and fit.learned.folds):  # nothing is known from before the windows
        return nothing_personal(fit), settings["repeats"] != "never"
    units = sample_units(counted, fit.shared)
    wide, has_purchases = widen_units(units, fit.shared, settings["widen"])
    may_repeat = settings["repeats"] == "add"
    if settings["repeats"] == "auto":
        may_repeat = lists_hold_own(wide, units.windows, fit.shared.histories, has_purchases)
    if not may_repeat:
        wide = wide.without_repeats()
    sources = (TRENDING | OWN if may_repeat else TRENDING) if settings["widen"] != "none" else 0
    learned = PersonalFits(units, wide, np.flatnonzero(has_purchases), fit).learn(sources)
    return learned, may_repeat


def _pass_on(
    caught: list[warnings.WarningMessage], bias: ItemBias, personal: LearnedPersonal
) -> None:
    """Warn of biases that may not help, unless they are 0 and something else gains clearly."""
    no_concern = personal.way.length > 0 and not np.any(bias.bias)
    for found in caught:
        if not issubclass(found.category, TrimtabWarning):
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)
        elif not (no_concern and issubclass(found.category, GuardWarning)):
            warn(str(found.message), found.category)
    if no_concern and not personal.forecast.is_told:
        warn(ONE_DAY, GuardWarning)


# How far from the biases to the choice model ------------------------------------------------------


class PersonalFits:
    """Fits of the terms of users with purchases.

    Args:
        units: a sample of the units of the fit.
        wide: their wider lists.
        has_purchases: units whose users bought something before.
        fit: of the biases.
    """

    kind: type[PersonalUnits] = PersonalUnits

    def __init__(self, units: Units, wide: WiderLists, has_purchases: Ints, fit: BiasFit) -> None:
        self._sampled, self._wide, self._chosen, self._fit = units, wide, has_purchases, fit
        self._shared, self._hits = fit.shared, units.with_hits
        self._folds = fit.shared.folds_of(units.windows, units.hashes)
        by_level = LevelUnits(self._hits, self._shared)
        levels = [level for level in LEVELS if fit.learned.kept[level]]
        self._held_out = HeldOut(by_level, fit.learned.folds, levels)
        self._engine, self._biases = self._by_biases(0.0), self._by_biases(1.0)

    def _by_biases(self, strength: float) -> Floats:
        """The weighted metric of each unit with a share of the biases, each unit held out."""
        kept = self._fit.learned.kept
        found = np.zeros(self._sampled.n_units)  # as it stays for those without a hit
        found[self._hits.source] = self._held_out.values({n: strength * kept[n] for n in kept})
        return found

    def units(self, sources: int) -> PersonalUnits:
        """Units on lists with some sources."""
        return personal_units(
            self._sampled, self._wide, self._chosen, self._fit, sources, self.kind
        )

    def learn(self, sources: int) -> LearnedPersonal:
        """Choose among the sources, and a length; fit on all units, and forecast."""
        units, fits = self._fit_on(sources)
        if not fits:
            return nothing_personal(self._fit, units.data.n_units)
        chosen, lifts = self._choose_sources(units, fits[1:], sources)
        if chosen != sources:
            units, fits = self._fit_on(chosen)
            if not fits:
                return nothing_personal(self._fit, units.data.n_units)
        whole, *folds = fits
        n_units, lasting = units.data.n_units, TREND.mix(PERSONAL, _personal_share(lifts))

        def forecast(before: Floats, after: Floats) -> Forecast:
            return self._shared.forecast(self._lifts(before, after), lasting)

        gained_length = self._length(units, folds)
        gained = forecast(self._biases, self._after(units, folds, Way(gained_length)))
        way = Way(gained_length * gained.supported_share(n_units))
        way = self._towards_popularity(units, folds, way)

        def at_strength(strength: float) -> Forecast:
            values = units.values_at_strength(folds, way, strength)
            return forecast(self._engine, self._of_all(units, values, self._by_biases(strength)))

        whole_lift = forecast(self._engine, self._after(units, folds, way))
        if not (way.length and whole_lift.is_clear(n_units)):
            return nothing_personal(self._fit, n_units, lifts)
        names = tuple(name for name, source in SOURCES.items() if source & chosen)
        covariance = coefficient_errors(units.choices(Subset()), whole)
        by_strength = forecasts_by_strength(whole_lift, at_strength)
        return LearnedPersonal(
            n_units, lifts, whole_lift, by_strength, way, names, whole, covariance, units.shared
        )

    def _fit_on(self, sources: int) -> tuple[PersonalUnits, list[Coefficients]]:
        """Units on lists with some sources; and the fits on all of them, and without each fold.

        There are no fits of too few units, or if one of them does not converge.
        """
        units = self.units(sources)
        if units.data.n_units < FEWEST_UNITS:
            return units, []
        fits = fit_folds(units, self._shared.n_folds)
        return units, fits if all(found.converged for found in fits) else []

    def _choose_sources(
        self, units: PersonalUnits, folds: list[Coefficients], allowed: int
    ) -> tuple[int, dict[str, float]]:
        """The sources that gain, and the lifts with terms alone and after each source."""
        chosen, values = 0, self._after(units.only(0), folds)
        lifts = {"trend": self._lift(self._biases), "personal": self._lift(values)}
        left = [name for name, source in SOURCES.items() if source & allowed]
        while left:
            tried = {name: self._after(units.only(chosen | SOURCES[name]), folds) for name in left}
            gained = {name: self._lifts(values, after) for name, after in tried.items()}
            gaining = [name for name in left if gained[name].gain > _GAIN * gained[name].gain_error]
            if not gaining:
                break
            best = max(gaining, key=lambda name: float(tried[name].sum()))
            chosen, values = chosen | SOURCES[best], tried[best]
            lifts[best] = self._lift(values)
            left.remove(best)
        return chosen, lifts

    def _length(self, units: PersonalUnits, folds: list[Coefficients]) -> float:
        """How far to go: to the end, unless another length is clearly better."""
        best, _ = units.line(folds).best(1.0)
        better = self._lifts(self._after(units, folds), self._after(units, folds, Way(best)))
        return best if better.gain > CLEARLY * better.gain_error else 1.0

    def _towards_popularity(self, units: PersonalUnits, folds: list[Coefficients], way: Way) -> Way:
        """How far from there to what sold most of late: not at all unless that gains.

        On a log where best sellers are hard to beat, what is shipped is not far below them.
        """
        best, _ = units.line_to_popularity(folds, way).best(0.0)
        further = way._replace(to_popularity=min(best, 1.0))
        gained = self._lifts(self._after(units, folds, way), self._after(units, folds, further))
        return further if gained.gain > _GAIN * gained.gain_error else way

    def _after(
        self, units: PersonalUnits, folds: list[Coefficients], way: Way = WHOLE_WAY
    ) -> Floats:
        """The metric of every sampled unit: by the choice model, or by biases for other users."""
        return self._of_all(units, units.values(folds, way), self._biases)

    def _of_all(self, units: PersonalUnits, values: Floats, by_bias: Floats) -> Floats:
        """Values of every sampled unit; those of the units are given.

        A unit whose wider list has no hit may have lost those of its list; there are none.
        """
        after = by_bias.copy()
        after[self._chosen] = 0.0
        after[units.data.source] = values
        return after

    def _lift(self, after: Floats) -> float:
        return float(after.sum() / max(float(self._engine.sum()), 1e-300) - 1.0)

    def _lifts(self, before: Floats, after: Floats) -> Lifts:
        return self._shared.lifts(before, after, self._folds)


def _personal_share(lifts: dict[str, float]) -> float:
    """The share of a lift that is due to what users buy again, rather than to trends."""
    names = list(lifts)
    steps = dict(zip(names, np.diff([0.0, *lifts.values()]), strict=True))
    total, personal = lifts[names[-1]], steps["personal"] + steps.get("own", 0.0)
    return float(np.clip(personal / total, 0.0, 1.0)) if total > 0 else 0.0


# The result ---------------------------------------------------------------------------------------


def build_reranker(
    settings: Mapping[str, Any], counted: Counted, fit: BiasFit, personal: LearnedPersonal,
    may_repeat: bool,
) -> Reranker:  # fmt: skip
    """What was learned, as a `Reranker`."""
    histories = counted.histories
    assert histories.now is not None
    assert histories.end is not None
    coefficients, *parts = _add_up(fit, personal)
    lift, low, high = personal.forecast.interval()
    summary = RerankSummary(
        metric=fit.shared.metric,
        k=fit.shared.k,
        n_windows=fit.shared.n_windows,
        n_users=personal.n_units,
        kept=personal.way.length,
        to_popularity=personal.way.to_popularity,
        sources=personal.sources,
        forecast=lift,
        forecast_low=low,
        forecast_high=high,
        forecast_windows=personal.forecast.n_windows,
        lifts=personal.lifts,
        forecast_by_strength=dict(personal.by_strength),
    )
    return Reranker(
        bias=fit.bias,
        item_part=parts[0],
        bought_part=parts[1],
        trending=trending_items(histories.now),
        learned=coefficients,
        summary=summary,
        settings=settings,
        may_repeat=may_repeat,
        score_unit=fit.shared.score_unit,
        learned_until=histories.end,
        has_zone=bool(counted.survey.zoned),
        window_length=histories.window,
    )


def _add_up(
    fit: BiasFit, personal: LearnedPersonal
) -> tuple[tuple[Coefficient, ...], Floats, Floats]:
    """Coefficients as far as they are kept, and what they say of each item as of now.

    That is for users with purchases, and for those who bought the item.
    """
    if personal.coefficients is None or personal.covariance is None or personal.shared is None:
        return (), *np.zeros((2, fit.shared.n_items))
    names, now = personal.shared.tonight()
    kinds = dict.fromkeys(names, "item") | dict.fromkeys((*TERMS, *PRODUCTS), "personal")
    kinds = {"score": "score"} | kinds | dict.fromkeys(personal.sources, "added")
    (length, to_popularity), engine = personal.way, fit.learned.score_coefficient
    values = length * personal.coefficients.beta
    trend = (fit.shared.centre(now) * values[1 : 1 + len(names)]).sum(axis=1)
    biases = engine * fit.bias.bias / fit.shared.score_unit
    values[0] += (1.0 - length) * engine
    values *= 1.0 - to_popularity
    item_part = (1.0 - to_popularity) * (trend + (1.0 - length) * biases)
    if to_popularity:
        assert fit.shared.histories.now is not None
        item_part += to_popularity * popularity(fit.shared.histories.now)
    errors = (1.0 - to_popularity) * length * np.sqrt(np.maximum(np.diag(personal.covariance), 0.0))
    rows = zip(kinds.items(), values, errors, strict=True)
    coefficients = tuple(
        Coefficient(name, kind, float(value), float(error)) for (name, kind), value, error in rows
    )
    value_of = {own.name: own.value for own in coefficients}
    bought = np.zeros(len(now))
    for name, feature in PRODUCTS.items():
        bought += value_of[name] * now[:, names.index(feature)]
    return coefficients, item_part, bought
