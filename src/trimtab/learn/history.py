"""Sales before a window, counted by item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.tables.timestamps import DAY

MONTH, WEEK = 30, 7  # days
NEVER = 400.0  # days since the last sale of what was never sold


@dataclass(frozen=True)
class History:
    """Sales before the window, by item; counts that are not known are None."""

    long: Floats  # sales; with users known, (user, day) pairs
    buyers: Floats | None = None  # different users
    month: Floats | None = None  # `long` of the last month
    week: Floats | None = None
    since: Floats | None = None  # days since the last sale


def count_history(
    items: Codes, users: Codes | None, times: Ints | None, before: int | None, n_items: int
) -> History:
    """Counts of the events before a window.

    Args:
        items: of events.
        users: of events, if known.
        times: of events in microseconds, if known.
        before: start of the window; later events are ignored. If None, all events count.
        n_items: number of item codes.
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
    if np.any(times[1:] < times[:-1]):
        by_time = np.argsort(times, kind="stable")
        items, times = items[by_time], times[by_time]
        users = None if users is None else users[by_time]
    days = (before - 1 - times) // DAY  # 0 on the last day before the window
    known = users is not None
    if users is None:
        users = np.arange(len(items), dtype=np.int32)  # each event by its own user
    visits, month, week, buyers, since = _count_visits(items, users, days, n_items)
    return History(
        visits,
        buyers if known else None,
        *((month, week, since) if timed else (None, None, None)),
    )


def _count_visits(items: Codes, users: Codes, days: Ints, n_items: int) -> tuple[Floats, ...]:
    from trimtab.kernels.choice_sums import count_visits, group_events

    n_users = int(users.max(initial=-1)) + 1
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=n_items))])
    grouped = np.empty((len(items), 2), np.int32)
    group_events(items, users, days.astype(np.int32), starts[:-1].copy(), grouped)
    counts, since = np.zeros((4, n_items)), np.full(n_items, NEVER)
    seen = np.full((n_users, 2), -1, np.int32)
    count_visits(starts, grouped, MONTH, WEEK, seen, counts, since)
    return (*counts, since)
