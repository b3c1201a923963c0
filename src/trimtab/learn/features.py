"""Trend features of items: as of an instant, or of a window's own sales.

With timestamps, features are as of an instant: made from what was known then. Those of a window are
as of its start, so they are older than the purchases that they explain; tonight's are as of now.

Without timestamps they come from the window's own sales, counted by groups of users. The features
that a user is scored with leave out the user's own group, so a purchase never explains itself.

`AS_OF` and `OF_WINDOW` are the tables of features, with name and function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.counted import Counted
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
from trimtab.learn.sales import HORIZONS, NEVER, SHORT_HORIZONS, Histories, History
from trimtab.learn.units import N_FOLDS, Hashes, HitLists, folds_of
from trimtab.tables.times import DAY

_PRIOR_LISTS = 10.0  # lists at the average rate, added to each item
_PRIOR_SALES = 20.0  # sales at the long-run share, added to each item
_PRIOR_VISITS = 5.0
_HALF = 0.5
_PAIRS_OF_FOLDS = tuple(combinations(range(N_FOLDS), 2))
_LEFT_OUT = (*((fold,) for fold in range(N_FOLDS)), *_PAIRS_OF_FOLDS)  # of the tables of a window
_LONGEST = 2.0  # times the model's length, of a line
_RARE = 0.005  # of list entries have features further out


# The features -------------------------------------------------------------------------------------


# What is known of items as of an instant, or of a window: what `History` has, and
#
#     bought    sales just before the instant; or buyers in the window
#     listed    lists that contain the item
#     shown     slots that it takes in the engine's own top k
Known = Mapping[str, Floats]

_HORIZONS = (*HORIZONS, *SHORT_HORIZONS)
_LONGER = dict(zip(_HORIZONS, ("long", *_HORIZONS), strict=False))


def _share(known: Known, horizon: str) -> Floats:
    """The share of sales over a time, shrunk to that over the next longer one.

    So a shop's size and the length of its windows do not matter.
    """
    if horizon == "long":
        return _smooth_share(known["long"])
    sold, longer = known[horizon], _share(known, _LONGER[horizon])
    share: Floats = (sold + _PRIOR_SALES * longer) / (sold.sum() + _PRIOR_SALES)
    return share


def _rise(horizon: str) -> Callable[[Known], Floats]:
    return lambda known: np.log(_share(known, horizon) / _share(known, _LONGER[horizon]))


def _smooth_share(counts: Floats) -> Floats:
    """The share of each item, with half a count more for each."""
    return (counts + _HALF) / (float(counts.sum()) + _HALF * len(counts))


def _plain_share(counts: Floats) -> Floats:
    return counts / max(float(counts.sum()), 1.0)


def _rise_over_long(sold: str) -> Callable[[Known], Floats]:
    """Log of sales over the sales expected from the long-run share; shrunk to 0 for few sales."""

    def log_rise(known: Known) -> Floats:
        share = _plain_share(known["long"])
        prior = _PRIOR_SALES * share + _HALF
        return np.log((known[sold] + prior) / (float(known[sold].sum()) * share + prior))

    return log_rise


def _late_rise(known: Known) -> Floats:
    lately, of_longer = known["3_windows"], _plain_share(known["9_windows"])
    return np.log((lately + _HALF) / (float(lately.sum()) * of_longer + _HALF))


def _log_rate(hits: Floats, tries: Floats, prior: float, all_hits: float) -> Floats:
    """Log of a rate over the average rate; `prior` tries at the average rate shrink it to 0."""
    rate = max(all_hits, _HALF) / max(float(tries.sum()), 1.0)
    return np.log((hits + prior * rate) / (tries + prior) / rate)


def _bought_per_listed(known: Known) -> Floats:
    bought, listed = known["bought"], known["listed"]
    return _log_rate(bought, listed, _PRIOR_LISTS, float(bought[listed > 0].sum()))


def _repeat_rate(known: Known) -> Floats:
    return _log_rate(known["again"], known["long"], _PRIOR_VISITS, float(known["again"].sum()))


def _unsold(known: Known) -> Floats:
    return np.log(1.0 + np.minimum(known["since"], NEVER))


def _share_difference(known: Known) -> Floats:
    return 1000.0 * (_plain_share(known["bought"]) - _plain_share(known["long"]))


# Features as of an instant, and those of a window's own sales: the name, what must be known besides
# lists and purchases, and the function.
Features = tuple[tuple[str, str, Callable[[Known], Floats]], ...]
AS_OF: Features = (
    ("long_run_share", "long", lambda known: np.log(_smooth_share(known["long"]))),
    *((f"rise_of_{horizon}", horizon, _rise(horizon)) for horizon in _HORIZONS),
    ("sales_of_window", "window", lambda known: np.log(1.0 + known["window"])),
    ("bought_per_listed", "bought", _bought_per_listed),
    ("share_shown", "shown", lambda known: np.log(_smooth_share(known["shown"]))),
    ("unsold", "since", _unsold),
    ("age", "age", lambda known: np.log(1.0 + known["age"])),
    ("repeat_rate", "again", _repeat_rate),
)
OF_WINDOW: Features = (
    ("bought_per_listed", "bought", _bought_per_listed),
    ("recent_sales", "bought", lambda known: np.log(known["bought"] + 1.0)),
    ("rise", "long", _rise_over_long("bought")),
    ("share_difference", "long", _share_difference),
    ("long_run_sales", "long", lambda known: np.log(known["long"] + 1.0)),
    ("rise_of_9_windows", "9_windows", _rise_over_long("9_windows")),
    ("rise_of_3_windows", "9_windows", _late_rise),
    ("unsold", "since", _unsold),
    ("repeat_rate", "again", _repeat_rate),
)


def make_features(table: Features, known: Known) -> dict[str, Floats]:
    """Return those features of a table that can be told, by name."""
    return {name: feature(known) for name, needed, feature in table if needed in known}


def popularity(known: Known) -> Floats:
    """Log of the share of the latest sales, over that of an item that was not sold.

    Of a window shorter than a day, its last third and its last twelfth count as much as all of it.
    """
    sold = [known[own] for own in ("window", *SHORT_HORIZONS) if own in known]
    shares = [(_smooth_share(own), _HALF / (float(own.sum()) + _HALF * len(own))) for own in sold]
    share, unsold = (sum(own) for own in zip(*shares, strict=True))
    return np.log(share / unsold)


# What all units share -----------------------------------------------------------------------------

# The range of each feature over the entries that were learned from. The same range holds for
# learning, for what is held out and for tonight: nothing is extrapolated, and what is held out is
# ranked as tonight's lists are.
FeatureRange = tuple[Floats, Floats]
NO_RANGE: FeatureRange = (np.array(-np.inf), np.array(np.inf))


class Sizes(NamedTuple):
    """How many units with hits there are, and how much they can gain."""

    n_units: int
    crossings: int  # pairs of a hit and another item on the same list
    mean_to_gain: float  # the mean over units of the most that their hits can add to the metric

    @staticmethod
    def of(data: HitLists, k: int, metric: str) -> Sizes:
        """Return the sizes of units with hits."""
        crossings = int((np.diff(data.lists.indptr) * data.n_hits).sum())
        total = float(data.most_to_gain(k, metric).sum())
        return Sizes(data.n_units, crossings, max(total / max(data.n_units, 1), 1e-300))


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
        feature_range: that features as of an instant are kept in.
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
    feature_range: FeatureRange = NO_RANGE

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
        listed = [shared.counts(window)[1] for window in range(shared.n_windows)]
        return shared.within_range_of(np.stack(listed)) if shared.as_of else shared

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

    def counts(self, window: int) -> tuple[Floats, Floats]:
        """Buyers and lists of a window, by item."""
        own = slice(window * N_FOLDS, (window + 1) * N_FOLDS)
        bought, listed = (
            part[own].sum(axis=0).astype(np.float64) for part in (self.bought, self.listed)
        )
        return bought, listed

    # What is held out

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

    def lifts(self, before: Floats, after: Floats, folds: Ints) -> Lifts:
        """What units gain, by fold."""
        return sum_lifts(before, after, folds, self.n_folds, self.folds_are_windows)

    def forecast(self, lifts: Lifts, persistence: Persistence = TREND) -> Forecast:
        """The lift to expect from that of what was held out."""
        return forecast_lift(lifts, self.as_of, self.histories.window / DAY, persistence)

    # Features of items

    def within_range_of(self, entries: Floats | Ints) -> Shared:
        """The same with features kept in the range of list entries, but for rare ones.

        Args:
            entries: their number by [window, item].
        """
        windows, items = np.nonzero(entries)
        if len(items) == 0:
            return replace(self, feature_range=NO_RANGE)
        tables = [next(self._of_window(w))[items[windows == w]] for w in range(self.n_windows)]
        weights = entries[windows, items].astype(np.float64)
        low, high = weighted_quantiles(np.concatenate(tables), weights, (_RARE, 1.0 - _RARE))
        return replace(self, feature_range=(low, high))

    def tonight(self) -> tuple[tuple[str, ...], Floats]:
        """Names of the features, and the features as of now by [item, feature]."""
        newest = self.n_windows - 1
        if self.histories.now is not None:
            found = self._features_as_of(self.histories.now, newest)
        else:
            found = self._features_of_window(newest)
        return tuple(found), self._clip(_stack(found))

    def tables(self, items: Ints) -> Floats:
        """Features of some items by [table, item, feature]; see `table_of`."""
        windows = range(self.n_windows)
        return self._clip(np.stack([own[items] for w in windows for own in self._of_window(w)]))

    def centre(self, now: Floats) -> Floats:
        """Features as of now; 0 is the average over listed items, and stands for unknown ones."""
        seen = _plain_share(self.counts(self.n_windows - 1)[1])
        # A matrix product would depend on the machine in its last bits.
        centred: Floats = now - (seen[:, None] * now).sum(axis=0)
        return centred

    def _clip(self, features: Floats) -> Floats:
        return np.clip(features, *self.feature_range) if self.as_of else features

    def _features_as_of(self, history: History, window: int) -> dict[str, Floats]:
        listed, shown = self.counts(window)[1], self.shown[window].astype(float)
        lately = {"bought": history["window"], "listed": listed, "shown": shown}
        return make_features(AS_OF, history | lately)

    def _features_of_window(self, window: int, left_out: tuple[int, ...] = ()) -> dict[str, Floats]:
        """Features of a window's own sales, without those of some folds."""
        history = self.histories.before[window] if self.histories.before else {}
        rows = [window * N_FOLDS + fold for fold in left_out]
        bought, listed = (
            whole - part[rows].sum(axis=0)
            for whole, part in zip(self.counts(window), (self.bought, self.listed), strict=True)
        )
        return make_features(OF_WINDOW, history | {"bought": bought, "listed": listed})

    def _of_window(self, window: int) -> Iterator[Floats]:
        """The tables of a window: as of its start, or of its own sales without some folds."""
        if self.as_of:
            yield _stack(self._features_as_of(self.histories.before[window], window))
            return
        for left_out in _LEFT_OUT:
            yield _stack(self._features_of_window(window, left_out))

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
