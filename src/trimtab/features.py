"""Trend features: what a window's sales and the long run say of each item.

Windows are counted by groups of users, so that the features a user is scored with can leave out
the group the user is in: a purchase never explains itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.coded import Codes, Floats, Ints, Lists, Sets
from trimtab.instants import DAY

# Features that need nothing but the window.
WINDOW_FEATURES = ("bought_per_listed", "recent_sales")
_PRIOR_LISTS = 10.0  # lists at the average rate
_PRIOR_SALES = 20.0  # sales at the long-run share
_PRIOR_VISITS = 5.0
_HALF = 0.5
MONTH, WEEK = 30, 7  # days
NEVER = 400.0  # days since the last sale of what was never sold
_WINDOW_DAYS = 4.0


@dataclass(frozen=True)
class History:
    """What was sold before the window, by item; parts that are not known are None."""

    long: Floats  # sales, or days on which a user bought it
    buyers: Floats | None = None  # users who ever did
    month: Floats | None = None  # `long` of the last month
    week: Floats | None = None
    since: Floats | None = None  # days since the last sale


def count_groups(
    lists: Lists, bought: Sets, group_of: Ints, n_groups: int, n_items: int
) -> tuple[Ints, Ints]:
    """Purchases and lists of each group of units, by [group, item]; group -1 counts for nothing."""
    from trimtab.kernels.choice import count_listed

    listed = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, lists.n_units, lists.indptr, lists.items, group_of, listed)
    sold = np.zeros((n_groups, n_items), np.int64)
    count_listed(0, bought.n_units, bought.indptr, bought.items, group_of, sold)
    return sold, listed


def count_history(
    items: Codes, users: Codes | None, times: Ints | None, before: int | None, n_items: int
) -> History:
    """Count events of the long run.

    Args:
        items: of events.
        users: of events, if known.
        times: of events in microseconds, if known.
        before: when the window began; later events are left out. The end of the events if None.
        n_items: number of item codes.
    """
    timed = times is not None
    if times is None:
        times = np.arange(len(items), dtype=np.int64) * DAY  # every event a day of its own
    if before is None:
        before = int(times.max()) + 1 if len(times) else 0
    if times.max(initial=before - 1) >= before:
        keep = times < before
        items, times = items[keep], times[keep]
        users = None if users is None else users[keep]
    if np.any(times[1:] < times[:-1]):
        by_time = np.argsort(times, kind="stable")
        items, times = items[by_time], times[by_time]
        users = None if users is None else users[by_time]
    days = (before - 1 - times) // DAY  # 0 on the last day before the window
    known = users is not None
    if users is None:
        users = np.arange(len(items), dtype=np.int32)  # every event a user of its own
    visits, month, week, buyers, since = _count_visits(items, users, days, n_items)
    return History(
        visits,
        buyers if known else None,
        *((month, week, since) if timed else (None, None, None)),
    )


def _count_visits(items: Codes, users: Codes, days: Ints, n_items: int) -> tuple[Floats, ...]:
    from trimtab.kernels.choice import count_visits, group_events

    n_users = int(users.max(initial=-1)) + 1
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=n_items))])
    grouped = np.empty((len(items), 2), np.int32)
    group_events(items, users, days.astype(np.int32), starts[:-1].copy(), grouped)
    counts, since = np.zeros((4, n_items)), np.full(n_items, NEVER)
    seen = np.full((n_users, 2), -1, np.int32)
    count_visits(starts, grouped, MONTH, WEEK, seen, counts, since)
    return (*counts, since)


class Features:
    """Features of items in one window, for any counts of it.

    Columns, in the order of `names`: what moves with the counts comes first, so that the rest is
    made only once.
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
            again = long - history.buyers
            self.names += ("repeat_rate",)
            self._fixed.append(_log_rate(again, long, _PRIOR_VISITS, float(again.sum())))

    def build(self, bought: Floats, listed: Floats, items: Ints | None = None) -> Floats:
        """Features by [item, feature].

        Args:
            bought: buyers in the window, by item.
            listed: lists that have it.
            items: only these; all if None.
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
    """Log of sales over what the long-run share would give, drawn to 0 where both are few."""
    prior = _PRIOR_SALES * share + _HALF
    return np.log((sold + prior) / (total * share + prior))


def _log_rate(
    hits: Floats, tries: Floats, prior: float, all_hits: float, all_tries: float | None = None
) -> Floats:
    """Log of a rate over the average rate, drawn to 0 by so many tries at the average."""
    whole = float(tries.sum()) if all_tries is None else all_tries
    rate = max(all_hits, _HALF) / max(whole, 1.0)
    return np.log((hits + prior * rate) / (tries + prior) / rate)
