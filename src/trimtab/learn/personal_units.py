"""A sample of the units on wider lists, and the choice model on them.

    logit(u, i) = α·score(u, i) + θ·x(i) + φ·z(u, i) + ψ·x(i)·bought(u, i) + κ(source of i)

x are the features of items, z the terms of the user's own purchases; ψ is for some features, where
the user bought the item before; κ is 0 for listed items. All
coefficients are learned together, again from the start: θ learned without z counts as a trend of
the item what the user's own purchases explain. Everything is as of the start of each unit's window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trimtab.arrays import LISTED, OWN, TRENDING, Codes, Flags, Floats, Ints, find_positions
from trimtab.learn.bias_fit import BiasFit
from trimtab.learn.choice_model import ChoiceUnits, Coefficients, HeldOut, LevelUnits
from trimtab.learn.counted import Counted
from trimtab.learn.features import Shared, popularity
from trimtab.learn.held_out import LineCurve
from trimtab.learn.sales import Histories, History
from trimtab.learn.units import HitLists, Units, join, join_learning, take_learning
from trimtab.models.list_ranking import model_scores, to_scale
from trimtab.models.widening import MOST_ADDED, PRODUCTS, WiderLists, sum_purchases, widen

_BY_CHANCE = 0.1  # of what chance would put on lists: engines that never list what a user has
_LEAST_BY_CHANCE = 20.0  # entries
_MOST_UNITS, _MOST_ENTRIES = 20_000, 2_000_000  # enough for a few coefficients


def sample_units(counted: Counted, shared: Shared) -> Units:
    """Some of the units, on the scale of the biases, with the events of their users."""
    choice = counted.limit(counted.choose_windows()[0], _MOST_ENTRIES, _MOST_UNITS)
    units = join_learning(list(counted.parts.map(take_learning, counted.plan, choice, True)))
    return units._replace(lists=to_scale(units.lists, shared.scale, shared.k).lists)


def trending_items(history: History) -> Codes:
    """The best sellers just before an instant, best first."""
    sold = history.get("twelfth", history["window"])
    order = np.argsort(-sold, kind="stable")[:MOST_ADDED]
    return order[sold[order] > 0].astype(np.int32)


def widen_units(units: Units, shared: Shared, widen_by: str) -> tuple[WiderLists, Flags]:
    """The wider lists of sampled units as of their windows, and which have purchases before.

    Args:
        units: with the events of their users.
        shared: what all units of the fit share.
        widen_by: "any", "listed" or "none".
    """
    log = units.events
    assert log is not None
    assert log.users is not None
    assert log.times is not None
    scores = model_scores(units.lists, shared.scale, shared.score_unit, shared.k)
    lists, parts = units.lists._replace(scores=scores), []
    by_window = np.argsort(units.windows, kind="stable")
    has_purchases = np.zeros(units.n_units, bool)
    for window, history in enumerate(shared.histories.before):
        own = by_window[units.windows[by_window] == window]
        rows, start = find_positions(units.users[own], log.users), shared.histories.starts[window]
        early = np.flatnonzero((rows >= 0) & (log.times < start))
        purchases = sum_purchases(
            rows[early], log.items[early], log.times[early], start, shared.histories.window,
            len(own),
        )  # fmt: skip
        has_purchases[own] = purchases.lengths > 0
        may_add = np.full(shared.n_items, widen_by == "any")
        if widen_by == "listed":
            may_add = shared.counts(window)[1] > 0
        users, trending = np.arange(len(own), dtype=np.int32), trending_items(history)
        parts.append(widen(lists.take(own), users, purchases, may_add, trending, TRENDING | OWN))
    wide: WiderLists = join(parts)
    return wide.take(np.argsort(by_window)), has_purchases


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
    buyers = np.stack([history["buyers"] for history in histories.before])
    by_chance = buyers[windows[of_unit[listed]], lists.items[listed]].sum() / histories.n_users
    return repeats_own(float(wide.terms[listed, 0].sum()), float(by_chance))


def repeats_own(found: float, by_chance: float) -> bool:
    """Whether lists with so many entries that the user has, and so many by chance, hold them."""
    return by_chance < _LEAST_BY_CHANCE or found >= _BY_CHANCE * by_chance


class Way(NamedTuple):
    """How far to go: from the biases to the choice model, and from there to what sold most."""

    length: float = 1.0
    to_popularity: float = 0.0


WHOLE_WAY = Way()


class PersonalUnits(ChoiceUnits):
    """Units with purchases before their window and with a hit on their wider list.

    Args:
        wide: their wider lists, with the scores that the choice model uses.
        data: the same with hits.
        shared: what all units of the fit share; features are kept in the range of these lists.
        sources: from which items were added.
        by_biases: scores by the biases, in logits, each unit held out; by entry.
        score_coefficients: of the engine's score, in the fit without a unit's fold; by unit.
    """

    def __init__(
        self, wide: WiderLists, data: HitLists, shared: Shared, sources: int, by_biases: Floats,
        score_coefficients: Floats,
    ) -> None:  # fmt: skip
        super().__init__(data, shared)
        self._wide, self._sources, self._by_biases = wide, sources, by_biases
        self._score_coefficients = score_coefficients
        self._of_unit = np.repeat(np.arange(data.n_units), np.diff(data.lists.indptr))
        names, tables = shared.tonight()[0], self._tables
        places = [names.index(feature) for feature in PRODUCTS.values()]
        of_items = tables[data.windows[self._of_unit, None], self._local[:, None], places]
        products = wide.terms[:, :1] * of_items
        self.terms = np.concatenate([wide.terms, products, wide.added(sources)], axis=1)
        popular = np.stack([popularity(history) for history in shared.histories.before])
        self._popularity = popular[data.windows[self._of_unit], data.lists.items]

    def _columns(self) -> Iterator[Floats]:
        """What each coefficient is multiplied by: score, features and terms, by entry."""
        yield self.data.lists.scores
        window, item = self.data.windows[self._of_unit], self._local
        for place in range(self._tables.shape[2]):
            yield self._tables[window, item, place]
        yield from self.terms.T  # type: ignore[union-attr]

    def _along(self, folds: Sequence[Coefficients]) -> tuple[HitLists, Floats]:
        """Lists ranked by the biases, and the way from there to the choice model's ranking.

        Each entry has the logit of the fit that left out its unit.
        """
        fold, logits = self.fold[self._of_unit], np.zeros(len(self.data.hits))
        for place, column in enumerate(self._columns()):
            logits += np.array([found.beta[place] for found in folds])[fold] * column
        return self._with_scores(self._by_biases), logits - self._by_biases

    def _with_scores(self, scores: Floats) -> HitLists:
        return self.data._replace(lists=self.data.lists._replace(scores=scores))

    def _learned(self, folds: Sequence[Coefficients], way: Way) -> Floats:
        """Scores of entries as far as they go, each unit held out."""
        model = self._by_biases + way.length * self._along(folds)[1]
        return (1.0 - way.to_popularity) * model + way.to_popularity * self._popularity

    def values(self, folds: Sequence[Coefficients], way: Way = WHOLE_WAY) -> Floats:
        """The weighted metric of each unit, each unit held out by fits without each fold."""
        return self.shared.values_at(self._with_scores(self._learned(folds, way)))

    def values_at_strength(
        self, folds: Sequence[Coefficients], way: Way, strength: float
    ) -> Floats:
        """The same at a strength: between the engine's scores (0) and what was learned (1)."""
        learned, length = self._learned(folds, way), way.length
        beta = np.array([found.beta[0] for found in folds])[self.fold]
        of_score = length * beta + (1.0 - length) * self._score_coefficients
        engine = np.maximum(of_score, 1.0)[self._of_unit] * self.data.lists.scores
        return self.shared.values_at(self._with_scores(engine), learned - engine, strength)

    def line(self, folds: Sequence[Coefficients]) -> LineCurve:
        """The metric from the biases to the choice model and beyond, each unit held out."""
        return self.shared.line(*self._along(folds))

    def line_to_popularity(self, folds: Sequence[Coefficients], way: Way) -> LineCurve:
        """The metric from there to what sold most of late, for everyone."""
        scores = self._learned(folds, way)
        return self.shared.line(self._with_scores(scores), self._popularity - scores)

    def only(self, sources: int) -> PersonalUnits:
        """The same units on lists with additions from some sources, for the same coefficients."""
        wide, kept = self._wide.only(sources)
        data = self.data._replace(lists=wide.lists, hits=self.data.hits[kept])
        return type(self)(
            wide, data, self.shared, self._sources, self._by_biases[kept], self._score_coefficients
        )


def personal_units(
    own: Units, wide: WiderLists, chosen: Ints, fit: BiasFit, sources: int,
    kind: type[PersonalUnits] = PersonalUnits,
) -> PersonalUnits:  # fmt: skip
    """Units on wider lists with what they bought.

    Args:
        own: all sampled units.
        wide: their wider lists, with additions from all sources.
        chosen: units with purchases before their window.
        fit: of the biases.
        sources: to add from.
        kind: of the units.
    """
    wide, _ = wide.take(chosen).only(sources)
    shared, folds = fit.shared, fit.learned.folds
    every = own.hits_on(wide.lists, chosen)
    rows = np.flatnonzero(every.n_hits)
    data, wide = every.take(rows), wide.take(rows)
    units, kept = LevelUnits(data, shared), fit.learned.kept
    moved = HeldOut(units, folds, [level for level in kept if kept[level]]).move(kept)
    coefficients = np.array([found.score_coefficient for found in folds])[units.fold]
    of_entry = np.repeat(coefficients, np.diff(data.lists.indptr))
    keys = np.repeat(data.windows, np.diff(data.lists.indptr)) * shared.n_items + data.lists.items
    entries = np.bincount(keys, minlength=shared.n_windows * shared.n_items)
    return kind(
        wide, data, shared.within_range_of(entries.reshape(shared.n_windows, -1)), sources,
        of_entry * (data.lists.scores + moved / shared.score_unit), coefficients,
    )  # fmt: skip
