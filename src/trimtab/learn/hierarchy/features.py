"""Trend features of items: as of an instant, or of a window's own sales.

With timestamps, features are as of an instant: made from what was known then. Those of a window are
as of its start, so they are older than the purchases that they explain; tonight's are as of now.

Without timestamps they come from the window's own sales, counted by groups of users. The features
that a user is scored with leave out the user's own group, so a purchase never explains itself.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats, Ints, Lists, Sets
from trimtab.learn.history import NEVER, History

# Features that need only the window.
WINDOW_FEATURES = ("bought_per_listed", "recent_sales")
_PRIOR_LISTS = 10.0  # lists at the average rate, added to each item
_PRIOR_SALES = 20.0  # sales at the long-run share, added to each item
_PRIOR_VISITS = 5.0
_HALF = 0.5
_WINDOW_DAYS = 4.0


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
    if history.buyers is not None:
        again = history.again
        found["repeat_rate"] = _log_rate(
            again[rows], history.long[rows], _PRIOR_VISITS, float(again.sum()),
            float(history.long.sum()),
        )  # fmt: skip
    return found


def _smooth_share(counts: Floats) -> Floats:
    """The share of each item, with half a count more for each."""
    return (counts + _HALF) / (float(counts.sum()) + _HALF * len(counts))


def count_groups(
    lists: Lists, bought: Sets, group_of: Ints, n_groups: int, n_items: int,
    sales: Floats | None = None,
) -> tuple[Ints | Floats, Ints]:  # fmt: skip
    """Purchases and lists by [group of units, item]; units of group -1 are ignored.

    Args:
        lists: by unit.
        bought: by unit.
        group_of: of units.
        n_groups: number of groups.
        n_items: number of item codes.
        sales: how many sales each purchase counts as, in quanta; 1 each if None.
    """
    from trimtab.kernels.choice_sums import count_listed

    listed = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, lists.n_units, lists.indptr, lists.items, group_of, listed)
    if sales is not None:
        return _sum_sales(bought, group_of, n_groups, n_items, sales), listed
    sold = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, bought.n_units, bought.indptr, bought.items, group_of, sold)
    return sold, listed


def _sum_sales(bought: Sets, group_of: Ints, n_groups: int, n_items: int, sales: Floats) -> Floats:
    """Sums of what purchases count as, by [group of units, item]."""
    group = np.repeat(group_of, np.diff(bought.indptr))
    used = group >= 0
    sold = np.zeros((n_groups, n_items))
    np.add.at(sold, (group[used], bought.items[used]), sales[used])
    return sold


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
        if history.buyers is not None:
            again = history.again
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
            partition = self._share[rows]
            out[:, 2] = _log_rise(bought, total, partition)
            out[:, 3] = 1000.0 * (bought / max(total, 1.0) - partition)
            done = 4
        for place, column in enumerate(self._fixed):
            out[:, done + place] = column[rows]
        return out


def _log_rise(sold: Floats, total: float, partition: Floats) -> Floats:
    """Log of sales over the sales expected from the long-run share; shrunk to 0 for few sales."""
    prior = _PRIOR_SALES * partition + _HALF
    return np.log((sold + prior) / (total * partition + prior))


def _log_rate(
    hits: Floats, tries: Floats, prior: float, all_hits: float, all_tries: float | None = None
) -> Floats:
    """Log of a rate over the average rate; `prior` tries at the average rate shrink it to 0."""
    whole = float(tries.sum()) if all_tries is None else all_tries
    rate = max(all_hits, _HALF) / max(whole, 1.0)
    return np.log((hits + prior * rate) / (tries + prior) / rate)
