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
from trimtab.learn.bias_fit import FEWEST_UNITS, ONE_DAY, BiasFit, fit_biases
from trimtab.learn.choice_model import (
    Coefficients,
    LevelUnits,
    coefficient_errors,
    fit_coefficients,
)
from trimtab.learn.counted import Counted, quanta_below
from trimtab.learn.features import NO_RANGE, FeatureRange
from trimtab.learn.held_out import PERSONAL, TREND, Forecast, Lifts, forecasts_by_strength
from trimtab.learn.personal_units import (
    PersonalUnits,
    lists_hold_own,
    personal_units,
    sample_units,
    trending_items,
    widen_units,
)
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import LearningUnits
from trimtab.models.item_bias import ItemBias
from trimtab.models.model import Coefficient, RerankSummary
from trimtab.models.reranker import Reranker
from trimtab.models.widening import SOURCES, TERMS, WiderLists
from trimtab.progress import Progress

_GAIN = 1.0  # standard errors by which a source of wider lists must gain
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance


class LearnedPersonal(NamedTuple):
    """What was learned of users with purchases; a length of 0 means nothing."""

    length: float
    sources: int  # of wider lists
    coefficients: Coefficients | None
    covariance: Floats | None
    forecast: Forecast  # of the lift over the engine, for all users
    by_strength: Mapping[str, list[float]]  # forecast and its interval
    lifts: dict[str, float]  # over the engine, held out: of biases, with terms, with each source
    n_units: int  # learned from
    wider_range: FeatureRange  # of the features that the coefficients are for


def nothing_personal(
    fit: BiasFit, n_units: int = 0, lifts: dict[str, float] | None = None
) -> LearnedPersonal:
    """Everybody is ranked by the biases."""
    told = fit.learned.forecast, fit.learned.by_strength
    return LearnedPersonal(0.0, 0, None, None, *told, lifts or {}, n_units, NO_RANGE)


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


def build_reranker(
    settings: Mapping[str, Any], counted: Counted, fit: BiasFit, personal: LearnedPersonal,
    may_repeat: bool,
) -> Reranker:  # fmt: skip
    """What was learned, as a `Reranker`."""
    histories = counted.histories
    assert histories.now is not None
    assert histories.end is not None
    coefficients, item_part = _add_up(fit, personal)
    return Reranker(
        bias=fit.bias,
        item_part=item_part,
        trending=trending_items(histories.now),
        learned=coefficients,
        summary=_summarise(fit, personal),
        settings=settings,
        may_repeat=may_repeat,
        score_unit=fit.shared.score_unit,
        learned_until=histories.end,
        has_zone=bool(counted.survey.zoned),
    )


def _pass_on(
    caught: list[warnings.WarningMessage], bias: ItemBias, personal: LearnedPersonal
) -> None:
    """Warn of biases that may not help, unless they are 0 and something else gains clearly."""
    no_concern = personal.length > 0 and not np.any(bias.bias)
    for found in caught:
        if not issubclass(found.category, TrimtabWarning):
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)
        elif not (no_concern and issubclass(found.category, GuardWarning)):
            warn(str(found.message), found.category)
    if no_concern and not personal.forecast.is_told:
        warn(ONE_DAY, GuardWarning)


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


def _add_up(fit: BiasFit, personal: LearnedPersonal) -> tuple[tuple[Coefficient, ...], Floats]:
    """Coefficients as far as they are kept, and what they say of each item as of now."""
    shared = fit.shared
    if personal.coefficients is None or personal.covariance is None:
        return (), np.zeros(shared.n_items)
    names, now = shared.tonight(personal.wider_range)
    sources = [name for name, source in SOURCES.items() if source & personal.sources]
    kinds = dict.fromkeys(names, "item") | dict.fromkeys(TERMS, "personal")
    kinds = {"score": "score"} | kinds | dict.fromkeys(sources, "added")
    length, engine = personal.length, fit.learned.score_coefficient
    values = length * personal.coefficients.beta
    trend = (shared.centre(now) * values[1 : 1 + len(names)]).sum(axis=1)
    biases = engine * fit.bias.bias / shared.score_unit
    values[0] += (1.0 - length) * engine
    errors = length * np.sqrt(np.maximum(np.diag(personal.covariance), 0.0))
    rows = zip(kinds.items(), values, errors, strict=True)
    coefficients = tuple(
        Coefficient(name, kind, float(value), float(error)) for (name, kind), value, error in rows
    )
    return coefficients, trend + (1.0 - length) * biases


def _summarise(fit: BiasFit, personal: LearnedPersonal) -> RerankSummary:
    lift, low, high = personal.forecast.interval()
    return RerankSummary(
        metric=fit.shared.metric,
        k=fit.shared.k,
        n_windows=fit.shared.n_windows,
        n_users=personal.n_units,
        kept=personal.length,
        sources=tuple(name for name, source in SOURCES.items() if source & personal.sources),
        forecast=lift,
        forecast_low=low,
        forecast_high=high,
        forecast_windows=personal.forecast.n_windows,
        lifts=personal.lifts,
        forecast_by_strength=dict(personal.by_strength),
    )


class PersonalFits:
    """Fits of the terms of users with purchases.

    Args:
        units: a sample of the units of the fit.
        wide: their wider lists.
        has_purchases: units whose users bought something before.
        fit: of the biases.
    """

    def __init__(
        self, units: LearningUnits, wide: WiderLists, has_purchases: Ints, fit: BiasFit
    ) -> None:
        self._sampled, self._wide, self._chosen, self._fit = units, wide, has_purchases, fit
        self._shared, self._hits = fit.shared, units.with_hits
        self._folds = fit.shared.folds_of(units.windows, units.hashes)
        heaviest = max(1.0, float(units.weights.max(initial=0.0)))
        self._quanta = quanta_below(4.0 * max(units.n_units, 1) * heaviest**2)
        self._engine = self._spread(self._shared.values_at(self._hits))
        self._biases = self._by_biases()

    def units(self, sources: int) -> PersonalUnits:
        """Units on lists with some sources."""
        return personal_units(self._sampled, self._wide, self._chosen, self._fit, sources)

    def _spread(self, values: Floats) -> Floats:
        """Values of the units with a hit as values of all; 0 for the others."""
        found = np.zeros(self._sampled.n_units)
        found[self._hits.source] = values
        return found

    def _by_biases(self, strength: float = 1.0) -> Floats:
        """The weighted metric of each unit with a share of the biases, each unit held out."""
        learned = self._fit.learned
        kept = {level: strength * length for level, length in learned.kept.items()}
        units = LevelUnits(self._hits, self._shared)
        return self._spread(units.held_out_values(list(learned.folds), kept))

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
        length, share = self._length(units, folds), _personal_share(lifts)
        gained = self._forecast(self._biases, self._after(units, folds, length), share)
        length *= gained.supported_share(units.data.n_units)
        forecast = self._forecast(self._engine, self._after(units, folds, length), share)
        if not (length and forecast.is_clear(units.data.n_units)):
            return nothing_personal(self._fit, units.data.n_units, lifts)
        return LearnedPersonal(
            length, chosen, whole, coefficient_errors(units.choices(), whole), forecast,
            self._by_strength(units, folds, length, share, forecast), lifts, units.data.n_units,
            units.wider_range,
        )  # fmt: skip

    def _fit_on(self, sources: int) -> tuple[PersonalUnits, list[Coefficients]]:
        """Units on lists with some sources; and the fits on all of them, and without each fold.

        There are no fits of too few units, or if one of them does not converge.
        """
        units = self.units(sources)
        if units.data.n_units < FEWEST_UNITS:
            return units, []
        whole = fit_coefficients(units.choices())
        n_folds = self._shared.n_folds
        fits = [whole, *(fit_coefficients(units.choices(fold), whole) for fold in range(n_folds))]
        return units, fits if all(found.converged for found in fits) else []

    def _by_strength(
        self, units: PersonalUnits, folds: list[Coefficients], length: float, share: float,
        whole: Forecast,
    ) -> dict[str, list[float]]:  # fmt: skip
        def forecast(strength: float) -> Forecast:
            by_bias = self._by_biases(strength)
            values = units.values_at_strength(folds, length, strength)
            return self._forecast(self._engine, self._of_all(by_bias, units, values), share)

        return forecasts_by_strength(whole, forecast)

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

    def _after(
        self, units: PersonalUnits, folds: list[Coefficients], length: float = 1.0
    ) -> Floats:
        """The metric of every sampled unit: by the choice model, or by biases for other users."""
        return self._of_all(self._biases, units, units.values(folds, length))

    def _of_all(self, by_bias: Floats, units: PersonalUnits, values: Floats) -> Floats:
        """Values of every sampled unit; those of the units are given.

        A unit whose wider list has no hit may have lost those of its list; there are none.
        """
        after = by_bias.copy()
        after[self._chosen] = 0.0
        after[units.data.source] = values
        return after

    def _length(self, units: PersonalUnits, folds: list[Coefficients]) -> float:
        best, _ = units.line(folds).best(1.0)
        if best == 1.0:
            return best
        better = self._lifts(self._after(units, folds), self._after(units, folds, best))
        return best if better.gain > _CLEARLY * better.gain_error else 1.0

    def _lift(self, after: Floats) -> float:
        return float(after.sum() / max(float(self._engine.sum()), 1e-300) - 1.0)

    def _lifts(self, before: Floats, after: Floats) -> Lifts:
        return self._shared.lifts(before, after, self._folds, self._quanta)

    def _forecast(self, before: Floats, after: Floats, share: float) -> Forecast:
        """The lift to expect, of which a share is due to what users buy again."""
        lasting = TREND.mix(PERSONAL, share)
        return self._shared.forecast(self._lifts(before, after), lasting)


def _personal_share(lifts: dict[str, float]) -> float:
    """The share of a lift that is due to what users buy again, rather than to trends."""
    names = list(lifts)
    steps = dict(zip(names, np.diff([0.0, *lifts.values()]), strict=True))
    total, personal = lifts[names[-1]], steps["personal"] + steps.get("own", 0.0)
    return float(np.clip(personal / total, 0.0, 1.0)) if total > 0 else 0.0
