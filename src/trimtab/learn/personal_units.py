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

from trimtab.arrays import (
    LISTED,
    OWN,
    TRENDING,
    Codes,
    Flags,
    Floats,
    Ints,
    entries_of,
    take_entries,
)
from trimtab.learn.bias_fit import BiasFit
from trimtab.learn.choice_model import Choices, Coefficients, LevelUnits
from trimtab.learn.counted import Counted
from trimtab.learn.features import FeatureRange, Shared, number_items
from trimtab.learn.held_out import LineCurve
from trimtab.learn.sales import Events, Histories, History
from trimtab.learn.units import (
    HitLists,
    LearningUnits,
    find_bought,
    join,
    join_learning,
    take_learning,
)
from trimtab.models.list_ranking import model_scores, to_scale
from trimtab.models.widening import (
    MOST_ADDED,
    Purchases,
    WiderLists,
    days_before,
    sum_purchases,
    widen,
)

_BY_CHANCE = 0.1  # of what chance would put on lists: engines that never list what a user has
_LEAST_BY_CHANCE = 20.0  # entries
_MOST_UNITS, _MOST_ENTRIES = 20_000, 2_000_000  # enough for a few coefficients


def sample_units(counted: Counted, shared: Shared) -> LearningUnits:
    """Some of the units, on the scale of the biases, with the events of their users."""
    choice = counted.limit(counted.choose_units()[0], _MOST_UNITS, _MOST_ENTRIES)
    units = join_learning(list(counted.parts.map(take_learning, counted.plan, choice, True)))
    return units._replace(lists=to_scale(units.lists, shared.scale, shared.k).lists)


def trending_items(history: History) -> Codes:
    """The best sellers just before an instant, best first."""
    assert history.window is not None
    order = np.argsort(-history.window, kind="stable")[:MOST_ADDED]
    return order[history.window[order] > 0].astype(np.int32)


def widen_units(units: LearningUnits, shared: Shared, widen_by: str) -> tuple[WiderLists, Flags]:
    """The wider lists of sampled units as of their windows, and which have purchases before.

    Args:
        units: with the events of their users.
        shared: what all units of the fit share.
        widen_by: "any", "listed" or "none".
    """
    assert units.events is not None
    scores = model_scores(units.lists, shared.scale, shared.score_unit, shared.k)
    model = units.lists._replace(scores=scores)
    parts, has_purchases = [], np.zeros(units.n_units, bool)
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
        lists = model.take(own)
        parts.append((own, widen(lists, rows, purchases, may_add, trending, TRENDING | OWN)))
    return _in_order(parts, units.n_units), has_purchases


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
    joined: WiderLists = join([part for _, part in parts])
    order = np.empty(n_units, np.int64)
    order[np.concatenate([own for own, _ in parts])] = np.arange(n_units)
    return joined.take(order)


def lists_hold_own(
    wide: WiderLists, windows: Ints, histories: Histories, has_purchases: Flags
) -> bool:
    """Whether lists hold what the user already has; some engines never list that.

    They do unless it is on far fewer lists than if the same items were dealt to users at random.

    Args:
        wide: the wider lists of the units.
        windows: of the units.
        histories: before each window.
        has_purchases: units whose users bought something before.
    """
    lists = wide.lists
    of_unit = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    listed = (wide.sources == LISTED) & has_purchases[of_unit]
    found = float(wide.terms[listed, 0].sum())
    by_chance = 0.0
    for window, history in enumerate(histories.before):
        assert history.buyers is not None
        own = listed & (windows[of_unit] == window)
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
        shared: what all units of the fit share.
        folds: of the units.
        sources: from which items were added.
        biases: of each entry, in units of the choice model, each unit held out.
        score_coefficients: of the engine's score, in the fit without a unit's fold; by unit.
        wider_range: of features over the entries of the wider lists learned from.
    """

    wide: WiderLists
    data: HitLists
    shared: Shared
    folds: Ints
    sources: int
    biases: Floats
    score_coefficients: Floats
    wider_range: FeatureRange

    @cached_property
    def _of_unit(self) -> Ints:
        return np.repeat(np.arange(self.data.n_units), np.diff(self.data.lists.indptr))

    @cached_property
    def terms(self) -> Floats:
        """Personal terms and sources, by [entry, column]."""
        return np.concatenate([self.wide.terms, self.wide.added(self.sources)], axis=1)

    @cached_property
    def _items(self) -> tuple[Ints, Codes]:
        """The items on the lists, and the number of each entry's item among them."""
        return number_items(self.data.lists.items, self.shared.n_items)

    @cached_property
    def _tables(self) -> Floats:
        return self.shared.tables(self._items[0], self.wider_range)

    def choices(self, left_out: int | None = None) -> Choices:
        """What the choice model explains: the purchases of all units, or of all folds but one."""
        weights = self.data.most_to_gain(self.shared.k, self.shared.metric)
        weights = weights / max(float(weights.mean()), 1e-300)
        if left_out is not None:
            weights = weights * (self.folds != left_out)
        lists = self.data.lists._replace(items=self._items[1])
        data = self.data._replace(lists=lists)
        return Choices(data, weights, self.data.windows, self._tables, self.terms)

    def _logits(self, folds: list[Coefficients]) -> Floats:
        """The logit of each entry, from the fit that left out its unit."""
        out = np.empty(len(self.data.hits))
        fold, window = self.folds[self._of_unit], self.data.windows[self._of_unit]
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
        return self.shared.values_at(*self._along(folds), length)

    def values_at_strength(
        self, folds: list[Coefficients], length: float, strength: float
    ) -> Floats:
        """The same at a strength: between the engine's scores (0) and what was learned (1)."""
        here, way = self._along(folds)
        learned = here.lists.scores + length * way
        beta = np.array([found.beta[0] for found in folds])[self.folds]
        of_score = length * beta + (1.0 - length) * self.score_coefficients
        engine = np.maximum(of_score, 1.0)[self._of_unit] * self.data.lists.scores
        start = self.data._replace(lists=self.data.lists._replace(scores=engine))
        return self.shared.values_at(start, learned - engine, strength)

    def line(self, folds: list[Coefficients]) -> LineCurve:
        """The metric from the biases to the choice model and beyond, each unit held out."""
        return self.shared.line(*self._along(folds))

    def only(self, sources: int) -> PersonalUnits:
        """The same units on lists with additions from some sources, for the same coefficients."""
        wide, kept = self.wide.only(sources)
        data = self.data._replace(lists=wide.lists, hits=self.data.hits[kept])
        return replace(self, wide=wide, data=data, biases=self.biases[kept])


def personal_units(
    own: LearningUnits, wide: WiderLists, chosen: Ints, fit: BiasFit, sources: int
) -> PersonalUnits:
    """Units on wider lists with what they bought.

    Args:
        own: all sampled units.
        wide: their wider lists, with additions from all sources.
        chosen: units with purchases before their window.
        fit: of the biases.
        sources: to add from.
    """
    wide, _ = wide.take(chosen).only(sources)
    shared, fold_fits = fit.shared, list(fit.learned.folds)
    bought = own.bought.take(chosen)
    relevance = take_entries(own.bought.indptr, own.relevance, chosen)
    hits, has_hit = find_bought(wide.lists, bought, relevance)
    rows = np.flatnonzero(has_hit)
    _, entries = entries_of(wide.lists.indptr, rows)
    n_bought = np.diff(bought.indptr)[rows]
    wide, chosen = wide.take(rows), chosen[rows]
    by_unit = (n_bought, own.weights[chosen], chosen, own.hashes[chosen], own.windows[chosen])
    data = HitLists(wide.lists, hits[entries], *by_unit)
    moved = LevelUnits(data, shared).held_out_move(fold_fits, fit.learned.kept)
    folds = shared.folds_of(data.windows, data.hashes)
    coefficients = np.array([fold.score_coefficient for fold in fold_fits])[folds]
    return PersonalUnits(
        wide, data, shared, folds, sources, moved / shared.score_unit, coefficients,
        shared.range_over(_count_entries(data, shared)),
    )  # fmt: skip


def _count_entries(data: HitLists, shared: Shared) -> Ints:
    """Entries of lists, by [window, item]."""
    keys = np.repeat(data.windows, np.diff(data.lists.indptr)) * shared.n_items + data.lists.items
    counts = np.bincount(keys, minlength=shared.n_windows * shared.n_items)
    return counts.reshape(shared.n_windows, shared.n_items)
