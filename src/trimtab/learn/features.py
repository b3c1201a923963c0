"""Trend features of items: as of an instant, or of a window's own sales.

With timestamps, features are as of an instant: made from what was known then. Those of a window are
as of its start, so they are older than the purchases that they explain; tonight's are as of now.

Without timestamps they come from the window's own sales, counted by groups of users. The features
that a user is scored with leave out the user's own group, so a purchase never explains itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.counts import Counts, quanta_below
from trimtab.learn.sales import NEVER, Histories, History
from trimtab.learn.units import N_FOLDS, HitLists

# Features that need only the window.
WINDOW_FEATURES = ("bought_per_listed", "recent_sales")
_PRIOR_LISTS = 10.0  # lists at the average rate, added to each item
_PRIOR_SALES = 20.0  # sales at the long-run share, added to each item
_PRIOR_VISITS = 5.0
_HALF = 0.5
_WINDOW_DAYS = 4.0
_PAIRS_OF_FOLDS = tuple(combinations(range(N_FOLDS), 2))
TABLES = N_FOLDS + 1 + len(_PAIRS_OF_FOLDS)  # per window: without a fold, of all, without a pair
WHOLE = N_FOLDS  # the table of all folds
_MOST_FOR_TREND = 20_000  # units; enough for a few coefficients
_MOST_FOR_CURVES = 100_000
_MOST_CROSSINGS = 30_000_000
_RARE = 0.005  # of list entries have features further out


def features_as_of(
    history: History, listed: Floats, shown: Floats, items: Ints | None = None
) -> dict[str, Floats]:
    """Features of items as of an instant, by name.

    Shares of sales over shorter and shorter times, each shrunk to the one before, so that a shop's
    size and the length of its windows do not matter.

    Args:
        history: sales before the instant.
        listed: lists that contain each item.
        shown: slots that it takes in the engine's own top k.
        items: the items to compute; all if None.
    """
    rows = slice(None) if items is None else items
    assert history.window is not None
    assert history.since is not None
    assert history.age is not None
    share = _smooth_share(history.long)
    found = {"long_run_share": np.log(share[rows])}
    for name, sold in (
        ("rise_of_quarter", history.quarter), ("rise_of_month", history.month),
        ("rise_of_week", history.week), ("rise_of_window", history.window),
    ):  # fmt: skip
        assert sold is not None
        longer, share = share, (sold + _PRIOR_SALES * share) / (sold.sum() + _PRIOR_SALES)
        found[name] = np.log(share[rows] / longer[rows])
    of_listed = float(history.window[listed > 0].sum())
    found["bought_per_listed"] = _log_rate(
        history.window[rows], listed[rows], _PRIOR_LISTS, of_listed, float(listed.sum())
    )
    found["share_shown"] = np.log(_smooth_share(shown)[rows])
    found["days_unsold"] = np.log(1.0 + np.minimum(history.since[rows], NEVER) / _WINDOW_DAYS)
    found["age"] = np.log(1.0 + history.age[rows])
    again = history.again
    if again is not None:
        found["repeat_rate"] = _log_rate(
            again[rows], history.long[rows], _PRIOR_VISITS, float(again.sum()),
            float(history.long.sum()),
        )  # fmt: skip
    return found


def _smooth_share(counts: Floats) -> Floats:
    """The share of each item, with half a count more for each."""
    return (counts + _HALF) / (float(counts.sum()) + _HALF * len(counts))


class WindowFeatures:
    """Features of items from the sales of one window, for any counts of them.

    Columns are in the order of `names`. Those that depend on the counts come first; the others are
    computed once.
    """

    def __init__(self, history: History | None) -> None:
        self._history = history
        self.names: tuple[str, ...] = WINDOW_FEATURES
        self._fixed: list[Floats] = []
        if history is None:
            return
        long = history.long
        self._share: Floats = long / max(float(long.sum()), 1.0)
        self.names += ("rise", "share_difference", "long_run_sales")
        self._fixed.append(np.log(long + 1.0))
        if history.month is not None and history.week is not None and history.since is not None:
            month, week = history.month, history.week
            of_month = month / max(float(month.sum()), 1.0)
            self.names += ("rise_of_month", "rise_of_week", "days_unsold")
            self._fixed += [
                _log_rise(month, float(month.sum()), self._share),
                np.log((week + _HALF) / (week.sum() * of_month + _HALF)),
                np.log(1.0 + np.minimum(history.since, NEVER) / _WINDOW_DAYS),
            ]
        again = history.again
        if again is not None:
            self.names += ("repeat_rate",)
            self._fixed.append(_log_rate(again, long, _PRIOR_VISITS, float(again.sum())))

    def build(self, bought: Floats, listed: Floats, items: Ints | None = None) -> Floats:
        """Features by [item, feature].

        Args:
            bought: buyers in the window, by item.
            listed: lists that contain it.
            items: the items to compute; all if None.
        """
        total = float(bought.sum())
        of_listed = float(bought[listed > 0].sum())
        shown = float(listed.sum())
        rows = slice(None) if items is None else items
        bought, listed = bought[rows], listed[rows]
        out = np.empty((len(bought), len(self.names)))
        out[:, 0] = _log_rate(bought, listed, _PRIOR_LISTS, of_listed, shown)
        out[:, 1] = np.log(bought + 1.0)
        done = len(WINDOW_FEATURES)
        if self._history is not None:
            share = self._share[rows]
            out[:, 2] = _log_rise(bought, total, share)
            out[:, 3] = 1000.0 * (bought / max(total, 1.0) - share)
            done = 4
        for place, column in enumerate(self._fixed):
            out[:, done + place] = column[rows]
        return out


def _log_rise(sold: Floats, total: float, share: Floats) -> Floats:
    """Log of sales over the sales expected from the long-run share; shrunk to 0 for few sales."""
    prior = _PRIOR_SALES * share + _HALF
    return np.log((sold + prior) / (total * share + prior))


def _log_rate(
    hits: Floats, tries: Floats, prior: float, all_hits: float, all_tries: float | None = None
) -> Floats:
    """Log of a rate over the average rate; `prior` tries at the average rate shrink it to 0."""
    whole = float(tries.sum()) if all_tries is None else all_tries
    rate = max(all_hits, _HALF) / max(whole, 1.0)
    return np.log((hits + prior * rate) / (tries + prior) / rate)


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


class Sizes(NamedTuple):
    """How many units with hits there are, and how much they count."""

    n_units: int
    crossings: int  # pairs of a hit and another item on the same list
    mean_to_gain: float  # the mean over units of the most that their hits can add to the metric
    most_to_gain: float  # of one unit
    heaviest: float  # weight of a unit

    @staticmethod
    def of(data: HitLists, k: int, metric: str) -> Sizes:
        """Return the sizes of units with hits."""
        gains = data.most_to_gain(k, metric)
        return Sizes(
            data.n_units, int((np.diff(data.lists.indptr) * data.n_hits).sum()),
            max(float(gains.sum()) / max(data.n_units, 1), 1e-300),
            float(gains.max(initial=0.0)), float(data.weights.max(initial=0.0)),
        )  # fmt: skip


@dataclass(frozen=True)
class Shared:
    """What all units share: counts by window, and the features of items.

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
        sizes: of the units with hits.
        listed_range: of features over listed entries; None before it is known, or if features are
            those of a window's own sales.
    """

    scale: str
    score_unit: float
    k: int
    metric: str
    seed: int
    bought: Floats
    listed: Ints
    shown: Ints
    histories: Histories
    groups: Codes | None
    sizes: Sizes
    listed_range: FeatureRange | None = None

    @staticmethod
    def of(
        counts: Counts, windows: Ints, histories: Histories, categories: Ints | None, sizes: Sizes,
        k: int, metric: str, seed: int,
    ) -> Shared:  # fmt: skip
        """Return what the units of some windows share, with the engine's scores as they are."""
        folds = (windows[:, None] * N_FOLDS + np.arange(N_FOLDS)).ravel()
        groups = None
        if categories is not None:  # items of unknown category form one more group
            unknown = categories.max(initial=-1) + 1
            groups = np.where(categories < 0, unknown, categories).astype(np.int32)
        return Shared(
            "additive", 1.0, k, metric, seed, counts.bought_by_fold[folds],
            counts.listed_by_fold[folds], counts.shown_by_window[windows], histories, groups, sizes,
        ).with_listed_range()  # fmt: skip

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self.shown)

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
    def effect_quanta(self) -> float:
        """Quanta for the sums of effects, which stay below 2**62."""
        heaviest = max(1.0, self.sizes.most_to_gain / self.sizes.mean_to_gain)
        return quanta_below(4.0 * self.sizes.n_units * heaviest**2)

    @property
    def lift_quanta(self) -> float:
        """Quanta for sums of metrics and of their squares."""
        return quanta_below(4.0 * self.sizes.n_units * max(1.0, self.sizes.heaviest) ** 2)

    def sample_share(self, purpose: str) -> float:
        """The share of the units in a sample: "trend", to fit coefficients, or "curves".

        Curves use as many units as fit into memory.
        """
        n_units, crossings = max(self.sizes.n_units, 1), max(self.sizes.crossings, 1)
        if purpose == "trend":
            return min(1.0, _MOST_FOR_TREND / n_units)
        return min(1.0, _MOST_FOR_CURVES / n_units, _MOST_CROSSINGS / crossings)

    def with_listed_range(self) -> Shared:
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
        for left_out in (*((fold,) for fold in range(N_FOLDS)), (), *_PAIRS_OF_FOLDS):
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
            for place, pair in enumerate(_PAIRS_OF_FOLDS):
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
