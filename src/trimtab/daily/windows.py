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

_ENOUGH_BUYERS = 500  # with fewer in the newest window, earlier windows are used too
_MAX_WINDOWS = 6  # used in that case
_COMPARED_WEEKS = 4  # before a day, for its usual number of sales
_LEAST_SALES_SHARE = 0.2  # of the usual number; below it, the log looks incomplete
_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest last sale of the same weekday: the day is not over
_ENOUGH_SALES = 20  # usual on a weekday, for a comparison


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
        begin, end = self.rows(_times(log))
        return log.events.slice(begin, end - begin)

    def history(self, log: Log) -> pa.Table:
        """Return the events before the window."""
        return log.events.slice(0, self.rows(_times(log))[0])

    def rows(self, times: Ints) -> tuple[int, int]:
        """Return the first row in the window and the first row after it, of sorted times."""
        begin, end = np.searchsorted(times, [self.start, self.stop])
        return int(begin), int(end)


def recent_windows(log: Log, as_of: date, days: int, count: int | None) -> list[Window]:
    """Return windows before a day, newest first: those with events in them and before them.

    Args:
        log: ordered by time.
        as_of: the day.
        days: length of a window.
        count: the most windows to return; None: one, or as many as it takes for enough buyers.
    """
    times = _times(log)
    found: list[Window] = []
    n_buyers = 0
    for back in range(1, (_MAX_WINDOWS if count is None else count) + 1):
        window = Window.of(as_of - timedelta(days * back), days, log.tz)
        begin, end = window.rows(times)
        # Nothing before the window, nothing in it, or there are enough buyers.
        if begin in (0, end) or (count is None and n_buyers >= _ENOUGH_BUYERS):
            break
        found.append(window)
        buyers = log.events[USER].slice(begin, end - begin)
        n_buyers += int(pc.count_distinct(buyers).as_py())
    if not found:
        span = f"{local_day(times[0], log.tz)} to {local_day(times[-1], log.tz)}"
        raise DataError(
            f"events run from {span} ({log.tz}), but some must be in the {days} days before "
            f"{as_of} and some earlier; check --as-of, --tz and that the log is up to date"
        )
    return found


def require_complete(log: Log, as_of: date, days: int) -> None:
    """Refuse a log that looks incomplete compared with the same weekday of earlier weeks.

    A day of the window with hardly any events is refused, and a last day that ends hours earlier
    than usual.
    """
    times = _times(log)
    first_day = local_day(times[0], log.tz)
    for back in range(1, days + 1):
        day = as_of - timedelta(back)
        weeks = [day - timedelta(7 * week) for week in range(1, _COMPARED_WEEKS + 1)]
        sold = _sale_times(times, day, log.tz)
        before = [_sale_times(times, d, log.tz) for d in weeks if d >= first_day]
        usual = float(np.median([len(sales) for sales in before])) if before else 0.0
        if usual < _ENOUGH_SALES:
            continue
        if len(sold) < _LEAST_SALES_SHARE * usual:
            raise _incomplete(f"{day} has {len(sold)} events; that weekday usually has {usual:g}")
        earliest = min(int(sales[-1]) for sales in before if len(sales))
        if back == 1 and int(sold[-1]) < earliest - _EARLY:
            hours = (earliest - int(sold[-1])) / _HOUR
            raise _incomplete(f"{day} ends {hours:.0f} hours earlier than usual for that weekday")


def _incomplete(finding: str) -> RefusedError:
    return RefusedError(
        f"{finding}: the log looks incomplete; wait for the rest, or pass --accept incomplete"
    )


def _sale_times(times: Ints, day: date, tz: str) -> Ints:
    """Return when things were sold on a day, in microseconds since it began."""
    window = Window.of(day, 1, tz)
    begin, end = window.rows(times)
    sold: Ints = times[begin:end] - window.start
    return sold


def _times(log: Log) -> Ints:
    """Return the times of the log's events, in microseconds since 1970."""
    return microseconds(log.events[TIMESTAMP])
