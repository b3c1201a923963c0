"""What all parts of the units share in the hierarchy: settings, counts by fold, features.

Sums are fixed-point: any division of the units gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.kernels.hit_value import discounts
from trimtab.learn.hierarchy.features import WindowFeatures, count_groups, features_as_of
from trimtab.learn.hierarchy.line_search import HitLists
from trimtab.learn.history import Histories
from trimtab.learn.quanta import quanta_below
from trimtab.learn.units import learning_units
from trimtab.metrics.per_user import best_sums
from trimtab.metrics.ranking import rank_lists

N_FOLDS = 4
PAIRS_OF_FOLDS = tuple(combinations(range(N_FOLDS), 2))
TABLES = N_FOLDS + 1 + len(PAIRS_OF_FOLDS)  # per window: without a fold, of all, without a pair
WHOLE = N_FOLDS  # the table of all folds
_MOST_FOR_TREND = 20_000  # units; enough for a few coefficients
_MOST_FOR_CURVES = 100_000
_MOST_CROSSINGS = 30_000_000
_RARE = 0.005  # of list entries have features further out


class FeatureRange(NamedTuple):
    """The range of each feature over the entries that were learned from.

    The same range holds for learning, for what is held out and for tonight: nothing is
    extrapolated, and what is held out is ranked as tonight's lists are.
    """

    low: Floats
    high: Floats

    def clip(self, features: Floats) -> Floats:
        """Features no further out than the range; the last axis has one column per feature."""
        return np.clip(features, self.low, self.high)


class UnitCounts(NamedTuple):
    """Counts of units with hits, made before anything is learned."""

    n_units: int
    crossings: int  # pairs of a hit and another item on the same list
    hit_values: int  # the most that the hits can add to the metric, in quanta
    highest_hit_value: float  # of one unit
    heaviest: float  # weight of a unit


@dataclass(frozen=True)
class SharedInputs:
    """What all parts of the units share.

    Args:
        scale: "additive", "log" or "list".
        score_unit: the size, in scores, of 1 in the choice model.
        k: slots.
        metric: "acc", "map" or "ndcg".
        seed: of folds and samples.
        bought: units that bought each item, by [(window, fold), item]; by the weights of events.
        listed: lists of those units that contain it.
        shown: slots that it takes in the engine's own top k for those units, by [window, item].
        histories: sales before each window and before now.
        groups: the category of each item; or None.
        unit_counts: of all units with hits.
        hit_value_quanta: per hit value of 1.
        listed_range: of features over listed entries; None before it is known, or if features are
            those of a window's own sales.
    """

    scale: str
    score_unit: float
    k: int
    metric: str
    seed: int
    bought: Ints | Floats
    listed: Ints
    shown: Ints
    histories: Histories
    groups: Codes | None
    unit_counts: UnitCounts
    hit_value_quanta: float
    listed_range: FeatureRange | None = None

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self.bought) // N_FOLDS

    @property
    def as_of(self) -> bool:
        """Whether features are as of the start of each window, rather than of its own sales."""
        return self.histories.now is not None

    @property
    def folds_are_windows(self) -> bool:
        """Whether windows are held out, rather than groups of users."""
        return self.as_of and self.n_windows > 1

    @property
    def n_folds(self) -> int:
        """Number of parts that are held out in turn."""
        return self.n_windows if self.folds_are_windows else N_FOLDS

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
        return quanta_below(4.0 * self.unit_counts.n_units * heaviest**2)

    @property
    def lift_quanta(self) -> float:
        """Quanta for sums of metrics and of their squares."""
        return quanta_below(
            4.0 * self.unit_counts.n_units * max(1.0, self.unit_counts.heaviest) ** 2
        )

    def sample_share(self, purpose: str) -> float:
        """The share of the units in a sample: "trend", to fit coefficients, or "curves".

        Curves use as many units as fit into memory.
        """
        n_units, crossings = max(self.unit_counts.n_units, 1), max(self.unit_counts.crossings, 1)
        if purpose == "trend":
            return min(1.0, _MOST_FOR_TREND / n_units)
        return min(1.0, _MOST_FOR_CURVES / n_units, _MOST_CROSSINGS / crossings)

    def with_listed_range(self) -> SharedInputs:
        """The same with the range of features over all listed entries."""
        if not self.as_of:
            return self
        listed = np.stack([self.counts(window)[1] for window in range(self.n_windows)])
        return replace(self, listed_range=self.range_over(listed))

    def range_over(self, entries: Floats | Ints) -> FeatureRange:
        """The range of features over list entries, but for rare ones.

        Args:
            entries: their number by [window, item].
        """
        windows, items = np.nonzero(entries)
        if len(items) == 0:
            return FeatureRange(np.array(-np.inf), np.array(np.inf))
        tables = [
            self._tables_as_of(window, items[windows == window])[0]
            for window in range(self.n_windows)
        ]
        weights = entries[windows, items].astype(np.float64)
        low, high = weighted_quantiles(np.concatenate(tables), weights, (_RARE, 1.0 - _RARE))
        return FeatureRange(low, high)

    def tonight(self, within: FeatureRange | None = None) -> tuple[tuple[str, ...], Floats]:
        """Names of the features, and the features as of now by [item, feature].

        Args:
            within: the range to keep to; that of listed entries if None.
        """
        newest = self.n_windows - 1
        bought, listed = self.counts(newest)
        if self.histories.now is not None:
            shown = self.shown[newest].astype(np.float64)
            found = features_as_of(self.histories.now, listed, shown)
            return tuple(found), self._keep_to(within, np.stack(list(found.values()), axis=1))
        features = self._window_features(newest)
        return features.names, features.build(bought, listed)

    def _keep_to(self, within: FeatureRange | None, features: Floats) -> Floats:
        chosen = within or self.listed_range
        assert chosen is not None
        return chosen.clip(features)

    def _window_features(self, window: int) -> WindowFeatures:
        before = self.histories.before
        return WindowFeatures(before[window] if before else None)

    def counts(self, window: int) -> tuple[Floats, Floats]:
        """Buyers and lists of a window, by item."""
        own = slice(window * N_FOLDS, (window + 1) * N_FOLDS)
        bought, listed = (
            part[own].sum(axis=0).astype(np.float64) for part in (self.bought, self.listed)
        )
        return bought, listed

    def tables(self, items: Ints, within: FeatureRange | None = None) -> Floats:
        """Features by [table, item, feature]; see `table_of`.

        Args:
            items: to compute.
            within: the range to keep to; that of listed entries if None.
        """
        make = self._tables_as_of if self.as_of else self._tables_of_window
        made = [table for window in range(self.n_windows) for table in make(window, items)]
        return self._keep_to(within, np.stack(made)) if self.as_of else np.stack(made)

    def _tables_as_of(self, window: int, items: Ints) -> list[Floats]:
        _, listed = self.counts(window)
        shown = self.shown[window].astype(np.float64)
        found = features_as_of(self.histories.before[window], listed, shown, items)
        return [np.stack(list(found.values()), axis=1)]

    def _tables_of_window(self, window: int, items: Ints) -> list[Floats]:
        features = self._window_features(window)
        bought, listed = self.counts(window)
        made = []
        for left_out in (*((fold,) for fold in range(N_FOLDS)), (), *PAIRS_OF_FOLDS):
            some = bought.copy(), listed.copy()
            for fold in left_out:
                some[0][:] -= self.bought[window * N_FOLDS + fold]
                some[1][:] -= self.listed[window * N_FOLDS + fold]
            made.append(features.build(*some, items))
        return made

    def table_of(self, windows: Ints, own: Ints | int, left_out: int | None = None) -> Ints:
        """The feature table of units.

        As of an instant there is one table per window. Features of a window's own sales leave out
        the unit's own fold and the fold that is held out. Otherwise purchases of the held-out fold
        would reach the fit by way of the features.

        Args:
            windows: of the units.
            own: their folds.
            left_out: the fold that is held out.
        """
        if self.as_of:
            return windows
        tables = np.arange(N_FOLDS)
        if left_out is not None:
            for place, pair in enumerate(PAIRS_OF_FOLDS):
                if left_out in pair:
                    tables[sum(pair) - left_out] = N_FOLDS + 1 + place
        return windows * TABLES + tables[own]


def weighted_quantiles(columns: Floats, weights: Floats, shares: tuple[float, ...]) -> list[Floats]:
    """The values of each column that some shares of the weight lie below."""
    found = np.empty((len(shares), columns.shape[1]))
    for place in range(columns.shape[1]):
        order = np.argsort(columns[:, place], kind="stable")
        summed = np.cumsum(weights[order])
        at = np.searchsorted(summed, np.array(shares) * summed[-1])
        found[:, place] = columns[order[np.minimum(at, len(order) - 1)], place]
    return list(found)


def hit_value_quanta(n_units: int, heaviest: float, k: int) -> float:
    """Quanta for sums of hit values."""
    return quanta_below(n_units * max(1.0, heaviest) * k)


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
    n_windows: int, n_items: int, sales: Floats | None = None,
) -> tuple[Ints | Floats, Ints]:  # fmt: skip
    """Purchases and lists of learning units, by [(window, fold), item]; see `count_groups`."""
    learning = learning_units(lists, bought, weights)
    group = np.where(learning, windows * N_FOLDS + folds_of(users, seed), -1).astype(np.int64)
    return count_groups(lists, bought, group, n_windows * N_FOLDS, n_items, sales)


def count_shown(
    lists: Lists, bought: Sets, weights: Floats, windows: Codes, k: int, n_windows: int,
    n_items: int, top: Lists | None = None,
) -> Ints:  # fmt: skip
    """Slots that items take in the engine's own top k of learning units, by [window, item].

    `top` is the engine's top k, if it is known.
    """
    from trimtab.kernels.choice_sums import count_listed

    learning = learning_units(lists, bought, weights)
    group = np.where(learning, windows, -1).astype(np.int64)
    top = rank_lists(lists, k, np.zeros(n_items)) if top is None else top
    shown = np.zeros((n_windows, n_items), np.int64)
    count_listed(0, top.n_units, top.indptr, top.items, group, shown)
    return shown


def hash_units(units: Ints, seed: int) -> Floats:
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
    max_hits = np.minimum(data.n_bought, k)
    summed = np.concatenate([[1.0], np.cumsum(discounts(metric, k))])[max_hits]
    ideal = {"acc": np.ones(len(max_hits)), "map": max_hits.astype(np.float64), "ndcg": summed}
    hits = np.minimum(data.n_hits, k)
    if data.hits.dtype != bool:
        hits = best_sums(data.lists.indptr, data.hits.astype(np.float64), k)[0]
    hit_values: Floats = data.weights * hits / ideal[metric]
    return hit_values


def count_hit_units(data: HitLists, k: int, metric: str, quanta: float) -> UnitCounts:
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
