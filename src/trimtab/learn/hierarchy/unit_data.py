"""Units with hits, and the sums that the hierarchy needs of them; sums over parts add up.

All parts get the same `SharedInputs`. Sums are fixed-point: any division of the units gives the
same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.hit_value import discounts
from trimtab.learn.hierarchy.choice_model import (
    LEAST_SCORE_COEFFICIENT,
    Coefficients,
    Effects,
    sum_effects,
)
from trimtab.learn.hierarchy.features import Features, count_groups
from trimtab.learn.hierarchy.line_search import (
    HitLists,
    LineCurve,
    detail_line,
    outline_line,
    trace_line,
    values_at,
)
from trimtab.learn.history import History
from trimtab.learn.scales import model_scores
from trimtab.learn.units import learning_units

N_FOLDS = 4
_PAIRS = tuple(combinations(range(N_FOLDS), 2))
TABLES = N_FOLDS + 1 + len(_PAIRS)  # per window: without each fold, of all, without each pair
WHOLE = N_FOLDS  # the table of all folds
LONGEST = 2.0  # times the model's length
_MOST_FOR_TREND = 20_000  # units; enough for a few coefficients
_MOST_FOR_CURVES = 100_000
_MOST_CROSSINGS = 30_000_000


class UnitCounts(NamedTuple):
    """Counts of units with hits, made before anything is learned."""

    n_units: int
    crossings: int  # pairs of a hit and another item on the same list
    hit_values: int  # the most that the hits can add to the metric, in quanta
    highest_hit_value: float  # of one unit
    heaviest: float  # weight of a unit


class Subset(NamedTuple):
    """The units of a fit: all but one fold, or those of the windows before one."""

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


@dataclass(frozen=True)
class SharedInputs:
    """What all parts of the units share.

    Args:
        scale: "additive" or "log".
        unit: the size, in scores, of 1 in the choice model.
        k: slots.
        metric: "acc", "map" or "ndcg".
        seed: of folds and samples.
        bought: units that bought each item, by [(window, fold), item].
        listed: lists of those units that contain it.
        history: before each window, or empty.
        groups: the category of each item; or None.
        unit_counts: of all units with hits.
        hit_value_quanta: per hit value of 1.
    """

    scale: str
    unit: float
    k: int
    metric: str
    seed: int
    bought: Ints
    listed: Ints
    history: tuple[History, ...]
    groups: Codes | None
    unit_counts: UnitCounts
    hit_value_quanta: float

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self.bought) // N_FOLDS

    @property
    def n_items(self) -> int:
        """Number of item codes."""
        return int(self.bought.shape[1])

    @property
    def n_groups(self) -> int:
        """Number of categories, plus one for unknown."""
        return 0 if self.groups is None else int(self.groups.max(initial=-1)) + 1

    @property
    def mean_hit_value(self) -> float:
        """The mean over units of the most that their hits can add to the metric."""
        return max(
            self.unit_counts.hit_values / self.hit_value_quanta / max(self.unit_counts.n_units, 1),
            1e-300,
        )

    @property
    def effect_quanta(self) -> float:
        """Quanta for the sums of effects, which stay below 2**62."""
        heaviest = max(1.0, self.unit_counts.highest_hit_value / self.mean_hit_value)
        return _quanta(4.0 * self.unit_counts.n_units * heaviest**2)

    @property
    def lift_quanta(self) -> float:
        """Quanta for sums of metrics and of their squares."""
        return _quanta(4.0 * self.unit_counts.n_units * max(1.0, self.unit_counts.heaviest) ** 2)

    @property
    def trend_share(self) -> float:
        """The share of the units that the trend's coefficients are fitted on."""
        return min(1.0, _MOST_FOR_TREND / max(self.unit_counts.n_units, 1))

    @property
    def curve_share(self) -> float:
        """The share of the units that curves are made of: as many as fit into memory."""
        n_units, crossings = self.unit_counts.n_units, self.unit_counts.crossings
        return min(1.0, _MOST_FOR_CURVES / max(n_units, 1), _MOST_CROSSINGS / max(crossings, 1))

    def features(self, window: int) -> Features:
        """The features of a window."""
        return Features(self.history[window] if self.history else None)

    def counts(self, window: int) -> tuple[Floats, Floats]:
        """Buyers and lists of a window, by item."""
        own = slice(window * N_FOLDS, (window + 1) * N_FOLDS)
        bought, listed = (
            part[own].sum(axis=0).astype(np.float64) for part in (self.bought, self.listed)
        )
        return bought, listed

    def tables(self, items: Ints) -> Floats:
        """Features by [window and folds left out, item, feature]."""
        made = []
        for window in range(self.n_windows):
            features = self.features(window)
            bought, listed = self.counts(window)
            for left_out in (*((fold,) for fold in range(N_FOLDS)), (), *_PAIRS):
                some = bought.copy(), listed.copy()
                for fold in left_out:
                    some[0][:] -= self.bought[window * N_FOLDS + fold]
                    some[1][:] -= self.listed[window * N_FOLDS + fold]
                made.append(features.build(*some, items))
        return np.stack(made)


def _quanta(most: float) -> float:
    return float(2.0 ** np.floor(61 - np.log2(max(1.0, most))))


def hit_value_quanta(n_units: int, heaviest: float, k: int) -> float:
    """Quanta for sums of hit values."""
    return _quanta(n_units * max(1.0, heaviest) * k)


def folds_of(users: Ints | Codes, seed: int) -> Ints:
    """The fold of each user code; the same in any part of the users."""
    if len(users) == 0:
        return np.empty(0, np.int64)
    first = int(users.min()) // 2 * 2
    generator = np.random.PCG64(np.random.SeedSequence([seed, 0]))
    generator.advance(first // 2)  # two draws take one step
    rng = np.random.Generator(generator)
    return rng.integers(0, N_FOLDS, int(users.max()) + 1 - first)[users - first]


def count_folds(
    lists: Lists, bought: Sets, weights: Floats, users: Codes | Ints, windows: Codes, seed: int,
    n_windows: int, n_items: int,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Purchases and lists of learning units, by [(window, fold), item]."""
    learning = learning_units(lists, bought, weights)
    group = np.where(learning, windows * N_FOLDS + folds_of(users, seed), -1).astype(np.int64)
    return count_groups(lists, bought, group, n_windows * N_FOLDS, n_items)


def _hash(units: Ints, seed: int) -> Floats:
    """A number in [0, 1) for each unit; the same in any part of the units."""
    with np.errstate(over="ignore"):
        x = (units.astype(np.uint64) + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        x = x ^ (x >> np.uint64(31))
    hashed: Floats = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return hashed


def max_hit_value(data: HitLists, k: int, metric: str) -> Floats:
    """The most that the hits on each unit's list can add to the metric."""
    need = np.minimum(data.n_bought, k)
    ideal = np.concatenate([[1.0], np.cumsum(discounts(metric, k))])[need]
    ideal = {"acc": np.ones(len(need)), "map": need.astype(np.float64)}.get(metric, ideal)
    hit_values: Floats = data.weights * np.minimum(data.n_hits, k) / ideal
    return hit_values


def count_units(data: HitLists, k: int, metric: str, quanta: float) -> UnitCounts:
    """Counts of some units with hits."""
    hit_values = max_hit_value(data, k, metric)
    return UnitCounts(
        data.n_units,
        int((np.diff(data.lists.indptr) * data.n_hits).sum()),
        int(np.rint(hit_values * quanta).astype(np.int64).sum()),
        float(hit_values.max(initial=0.0)),
        float(data.weights.max(initial=0.0)),
    )


def add_unit_counts(parts: list[UnitCounts]) -> UnitCounts:
    """Counts of all parts together."""
    n_units, crossings, hit_values, highest_hit_value, heaviest = zip(*parts, strict=True)
    return UnitCounts(
        sum(n_units), sum(crossings), sum(hit_values), max(highest_hit_value), max(heaviest)
    )


class Lifts(NamedTuple):
    """Sums over units of values before (b) and gains (g): b, g, g·g, g·b and b·b, in quanta."""

    sums: Ints
    quanta: float

    @property
    def gain(self) -> float:
        """The summed gain."""
        return float(self.sums[1] / self.quanta)

    @property
    def gain_error(self) -> float:
        """The standard error of the summed gain."""
        return float(np.sqrt(max(self.sums[2], 0) / self.quanta))

    @property
    def before(self) -> float:
        """The sum before."""
        return float(self.sums[0] / self.quanta)

    @property
    def lift_error(self) -> float:
        """The standard error of gain / before."""
        lift = self.gain / self.before
        squares, products, base = (float(part / self.quanta) for part in self.sums[2:])
        spread = max(squares - 2.0 * lift * products + lift**2 * base, 0.0)
        return float(np.sqrt(spread) / self.before)


class UnitData:
    """Some or all of the units with hits.

    Args:
        data: their lists, on the scale that biases are added on; `source` has codes over all parts.
        users: of the units, codes over all parts.
        windows: of the units.
        shared: the inputs that all parts share.
    """

    def __init__(
        self, data: HitLists, users: Ints, windows: Ints | Codes, shared: SharedInputs
    ) -> None:
        self.data, self.users, self.shared = data, users, shared
        self.window = windows.astype(np.int64)
        self.fold = folds_of(users, shared.seed)
        self.hit_values = max_hit_value(data, shared.k, shared.metric) / shared.mean_hit_value
        lists = data.lists
        taken = model_scores(lists, shared.scale, shared.unit)
        self.model = data._replace(lists=lists._replace(scores=taken))
        self._of_unit = np.repeat(np.arange(data.n_units, dtype=np.int32), np.diff(lists.indptr))
        # Features are computed for the items on these lists only, which get numbers of their own.
        on_lists = np.zeros(shared.n_items, bool)
        on_lists[lists.items] = True
        self._items = np.flatnonzero(on_lists)
        self._local = (np.cumsum(on_lists) - 1).astype(np.int32)[lists.items]
        self._last_logits: tuple[Any, Floats] | None = None

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
        """The feature table of each unit.

        Features leave out the unit's own fold and the fold that is held out. Otherwise purchases
        of the held-out fold would reach the fit by way of the features.
        """
        tables = np.arange(N_FOLDS)
        left_out = subset.left_out
        if left_out is not None:
            for place, pair in enumerate(_PAIRS):
                if left_out in pair:
                    tables[sum(pair) - left_out] = N_FOLDS + 1 + place
        return self.window * TABLES + tables[self.fold]

    def in_trend_sample(self) -> Ints:
        """The units that the trend is fitted on."""
        return np.flatnonzero(_hash(self.data.source, self.shared.seed) < self.shared.trend_share)

    def sample(self) -> UnitData:
        """These units in a `UnitData` of their own."""
        chosen = self.in_trend_sample()
        return UnitData(
            self.data.take(chosen), self.users[chosen], self.window[chosen], self.shared
        )

    @cached_property
    def _held(self) -> Flags:
        """The units that lengths and forecasts are measured on."""
        held: Flags = _hash(self.data.source, -1) < self.shared.curve_share
        return held

    def likelihood(self, subset: Subset) -> tuple[HitLists, Floats, Ints, Floats]:
        """The arguments of `fit_coefficients`: lists, weights, feature tables."""
        numbered = self.model.lists._replace(items=self._local)
        weights = self.hit_values * self.chosen(subset)
        return (
            self.model._replace(lists=numbered), weights, self._table_of(subset), self._tables,
        )  # fmt: skip

    def effect_sums(
        self, level: str, fits: list[Fit], kept: dict[str, float], effects: Floats
    ) -> Ints:
        """Gradient, curvature and noise of groups of items, by [fit, sum, group], in quanta."""
        lists = self.model.lists
        groups = lists.items
        if level == "category":
            assert self.shared.groups is not None
            groups = self.shared.groups[lists.items]
        found = []
        for fit, at in zip(fits, effects, strict=True):
            logits = (
                fit.score_coefficient * lists.scores
                if level == "spread"
                else self._logits(fit, kept)
            )
            weights = self.hit_values * self.chosen(fit.subset)
            found.append(
                sum_effects(self.model, weights, logits, groups, at, self.shared.effect_quanta)
            )
        return np.array(found)

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
        table_of = self._table_of(fit.subset)[self._of_unit]
        found = self.model.lists.scores + kept["trend"] * self._trend_of(fit)[table_of, self._local]
        if fit.category is not None and kept.get("category"):
            found += kept["category"] * self._by_item(fit, "category")[self.model.lists.items]
        logits: Floats = fit.score_coefficient * found
        return logits

    def _by_item(self, fit: Fit, level: str) -> Floats:
        """What a level below the trend says of each item."""
        if level == "category":
            assert fit.category is not None
            assert self.shared.groups is not None
            return fit.category.values[self.shared.groups] / fit.score_coefficient
        assert fit.own is not None
        return fit.own.values / fit.score_coefficient

    def _level(self, parts: list[Fit], level: str, chosen: Flags) -> Floats:
        """A level at the entries of chosen units, from the fits that left each of them out."""
        entries = np.flatnonzero(chosen[self._of_unit])
        unit, items = self._of_unit[entries], self.model.lists.items[entries]
        fold = self.fold[unit]
        out = np.empty(len(entries))
        for left_out, fit in enumerate(parts):
            mine = fold == left_out
            if level == "trend":
                tables = self.window[unit[mine]] * TABLES + left_out
                out[mine] = self._trend_of(fit)[tables, self._local[entries[mine]]]
            else:
                out[mine] = self._by_item(fit, level)[items[mine]]
        return out * self.shared.unit

    def _moved(self, parts: list[Fit], kept: dict[str, float], chosen: Flags) -> Floats:
        """How far the kept levels move the list entries of some units."""
        moved = np.zeros(int(np.diff(self.data.lists.indptr)[chosen].sum()))
        for level, length in kept.items():
            moved += length * self._level(parts, level, chosen)
        return moved

    def _along(
        self, parts: list[Fit], kept: dict[str, float], level: str
    ) -> tuple[HitLists, Floats]:
        """Held-out units with the kept levels applied, and the slopes of the next level."""
        held = self.data.take(np.flatnonzero(self._held))
        scores = held.lists.scores + self._moved(parts, kept, self._held)
        here = held._replace(lists=held.lists._replace(scores=scores))
        return here, self._level(parts, level, self._held)

    def line(self, parts: list[Fit], kept: dict[str, float], level: str) -> LineCurve:
        """The metric of held-out units along a level, from length 0 to `LONGEST`."""
        here, slopes = self._along(parts, kept, level)
        return trace_line(here, slopes, self.shared.k, self.shared.metric, 0.0, LONGEST)

    def outline(self, parts: list[Fit], kept: dict[str, float], level: str) -> Ints:
        """The same curve by bins; see `outline_line`."""
        here, slopes = self._along(parts, kept, level)
        return outline_line(here, slopes, self.shared.k, self.shared.metric, 0.0, LONGEST)

    def detail(
        self, parts: list[Fit], kept: dict[str, float], level: str, bins: Flags
    ) -> tuple[Floats, Ints]:
        """The curve's breakpoints in some of the bins."""
        here, slopes = self._along(parts, kept, level)
        return detail_line(here, slopes, self.shared.k, self.shared.metric, 0.0, LONGEST, bins)

    def compare(
        self, parts: list[Fit], kept: dict[str, float], level: str, usual: float, best: float
    ) -> Ints:
        """The gain of held-out units from another length than the usual one; see `Lifts`."""
        here, slopes = self._along(parts, kept, level)
        return self._lifts(here, slopes, usual, best)

    def forecast(self, parts: list[Fit], kept: dict[str, float]) -> Ints:
        """The gain of held-out units from all kept levels; see `Lifts`."""
        held = self.data.take(np.flatnonzero(self._held))
        return self._lifts(held, self._moved(parts, kept, self._held), 0.0, 1.0)

    def count_windows(self) -> Ints:
        """Number of units of each window."""
        return np.bincount(self.window, minlength=self.shared.n_windows)

    def forecast_newest(self, fit: Fit, kept: dict[str, float], newest: int) -> Ints:
        """The gain of a window from what the windows before it taught; see `Lifts`."""
        chosen = np.flatnonzero(self.window == newest)
        entries = np.flatnonzero((self.window == newest)[self._of_unit])
        items = self.model.lists.items[entries]
        table = (newest - 1) * TABLES + WHOLE
        moved = kept["trend"] * self._trend_of(fit)[table, self._local[entries]]
        if fit.category is not None:
            moved = moved + kept["category"] * self._by_item(fit, "category")[items]
        moved = moved + kept["own"] * self._by_item(fit, "own")[items]
        return self._lifts(self.data.take(chosen), moved * self.shared.unit, 0.0, 1.0)

    def _lifts(self, data: HitLists, slopes: Floats, usual: float, best: float) -> Ints:
        k, metric, quanta = self.shared.k, self.shared.metric, self.shared.lift_quanta
        before = values_at(data, slopes, k, metric, usual)
        gains = values_at(data, slopes, k, metric, best) - before
        columns = (before, gains, gains * gains, gains * before, before * before)
        return np.array([np.rint(column * quanta).astype(np.int64).sum() for column in columns])
