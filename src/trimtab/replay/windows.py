"""Windows of a log; splits by date; and holes, times with far fewer events than usual.

A split has half-open windows, of whole days in the shop's time zone or shorter than a day:

    train: before the window        | recent window | test
    ------------------------------->|<------------->|<--------->
                                                    T

Biases are learned on lists of an engine trained before the recent window, and evaluated on lists of
an engine trained on everything before T. Earlier windows of the same length can be learned from
too, each with lists of an engine trained before it: right before each other or, as neighbouring
hours are much alike, two hours apart. An engine never sees events at or after the start of the
window it is evaluated on; `fit` raises an error for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import (
    DAY,
    HOUR,
    Moment,
    local_day,
    microseconds,
    read_day,
    read_duration,
    spoken_duration,
    tick_length,
)

WINDOWS = 6  # most that are learned from with dated lists, in a backtest and in the daily job
HOLE = "a hole in the log or a holiday"
LENGTH = "3d"  # of a window, unless another is asked for
_LEAST_APART = 2 * HOUR  # starts of windows shorter than a day
_TIMES_MORE = 2  # of them are learned from than of windows of days
_COMPARED = 4  # weeks before a day and after it, for its usual number of events; or days of an hour
_LEAST_SHARE = 0.2  # of the usual number; a day below it is a hole
_ENOUGH = 20  # events that a weekday usually has, for a comparison
_REGULAR = 1 / 3  # of other weeks with as few events: the weekday is often like this


@dataclass(frozen=True)
class Window:
    """Some whole days in the shop's time zone, or less than one."""

    first: Moment
    start: int  # microseconds since 1970; half-open
    stop: int
    length: int  # by the calendar: a day that changes the clock is one like others

    @staticmethod
    def of(first: date, length: int, tz: str) -> Window:
        """Return the window of a length that begins at a moment.

        Days of the calendar may have 23 or 25 hours.
        """
        first = Moment.of(first)
        if length < DAY:
            return Window(first, first.instant(tz), first.instant(tz) + length, length)
        most = datetime(9999, 12, 30) - first  # of the calendar, with room for time zones
        stop = first + min(timedelta(days=length // DAY), most)
        return Window(first, first.instant(tz), stop.instant(tz), length)

    @staticmethod
    def before(moment: date, length: int, tz: str) -> Window:
        """Return the window of a length that ends at a moment."""
        moment = Moment.of(moment)
        if length < DAY:
            return Window.ending(moment.instant(tz), length, tz)
        return Window.of(moment - timedelta(days=length // DAY), length, tz)

    @staticmethod
    def ending(stop: int, length: int, tz: str) -> Window:
        """Return the window of less than a day that ends at an instant."""
        return Window(Moment.at(stop - length, tz), stop - length, stop, length)

    def is_in(self, log: Log) -> bool:
        """Return whether the log has events before it, and still in its last day or twelfth."""
        times = event_times(log)
        return bool(times[0] < self.start and self.stop - tick_length(self.length) <= times[-1])

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


def log_days(log: Log) -> tuple[Moment, Moment]:
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
    def as_of(self) -> Moment:
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


def split_log(log: Log, as_of: Any, window: Any = LENGTH, test: Any = None) -> Split:
    """Return the windows around a day, or a time of the day.

    Args:
        log: log in time order.
        as_of: when the test begins: a date, or text like 2017-11-01 or 2017-11-01T14:00.
        window: length of the window before it to learn biases from, like "3d" or "6h".
        test: length of the test from `as_of` on; by default a week, or the window if that is
            shorter than a day.

    Raises:
        DataError: the date is outside the log, a window is empty, or no buyer of a window bought
            anything before it.
    """
    day, length = read_day("as_of", as_of), read_duration("window", window)
    test_length = default_test(length) if test is None else read_duration("test", test)
    tested = Window.of(day, test_length, log.tz)
    if not tested.is_in(log):
        raise DataError(
            f"as_of={day}: must be after the first of the log's days, {_span(log)}, and a test of "
            f"{spoken_duration(test_length)}, to {Moment.at(tested.stop, log.tz)}, must not run "
            f"past its end; choose another as_of or a shorter test"
        )
    own = Window.before(day, length, log.tz)
    split = Split(
        own, tested, own.history(log), own.events(log), tested.history(log), tested.events(log)
    )
    _require_buyers(split, log.tz)
    return split


def default_test(window: int) -> int:
    """Return the length of a test: a week, or that of a window shorter than a day."""
    return 7 * DAY if window >= DAY else window


def _span(log: Log) -> str:
    first, last = log_days(log)
    return f"{first} to {last} ({log.tz})"


def _require_buyers(split: Split, tz: str) -> None:
    """Refuse windows without events, or whose buyers are all new."""
    for name, window, inside, before, length in (
        ("recent", split.window, split.recent, split.train, "shorter"),
        ("test", split.test_window, split.test, split.known, "longer"),
    ):
        end = Moment.at(window.stop, tz) if window.length < DAY else local_day(window.stop - 1, tz)
        days = f"{window.first} to {end}"
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


def recent_windows(log: Log, as_of: Moment, length: int, most: int) -> list[Window]:
    """Return the windows before a moment, newest first.

    They lie right before each other. Those shorter than a day begin at least two hours apart, and
    are twice as many: neighbouring hours are too much alike, and a day has all kinds of them. There
    are events before each window, and in the newest.

    Args:
        log: ordered by time.
        as_of: the day, or the time.
        length: length of a window.
        most: most windows of whole days to return.

    Raises:
        DataError: there are no events in the newest window, or none before it.
    """
    times = event_times(log)
    found: list[Window] = []
    day, apart = Moment.of(as_of), max(length, _LEAST_APART)
    for back in range(most if length >= DAY else _TIMES_MORE * most):
        if length < DAY:
            window = Window.ending(day.instant(log.tz) - back * apart, length, log.tz)
        else:
            window = Window.before(day - back * timedelta(days=length // DAY), length, log.tz)
        begin, end = window.rows(times)
        if begin == 0 or (begin == end and not found):
            break
        found.append(window)
    if not found:
        raise DataError(
            f"events run from {_span(log)}, but some must be in the {spoken_duration(length)} "
            f"before {as_of} and some earlier; check as_of=, tz= and that the log is up to date"
        )
    return found


def earlier_windows(log: Log, split: Split, length: int, most: int) -> list[Window]:
    """Return the windows right before the recent one, newest first, as far as the log goes back.

    Windows with a hole in the log are left out, as in the daily job: a hole is what looks like one
    from the events before the date.

    Args:
        log: the log that was split.
        split: its split.
        length: length of a window.
        most: most windows to learn from, including the recent one.
    """
    windows = recent_windows(log, split.as_of, length, most)[1:]
    whole = (own for own in windows if not find_holes(log, own, split.as_of))
    return [own for own in whole if own.events(log).num_rows]


def rolling_dates(first: Any, last: Any, every: Any = "7d") -> list[Moment]:
    """Return the days, or times of day, from `first` to `last`, both included, so far apart.

    Example:
        >>> [str(day) for day in rolling_dates("2017-11-01", "2017-11-20")]
        ['2017-11-01', '2017-11-08', '2017-11-15']
    """
    begin, end = read_day("first", first), read_day("last", last)
    step = timedelta(microseconds=read_duration("every", every))
    if end < begin:
        raise SettingError(f"last={end}: must not be before first={begin}")
    return [begin + n * step for n in range((end - begin) // step + 1)]


# Holes ------------------------------------------------------------------------------------------


class Compared:
    """A day, and the same weekday of other weeks; or a part of a day, and the same on other days.

    Attributes:
        window: the day, or the part of one.
        sold: times of its events, in microseconds since it began.
        others: the same of the weeks, or days, before, then of those after.
        events: number of its events.
        usual: median number of events in others; None if there are few. Of an even number of them
            it is the lower of the two in the middle: in a shop that grew, the days before are not
            holes.
        is_hole: whether it has far fewer events than usual.
    """

    def __init__(self, window: Window, sold: Ints, others: list[Ints]) -> None:
        self.window, self.sold, self.others, self.events = window, sold, others, len(sold)
        usual = median_low([len(times) for times in others]) if others else 0
        self.usual = usual if usual >= _ENOUGH else None
        least = _LEAST_SHARE * (self.usual or 0)
        n_low = sum(len(times) < least for times in others)
        self.is_hole = self.events < least and n_low < _REGULAR * len(others)

    def __str__(self) -> str:
        what = "weekday" if self.window.length == DAY else "time of day"
        return f"{self.window.first} has {self.events} events; that {what} usually has {self.usual}"


def find_holes(log: Log, window: Window, until: Moment) -> list[Compared]:
    """Return the days of a window with far fewer events than usual, in order.

    Each is compared with the same weekday in the four weeks before it and after it. A weekday with
    few events, or with as few in a third of these weeks, is never a hole; nor is a day before the
    log begins. A window shorter than a day is compared with the same time of other days.

    Args:
        log: ordered by time.
        window: the days to look at.
        until: others are only compared before this moment; the log may be incomplete from it on.
    """
    begun, length = log_days(log)[0], min(window.length, DAY)
    days = (window.first + timedelta(days=n) for n in range(max(window.length // DAY, 1)))
    compared = (compare_usual(log, day, length, until) for day in days if day >= begun)
    return [day for day in compared if day.is_hole]


def compare_usual(log: Log, first: Moment, length: int, until: Moment) -> Compared:
    """Return a day and the same weekday of the weeks around it, as far as the log goes.

    A part of a day is compared with the same time of the days around it.
    """
    times, apart = event_times(log), timedelta(days=7 if length == DAY else 1)

    def times_in(window: Window) -> Ints:
        begin, end = window.rows(times)
        return times[begin:end] - window.start

    steps = [*range(-1, -_COMPARED - 1, -1), *range(1, _COMPARED + 1)]
    others = [first + step * apart for step in steps]
    own, *usual = (
        times_in(Window.of(at, length, log.tz))
        for at in (first, *(o for o in others if log_days(log)[0] <= o < Moment.of(until)))
    )
    return Compared(Window.of(first, length, log.tz), own, usual)
