"""The robust learner: a trend that all items share, then categories, then each item's own part.

    bias = kept_trend·θ·x + kept_category·c + kept_own·r

The choice model finds θ, c and r (see `choice`), on features that leave out the group of users a
user is in. How far each level is kept is found by the exact metric along it, on users that were
held out: the trend and the items' own parts stay as the model says unless another length is clearly
better, categories come in only where they clearly help. What the held-out users gain in the end is
the forecast.
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
from trimtab.learn.hierarchy.unit_data import (
    N_FOLDS,
    Fit,
    Lifts,
    SharedInputs,
    Subset,
    UnitData,
    count_folds,
    count_units,
    hit_value_quanta,
)
from trimtab.learn.history import History
from trimtab.progress import Progress

_RIDGE = 10.0  # units
_OWN_PRECISION = 10.0
_CATEGORY_PRECISION = 10.0
_CLEARLY = 3.0  # standard errors: the best of many lengths looks good by chance
_DOUBT = 0.5  # how much of a move an uncertain gain takes back
_STEPS = 2 * (N_FOLDS + 1)  # of progress


@dataclass(frozen=True)
class HierarchyInputs:
    """What the learner is given.

    Args:
        lists: scored items by unit, on the scale that biases add to.
        scale: "additive" or "log".
        unit: what 1 is, in scores of `lists`, as the choice model takes them.
        bought: by unit.
        weights: by unit.
        users: code of each unit's user.
        windows: code of each unit's window; the last is the newest.
        history: of each window, or nothing.
        categories: of items, -1 where not known; or nothing.
        n_items: number of item codes.
    """

    lists: Lists
    scale: str
    unit: float
    bought: Sets
    weights: Floats
    users: Codes
    windows: Codes
    history: tuple[History, ...]
    categories: Ints | None
    n_items: int


class Forecast(NamedTuple):
    """What held-out users gained."""

    sureness: float  # the gain in standard errors
    lift: float  # nan where there was nothing before
    error: float  # standard error of `lift`


class Learned(NamedTuple):
    """Parts of each item's bias; they add up to it."""

    trend: Floats
    category: Floats
    own: Floats
    error: Floats  # standard error of the sum
    coefficients: dict[str, float]
    kept: dict[str, float]
    forecast: Forecast


class HierarchyBackend(Protocol):
    """All units with hits, wherever they are."""

    @property
    def shared(self) -> SharedInputs:
        """What all of them are told."""
        ...

    def trend_sample(self) -> UnitData:
        """The units that coefficients are fitted on, in one place."""
        ...

    def total(self, method: str, *given: Any) -> Ints:
        """What a method of `UnitData` gives, added up over all parts."""
        ...

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """The effects of groups of items, of each fit."""
        ...

    def best_length(
        self, parts: list[Fit], kept: dict[str, float], level: str, usual: float
    ) -> float:
        """The length of a level that serves held-out units best."""
        ...


def size_of_level(shared: SharedInputs, level: str) -> tuple[int, float]:
    """How many groups a level has, and how precise its prior is."""
    if level == "category":
        return shared.n_groups, _CATEGORY_PRECISION
    return shared.n_items, _OWN_PRECISION


class LocalBackend:
    """All units in one place."""

    def __init__(self, evidence: HierarchyInputs, k: int, metric: str, seed: int) -> None:
        e = evidence
        data = gather_hits(e.lists, e.bought, e.weights)
        quanta = hit_value_quanta(e.lists.n_units, float(e.weights.max(initial=0.0)), k)
        n_windows = int(e.windows.max(initial=0)) + 1
        counts = count_folds(
            e.lists, e.bought, e.weights, e.users, e.windows, seed, n_windows, e.n_items
        )
        groups = None if e.categories is None else group_items(e.categories)
        self.shared = SharedInputs(
            e.scale, e.unit, k, metric, seed, *counts, e.history, groups,
            count_units(data, k, metric, quanta), quanta,
        )  # fmt: skip
        users, windows = e.users[data.source].astype(np.int64), e.windows[data.source]
        self._panel = UnitData(data, users, windows, self.shared)

    def trend_sample(self) -> UnitData:
        """The units that coefficients are fitted on."""
        return self._panel.sample() if self.shared.trend_share < 1.0 else self._panel

    def total(self, method: str, *given: Any) -> Ints:
        """What a method gives."""
        sums: Ints = getattr(self._panel, method)(*given)
        return sums

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """Of one fit after the other, which takes less room than all at once."""
        n_groups, precision = size_of_level(self.shared, level)

        def fitted(fit: Fit) -> Effects:
            def sums(_: list[int], effects: Floats) -> Floats:
                found = self.total("effect_sums", level, [fit], kept, effects)
                return found / self.shared.effect_quanta

            return fit_effects(sums, 1, n_groups, precision)[0]

        return [fitted(fit) for fit in fits]

    def best_length(
        self, parts: list[Fit], kept: dict[str, float], level: str, usual: float
    ) -> float:
        """By the exact curve of all held-out units."""
        return self._panel.line(parts, kept, level).best(usual)[0]


def group_items(categories: Ints) -> Codes:
    """Categories as groups of items; those not known are one more."""
    return np.where(categories < 0, categories.max(initial=-1) + 1, categories).astype(np.int32)


def learn_hierarchy(backend: HierarchyBackend, progress: Progress | None = None) -> Learned:
    """Learn the levels and how far each is carried by held-out units."""
    return _Study(backend, progress).learn()


class _Study:
    def __init__(self, backend: HierarchyBackend, progress: Progress | None) -> None:
        self._panels, self._brief = backend, backend.shared
        self._progress, self._done = progress, 0
        newest = self._brief.n_windows - 1
        features = self._brief.features(newest)
        self.names = features.names
        self._bought, listed = self._brief.counts(newest)
        now = features.build(self._bought, listed)
        seen = listed / max(float(listed.sum()), 1.0)
        # Not as a product of matrices, whose last bits depend on the machine.
        self._centred: Floats = now - (seen[:, None] * now).sum(axis=0)

    def learn(self) -> Learned:
        """Fit on all and on each three folds, settle the lengths, and add the levels up."""
        if self._brief.unit_counts.n_units == 0:
            return self._nothing()
        self._sample = self._panels.trend_sample()
        whole = self._fit_trend(Subset(), None)
        parts = [self._fit_trend(Subset(fold), whole) for fold in range(N_FOLDS)]
        if self._brief.groups is not None:
            whole, *parts = self._fit_categories([whole, *parts])
        kept: dict[str, float] = {}
        kept["trend"] = self._length(parts, kept, "trend", 1.0)
        kept["category"] = 0.0
        if self._brief.groups is not None:
            kept["category"] = self._length(parts, self._moving(kept), "category", 0.0)
        whole, *parts = self._fit_own([whole, *parts], kept)
        kept["own"] = self._length(parts, self._moving(kept), "own", 1.0)
        borne_out = _borne_out(self._forecast(parts, self._moving(kept)))
        kept = {level: length * borne_out for level, length in kept.items()}
        forecast = self._forecast(parts, self._moving(kept))
        if self._brief.n_windows > 1:
            newest = self._forecast_newest(kept)
            forecast = forecast if newest is None or np.isnan(newest.lift) else newest
        return self._add_up(whole, kept, forecast)

    def _moving(self, kept: dict[str, float]) -> dict[str, float]:
        """The levels that are there, in the order they add up."""
        return {
            level: length
            for level, length in kept.items()
            if level != "category" or self._brief.groups is not None
        }

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(1, min(self._done, _STEPS), _STEPS)

    def _fit_trend(self, subset: Subset, start: Fit | None) -> Fit:
        coefficients = fit_coefficients(
            *self._sample.likelihood(subset), _RIDGE, None if start is None else start.coefficients
        )
        self._step()
        return Fit(subset, coefficients)

    def _fit_categories(self, fits: list[Fit]) -> list[Fit]:
        found = self._panels.effects("category", fits, {"trend": 1.0})
        return [fit._replace(category=own) for fit, own in zip(fits, found, strict=True)]

    def _fit_own(self, fits: list[Fit], kept: dict[str, float]) -> list[Fit]:
        found = self._panels.effects("own", fits, kept)
        for _ in fits:
            self._step()
        return [fit._replace(own=own) for fit, own in zip(fits, found, strict=True)]

    def _errors(self, fit: Fit) -> Floats:
        """The standard error of each item's bias, if biases spread as far as the engine is wrong.

        What a window says of an item is as sure as its buyers are many (a rise being the ratio of
        two counts, half as sure), or as the choices of those who list it are: with the spread of
        all items that gives the error of a shrunken mean.
        """
        assert fit.own is not None
        none = np.zeros((1, self._brief.n_items))
        sums = self._panels.total("effect_sums", "spread", [fit], {}, none)
        spread = effect_variance(sums[0] / self._brief.effect_quanta)
        information = 0.5 * self._bought / fit.trust**2
        shrunken = spread / (1.0 + spread * np.maximum(information, fit.own.information))
        covariance = coefficient_errors(*self._sample.likelihood(fit.subset), fit.coefficients)
        of_trend = ((self._centred @ covariance[1:, 1:]) * self._centred).sum(axis=1)
        errors: Floats = np.sqrt(np.maximum(of_trend, 0.0) + shrunken) / fit.trust
        return errors

    def _length(self, parts: list[Fit], kept: dict[str, float], level: str, usual: float) -> float:
        """How far to go along a level: as usual, unless another length is clearly better."""
        best = self._panels.best_length(parts, kept, level, usual)
        if best == usual:
            return usual
        lifts = self._lifts("compare", parts, kept, level, usual, best)
        return best if lifts.gain > _CLEARLY * lifts.gain_error else usual

    def _lifts(self, method: str, *given: Any) -> Lifts:
        return Lifts(self._panels.total(method, *given), self._brief.lift_quanta)

    def _forecast(self, parts: list[Fit], kept: dict[str, float]) -> Forecast:
        return _lift_of(self._lifts("forecast", parts, kept))

    def _forecast_newest(self, kept: dict[str, float]) -> Forecast | None:
        """Learned on the windows before, judged on the newest: as it will be used."""
        filled = np.flatnonzero(self._panels.total("count_windows"))
        if len(filled) < 2:
            return None
        newest = int(filled[-1])
        fit = self._fit_trend(Subset(before=newest), None)
        if self._brief.groups is not None:
            (fit,) = self._fit_categories([fit])
        (fit,) = self._fit_own([fit], kept)
        return _lift_of(self._lifts("forecast_newest", fit, kept, newest))

    def _add_up(self, fit: Fit, kept: dict[str, float], forecast: Forecast) -> Learned:
        """Biases of all items by the newest window, around what listed items have on average."""
        unit = self._brief.unit
        trend = kept["trend"] * (self._centred @ fit.slopes)
        category = np.zeros(self._brief.n_items)
        if fit.category is not None:
            category = kept["category"] * fit.category.values[self._brief.groups] / fit.trust
        assert fit.own is not None
        own = kept["own"] * fit.own.values / fit.trust
        error = self._errors(fit)
        beta = dict(zip(self.names, (float(b) for b in fit.slopes), strict=True))
        return Learned(
            trend * unit, category * unit, own * unit, error * unit, beta, kept, forecast
        )

    def _nothing(self) -> Learned:
        zero = np.zeros(self._brief.n_items)
        wide = np.full(self._brief.n_items, self._brief.unit / np.sqrt(_OWN_PRECISION))
        none = {"trend": 0.0, "category": 0.0, "own": 0.0}
        flat = dict.fromkeys(self.names, 0.0)
        return Learned(zero, zero, zero, wide, flat, none, Forecast(0.0, np.nan, np.nan))


def _borne_out(forecast: Forecast) -> float:
    """The share of a move that its held-out gain bears out.

    Nearly all of it if the gain is beyond doubt, nothing if it is lost in its standard error.
    """
    if not forecast.sureness > 0:
        return 0.0
    return max(0.0, 1.0 - _DOUBT / forecast.sureness**2)


def _lift_of(lifts: Lifts) -> Forecast:
    """The lift of a move, with its standard error over units."""
    sureness = lifts.gain / max(lifts.gain_error, 1e-300)
    if lifts.before <= 0:
        return Forecast(sureness, np.nan, np.nan)
    return Forecast(sureness, lifts.gain / lifts.before, lifts.lift_error)
