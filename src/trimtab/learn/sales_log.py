"""The log of a fit: what was sold before each window, and what was bought in the windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.history import WEEK, Histories, History, count_history, days_in
from trimtab.learn.input_checks import check_same_clock, require_counts, warn_of_untimed_windows
from trimtab.tables.columns import COUNT, TIMESTAMP
from trimtab.tables.frames import Table, read_scores
from trimtab.tables.times import DAY, as_utc, has_zone, microseconds


@dataclass
class SalesLog:
    """Sales as columns, to be counted before any instant.

    Args:
        items: code of each sale's item.
        n_items: number of item codes.
        users: code of each sale's user, if known.
        times: in microseconds, if known.
        counts: how many sales each row stands for, unless each is one event.
        weights: of events, in quanta, unless all are 1.
        window_days: length of the newest window.
        by_day: whether the times are days; found from them if None.
    """

    items: Codes
    n_items: int
    users: Codes | None = None
    times: Ints | None = None
    counts: Floats | None = None
    weights: Floats | None = None
    window_days: int = WEEK
    by_day: bool | None = None

    def __post_init__(self) -> None:
        if self.by_day is None:
            self.by_day = self.times is not None and not np.any(self.times % DAY)

    @staticmethod
    def read(
        history: Table, items: Codes, users: Codes | None, n_items: int,
        weights: Floats | None = None,
    ) -> SalesLog:  # fmt: skip
        """The sales of a table of events, or of counts."""
        times = read_instants(history) if history.has(TIMESTAMP) else None
        if not history.has(COUNT):
            return SalesLog(items, n_items, users, times, weights=weights)
        counts, lowest = read_scores(history, COUNT)
        require_counts(lowest)
        return SalesLog(items, n_items, None, times, counts)

    @property
    def is_complete(self) -> bool:
        """Whether user and time of every sale are known."""
        return self.counts is None and self.users is not None and self.times is not None

    @property
    def n_users(self) -> int:
        """Different users of the sales; 0 if they are not known."""
        return 0 if self.users is None else int(np.count_nonzero(np.bincount(self.users)))

    def add(
        self, items: Codes, users: Codes | None, times: Ints, newest: int,
        weights: Floats | None = None,
    ) -> None:  # fmt: skip
        """Add the purchases of the windows; a user's purchase that is known already counts once.

        Args:
            items: of the purchases.
            users: of the purchases, coded as those of the sales.
            times: of the purchases.
            newest: start of the newest window; earlier sales are known.
            weights: of the purchases, unless all are 1.
        """
        assert self.times is not None
        early, new = self.times < self.start(newest), np.ones(len(times), bool)
        if self.users is None or users is None:
            new = times >= newest  # without users, earlier purchases would count twice
        else:
            self.users = np.concatenate([self.users[early], users])
        if self.weights is not None or weights is not None:
            ours = np.ones(len(early)) if self.weights is None else self.weights
            theirs = np.ones(len(times)) if weights is None else weights
            self.weights = np.concatenate([ours[early], theirs[new]])
        self.items = np.concatenate([self.items[early], items[new]])
        self.times = np.concatenate([self.times[early], times[new]])

    def before(self, instant: int | None) -> History:
        """Counts of the sales before an instant; of all without one."""
        if instant is not None:
            instant = self.start(instant)
        if self.counts is None:
            return count_history(
                self.items, self.users, self.times, instant, self.n_items, self.window_days,
                self.weights,
            )  # fmt: skip
        items, counts = self.items, self.counts
        if self.times is not None and instant is not None:
            early = self.times < instant
            items, counts = items[early], counts[early]
        return History(np.bincount(items, counts, minlength=self.n_items).astype(np.float64))

    def start(self, instant: int) -> int:
        """Where a window starts; with dates, sales on its first day belong to it."""
        return window_start(instant, bool(self.by_day))

    def end(self, last: int) -> int:
        """Where a window ends whose last sale is known: right after it, or with its day."""
        return window_end(last, bool(self.by_day))


def window_start(first: int, by_day: bool) -> int:
    """Where a window starts whose first sale is known: with it, or with its day."""
    return first // DAY * DAY if by_day else first


def window_end(last: int, by_day: bool) -> int:
    """Where a window ends whose last sale is known: right after it, or with its day."""
    return last + (DAY if by_day else 1)


def read_instants(table: Table) -> Ints:
    """The timestamps of a table in microseconds; those without a time zone count as UTC."""
    name = table.own_name(TIMESTAMP)
    return microseconds(as_utc(table.columns[TIMESTAMP], "UTC", table.name, name)[0])


def count_histories(
    log: SalesLog, history: Table, recent: Table, items: Codes, users: Codes | None,
    windows: Codes, n_windows: int, weights: Floats | None = None,
) -> Histories:  # fmt: skip
    """Sales before each window and before now; adds the purchases to the log.

    Args:
        log: sales of `history`.
        history: the table itself.
        recent: purchases in the windows.
        items: of the purchases.
        users: of the purchases, coded as in the log.
        windows: of the purchases.
        n_windows: number of windows.
        weights: of the purchases, unless all are 1.
    """
    if not (history.has(TIMESTAMP) and recent.has(TIMESTAMP)):
        warn_of_untimed_windows(n_windows)
        return Histories((log.before(None),) * n_windows)
    check_same_clock(
        *(has_zone(t.columns[TIMESTAMP], t.name, t.own_name(TIMESTAMP)) for t in (history, recent))
    )
    times = read_instants(recent)
    starts = _starts(times, windows, n_windows)
    newest, last = max(starts), int(times.max())
    log.window_days = days_in(newest, last)
    if log.counts is not None:
        return Histories(tuple(log.before(start) for start in starts))
    log.add(items, users, times, newest, weights)
    before = tuple(log.before(start) for start in starts)
    until = log.end(last)
    begun = tuple(log.start(start) for start in starts)
    return Histories(before, log.before(until), log.window_days, begun, until, log.n_users)


def _starts(times: Ints, windows: Codes, n_windows: int) -> list[int]:
    """When each window starts: with its first purchase."""
    found = []
    for window in range(n_windows):
        own = times[windows == window]
        found.append(int(own.min() if len(own) else times.min()))
    return found
