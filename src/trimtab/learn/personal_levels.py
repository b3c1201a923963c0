"""How far held-out units support personal terms and wider lists.

Sources of wider lists are taken one after the other, the best first, while they gain. Then the way
from the biases to the choice model is carried to its end, unless another length is clearly better;
and less of it is kept the less clear its gain is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.learn.bias_fit import BiasFit
from trimtab.learn.choice_model import Coefficients
from trimtab.learn.counts import quanta_below
from trimtab.learn.features import FeatureRange
from trimtab.learn.forecasts import (
    PERSONAL,
    TREND,
    Forecast,
    Lifts,
    forecast_lift,
    forecasts_by_strength,
    sum_lifts,
)
from trimtab.learn.levels import FEWEST_UNITS
from trimtab.learn.personal_units import PersonalUnits, SampledUnits, personal_units
from trimtab.models.widening import SOURCES, WiderLists

_GAIN = 1.0  # standard errors by which a source of wider lists must gain
_CLEARLY = 3.0  # standard errors; the best of many lengths looks good by chance


class LearnedPersonal(NamedTuple):
    """What was learned of users with purchases; a length of 0 means nothing."""

    length: float
    sources: int  # of wider lists
    coefficients: Coefficients | None
    covariance: Floats | None
    forecast: Forecast  # of the lift over the engine, for all users
    lifts: dict[str, float]  # over the engine, held out: of biases, with terms, with each source
    n_units: int  # learned from
    share: float  # of the units whose users bought something before
    by_strength: Mapping[str, list[float]]  # forecast and its interval
    wider_range: FeatureRange  # of the features that the coefficients are for


def learn_personal(
    sampled: SampledUnits, wide: WiderLists, has_purchases: Ints, sources: int, fit: BiasFit
) -> LearnedPersonal:
    """Learn the terms of users with purchases, and how far held-out units support them.

    Args:
        sampled: some of the units of the fit.
        wide: their wider lists.
        has_purchases: units whose users bought something before.
        sources: that may be added from.
        fit: of the biases.
    """
    return _PersonalFits(sampled, wide, has_purchases, fit).learn(sources)


class _PersonalFits:
    def __init__(
        self, sampled: SampledUnits, wide: WiderLists, has_purchases: Ints, fit: BiasFit
    ) -> None:
        self._sampled, self._wide, self._chosen, self._fit = sampled, wide, has_purchases, fit
        heaviest = max(1.0, float(sampled.units.weights.max(initial=0.0)))
        self._quanta = quanta_below(4.0 * max(sampled.n_units, 1) * heaviest**2)
        self._share = len(has_purchases) / max(sampled.n_units, 1)
        self._engine = sampled.engine_values()
        self._biases = sampled.bias_values(fit)

    def learn(self, sources: int) -> LearnedPersonal:
        """Choose sources and length, fit on all units, and forecast."""
        units = self._units(sources)
        if units.data.n_units < FEWEST_UNITS:
            return self._nothing(units)
        whole = units.fit()
        folds = units.fit_folds(whole)
        if not _converged(whole, folds):
            return self._nothing(units)
        values, lifts = self._choose_sources(units, folds, sources)
        if values != sources:
            units = self._units(values)
            whole = units.fit()
            folds = units.fit_folds(whole)
            if units.data.n_units < FEWEST_UNITS or not _converged(whole, folds):
                return self._nothing(units)
        length, share = self._length(units, folds), _personal_share(lifts)
        gained = self._forecast(self._biases, self._after(units, folds, length), share)
        length *= gained.supported_share(units.data.n_units)
        forecast = self._forecast(self._engine, self._after(units, folds, length), share)
        if not (length and forecast.is_clear(units.data.n_units)):
            return self._nothing(units)._replace(lifts=lifts)
        return LearnedPersonal(
            length, values, whole, units.covariance(whole), forecast, lifts, units.data.n_units,
            self._share, self._by_strength(units, folds, length, share, forecast),
            units.wider_range,
        )  # fmt: skip

    def _by_strength(
        self, units: PersonalUnits, folds: list[Coefficients], length: float, share: float,
        whole: Forecast,
    ) -> dict[str, list[float]]:  # fmt: skip
        def forecast(strength: float) -> Forecast:
            after = self._sampled.bias_values(self._fit, strength)
            after[self._chosen] = 0.0
            after[units.data.source] = units.values_at_strength(folds, length, strength)
            return self._forecast(self._engine, after, share)

        return forecasts_by_strength(whole, forecast)

    def _units(self, sources: int) -> PersonalUnits:
        return personal_units(self._sampled, self._wide, self._chosen, self._fit, sources)

    def _nothing(self, units: PersonalUnits) -> LearnedPersonal:
        learned = self._fit.learned
        return LearnedPersonal(
            0.0, 0, None, None, learned.forecast, {}, units.data.n_units, self._share,
            learned.by_strength, units.wider_range,
        )  # fmt: skip

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
        """The metric of every sampled unit: by biases, or by the choice model where there is one.

        A unit whose wider list has no hit may have lost those of its list; there are none.
        """
        after = self._biases.copy()
        after[self._chosen] = 0.0
        after[units.data.source] = units.values(folds, length)
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
        shared = self._sampled.shared
        return sum_lifts(
            before, after, self._sampled.folds, shared.n_folds, self._quanta,
            shared.folds_are_windows,
        )  # fmt: skip

    def _forecast(self, before: Floats, after: Floats, share: float) -> Forecast:
        """The lift to expect, of which a share is due to what users buy again."""
        window = self._sampled.shared.histories.window_ticks
        lasting = TREND.mix(PERSONAL, share)
        return forecast_lift(self._lifts(before, after), True, window, lasting)


def _converged(whole: Coefficients, folds: list[Coefficients]) -> bool:
    return all(found.converged for found in (whole, *folds))


def _personal_share(lifts: dict[str, float]) -> float:
    """The share of a lift that is due to what users buy again, rather than to trends."""
    names = list(lifts)
    steps = dict(zip(names, np.diff([0.0, *lifts.values()]), strict=True))
    total, personal = lifts[names[-1]], steps["personal"] + steps.get("own", 0.0)
    return float(np.clip(personal / total, 0.0, 1.0)) if total > 0 else 0.0
