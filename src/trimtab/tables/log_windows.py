"""Windows of whole days before a date, and the tables of several windows as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import DataError
from trimtab.tables.columns import TIMESTAMP, USER, WINDOW
from trimtab.tables.log import Log
from trimtab.tables.timestamps import day_start, local_day, microseconds


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
            f"{as_of} and some earlier; check --as-of, --tz and that the log is up to date"
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
    newest, *earlier = zip(windows, recs, recent, strict=True)
    if not earlier:
        return newest[1], newest[2]
    kept = [newest, *((window, rows_of_users(lists, own), own) for window, lists, own in earlier)]
    stacked = (
        pa.concat_tables(
            [_add_window(part[place], part[0]) for part in kept], promote_options="permissive"
        )
        for place in (1, 2)
    )
    return next(stacked), next(stacked)


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


def _add_window(table: pa.Table, window: Window) -> pa.Table:
    return table.append_column(WINDOW, pa.repeat(pa.scalar(str(window.first)), table.num_rows))
