"""Windows: whole days of a log; splits by date; and holes, days with far fewer events than usual.

A split has half-open windows of whole days in the shop's time zone:

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
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.checks import MOST_DAYS, require_whole
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import day_start, local_day, microseconds, read_day

WINDOWS = 6  # most that are learned from with dated lists, in a backtest and in the daily job
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

    @staticmethod
    def before(day: date, days: int, tz: str) -> Window:
        """Return the window of the days right before a day."""
        return Window.of(day - timedelta(days), days, tz)

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


def event_times(log: Log) -> Ints:
    """Return the times of the log's events, in microseconds since 1970."""
    return microseconds(log.events[TIMESTAMP])


def log_days(log: Log) -> tuple[date, date]:
    """Return the first and the last day of a log."""
    times = event_times(log)
    return local_day(times[0], log.tz), local_day(times[-1], log.tz)


def rows_of_users(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows of users that another table has too; all if ids are of different types."""
    try:
        users = pc.unique(other[USER]).cast(table[USER].type)
    except pa.ArrowException:
        return table
    return table.filter(pc.is_in(table[USER], users))


# Splits -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """A log split at one date: its two windows, and Arrow tables of events."""

    window: Window  # the recent one, which ends on the date
    test_window: Window  # from the date on
    train: pa.Table  # before the window: trains the engine whose lists biases are learned on
    recent: pa.Table  # in the window: biases are learned from it
    known: pa.Table  # before the date: trains the engine that is evaluated
    test: pa.Table

    @property
    def as_of(self) -> date:
        """The date."""
        return self.test_window.first

    @property
    def recent_from(self) -> int:
        """The start of the recent window, in microseconds since 1970."""
        return self.window.start

    @property
    def test_from(self) -> int:
        """The start of the date."""
        return self.test_window.start

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
    require_whole("recent_days", recent_days, 1, MOST_DAYS)
    require_whole("test_days", test_days, 1, MOST_DAYS)
    _require_inside(log, day, test_days)
    window, test = Window.before(day, recent_days, log.tz), Window.of(day, test_days, log.tz)
    split = Split(
        window, test, window.history(log), window.events(log), test.history(log), test.events(log)
    )
    _require_buyers(split, log.tz)
    return split


def _require_inside(log: Log, day: date, test_days: int) -> None:
    first, last = log_days(log)
    end = day + timedelta(min(test_days - 1, (date.max - day).days))
    if not first < day <= end <= last:
        raise DataError(
            f"as_of={day}: must be after the log's first day, {first}, and a test of {test_days} "
            f"days, until {end}, must not run past its last day, {last} ({log.tz}); choose another "
            f"day or fewer test_days"
        )


def _require_buyers(split: Split, tz: str) -> None:
    """Refuse windows without events, or whose buyers are all new."""
    for name, window, inside, before, length in (
        ("recent", split.window, split.recent, split.train, "shorter"),
        ("test", split.test_window, split.test, split.known, "longer"),
    ):
        days = f"{window.first} to {local_day(window.stop - 1, tz)}"
        if inside.num_rows == 0:
            raise DataError(
                f"as_of={split.as_of}: the {name} window, {days}, has no events; choose another "
                f"day or a longer window"
            )
        if rows_of_users(inside, before).num_rows == 0:
            raise DataError(
                f"as_of={split.as_of}: no buyer of the {name} window, {days}, bought anything "
                f"before it; choose a later day or a {length} window"
            )


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
    for back in range(most):
        window = Window.before(as_of - timedelta(days * back), days, log.tz)
        begin, end = window.rows(times)
        if begin == 0 or (begin == end and not found):
            break
        found.append(window)
    if not found:
        span = " to ".join(map(str, log_days(log)))
        raise DataError(
            f"events run from {span} ({log.tz}), but some must be in the {days} days before "
            f"{as_of} and some earlier; check as_of=, tz= and that the log is up to date"
        )
    return found


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


# Holes ------------------------------------------------------------------------------------------


class Weekday:
    """A day, and the same weekday of other weeks.

    Attributes:
        day: the day.
        sold: times of its events, in microseconds since the day began.
        others: the same of the weeks before, then of the weeks after.
        events: number of events on the day.
        usual: median number of events in other weeks; None if there are few. Of an even number of
            weeks it is the lower of the two in the middle: in a shop that grew, the days before
            are not holes.
        is_hole: whether the day has far fewer events than usual.
    """

    def __init__(self, day: date, sold: Ints, others: list[Ints]) -> None:
        self.day, self.sold, self.others, self.events = day, sold, others, len(sold)
        usual = median_low([len(times) for times in others]) if others else 0
        self.usual = usual if usual >= _ENOUGH else None
        least = _LEAST_SHARE * (self.usual or 0)
        n_low = sum(len(times) < least for times in others)
        self.is_hole = self.events < least and n_low < _REGULAR * len(others)

    def __str__(self) -> str:
        return f"{self.day} has {self.events} events; that weekday usually has {self.usual}"


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
    first, times = max(window.first, log_days(log)[0]), event_times(log)
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
