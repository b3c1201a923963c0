"""Trend features of items: as of an instant, or of a window's own sales.

With timestamps, features are as of an instant: made from what was known then. Those of a window are
as of its start, so they are older than the purchases that they explain; tonight's are as of now.

Without timestamps they come from the window's own sales, counted by groups of users. The features
that a user is scored with leave out the user's own group, so a purchase never explains itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.counted import Counted, quanta_below
from trimtab.learn.held_out import (
    TREND,
    Forecast,
    Lifts,
    LineCurve,
    Persistence,
    forecast_lift,
    sum_lifts,
    trace_line,
    values_at,
)
from trimtab.learn.sales import NEVER, Histories, History
from trimtab.learn.units import N_FOLDS, Hashes, HitLists, folds_of

_PRIOR_LISTS = 10.0  # lists at the average rate, added to each item
_PRIOR_SALES = 20.0  # sales at the long-run share, added to each item
_PRIOR_VISITS = 5.0
_HALF = 0.5
_WINDOW_DAYS = 4.0
_PAIRS_OF_FOLDS = tuple(combinations(range(N_FOLDS), 2))
_LEFT_OUT = (*((fold,) for fold in range(N_FOLDS)), *_PAIRS_OF_FOLDS)  # of the tables of a window
_MOST_FOR_TREND = 20_000  # units; enough for a few coefficients
_MOST_FOR_CURVES = 100_000
_MOST_CROSSINGS = 30_000_000
_LONGEST = 2.0  # times the model's length, of a line
_RARE = 0.005  # of list entries have features further out


def features_as_of(history: History, listed: Floats, shown: Floats) -> dict[str, Floats]:
    """Features of items as of an instant, by name.

    Shares of sales over shorter and shorter times, each shrunk to the one before, so that a shop's
    size and the length of its windows do not matter.

    Args:
        history: sales before the instant.
        listed: lists that contain each item.
        shown: slots that it takes in the engine's own top k.
    """
    assert history.window is not None
    assert history.since is not None
    assert history.age is not None
    share = _smooth_share(history.long)
    found = {"long_run_share": np.log(share)}
    for name, sold in (
        ("rise_of_quarter", history.quarter), ("rise_of_month", history.month),
        ("rise_of_week", history.week), ("rise_of_window", history.window),
    ):  # fmt: skip
        assert sold is not None
        longer, share = share, (sold + _PRIOR_SALES * share) / (sold.sum() + _PRIOR_SALES)
        found[name] = np.log(share / longer)
    found["bought_per_listed"] = _bought_per_listed(history.window, listed)
    found["share_shown"] = np.log(_smooth_share(shown))
    found["days_unsold"] = _days_unsold(history.since)
    found["age"] = np.log(1.0 + history.age)
    if history.again is not None:
        found["repeat_rate"] = _log_rate(history.again, history.long, _PRIOR_VISITS)
    return found


def features_of_window(
    history: History | None, bought: Floats, listed: Floats
) -> dict[str, Floats]:
    """Features of items from the sales of one window, by name.

    Args:
        history: sales before it, if known.
        bought: buyers in the window, by item.
        listed: lists that contain it.
    """
    found = {
        "bought_per_listed": _bought_per_listed(bought, listed),
        "recent_sales": np.log(bought + 1.0),
    }
    if history is None:
        return found
    long = history.long
    share: Floats = long / max(float(long.sum()), 1.0)
    found["rise"] = _log_rise(bought, share)
    found["share_difference"] = 1000.0 * (bought / max(float(bought.sum()), 1.0) - share)
    found["long_run_sales"] = np.log(long + 1.0)
    if history.month is not None and history.week is not None and history.since is not None:
        month, week = history.month, history.week
        of_month = month / max(float(month.sum()), 1.0)
        found["rise_of_month"] = _log_rise(month, share)
        found["rise_of_week"] = np.log((week + _HALF) / (week.sum() * of_month + _HALF))
        found["days_unsold"] = _days_unsold(history.since)
    if history.again is not None:
        found["repeat_rate"] = _log_rate(history.again, long, _PRIOR_VISITS)
    return found


def _smooth_share(counts: Floats) -> Floats:
    """The share of each item, with half a count more for each."""
    return (counts + _HALF) / (float(counts.sum()) + _HALF * len(counts))


def _days_unsold(since: Floats) -> Floats:
    return np.log(1.0 + np.minimum(since, NEVER) / _WINDOW_DAYS)


def _log_rise(sold: Floats, share: Floats) -> Floats:
    """Log of sales over the sales expected from the long-run share; shrunk to 0 for few sales."""
    prior = _PRIOR_SALES * share + _HALF
    return np.log((sold + prior) / (float(sold.sum()) * share + prior))


def _bought_per_listed(bought: Floats, listed: Floats) -> Floats:
    return _log_rate(bought, listed, _PRIOR_LISTS, float(bought[listed > 0].sum()))


def _log_rate(hits: Floats, tries: Floats, prior: float, all_hits: float | None = None) -> Floats:
    """Log of a rate over the average rate; `prior` tries at the average rate shrink it to 0."""
    total = float(hits.sum()) if all_hits is None else all_hits
    rate = max(total, _HALF) / max(float(tries.sum()), 1.0)
    return np.log((hits + prior * rate) / (tries + prior) / rate)


class FeatureRange(NamedTuple):
    """The range of each feature over the entries that were learned from.

    The same range holds for learning, for what is held out and for tonight: nothing is
    extrapolated, and what is held out is ranked as tonight's lists are.
    """

    low: Floats
    high: Floats


NO_RANGE = FeatureRange(np.array(-np.inf), np.array(np.inf))


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
    def of(counted: Counted, windows: Ints, histories: Histories, data: HitLists) -> Shared:
        """Return what the units of some windows share, with the engine's scores as they are.

        Args:
            counted: tables of the fit.
            windows: that are learned from.
            histories: before these, and before now.
            data: their units with a hit.
        """
        plan, counts, categories = counted.plan, counted.counts, counted.categories
        folds = (windows[:, None] * N_FOLDS + np.arange(N_FOLDS)).ravel()
        groups = None
        if categories is not None:  # items of unknown category form one more group
            unknown = categories.max(initial=-1) + 1
            groups = np.where(categories < 0, unknown, categories).astype(np.int32)
        shared = Shared(
            "additive", 1.0, plan.k, plan.metric, plan.seed, counts.bought_by_fold[folds],
            counts.listed_by_fold[folds], counts.shown_by_window[windows], histories, groups,
            Sizes.of(data, plan.k, plan.metric),
        )  # fmt: skip
        if not shared.as_of:
            return shared
        listed = np.stack([shared.counts(window)[1] for window in range(shared.n_windows)])
        return replace(shared, listed_range=shared.range_over(listed))

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

    def lifts(self, before: Floats, after: Floats, folds: Ints, quanta: float) -> Lifts:
        """What units gain, by fold."""
        return sum_lifts(before, after, folds, self.n_folds, quanta, self.folds_are_windows)

    def forecast(self, lifts: Lifts, persistence: Persistence = TREND) -> Forecast:
        """The lift to expect from that of what was held out."""
        return forecast_lift(lifts, self.as_of, self.histories.window_ticks, persistence)

    def sample_share(self, purpose: str) -> float:
        """The share of the units in a sample: "trend", to fit coefficients, or "curves".

        Curves use as many units as fit into memory.
        """
        n_units, crossings = max(self.sizes.n_units, 1), max(self.sizes.crossings, 1)
        if purpose == "trend":
            return min(1.0, _MOST_FOR_TREND / n_units)
        return min(1.0, _MOST_FOR_CURVES / n_units, _MOST_CROSSINGS / crossings)

    def folds_of(self, windows: Ints, hashes: Hashes) -> Ints:
        """The part that each unit is held out with: its window, or a group of users."""
        return windows if self.folds_are_windows else folds_of(hashes, self.seed)

    def values_at(self, data: HitLists, slopes: Floats | None = None, t: float = 0.0) -> Floats:
        """The weighted metric of each unit with scores moved by t times their slopes."""
        moved = np.zeros(len(data.hits)) if slopes is None else slopes
        return values_at(data, moved, self.k, self.metric, t)

    def line(self, data: HitLists, slopes: Floats) -> LineCurve:
        """The metric along slopes, from length 0 to `_LONGEST`."""
        return trace_line(data, slopes, self.k, self.metric, 0.0, _LONGEST)

    def counts(self, window: int) -> tuple[Floats, Floats]:
        """Buyers and lists of a window, by item."""
        own = slice(window * N_FOLDS, (window + 1) * N_FOLDS)
        bought, listed = (
            part[own].sum(axis=0).astype(np.float64) for part in (self.bought, self.listed)
        )
        return bought, listed

    def range_over(self, entries: Floats | Ints) -> FeatureRange:
        """The range of features over list entries, but for rare ones.

        Args:
            entries: their number by [window, item].
        """
        windows, items = np.nonzero(entries)
        if len(items) == 0:
            return NO_RANGE
        tables = [next(self._of_window(w))[items[windows == w]] for w in range(self.n_windows)]
        weights = entries[windows, items].astype(np.float64)
        low, high = weighted_quantiles(np.concatenate(tables), weights, (_RARE, 1.0 - _RARE))
        return FeatureRange(low, high)

    def tonight(self, within: FeatureRange | None = None) -> tuple[tuple[str, ...], Floats]:
        """Names of the features, and the features as of now by [item, feature].

        Args:
            within: the range to keep to; that of listed entries if None.
        """
        newest = self.n_windows - 1
        if self.histories.now is None:
            found = features_of_window(self._before(newest), *self.counts(newest))
            return tuple(found), _stack(found)
        found = self._features_as_of(self.histories.now, newest)
        return tuple(found), self._clip(_stack(found), within)

    def tables(self, items: Ints, within: FeatureRange | None = None) -> Floats:
        """Features by [table, item, feature]; see `table_of`.

        Args:
            items: to compute.
            within: the range to keep to; that of listed entries if None.
        """
        windows = range(self.n_windows)
        made = np.stack([table[items] for window in windows for table in self._of_window(window)])
        return self._clip(made, within) if self.as_of else made

    def centre(self, now: Floats) -> Floats:
        """Features as of now; 0 is the average over listed items, and stands for unknown ones."""
        listed = self.counts(self.n_windows - 1)[1]
        seen = listed / max(float(listed.sum()), 1.0)
        # A matrix product would depend on the machine in its last bits.
        centred: Floats = now - (seen[:, None] * now).sum(axis=0)
        return centred

    def _clip(self, features: Floats, within: FeatureRange | None) -> Floats:
        chosen = within or self.listed_range
        assert chosen is not None
        return np.clip(features, *chosen)

    def _before(self, window: int) -> History | None:
        return self.histories.before[window] if self.histories.before else None

    def _features_as_of(self, history: History, window: int) -> dict[str, Floats]:
        return features_as_of(history, self.counts(window)[1], self.shown[window].astype(float))

    def _of_window(self, window: int) -> Iterator[Floats]:
        """The tables of a window: as of its start, or of its own sales without some folds."""
        if self.as_of:
            yield _stack(self._features_as_of(self.histories.before[window], window))
            return
        own = range(window * N_FOLDS, (window + 1) * N_FOLDS)
        bought, listed = self.counts(window)
        for left_out in _LEFT_OUT:
            rows = [own[fold] for fold in left_out]
            some = bought - self.bought[rows].sum(axis=0), listed - self.listed[rows].sum(axis=0)
            yield _stack(features_of_window(self._before(window), *some))

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
                    tables[sum(pair) - left_out] = N_FOLDS + place
        return windows * len(_LEFT_OUT) + tables[own]


def number_items(items: Codes, n_items: int) -> tuple[Ints, Codes]:
    """The different items, ascending, and the place of each item among them."""
    found = np.zeros(n_items, bool)
    found[items] = True
    return np.flatnonzero(found), (np.cumsum(found) - 1).astype(np.int32)[items]


def _stack(features: dict[str, Floats]) -> Floats:
    return np.stack(list(features.values()), axis=1)


def weighted_quantiles(columns: Floats, weights: Floats, shares: tuple[float, ...]) -> list[Floats]:
    """The values of each column that some shares of the weight lie below."""
    found = np.empty((len(shares), columns.shape[1]))
    for place in range(columns.shape[1]):
        order = np.argsort(columns[:, place], kind="stable")
        summed = np.cumsum(weights[order])
        at = np.searchsorted(summed, np.array(shares) * summed[-1])
        found[:, place] = columns[order[np.minimum(at, len(order) - 1)], place]
    return list(found)
