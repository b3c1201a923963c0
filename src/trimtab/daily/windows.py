"""The windows a refresh learns from: the last days before it, and what was sold in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import DataError, RefusedError
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.timestamps import day_start, local_day, microseconds

_BUYERS = 500  # with fewer in the newest window, earlier ones are learned from too
_MOST = 6  # windows, then
_WEEKS = 4  # before a day, which its sales are compared with
_FEW = 0.2  # of the sales of the same weekday: with fewer, the log looks incomplete
_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest end of the same weekday: the day is not over
_ENOUGH = 20  # sales on such a day, to be compared with


@dataclass(frozen=True)
class Window:
    """Some whole days in the shop's time zone."""

    first: date
    start: int  # microseconds since 1970; half-open
    stop: int

    @staticmethod
    def of(first: date, days: int, tz: str) -> Window:
        """The days from `first` on."""
        return Window(first, day_start(first, tz), day_start(first + timedelta(days), tz))

    def events(self, log: Log) -> pa.Table:
        """What happened in it."""
        begin, end = _rows(log, self.start, self.stop)
        return log.events.slice(begin, end - begin)

    def history(self, log: Log) -> pa.Table:
        """What happened before it."""
        return log.events.slice(0, _rows(log, self.start, self.stop)[0])


def recent_windows(log: Log, as_of: date, days: int, count: int | None) -> list[Window]:
    """Windows before a day, newest first: those with events in and before them.

    Args:
        log: ordered by time.
        as_of: the day.
        days: length of a window.
        count: so many at most; None: one, or as many as it takes to have enough buyers.
    """
    found: list[Window] = []
    buyers = 0
    for back in range(1, (_MOST if count is None else count) + 1):
        window = Window.of(as_of - timedelta(days * back), days, log.tz)
        begin, end = _rows(log, window.start, window.stop)
        # Nothing before it, nothing in it, or there are buyers enough.
        if begin in (0, end) or (count is None and buyers >= _BUYERS):
            break
        found.append(window)
        buyers += int(pc.count_distinct(window.events(log)[USER]).as_py())
    if not found:
        times = microseconds(log.events[TIMESTAMP])
        span = f"{local_day(times[0], log.tz)} to {local_day(times[-1], log.tz)}"
        raise DataError(
            f"events lie on {span} ({log.tz}): there must be some in the {days} days before "
            f"{as_of}, and some before those; check --as-of, --tz and that the log is up to date"
        )
    return found


def require_complete(log: Log, as_of: date, days: int) -> None:
    """Refuse a log that looks as if it was not all there: each day is held against its weekday.

    A day of the window with hardly any events is refused, and a last day that ends hours before
    the same weekday used to.
    """
    begun = local_day(microseconds(log.events[TIMESTAMP])[0], log.tz)
    for back in range(1, days + 1):
        day = as_of - timedelta(back)
        weeks = [day - timedelta(7 * week) for week in range(1, _WEEKS + 1)]
        sold, before = _sales(log, day), [_sales(log, d) for d in weeks if d >= begun]
        usual = float(np.median([len(times) for times in before])) if before else 0.0
        if usual < _ENOUGH:
            continue
        if len(sold) < _FEW * usual:
            raise RefusedError(
                f"{day} has {len(sold)} events, the same weekday of the weeks before {usual:g}: "
                f"the log looks incomplete; wait for it, or pass --accept incomplete"
            )
        earliest = min(int(times[-1]) for times in before if len(times))
        if back == 1 and int(sold[-1]) < earliest - _EARLY:
            raise RefusedError(
                f"{day} ends {(earliest - int(sold[-1])) / _HOUR:.0f} hours before the same "
                f"weekday of the weeks before: the log looks incomplete; wait for it, or pass "
                f"--accept incomplete"
            )


def _sales(log: Log, day: date) -> Ints:
    """When on a day things were sold, in microseconds since it began."""
    window = Window.of(day, 1, log.tz)
    begin, end = _rows(log, window.start, window.stop)
    times: Ints = microseconds(log.events[TIMESTAMP].slice(begin, end - begin)) - window.start
    return times


def _rows(log: Log, start: int, stop: int) -> tuple[int, int]:
    """The rows of the log between two instants."""
    times = microseconds(log.events[TIMESTAMP])
    begin, end = np.searchsorted(times, [start, stop])
    return int(begin), int(end)
