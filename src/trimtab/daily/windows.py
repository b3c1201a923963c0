"""Whether the log of the newest window looks complete."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from trimtab.arrays import Ints
from trimtab.errors import RefusedError
from trimtab.tables.log import Log
from trimtab.tables.log_windows import Window, event_times
from trimtab.tables.timestamps import local_day

_COMPARED_WEEKS = 4  # before a day, for its usual number of sales
_LEAST_SALES_SHARE = 0.2  # of the usual number; below it, the log looks incomplete
_HOUR = 3_600_000_000  # microseconds
_EARLY = 4 * _HOUR  # before the earliest last sale of the same weekday: the day is not over
_ENOUGH_SALES = 20  # usual on a weekday, for a comparison


def require_complete(log: Log, as_of: date, days: int) -> None:
    """Refuse a log that looks incomplete compared with the same weekday of earlier weeks.

    A day of the window with hardly any events is refused, and a last day that ends hours earlier
    than usual.
    """
    times = event_times(log)
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
