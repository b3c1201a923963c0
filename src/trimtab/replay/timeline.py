"""Split a log by date into half-open windows of whole days in the shop's time zone.

    train: before T - recent_days   | recent window | test
    ------------------------------->|<------------->|<--------->
                                                    T

Biases are learned on lists of an engine trained before the recent window, and evaluated on lists of
an engine trained on everything before T. Earlier windows of the same length, right before the
recent one, can be learned from too, each with lists of an engine trained before it. An engine never
sees events at or after the start of the window it is evaluated on; `fit` raises an error for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.checks import MOST_DAYS, require_whole
from trimtab.errors import DataError, SettingError
from trimtab.replay.windows import Window, find_holes, recent_windows
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import day_start, local_day, microseconds, read_day


@dataclass(frozen=True)
class Split:
    """A log split at one date: Arrow tables of events, and the instants between them."""

    as_of: date
    tz: str
    recent_from: int  # microseconds since 1970
    test_from: int
    test_to: int
    train: pa.Table  # before recent_from: trains the engine whose lists biases are learned on
    recent: pa.Table  # [recent_from, test_from): biases are learned from it
    known: pa.Table  # before test_from: trains the engine that is evaluated
    test: pa.Table  # [test_from, test_to)

    @property
    def window(self) -> Window:
        """The recent window, which ends on the date."""
        return Window(local_day(self.recent_from, self.tz), self.recent_from, self.test_from)

    def __repr__(self) -> str:
        return (
            f"Split({self.as_of}: {self.train.num_rows:,} events to train on, "
            f"{self.recent.num_rows:,} recent, {self.test.num_rows:,} to test on)"
        )


def split_log(log: Log, as_of: Any, recent_days: int = 3, test_days: int = 7) -> Split:
    """Return the windows around the start of a day.

    Args:
        log: log in time order.
        as_of: first day of the test, a date or text like 2017-11-01.
        recent_days: days before it to learn biases from.
        test_days: days of the test, from `as_of` on.

    Raises:
        DataError: the date is outside the log, a window is empty, or no buyer of a window bought
            anything before it.
    """
    day = read_day("as_of", as_of)
    for name, days in (("recent_days", recent_days), ("test_days", test_days)):
        require_whole(name, days, 1, MOST_DAYS)
    times = microseconds(log.events[TIMESTAMP])
    _require_inside(log, day, test_days, times)
    recent_from, test_from, test_to = (
        day_start(day + timedelta(days), log.tz) for days in (-recent_days, 0, test_days)
    )
    recent, known, test = (
        int(np.searchsorted(times, bound)) for bound in (recent_from, test_from, test_to)
    )
    split = Split(
        day, log.tz, recent_from, test_from, test_to,
        train=log.events.slice(0, recent),
        recent=log.events.slice(recent, known - recent),
        known=log.events.slice(0, known),
        test=log.events.slice(known, test - known),
    )  # fmt: skip
    _require_learnable(split)
    return split


def earlier_windows(log: Log, split: Split, recent_days: int, most: int) -> list[Window]:
    """Return the windows right before the recent one, newest first, as far as the log goes back.

    Windows with a hole in the log are left out, as in the daily job: a hole is what looks like one
    from the events before the date.

    Args:
        log: the log that was split.
        split: its split.
        recent_days: length of a window.
        most: most windows to learn from, including the recent one.
    """
    windows = recent_windows(log, split.as_of, recent_days, most)[1:]
    whole = (own for own in windows if not find_holes(log, own, split.as_of))
    return [own for own in whole if own.events(log).num_rows]


def rolling_dates(first: Any, last: Any, every: int = 7) -> list[date]:
    """Return the days from `first` to `last`, both included, `every` days apart.

    Example:
        >>> [str(day) for day in rolling_dates("2017-11-01", "2017-11-20")]
        ['2017-11-01', '2017-11-08', '2017-11-15']
    """
    begin, end = read_day("first", first), read_day("last", last)
    require_whole("every", every, 1)
    if end < begin:
        raise SettingError(f"last={end}: must not be before first={begin}")
    return [begin + timedelta(days) for days in range(0, (end - begin).days + 1, every)]


def _require_inside(log: Log, day: date, test_days: int, times: Ints) -> None:
    first, last = local_day(times[0], log.tz), local_day(times[-1], log.tz)
    if not first < day <= last:
        raise DataError(
            f"as_of={day}: must be after the log's first day, {first}, and not after its last day, "
            f"{last} ({log.tz}); choose a day in between"
        )
    end = day + timedelta(test_days - 1)
    if end > last:
        raise DataError(
            f"as_of={day}: a test of {test_days} days ends on {end}, after the log's last day, "
            f"{last} ({log.tz}); choose an earlier day or fewer test_days"
        )


def _require_learnable(split: Split) -> None:
    windows = {
        "recent": (split.recent, split.train, split.recent_from, split.test_from, "shorter"),
        "test": (split.test, split.known, split.test_from, split.test_to, "longer"),
    }
    for name, (inside, before, start, stop, length) in windows.items():
        days = f"{local_day(start, split.tz)} to {local_day(stop - 1, split.tz)}"
        if inside.num_rows == 0:
            raise DataError(
                f"as_of={split.as_of}: the {name} window, {days}, has no events; choose another "
                f"day or a longer window"
            )
        if not _shares_users(inside, before):
            raise DataError(
                f"as_of={split.as_of}: no buyer of the {name} window, {days}, bought anything "
                f"before it; choose a later day or a {length} window"
            )


def _shares_users(inside: pa.Table, before: pa.Table) -> bool:
    return bool(pc.any(pc.is_in(pc.unique(inside[USER]), pc.unique(before[USER]))).as_py())
