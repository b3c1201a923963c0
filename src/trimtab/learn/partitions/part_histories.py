"""Sales before each window and before now, counted part by part of the users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.history import Histories, History, days_in
from trimtab.learn.input_checks import warn_of_untimed_windows
from trimtab.learn.partitions.coded_part import PartLog
from trimtab.learn.rerank.sampled_units import UserLog
from trimtab.learn.sales_log import SalesLog, window_end, window_start
from trimtab.tables.times import DAY

Logs = Callable[[], Iterator[PartLog]]  # of all parts, in order, with codes of all items


class LogTimes(NamedTuple):
    """What must be known of all parts before any sale is counted."""

    timed: bool  # whether both history and purchases have timestamps
    by_day: bool  # whether timestamps of the history are dates
    starts: tuple[int, ...]  # of the windows: their first purchases
    last: int  # purchase
    latest: int  # event of the history

    @property
    def newest(self) -> int:
        """Start of the newest window."""
        return max(self.starts)

    @property
    def window_days(self) -> int:
        """Length of the newest window."""
        return days_in(self.newest, self.last)


class PartCounts(NamedTuple):
    """What was sold to the users of a part."""

    before: list[History]  # each window and now; or all sales
    n_users: int


class TimesSoFar:
    """Collects the times of one part after the other."""

    def __init__(self, history_timed: bool, recent_timed: bool) -> None:
        self._history_timed, self._timed = history_timed, history_timed and recent_timed
        self._by_day, self._latest = True, -1
        self._starts: dict[object, int] = {}
        self._last: int | None = None

    def add(self, log: PartLog, labels: list[object]) -> None:
        """Add the times of a part, whose windows have these labels."""
        if self._history_timed:
            self._by_day &= not np.any(log.times % DAY)
            self._latest = max(self._latest, int(log.times.max(initial=-1)))
        if not len(log.sale_times):
            return
        last = int(log.sale_times.max())
        self._last = last if self._last is None else max(self._last, last)
        for code, label in enumerate(labels):
            own = log.sale_times[log.sale_windows == code]
            if len(own):
                first = int(own.min())
                self._starts[label] = min(first, self._starts.get(label, first))

    def finish(self, labels: list[object]) -> LogTimes:
        """What was found, for all windows."""
        if not self._timed or self._last is None:
            return LogTimes(False, self._by_day, (), 0, self._latest)
        first = min(self._starts.values())
        starts = tuple(self._starts.get(label, first) for label in labels)
        by_day = self._history_timed and self._by_day
        return LogTimes(True, by_day, starts, self._last, self._latest)


def count_in_parts(logs: Logs, times: LogTimes, n_items: int, n_windows: int) -> Histories:
    """Sales before each window and before now; see `count_histories`."""
    total: PartCounts | None = None
    for log in logs():
        counted = count_part(log, times, n_items)
        total = counted if total is None else add_counts([total, counted])
    assert total is not None
    return join_counts(total, times, n_windows)


def count_part(log: PartLog, times: LogTimes, n_items: int) -> PartCounts:
    """Sales of a part before each window and before now; all its sales if times are missing."""
    if not times.timed:
        instant = None if times.latest < 0 else times.latest + 1
        return PartCounts([_untimed(log, n_items).before(instant)], 0)
    sales = whole_log(log, times, n_items)
    counted = [sales.before(instant) for instant in (*times.starts, sales.end(times.last))]
    return PartCounts(counted, sales.n_users)


def add_counts(parts: list[PartCounts]) -> PartCounts:
    """Counts of several parts together."""
    before = [_add(own) for own in zip(*(part.before for part in parts), strict=True)]
    return PartCounts(before, sum(part.n_users for part in parts))


def join_counts(total: PartCounts, times: LogTimes, n_windows: int) -> Histories:
    """What was counted in all parts."""
    if not times.timed:
        warn_of_untimed_windows(n_windows)
        return Histories(tuple(total.before) * n_windows)
    *before, now = total.before
    starts = tuple(window_start(start, times.by_day) for start in times.starts)
    end = window_end(times.last, times.by_day)
    return Histories(tuple(before), now, times.window_days, starts, end, total.n_users)


def _untimed(log: PartLog, n_items: int) -> SalesLog:
    times = log.times if len(log.times) == len(log.items) else None
    # Counted up to the last event: rounded down to its day, the instant would leave that day out.
    return SalesLog(log.items, n_items, log.users, times, by_day=False)


def whole_log(log: PartLog, times: LogTimes, n_items: int) -> SalesLog:
    """The history of a part with the purchases of its windows."""
    sales = SalesLog(log.items, n_items, log.users, log.times, by_day=times.by_day)
    sales.window_days = times.window_days
    sales.add(log.sale_items, log.sale_users, log.sale_times, times.newest)
    return sales


def _add(parts: tuple[History, ...]) -> History:
    """Counts of several parts of the users together."""

    def total(name: str) -> Floats | None:
        found = [getattr(part, name) for part in parts]
        if any(one is None for one in found):
            return None
        combine = {"since": np.minimum, "age": np.maximum}.get(name, np.add)
        summed: Floats = combine.reduce(found)
        return summed

    return History(**{name: total(name) for name in History.__dataclass_fields__})  # type: ignore[arg-type]


def log_of_sample(logs: Logs, times: LogTimes, users: list[Ints], n_items: int) -> UserLog:
    """What the users of some units bought, of all parts.

    Args:
        logs: of all parts.
        times: over all parts.
        users: of sampled units, by part; numbered within the part.
        n_items: number of item codes.
    """
    found: list[tuple[Codes, Codes, Ints, Codes]] = []
    n_sampled = 0
    for log, own in zip(logs(), users, strict=True):
        sales = whole_log(log, times, n_items)
        assert sales.users is not None
        assert sales.times is not None
        sampled, of_units = np.unique(log.of_users[own], return_inverse=True)
        n_codes = int(max(sales.users.max(initial=0), sampled.max(initial=0))) + 1
        number = np.full(n_codes, -1, np.int32)
        number[sampled] = n_sampled + np.arange(len(sampled), dtype=np.int32)
        rows = np.flatnonzero(number[sales.users] >= 0)
        numbered = (of_units + n_sampled).astype(np.int32)
        found.append((number[sales.users[rows]], sales.items[rows], sales.times[rows], numbered))
        n_sampled += len(sampled)
    bought_by, items, bought_at, of_all = (np.concatenate(c) for c in zip(*found, strict=True))
    return UserLog(bought_by, items, bought_at, of_all)
