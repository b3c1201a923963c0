"""A sample of the units on wider lists, and the choice model on them.

    logit(u, i) = α·score(u, i) + θ·x(i) + φ·z(u, i) + κ(source of i)

x are the features of items, z the terms of the user's own purchases; κ is 0 for listed items. All
coefficients are learned together, again from the start: θ learned without z counts as a trend of
the item what the user's own purchases explain. Everything is as of the start of each unit's window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, take_entries
from trimtab.kernels.list_sources import LISTED, OWN, TRENDING
from trimtab.learn.bias_fit import BiasFit
from trimtab.learn.choice_model import Choices, Coefficients, coefficient_errors, fit_coefficients
from trimtab.learn.features import FeatureRange, Shared
from trimtab.learn.level_units import LevelUnits
from trimtab.learn.line_search import LineCurve, trace_line, values_at
from trimtab.learn.sales import Events, History
from trimtab.learn.units import (
    HitLists,
    HitUnits,
    LearningUnits,
    find_bought,
    folds_of,
    gather_hits,
)
from trimtab.models.scaled_scores import model_scores, to_scale
from trimtab.models.widening import (
    MOST_ADDED,
    Purchases,
    WiderLists,
    days_before,
    sum_purchases,
    widen,
)

_LONGEST = 2.0  # times the model's length
_BY_CHANCE = 0.1  # of what chance would put on lists: engines that never list what a user has
_LEAST_BY_CHANCE = 20.0  # entries


@dataclass(frozen=True)
class SampledUnits:
    """Some of the units that can gain or lose, on the scale of the biases.

    Args:
        units: as they were taken.
        lists: on the scale of the biases.
        model: the same with the scores that the choice model uses.
        shared: what all units of the fit share.
    """

    units: LearningUnits
    lists: Lists
    model: Lists
    shared: Shared

    @staticmethod
    def of(units: LearningUnits, shared: Shared) -> SampledUnits:
        """Return units on the scale of the biases."""
        scaled = to_scale(units.lists, shared.scale, shared.k).lists
        model = model_scores(scaled, shared.scale, shared.score_unit, shared.k)
        return SampledUnits(units, scaled, scaled._replace(scores=model), shared)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.lists.n_units

    @cached_property
    def folds(self) -> Ints:
        """The part that each unit is held out with: its window, or a group of users."""
        if self.shared.folds_are_windows:
            return self.units.windows
        return folds_of(self.units.hashes, self.shared.seed)

    @cached_property
    def _hits(self) -> HitLists:
        units = self.units
        return gather_hits(self.lists, units.bought, units.weights, units.relevance)

    def engine_values(self) -> Floats:
        """The weighted metric of each unit with the engine's ranking."""
        data, found = self._hits, np.zeros(self.n_units)
        none = np.zeros(len(data.hits))
        found[data.source] = values_at(data, none, self.shared.k, self.shared.metric, 0.0)
        return found

    def bias_values(self, fit: BiasFit, strength: float = 1.0) -> Floats:
        """The weighted metric of each unit with a share of the biases, each unit held out."""
        units, found = self.on_levels(self._hits), np.zeros(self.n_units)
        kept = {level: strength * length for level, length in fit.learned.kept.items()}
        found[self._hits.source] = units.held_out_values(list(fit.learned.folds), kept)
        return found

    def on_levels(self, data: HitLists) -> LevelUnits:
        """Lists of these units, to be moved by the levels of the biases."""
        hashes, windows = self.units.hashes[data.source], self.units.windows[data.source]
        return LevelUnits(HitUnits(data, hashes, windows), self.shared)


def trending_items(history: History) -> Codes:
    """The best sellers just before an instant, best first."""
    assert history.window is not None
    order = np.argsort(-history.window, kind="stable")[:MOST_ADDED]
    return order[history.window[order] > 0].astype(np.int32)


def widen_units(sampled: SampledUnits, widen_by: str) -> tuple[WiderLists, Flags]:
    """The wider lists of sampled units as of their windows, and which have purchases before.

    Args:
        sampled: the units, with the events of their users.
        widen_by: "any", "listed" or "none".
    """
    shared, units = sampled.shared, sampled.units
    assert units.events is not None
    parts, has_purchases = [], np.zeros(sampled.n_units, bool)
    for window in range(shared.n_windows):
        own = np.flatnonzero(units.windows == window)
        purchases = _purchases_before(
            units.events, shared.histories.starts[window], units.users[own]
        )
        has_purchases[own] = purchases.lengths > 0
        may_add = np.full(shared.n_items, widen_by == "any")
        if widen_by == "listed":
            may_add = shared.counts(window)[1] > 0
        rows = np.arange(len(own), dtype=np.int32)
        trending = trending_items(shared.histories.before[window])
        lists = sampled.model.take(own)
        parts.append((own, widen(lists, rows, purchases, may_add, trending, TRENDING | OWN)))
    return _in_order(parts, sampled.n_units), has_purchases


def _purchases_before(log: Events, start: int, users: Ints) -> Purchases:
    """What users bought before a window; one row for each of them, in their order."""
    assert log.users is not None
    assert log.times is not None
    row_of = np.full(int(max(log.users.max(initial=0), users.max(initial=0))) + 1, -1, np.int32)
    row_of[users] = np.arange(len(users), dtype=np.int32)  # each user is in a window once
    rows = row_of[log.users]
    chosen = np.flatnonzero((rows >= 0) & (log.times < start))
    days = days_before(start, log.times[chosen])
    return sum_purchases(rows[chosen], log.items[chosen], days, len(users))


def _in_order(parts: list[tuple[Ints, WiderLists]], n_units: int) -> WiderLists:
    """Parts of the units as one, in the order of the units."""
    place = np.concatenate([own for own, _ in parts])
    lengths = np.concatenate([np.diff(part.lists.indptr) for _, part in parts])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    joined = WiderLists(
        Lists(indptr, *(np.concatenate([p.lists[c] for _, p in parts]) for c in (1, 2))),
        np.concatenate([part.sources for _, part in parts]),
        np.concatenate([part.terms for _, part in parts]),
    )
    order = np.empty(n_units, np.int64)
    order[place] = np.arange(n_units)
    return joined.take(order)


def lists_hold_own(wide: WiderLists, sampled: SampledUnits, has_purchases: Flags) -> bool:
    """Whether lists hold what the user already has; some engines never list that.

    They do unless it is on far fewer lists than if the same items were dealt to users at random.

    Args:
        wide: the wider lists of the units.
        sampled: the units.
        has_purchases: units whose users bought something before.
    """
    lists = wide.lists
    of_unit = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    listed = (wide.sources == LISTED) & has_purchases[of_unit]
    found = float(wide.terms[listed, 0].sum())
    by_chance, histories = 0.0, sampled.shared.histories
    for window, history in enumerate(histories.before):
        assert history.buyers is not None
        own = listed & (sampled.units.windows[of_unit] == window)
        by_chance += float(history.buyers[lists.items[own]].sum()) / histories.n_users
    return repeats_own(found, by_chance)


def repeats_own(found: float, by_chance: float) -> bool:
    """Whether lists with so many entries that the user has, and so many by chance, hold them."""
    return by_chance < _LEAST_BY_CHANCE or found >= _BY_CHANCE * by_chance


@dataclass(frozen=True)
class PersonalUnits:
    """Units with purchases before their window and with a hit on their wider list.

    Args:
        wide: their wider lists, with the scores that the choice model uses.
        data: the same with hits.
        sampled: all sampled units.
        sources: from which items were added.
        biases: of each entry, in units of the choice model, each unit held out.
        score_coefficients: of the engine's score, in the fit without a unit's fold; by unit.
        wider_range: of features over the entries of the wider lists learned from.
    """

    wide: WiderLists
    data: HitLists
    sampled: SampledUnits
    sources: int
    biases: Floats
    score_coefficients: Floats
    wider_range: FeatureRange

    @cached_property
    def folds(self) -> Ints:
        """The fold of each unit."""
        return self.sampled.folds[self.data.source]

    @cached_property
    def _of_unit(self) -> Ints:
        return np.repeat(np.arange(self.data.n_units), np.diff(self.data.lists.indptr))

    @cached_property
    def terms(self) -> Floats:
        """Personal terms and sources, by [entry, column]."""
        return np.concatenate([self.wide.terms, self.wide.added(self.sources)], axis=1)

    @cached_property
    def _items(self) -> tuple[Ints, Ints]:
        """The items on the lists, and the number of each entry's item among them."""
        found, places = np.unique(self.data.lists.items, return_inverse=True)
        return found.astype(np.int64), places

    @cached_property
    def _tables(self) -> Floats:
        return self.sampled.shared.tables(self._items[0], self.wider_range)

    @cached_property
    def _windows(self) -> Ints:
        return self.sampled.units.windows[self.data.source]

    def choices(self, left_out: int | None = None) -> Choices:
        """What the choice model explains: the purchases of all units, or of all folds but one."""
        shared = self.sampled.shared
        weights = self.data.most_to_gain(shared.k, shared.metric)
        weights = weights / max(float(weights.mean()), 1e-300)
        if left_out is not None:
            weights = weights * (self.folds != left_out)
        lists = self.data.lists._replace(items=self._items[1].astype(np.int32))
        data = self.data._replace(lists=lists)
        return Choices(data, weights, self._windows, self._tables, self.terms)

    def fit(self, left_out: int | None = None, start: Coefficients | None = None) -> Coefficients:
        """The coefficients, from all units or from all folds but one."""
        return fit_coefficients(self.choices(left_out), start)

    def covariance(self, found: Coefficients) -> Floats:
        """The covariance of coefficients."""
        return coefficient_errors(self.choices(), found)

    def fit_folds(self, whole: Coefficients) -> list[Coefficients]:
        """The coefficients without each fold."""
        return [self.fit(fold, whole) for fold in range(self.sampled.shared.n_folds)]

    def _logits(self, folds: list[Coefficients]) -> Floats:
        """The logit of each entry, from the fit that left out its unit."""
        out = np.empty(len(self.data.hits))
        fold, window = self.folds[self._of_unit], self._windows[self._of_unit]
        n_features = self._tables.shape[2]
        for left_out, found in enumerate(folds):
            own = np.flatnonzero(fold == left_out)
            beta, rows = found.beta, self._tables[window[own], self._items[1][own]]
            logits = beta[0] * self.data.lists.scores[own]
            for place in range(n_features):
                logits += beta[1 + place] * rows[:, place]
            for place in range(self.terms.shape[1]):
                logits += beta[1 + n_features + place] * self.terms[own, place]
            out[own] = logits
        return out

    def _along(self, folds: list[Coefficients]) -> tuple[HitLists, Floats]:
        """Lists ranked by the biases, and the way from there to the choice model's ranking."""
        scores = self.score_coefficients[self._of_unit] * (self.data.lists.scores + self.biases)
        here = self.data._replace(lists=self.data.lists._replace(scores=scores))
        return here, self._logits(folds) - scores

    def values(self, folds: list[Coefficients], length: float = 1.0) -> Floats:
        """The weighted metric of each unit, each unit held out.

        Args:
            folds: fits without each fold.
            length: how far to go, from 0 (the biases) to 1 (the choice model).
        """
        shared = self.sampled.shared
        return values_at(*self._along(folds), shared.k, shared.metric, length)

    def values_at_strength(
        self, folds: list[Coefficients], length: float, strength: float
    ) -> Floats:
        """The same at a strength: between the engine's scores (0) and what was learned (1)."""
        shared, (here, way) = self.sampled.shared, self._along(folds)
        learned = here.lists.scores + length * way
        beta = np.array([found.beta[0] for found in folds])[self.folds]
        of_score = length * beta + (1.0 - length) * self.score_coefficients
        engine = np.maximum(of_score, 1.0)[self._of_unit] * self.data.lists.scores
        start = self.data._replace(lists=self.data.lists._replace(scores=engine))
        return values_at(start, learned - engine, shared.k, shared.metric, strength)

    def line(self, folds: list[Coefficients]) -> LineCurve:
        """The metric from the biases to the choice model and beyond, each unit held out."""
        shared = self.sampled.shared
        return trace_line(*self._along(folds), shared.k, shared.metric, 0.0, _LONGEST)

    def only(self, sources: int) -> PersonalUnits:
        """The same units on lists with additions from some sources, for the same coefficients."""
        wide, kept = self.wide.only(sources)
        data = self.data._replace(lists=wide.lists, hits=self.data.hits[kept])
        return replace(self, wide=wide, data=data, biases=self.biases[kept])

    def take(self, chosen: Ints) -> PersonalUnits:
        """Some of the units."""
        kept = np.zeros(self.data.n_units, bool)
        kept[chosen] = True
        return replace(
            self, wide=self.wide.take(chosen), data=self.data.take(chosen),
            biases=self.biases[kept[self._of_unit]],
            score_coefficients=self.score_coefficients[chosen],
        )  # fmt: skip

    def with_hits(self) -> PersonalUnits:
        """Those of the units that bought something on their list."""
        return self.take(np.flatnonzero(self.data.n_hits))


def personal_units(
    sampled: SampledUnits, wide: WiderLists, chosen: Ints, fit: BiasFit, sources: int
) -> PersonalUnits:
    """Units on wider lists with what they bought.

    Args:
        sampled: all sampled units.
        wide: their wider lists, with additions from all sources.
        chosen: units with purchases before their window.
        fit: of the biases.
        sources: to add from.
    """
    wide, _ = wide.take(chosen).only(sources)
    lists, own, shared = wide.lists, sampled.units, sampled.shared
    bought = own.bought.take(chosen)
    hits, _ = find_bought(lists, bought, take_entries(own.bought.indptr, own.relevance, chosen))
    data = HitLists(lists, hits, np.diff(bought.indptr), own.weights[chosen], chosen)
    folds = list(fit.learned.folds)
    moved = sampled.on_levels(data).held_out_move(folds, fit.learned.kept)
    coefficients = np.array([fold.score_coefficient for fold in folds])[sampled.folds[chosen]]
    wider_range = shared.range_over(_count_entries(data, own.windows[chosen], shared))
    units = PersonalUnits(
        wide, data, sampled, sources, moved / shared.score_unit, coefficients, wider_range
    )
    return units.with_hits()


def _count_entries(data: HitLists, windows: Ints, shared: Shared) -> Ints:
    """Entries of lists that hold something bought, by [window, item]."""
    of_unit = np.repeat(np.arange(data.n_units), np.diff(data.lists.indptr))
    learned = data.n_hits[of_unit] > 0
    keys = windows[of_unit[learned]] * shared.n_items + data.lists.items[learned]
    counts = np.bincount(keys, minlength=shared.n_windows * shared.n_items)
    return counts.reshape(shared.n_windows, shared.n_items)
