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
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from trimtab.choice import (
    LEAST_TRUST,
    Coefficients,
    Effects,
    coefficient_errors,
    effect_variance,
    fit_coefficients,
    fit_effects,
)
from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.direction import HitLists, gather_hits, trace_line, values_at
from trimtab.features import Features, History, count_groups
from trimtab.kernels.worth import discounts
from trimtab.progress import Progress
from trimtab.scales import model_scores

N_FOLDS = 4
_PAIRS = tuple(combinations(range(N_FOLDS), 2))
_TABLES = N_FOLDS + 1 + len(_PAIRS)  # of a window: each fold left out, none, each pair of folds
_WHOLE = N_FOLDS  # the table that leaves none out
_RIDGE = 10.0  # units
_OWN_PRECISION = 10.0
_CATEGORY_PRECISION = 10.0
_LONGEST = 2.0  # times what the model says
_CLEARLY = 3.0  # standard errors: the best of many lengths looks good by chance
_DOUBT = 0.5  # how much of a move an uncertain gain takes back
_MOST_FOR_TREND = 20_000  # units; a handful of coefficients needs no more
_MOST_FOR_CURVES = 100_000
_MOST_CROSSINGS = 30_000_000
_STEPS = 2 * (N_FOLDS + 1)  # of progress


@dataclass(frozen=True)
class Evidence:
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


class _Part(NamedTuple):
    """Units to fit on, and the table of features that each of them sees."""

    chosen: Flags
    table_of: Ints


class _Fit(NamedTuple):
    """What the model found on some units."""

    part: _Part

    coefficients: Coefficients
    category: Effects | None
    own: Effects | None

    @property
    def trust(self) -> float:
        """How much one unit of score says, in the model's logits."""
        return max(float(self.coefficients.beta[0]), LEAST_TRUST)

    @property
    def slopes(self) -> Floats:
        """What features say, in units of score."""
        return self.coefficients.beta[1:] / self.trust


def learn_hierarchy(
    evidence: Evidence, k: int, metric: str, seed: int, progress: Progress | None = None
) -> Learned:
    """Learn the levels and how far each is carried by held-out units."""
    return _Study(evidence, k, metric, seed, progress).learn()


class _Study:
    def __init__(
        self, evidence: Evidence, k: int, metric: str, seed: int, progress: Progress | None
    ) -> None:
        self._progress, self._done = progress, 0
        self._k, self._metric, self._evidence = k, metric, evidence
        lists, bought = evidence.lists, evidence.bought
        self._data = gather_hits(lists, bought, evidence.weights)
        source = self._data.source
        # Only items on these lists can matter to the model: they are numbered by themselves.
        on_lists = np.zeros(evidence.n_items, bool)
        on_lists[self._data.lists.items] = True
        self._items = np.flatnonzero(on_lists)
        local = (np.cumsum(on_lists) - 1).astype(np.int32)[self._data.lists.items]
        numbered = self._data.lists._replace(items=local)
        self._data = self._data._replace(lists=numbered)
        taken = model_scores(numbered, evidence.scale, evidence.unit)
        self._model = self._data._replace(lists=numbered._replace(scores=taken))
        n_users = int(evidence.users.max(initial=-1)) + 1
        folds = np.random.default_rng([seed, 0]).integers(0, N_FOLDS, n_users)[evidence.users]
        self._fold = folds[source]
        self._window = evidence.windows[source].astype(np.int64)
        self._build_tables(folds)
        self._worth = self._unit_worth()
        self._sample = _sample(self._data.n_units, _MOST_FOR_TREND, seed)
        self._groups = None
        if evidence.categories is not None:
            known = evidence.categories
            self._all_groups = np.where(known < 0, known.max(initial=-1) + 1, known)
            self._groups = self._all_groups[self._items].astype(np.int32)

    def _build_tables(self, folds: Ints) -> None:
        """Features by [window and fold left out, item on lists, feature], and of all items now."""
        e = self._evidence
        n_windows = int(e.windows.max(initial=0)) + 1
        learning = (np.diff(e.lists.indptr) > 0) & (np.diff(e.bought.indptr) > 0) & (e.weights > 0)
        group = np.where(learning, e.windows * N_FOLDS + folds, -1).astype(np.int64)
        counts = count_groups(e.lists, e.bought, group, n_windows * N_FOLDS, e.n_items)
        made = []
        for window in range(n_windows):
            features = Features(e.history[window] if e.history else None)
            own = slice(window * N_FOLDS, (window + 1) * N_FOLDS)
            bought, listed = (part[own].sum(axis=0) for part in counts)
            for left_out in (*((fold,) for fold in range(N_FOLDS)), (), *_PAIRS):
                some = bought.copy(), listed.copy()
                for fold in left_out:
                    some[0][:] -= counts.bought[window * N_FOLDS + fold]
                    some[1][:] -= counts.listed[window * N_FOLDS + fold]
                made.append(features.build(*some, self._items))
        self.names = features.names
        self._tables = np.stack(made)
        self._now, self._bought = features.build(bought, listed), bought
        self._seen = listed / max(float(listed.sum()), 1.0)

    def _unit_worth(self) -> Floats:
        """What a unit's listed hits can be worth in the metric, 1 on average."""
        data, k = self._data, self._k
        need = np.minimum(data.n_bought, k)
        ideal = np.concatenate([[1.0], np.cumsum(discounts(self._metric, k))])[need]
        ideal = {"acc": np.ones(len(need)), "map": need.astype(np.float64)}.get(self._metric, ideal)
        worth: Floats = data.weights * np.minimum(data.n_hits, k) / ideal
        return worth / max(float(worth.mean()), 1e-300) if len(worth) else worth

    def learn(self) -> Learned:
        """Fit on all and on each three folds, settle the lengths, and add the levels up."""
        n_units = self._data.n_units
        if n_units == 0:
            return self._nothing()
        chosen = self._for_curves(np.flatnonzero(_sample(n_units, _MOST_FOR_CURVES, 1)))
        self._held = self._data.take(chosen)
        self._held_of = chosen
        whole = self._fit_trend(self._all_but(None), None)
        parts = [self._fit_trend(self._all_but(fold), whole) for fold in range(N_FOLDS)]
        kept = {"trend": 1.0, "category": 0.0, "own": 1.0}
        moved = np.zeros(len(self._held.lists.items))
        trend = self._held_out(parts, self._trend_of)
        kept["trend"] = self._length(moved, trend, 1.0)
        moved += kept["trend"] * trend
        if self._groups is not None:
            pooled = self._held_out(parts, self._category_of)
            kept["category"] = self._length(moved, pooled, 0.0)
            moved += kept["category"] * pooled
        whole = self._fit_own(whole, kept)
        parts = [self._fit_own(part, kept) for part in parts]
        own = self._held_out(parts, self._own_of)
        kept["own"] = self._length(moved, own, 1.0)
        moved += kept["own"] * own
        borne_out = _borne_out(self._forecast(moved))
        kept = {level: length * borne_out for level, length in kept.items()}
        forecast = self._forecast(moved * borne_out)
        if self._window.max() > 0:
            newest = self._forecast_newest(kept)
            forecast = forecast if newest is None or np.isnan(newest.lift) else newest
        return self._add_up(whole, kept, forecast)

    def _for_curves(self, chosen: Ints) -> Ints:
        """As many of the units as memory has room for the crossings of their hits."""
        crossings = np.cumsum((np.diff(self._data.lists.indptr) * self._data.n_hits)[chosen])
        return chosen[: max(1, int(np.searchsorted(crossings, _MOST_CROSSINGS, side="right")))]

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(1, min(self._done, _STEPS), _STEPS)

    def _all_but(self, left_out: int | None) -> _Part:
        """All units but those of a fold.

        A unit sees features without its own fold, and without the one left out: purchases of the
        latter must not reach, by way of the others' features, what is judged on it.
        """
        tables = np.arange(N_FOLDS)
        if left_out is not None:
            for place, pair in enumerate(_PAIRS):
                if left_out in pair:
                    tables[sum(pair) - left_out] = N_FOLDS + 1 + place
        chosen = np.ones(len(self._fold), bool) if left_out is None else self._fold != left_out
        return _Part(chosen, self._window * _TABLES + tables[self._fold])

    def _fit_trend(self, part: _Part, start: _Fit | None) -> _Fit:
        weights = self._worth * part.chosen
        coefficients = fit_coefficients(
            self._model, weights * self._sample, part.table_of, self._tables, _RIDGE,
            None if start is None else start.coefficients,
        )  # fmt: skip
        self._step()
        fit = _Fit(part, coefficients, None, None)
        if self._groups is None:
            return fit
        groups = self._groups[self._model.lists.items]
        effects = fit_effects(
            self._model, weights, self._logits(fit, {"trend": 1.0}), groups,
            int(self._all_groups.max()) + 1, _CATEGORY_PRECISION,
        )  # fmt: skip
        return fit._replace(category=effects)

    def _errors(self, fit: _Fit) -> Floats:
        """The standard error of each item's bias, if biases spread as far as the engine is wrong.

        What a window says of an item is as sure as its buyers are many (a rise being the ratio of
        two counts, half as sure), or as the choices of those who list it are: with the spread of
        all items that gives the error of a shrunken mean.
        """
        assert fit.own is not None
        scores, items = fit.trust * self._model.lists.scores, self._model.lists.items
        spread = effect_variance(self._model, self._worth, scores, items, len(self._items))
        information = 0.5 * self._bought / fit.trust**2
        choices = np.zeros(self._evidence.n_items)
        choices[self._items] = fit.own.information
        shrunken = spread / (1.0 + spread * np.maximum(information, choices))
        centred = self._centred()
        covariance = coefficient_errors(
            self._model, self._worth * self._sample, fit.part.table_of, self._tables,
            fit.coefficients,
        )  # fmt: skip
        of_trend = ((centred @ covariance[1:, 1:]) * centred).sum(axis=1)
        errors: Floats = np.sqrt(np.maximum(of_trend, 0.0) + shrunken) / fit.trust
        return errors

    def _centred(self) -> Floats:
        """Features of all items now, around those of what is listed."""
        # Not as a product of matrices, whose last bits depend on the machine.
        centred: Floats = self._now - (self._seen[:, None] * self._now).sum(axis=0)
        return centred

    def _fit_own(self, fit: _Fit, kept: dict[str, float]) -> _Fit:
        weights = self._worth * fit.part.chosen
        effects = fit_effects(
            self._model, weights, self._logits(fit, kept), self._model.lists.items,
            len(self._items), _OWN_PRECISION,
        )  # fmt: skip
        self._step()
        return fit._replace(own=effects)

    def _logits(self, fit: _Fit, kept: dict[str, float]) -> Floats:
        """Of every entry, by the levels that were kept."""
        lists = self._model.lists
        lengths = np.diff(lists.indptr)
        trend = self._scored(fit)[np.repeat(fit.part.table_of, lengths), lists.items]
        found = lists.scores + kept["trend"] * trend
        if fit.category is not None and self._groups is not None and kept.get("category"):
            pooled = fit.category.values[self._groups[lists.items]] / fit.trust
            found += kept["category"] * pooled
        return fit.trust * found

    def _held_out(self, parts: list[_Fit], by_item: Any) -> Floats:
        """A level at every entry of the units for curves, from the fit that left the unit out."""
        lists = self._held.lists
        fold = np.repeat(self._fold[self._held_of], np.diff(lists.indptr))
        window = np.repeat(self._window[self._held_of], np.diff(lists.indptr))
        out = np.empty(len(lists.items))
        for left_out, fit in enumerate(parts):
            mine = fold == left_out
            out[mine] = by_item(fit, left_out)[window[mine], lists.items[mine]]
        return out * self._evidence.unit

    def _trend_of(self, fit: _Fit, fold: int) -> Floats:
        """By [window, item]."""
        return self._scored(fit)[fold::_TABLES]

    def _scored(self, fit: _Fit) -> Floats:
        """The trend of every item, by [table, item]."""
        n_tables, n_items, n_features = self._tables.shape
        flat: Floats = self._tables.reshape(-1, n_features) @ fit.slopes
        return flat.reshape(n_tables, n_items)

    def _category_of(self, fit: _Fit, fold: int) -> Floats:
        assert fit.category is not None
        return self._same(fit.category.values[self._groups] / fit.trust)

    def _own_of(self, fit: _Fit, fold: int) -> Floats:
        assert fit.own is not None
        return self._same(fit.own.values / fit.trust)

    def _same(self, by_item: Floats) -> Floats:
        """The same in every window."""
        return np.broadcast_to(by_item, (len(self._tables) // _TABLES, len(by_item)))

    def _length(self, moved: Floats, level: Floats, usual: float) -> float:
        """How far to go along a level: as usual, unless another length is clearly better."""
        held = self._held
        here = held._replace(lists=held.lists._replace(scores=held.lists.scores + moved))
        best, _ = trace_line(here, level, self._k, self._metric, 0.0, _LONGEST).best(usual)
        if best == usual:
            return usual
        gains = values_at(here, level, self._k, self._metric, best)
        gains -= values_at(here, level, self._k, self._metric, usual)
        error = float(np.sqrt((gains**2).sum()))
        return best if gains.sum() > _CLEARLY * error else usual

    def _forecast(self, moved: Floats) -> Forecast:
        return _lift_of(self._held, moved, self._k, self._metric)

    def _forecast_newest(self, kept: dict[str, float]) -> Forecast | None:
        """Learned on the windows before, judged on the newest: as it will be used."""
        newest = int(self._window.max())
        judged = np.flatnonzero(self._window == newest)
        if len(judged) == 0 or len(judged) == len(self._window):
            return None
        before = self._all_but(None)._replace(chosen=self._window < newest)
        fit = self._fit_own(self._fit_trend(before, None), kept)
        data = self._data.take(judged)
        table = self._tables[(newest - 1) * _TABLES + _WHOLE]
        by_item = kept["trend"] * (table @ fit.slopes)
        if fit.category is not None:
            by_item = by_item + kept["category"] * self._category_of(fit, 0)[0]
        assert fit.own is not None
        by_item = by_item + kept["own"] * fit.own.values / fit.trust
        moved = by_item[data.lists.items] * self._evidence.unit
        return _lift_of(data, moved, self._k, self._metric)

    def _add_up(self, fit: _Fit, kept: dict[str, float], forecast: Forecast) -> Learned:
        """Biases of all items by the newest window, around what listed items have on average."""
        unit, n_items = self._evidence.unit, self._evidence.n_items
        trend = kept["trend"] * (self._centred() @ fit.slopes)
        category, own = np.zeros((2, n_items))
        if fit.category is not None:
            category = kept["category"] * fit.category.values[self._all_groups] / fit.trust
        assert fit.own is not None
        own[self._items] = kept["own"] * fit.own.values / fit.trust
        error = self._errors(fit)
        beta = dict(zip(self.names, (float(b) for b in fit.slopes), strict=True))
        return Learned(
            trend * unit, category * unit, own * unit, error * unit, beta, kept, forecast
        )

    def _nothing(self) -> Learned:
        zero = np.zeros(self._evidence.n_items)
        wide = np.full(self._evidence.n_items, self._evidence.unit / np.sqrt(_OWN_PRECISION))
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


def _lift_of(data: HitLists, moved: Floats, k: int, metric: str) -> Forecast:
    """The lift of moving every entry, with its standard error over units."""
    before = values_at(data, moved, k, metric, 0.0)
    gains = values_at(data, moved, k, metric, 1.0) - before
    gain, total = float(gains.sum()), float(before.sum())
    sureness = gain / max(float(np.sqrt((gains**2).sum())), 1e-300)
    if total <= 0:
        return Forecast(sureness, np.nan, np.nan)
    lift = gain / total
    return Forecast(sureness, lift, float(np.sqrt(((gains - lift * before) ** 2).sum()) / total))


def _sample(n_units: int, most: int, seed: int) -> Any:
    """Flags for at most so many units."""
    flags = np.ones(n_units, bool)
    if n_units > most:
        flags[:] = False
        flags[np.random.default_rng([seed, 1]).permutation(n_units)[:most]] = True
    return flags
