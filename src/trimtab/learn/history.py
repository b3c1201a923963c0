"""Sales before an instant, counted by item."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.tables.times import DAY

QUARTER, MONTH, WEEK = 91, 30, 7  # days
NEVER = 400.0  # days since the last sale of what was never sold
_LEAST_BEFORE = 0.1  # sales in the days before a window, over those in the newest window


@dataclass(frozen=True)
class History:
    """Sales before an instant, by item; counts that are not known are None."""

    long: Floats  # sales; with users known, (user, day) pairs
    buyers: Floats | None = None  # different users
    quarter: Floats | None = None  # `long` of the last three months
    month: Floats | None = None
    week: Floats | None = None
    window: Floats | None = None  # of as many days as the newest window has
    since: Floats | None = None  # days since the last sale
    age: Floats | None = None  # days since the first sale
    first: Floats | None = None  # `long` of each user's first; as `buyers` if None

    @property
    def again(self) -> Floats:
        """Sales to users who bought the item before; only if users are known."""
        assert self.buyers is not None
        return self.long - (self.buyers if self.first is None else self.first)


@dataclass(frozen=True)
class Histories:
    """Sales before each window, and before now: the end of the newest window.

    Args:
        before: each window; empty without history.
        now: None if timestamps are missing, or what sold just before the newest window.
        window_days: length of the newest window; a week if it is not known.
        starts: of the windows, in microseconds; empty if they are not known.
        end: of the newest window.
        n_users: that the sales were to; 0 if users or timestamps are missing.
    """

    before: tuple[History, ...] = ()
    now: History | None = None
    window_days: int = WEEK
    starts: tuple[int, ...] = ()
    end: int | None = None
    n_users: int = 0

    @property
    def usable(self) -> list[bool]:
        """Whether what sold just before each window is known, so that features can be as of it."""
        assert self.now is not None
        assert self.now.window is not None
        least = _LEAST_BEFORE * float(self.now.window.sum())
        sold = (history.window for history in self.before)
        return [found is not None and float(found.sum()) >= least for found in sold]


def days_in(start: int, last: int) -> int:
    """The days that a window takes, from the time of its first purchase to that of its last."""
    return max(1, -((start - last - 1) // DAY))


def count_history(
    items: Codes, users: Codes | None, times: Ints | None, before: int | None, n_items: int,
    window_days: int = WEEK, weights: Floats | None = None,
) -> History:  # fmt: skip
    """Counts of the events before an instant.

    Args:
        items: of events.
        users: of events, if known.
        times: of events in microseconds, if known.
        before: later events are ignored. If None, all events count.
        n_items: number of item codes.
        window_days: length of the newest window.
        weights: of events, in quanta; 1 each if None. Counts are sums of them.
    """
    timed = times is not None
    if times is None:
        times = np.arange(len(items), dtype=np.int64) * DAY  # each event on its own day
    if before is None:
        before = int(times.max()) + 1 if len(times) else 0
    if times.max(initial=before - 1) >= before:
        keep = times < before
        items, times = items[keep], times[keep]
        users = None if users is None else users[keep]
        weights = None if weights is None else weights[keep]
    if np.any(times[1:] < times[:-1]):
        by_time = np.argsort(times, kind="stable")
        items, times = items[by_time], times[by_time]
        users = None if users is None else users[by_time]
        weights = None if weights is None else weights[by_time]
    days = (before - 1 - times) // DAY  # 0 on the last day before the instant
    known = users is not None
    if users is None:
        users = np.arange(len(items), dtype=np.int32)  # each event by its own user
    (visits, buyers, *recent), first, since, age = _count_visits(
        items, users, days, n_items, window_days, weights
    )
    found = History(
        visits, buyers if known else None, *((*recent, since, age) if timed else (None,) * 6)
    )
    return replace(found, first=first) if known else found


def _count_visits(
    items: Codes, users: Codes, days: Ints, n_items: int, window_days: int, weights: Floats | None
) -> tuple[Floats, Floats, Floats, Floats]:
    from trimtab.kernels.choice_sums import count_visits, group_events

    n_users = int(users.max(initial=-1)) + 1
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=n_items))])
    grouped = np.empty((len(items), 2), np.int32)
    group_events(items, users, days.astype(np.int32), starts[:-1].copy(), grouped)
    horizons = np.array([QUARTER, MONTH, WEEK, window_days])
    counts, since, age = np.zeros((6, n_items)), np.full(n_items, NEVER), np.zeros(n_items)
    seen, first = np.full((n_users, 2), -1, np.int32), np.zeros(n_items)
    each = np.ones(len(items), bool) if weights is None else _weigh_visits(items, grouped, weights)
    count_visits(starts, grouped, each, horizons, seen, counts, first, since, age)
    return counts, first, since, age


def _weigh_visits(items: Codes, grouped: Codes, weights: Floats) -> Floats:
    """The largest weight of each event's visit, in the order of the grouped events."""
    by_item = np.argsort(items, kind="stable")
    items, weights = items[by_item], weights[by_item]
    order = np.lexsort((weights, grouped[:, 1], grouped[:, 0], items))
    keys = np.stack([items[order], *grouped[order].T])
    last = np.r_[np.any(keys[:, 1:] != keys[:, :-1], axis=0), True]
    visit = np.cumsum(last) - last  # number of each event's visit
    largest = np.empty(len(items))
    largest[order] = weights[order][last][visit]
    return largest
