"""Windows: whole days of a log; and its holes, days with far fewer events than usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median_low

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import DataError
from trimtab.tables.columns import TIMESTAMP, USER, WINDOW
from trimtab.tables.log import Log
from trimtab.tables.times import day_start, local_day, microseconds

HOLE = "a hole in the log or a holiday"
_COMPARED_WEEKS = 4  # before a day and after it, for its usual number of events
_LEAST_SHARE = 0.2  # of the usual number; a day below it is a hole
_ENOUGH = 20  # events that a weekday usually has, for a comparison
_REGULAR = 1 / 3  # of other weeks with as few events: the weekday is often like this


@dataclass(frozen=True)
class Window:
    """Some whole days in the shop's time zone."""

    first: date
    start: int  # microseconds since 1970; half-open
    stop: int

    @staticmethod
    def of(first: date, days: int, tz: str) -> Window:
        """Return the window of some days, beginning with `first`."""
        return Window(first, day_start(first, tz), day_start(first + timedelta(days), tz))

    def events(self, log: Log) -> pa.Table:
        """Return the events in the window."""
        begin, end = self.rows(event_times(log))
        return log.events.slice(begin, end - begin)

    def history(self, log: Log) -> pa.Table:
        """Return the events before the window."""
        return log.events.slice(0, self.rows(event_times(log))[0])

    def rows(self, times: Ints) -> tuple[int, int]:
        """Return the first row in the window and the first row after it, of sorted times."""
        begin, end = np.searchsorted(times, [self.start, self.stop])
        return int(begin), int(end)


def recent_windows(log: Log, as_of: date, days: int, most: int) -> list[Window]:
    """Return windows right before a day and before each other, newest first.

    There are events before each of them, and in the newest.

    Args:
        log: ordered by time.
        as_of: the day.
        days: length of a window.
        most: most windows to return.

    Raises:
        DataError: there are no events in the newest window, or none before it.
    """
    times = event_times(log)
    found: list[Window] = []
    for back in range(1, most + 1):
        window = Window.of(as_of - timedelta(days * back), days, log.tz)
        begin, end = window.rows(times)
        if begin == 0 or (begin == end and not found):
            break
        found.append(window)
    if not found:
        span = f"{local_day(times[0], log.tz)} to {local_day(times[-1], log.tz)}"
        raise DataError(
            f"events run from {span} ({log.tz}), but some must be in the {days} days before "
            f"{as_of} and some earlier; check as_of=, tz= and that the log is up to date"
        )
    return found


def stack_windows(
    windows: Sequence[Window], recs: Sequence[pa.Table], recent: Sequence[pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """Return the lists and the purchases of several windows, with a column `window` if several.

    Of earlier windows, only the lists of their buyers are kept: nothing is learned from others.

    Args:
        windows: newest first.
        recs: lists made before each window.
        recent: purchases in each window.
    """
    if len(windows) == 1:
        return recs[0], recent[0]
    earlier = map(rows_of_users, recs[1:], recent[1:])
    return _stack(windows, [recs[0], *earlier]), _stack(windows, recent)


def _stack(windows: Sequence[Window], tables: Sequence[pa.Table]) -> pa.Table:
    labelled = [
        table.append_column(WINDOW, pa.repeat(str(window.first), table.num_rows))
        for window, table in zip(windows, tables, strict=True)
    ]
    return pa.concat_tables(labelled, promote_options="permissive")


def rows_of_users(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows of users that another table has too; all if ids are of different types."""
    try:
        users = pc.unique(other[USER]).cast(table[USER].type)
    except pa.ArrowException:
        return table
    return table.filter(pc.is_in(table[USER], users))


def event_times(log: Log) -> Ints:
    """Return the times of the log's events, in microseconds since 1970."""
    return microseconds(log.events[TIMESTAMP])


@dataclass(frozen=True)
class Weekday:
    """The times of events on a day, and on the same weekday of other weeks.

    Times are in microseconds since the day began.
    """

    day: date
    sold: Ints
    others: list[Ints]  # of the weeks before, then of the weeks after

    def __str__(self) -> str:
        return f"{self.day} has {self.events} events; that weekday usually has {self.usual}"

    @property
    def events(self) -> int:
        """The number of events on the day."""
        return len(self.sold)

    @property
    def usual(self) -> int | None:
        """The median number of events in other weeks; None if there are few.

        Of an even number of weeks it is the lower of the two in the middle: in a shop that grew,
        the days before are not holes.
        """
        usual = median_low([len(times) for times in self.others]) if self.others else 0
        return usual if usual >= _ENOUGH else None

    @property
    def is_hole(self) -> bool:
        """Whether the day has far fewer events than usual."""
        least = _LEAST_SHARE * (self.usual or 0)
        n_low = sum(len(times) < least for times in self.others)
        return self.events < least and n_low < _REGULAR * len(self.others)


def find_holes(log: Log, window: Window, until: date) -> list[Weekday]:
    """Return the days of a window with far fewer events than usual, in order.

    Each is compared with the same weekday in the four weeks before it and after it. A weekday with
    few events, or with as few in a third of these weeks, is never a hole; nor is a day before the
    log begins.

    Args:
        log: ordered by time.
        window: the days to look at.
        until: other weeks are only compared before this day; the log may be incomplete from it on.
    """
    times = event_times(log)
    first = max(window.first, local_day(times[0], log.tz))
    n_days = (local_day(window.stop - 1, log.tz) - first).days + 1
    days = (first + timedelta(n) for n in range(n_days))
    compared = (compare_weekday(times, log.tz, day, until) for day in days)
    return [day for day in compared if day.is_hole]


def compare_weekday(times: Ints, tz: str, day: date, until: date) -> Weekday:
    """Return a day and the same weekday of the weeks around it, as far as the log goes."""

    def times_on(day: date) -> Ints:
        window = Window.of(day, 1, tz)
        begin, end = window.rows(times)
        return times[begin:end] - window.start

    first = local_day(times[0], tz)
    weeks = [*range(-1, -_COMPARED_WEEKS - 1, -1), *range(1, _COMPARED_WEEKS + 1)]
    others = [day + timedelta(7 * week) for week in weeks]
    return Weekday(day, times_on(day), [times_on(own) for own in others if first <= own < until])
