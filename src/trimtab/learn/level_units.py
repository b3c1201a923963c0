"""Units with hits, and the sums that the levels need of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, entries_of
from trimtab.learn.choice_model import (
    LEAST_SCORE_COEFFICIENT,
    Choices,
    Coefficients,
    Effects,
    sum_effects,
)
from trimtab.learn.features import TABLES, WHOLE, Shared
from trimtab.learn.forecasts import Lifts, sum_lifts
from trimtab.learn.line_search import LineCurve, trace_line, values_at
from trimtab.learn.scales import Scale
from trimtab.learn.units import HitLists, HitUnits, folds_of, hash_units
from trimtab.models.scaled_scores import model_scores, to_scale
from trimtab.threads import run_ranges

_LONGEST = 2.0  # times the model's length


class Subset(NamedTuple):
    """The units of a fit: all, all but one fold, or those of the windows before one."""

    left_out: int | None = None
    before: int | None = None


class Fit(NamedTuple):
    """What the choice model found on some units."""

    subset: Subset
    coefficients: Coefficients
    category: Effects | None = None
    own: Effects | None = None  # by item

    @property
    def score_coefficient(self) -> float:
        """The coefficient of the engine's score; at least a minimum."""
        return max(float(self.coefficients.beta[0]), LEAST_SCORE_COEFFICIENT)

    @property
    def slopes(self) -> Floats:
        """The coefficients of the features, in units of score."""
        return self.coefficients.beta[1:] / self.score_coefficient


class LevelUnits:
    """Some or all of the units with hits.

    Args:
        units: with lists on the scale that biases are added on.
        shared: what all units share.
    """

    def __init__(self, units: HitUnits, shared: Shared) -> None:
        self._units, self.shared = units, shared
        self.data, self.window = units.data, units.windows
        by_window = shared.folds_are_windows
        self.fold = self.window if by_window else folds_of(units.hashes, shared.seed)
        gains = units.data.most_to_gain(shared.k, shared.metric)
        self.to_gain = gains / shared.sizes.mean_to_gain
        lists = units.data.lists
        # Features are computed for the items on these lists only, which get numbers of their own.
        on_lists = np.zeros(shared.n_items, bool)
        on_lists[lists.items] = True
        self._items = np.flatnonzero(on_lists)
        self._local = (np.cumsum(on_lists) - 1).astype(np.int32)[lists.items]
        self._last_logits: tuple[Any, Floats] | None = None

    @cached_property
    def model(self) -> HitLists:
        """The lists with the scores that the choice model uses."""
        lists = self.data.lists
        taken = model_scores(lists, self.shared.scale, self.shared.score_unit, self.shared.k)
        return self.data._replace(lists=lists._replace(scores=taken))

    def on_scale(self, scale: Scale) -> LevelUnits:
        """These units on another scale; they must have the engine's scores as they are."""
        shared = replace(self.shared, scale=scale.name, score_unit=scale.unit)
        lists = to_scale(self.data.lists, scale.name, shared.k).lists
        data = self.data._replace(lists=lists)
        return LevelUnits(self._units._replace(data=data), shared)

    @cached_property
    def _tables(self) -> Floats:
        return self.shared.tables(self._items)

    def chosen(self, subset: Subset) -> Flags:
        """The units of a fit."""
        if subset.before is not None:
            earlier: Flags = self.window < subset.before
            return earlier
        if subset.left_out is not None:
            others: Flags = self.fold != subset.left_out
            return others
        everybody: Flags = np.ones(self.data.n_units, bool)
        return everybody

    def _table_of(self, subset: Subset) -> Ints:
        """The feature table of each unit."""
        return self.shared.table_of(self.window, self.fold, subset.left_out)

    def sample(self, purpose: str) -> LevelUnits:
        """A sample of the units: "trend", to fit coefficients, or "curves", to choose lengths."""
        share = self.shared.sample_share(purpose)
        if share == 1.0:
            return self
        salt = self.shared.seed if purpose == "trend" else -1
        hashes, windows = self._units.hashes, self.window
        chosen = np.flatnonzero(hash_units(hashes, windows, salt + 2) < share)
        units = HitUnits(self.data.take(chosen), hashes[chosen], windows[chosen])
        return LevelUnits(units, self.shared)

    def choices(self, subset: Subset) -> Choices:
        """What the choice model explains: the purchases of the units of a fit."""
        numbered = self.model.lists._replace(items=self._local)
        weights = self.to_gain * self.chosen(subset)
        return Choices(
            self.model._replace(lists=numbered), weights, self._table_of(subset), self._tables
        )

    def effect_sums(self, level: str, fit: Fit, kept: dict[str, float], effects: Floats) -> Floats:
        """Gradient and curvature of groups of items; for the level "spread", the noise as well."""
        lists = self.model.lists
        groups, logits = lists.items, fit.score_coefficient * lists.scores
        if level == "category":
            assert self.shared.groups is not None
            groups = self.shared.groups[lists.items]
        if level != "spread":
            logits = self._logits(fit, kept)
        weights, quanta = self.to_gain * self.chosen(fit.subset), self.shared.effect_quanta
        sums = sum_effects(self.model, weights, logits, groups, effects, quanta, level == "spread")
        return sums / quanta

    def _trend_of(self, fit: Fit) -> Floats:
        """The trend of the items on these lists, by [table, item]."""
        # A matrix product would depend on the number of rows in its last bits.
        total: Floats = self._tables[:, :, 0] * fit.slopes[0]
        for place in range(1, len(fit.slopes)):
            total += self._tables[:, :, place] * fit.slopes[place]
        return total

    def _logits(self, fit: Fit, kept: dict[str, float]) -> Floats:
        """The logits of every list entry with the kept levels; the last result is cached."""
        key = (fit.subset, fit.coefficients.beta.tobytes(), tuple(kept.items()))
        if self._last_logits is None or self._last_logits[0] != key:
            self._last_logits = (key, self._make_logits(fit, kept))
        return self._last_logits[1]

    def _make_logits(self, fit: Fit, kept: dict[str, float]) -> Floats:
        from trimtab.kernels.choice import add_level

        indptr, items, scores = self.model.lists
        table_of, trend = self._table_of(fit.subset), self._trend_of(fit)
        logits, n_units = np.empty(len(scores)), self.data.n_units
        run_ranges(
            add_level,
            n_units,
            indptr,
            self._local,
            scores,
            table_of,
            trend,
            float(kept["trend"]),
            logits,
        )
        if fit.category is not None and kept.get("category"):
            none, by_item = np.zeros(n_units, np.int64), self._by_item(fit, "category")[None]
            length = float(kept["category"])
            run_ranges(add_level, n_units, indptr, items, logits, none, by_item, length, logits)
        logits *= fit.score_coefficient
        return logits

    def _by_item(self, fit: Fit, level: str) -> Floats:
        """What a level below the trend says of each item."""
        if level == "category":
            assert fit.category is not None
            assert self.shared.groups is not None
            return fit.category.values[self.shared.groups] / fit.score_coefficient
        assert fit.own is not None
        return fit.own.values / fit.score_coefficient

    def _held_out_level(self, fold_fits: list[Fit], level: str) -> Floats:
        """A level at every list entry, from the fit that left out the entry's unit."""
        from trimtab.kernels.choice import take_level

        indptr, items, _ = self.data.lists
        out = np.empty(len(items))
        for left_out, fit in enumerate(fold_fits):
            if level == "trend":
                numbers, values = self._local, self._trend_of(fit)
                table_of = self.shared.table_of(self.window, left_out)
            else:
                numbers, values = items, self._by_item(fit, level)[None]
                table_of = np.zeros(self.data.n_units, np.int64)
            run_ranges(
                take_level, self.data.n_units, indptr, numbers, self.fold == left_out, table_of,
                values, float(self.shared.score_unit), out,
            )  # fmt: skip
        return out

    def held_out_move(self, fold_fits: list[Fit], kept: dict[str, float]) -> Floats:
        """How far the kept levels move every list entry, from fits that left out its unit."""
        moved = np.zeros(len(self.data.lists.items))
        for level, length in kept.items():
            if length:
                moved += length * self._held_out_level(fold_fits, level)
        return moved

    def _along(
        self, fold_fits: list[Fit], kept: dict[str, float], level: str
    ) -> tuple[HitLists, Floats]:
        """Lists with the kept levels applied, and the slopes of the next level."""
        lists = self.data.lists
        moved = lists._replace(scores=lists.scores + self.held_out_move(fold_fits, kept))
        return self.data._replace(lists=moved), self._held_out_level(fold_fits, level)

    def line(self, fold_fits: list[Fit], kept: dict[str, float], level: str) -> LineCurve:
        """The metric along a level, from length 0 to `_LONGEST`, each unit held out."""
        here, slopes = self._along(fold_fits, kept, level)
        return trace_line(here, slopes, self.shared.k, self.shared.metric, 0.0, _LONGEST)

    def compare(
        self, fold_fits: list[Fit], kept: dict[str, float], level: str, default: float, best: float
    ) -> Lifts:
        """The gain from another length than the default one, each unit held out."""
        here, slopes = self._along(fold_fits, kept, level)
        before, after = (
            values_at(here, slopes, self.shared.k, self.shared.metric, length)
            for length in (default, best)
        )
        return self._lifts(before, after, self.fold)

    def forecast(self, fold_fits: list[Fit], kept: dict[str, float]) -> Lifts:
        """The gain from all kept levels, each unit held out."""
        none = np.zeros(len(self.data.lists.items))
        before = values_at(self.data, none, self.shared.k, self.shared.metric, 0.0)
        return self._lifts(before, self.held_out_values(fold_fits, kept), self.fold)

    def held_out_values(self, fold_fits: list[Fit], kept: dict[str, float]) -> Floats:
        """The weighted metric of each unit with the kept levels, each unit held out."""
        moved = self.held_out_move(fold_fits, kept)
        return values_at(self.data, moved, self.shared.k, self.shared.metric, 1.0)

    def forecast_newest(self, fit: Fit, kept: dict[str, float], newest: int) -> Lifts:
        """The gain of a window from what the windows before it taught."""
        chosen = np.flatnonzero(self.window == newest)
        _, entries = entries_of(self.data.lists.indptr, chosen)
        items, data = self.data.lists.items[entries], self.data.take(chosen)
        table = (newest - 1) * TABLES + WHOLE
        moved = kept["trend"] * self._trend_of(fit)[table, self._local[entries]]
        if fit.category is not None:
            moved = moved + kept["category"] * self._by_item(fit, "category")[items]
        moved = moved + kept["own"] * self._by_item(fit, "own")[items]
        before, after = (
            values_at(data, moved * self.shared.score_unit, self.shared.k, self.shared.metric, t)
            for t in (0.0, 1.0)
        )
        return self._lifts(before, after, np.zeros(len(chosen), np.int64))

    def _lifts(self, before: Floats, after: Floats, folds: Ints) -> Lifts:
        shared = self.shared
        quanta, by_window = shared.lift_quanta, shared.folds_are_windows
        return sum_lifts(before, after, folds, shared.n_folds, quanta, by_window)
