"""Units whose users bought something before, on wider lists, and the choice model on them.

    logit(u, i) = α·score(u, i) + θ·x(i) + φ·z(u, i) + κ(source of i)

x are the features of items, z the terms of the user's own purchases; κ is 0 for listed items. All
coefficients are learned together, again from the start: θ learned without z counts as a trend of
the item what the user's own purchases explain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trimtab.arrays import Floats, Ints, take_entries
from trimtab.learn.hierarchy.choice_model import (
    Choices,
    Coefficients,
    coefficient_errors,
    fit_coefficients,
)
from trimtab.learn.hierarchy.hierarchy_fit import BiasFit
from trimtab.learn.hierarchy.line_search import (
    HitLists,
    LineCurve,
    find_bought,
    trace_line,
    values_at,
)
from trimtab.learn.hierarchy.shared_inputs import FeatureRange, SharedInputs, max_hit_value
from trimtab.learn.hierarchy.trends import RIDGE
from trimtab.learn.hierarchy.unit_data import UnitData
from trimtab.learn.rerank.sampled_units import SampledUnits
from trimtab.models.widening import WiderLists

_LONGEST = 2.0  # times the model's length


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
        return self.sampled.windows[self.data.source]

    def choices(self, left_out: int | None = None) -> Choices:
        """What the choice model explains: the purchases of all units, or of all folds but one."""
        shared = self.sampled.shared
        weights = max_hit_value(self.data, shared.k, shared.metric)
        weights = weights / max(float(weights.mean()), 1e-300)
        if left_out is not None:
            weights = weights * (self.folds != left_out)
        lists = self.data.lists._replace(items=self._items[1].astype(np.int32))
        data = self.data._replace(lists=lists)
        return Choices(data, weights, self._windows, self._tables, self.terms)

    def fit(self, left_out: int | None = None, start: Coefficients | None = None) -> Coefficients:
        """The coefficients, from all units or from all folds but one."""
        return fit_coefficients(self.choices(left_out), RIDGE, start)

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
    lists, bought = wide.lists, sampled.bought.take(chosen)
    relevance = take_entries(sampled.bought.indptr, sampled.relevance, chosen)
    hits, _ = find_bought(lists, bought, relevance)
    data = HitLists(lists, hits, np.diff(bought.indptr), sampled.weights[chosen], chosen)
    on_scale = UnitData(data, sampled.users[chosen], sampled.windows[chosen], sampled.shared)
    folds, unit = list(fit.learned.folds), sampled.shared.score_unit
    biases = on_scale.held_out_move(folds, fit.learned.kept) / unit
    coefficients = np.array([fold.score_coefficient for fold in folds])[sampled.folds[chosen]]
    entries = _count_entries(data, sampled.windows[chosen], sampled.shared)
    wider_range = sampled.shared.range_over(entries)
    units = PersonalUnits(wide, data, sampled, sources, biases, coefficients, wider_range)
    return units.with_hits()


def _count_entries(data: HitLists, windows: Ints, shared: SharedInputs) -> Ints:
    """Entries of lists that hold something bought, by [window, item]."""
    of_unit = np.repeat(np.arange(data.n_units), np.diff(data.lists.indptr))
    learned = data.n_hits[of_unit] > 0
    keys = windows[of_unit[learned]] * shared.n_items + data.lists.items[learned]
    counts = np.bincount(keys, minlength=shared.n_windows * shared.n_items)
    return counts.reshape(shared.n_windows, shared.n_items)
