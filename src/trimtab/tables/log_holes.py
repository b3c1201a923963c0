"""Days of a log with far fewer events than usual: holes in the log, or holidays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median_low

from trimtab.arrays import Ints
from trimtab.tables.log import Log
from trimtab.tables.log_windows import Window, event_times
from trimtab.tables.timestamps import local_day

HOLE = "a hole in the log or a holiday"
_COMPARED_WEEKS = 4  # before a day and after it, for its usual number of events
_LEAST_SHARE = 0.2  # of the usual number; a day below it is a hole
_ENOUGH = 20  # events that a weekday usually has, for a comparison
_REGULAR = 1 / 3  # of other weeks with as few events: the weekday is often like this


@dataclass(frozen=True)
class Hole:
    """A day with far fewer events than the same weekday usually has."""

    day: date
    events: int
    usual: int

    def __str__(self) -> str:
        return f"{self.day} has {self.events} events; that weekday usually has {self.usual}"


@dataclass(frozen=True)
class Weekday:
    """The times of events on a day, and on the same weekday of other weeks.

    Times are in microseconds since the day began.
    """

    day: date
    sold: Ints
    others: list[Ints]  # of the weeks before, then of the weeks after

    @property
    def usual(self) -> int | None:
        """The median number of events in other weeks; None if there are few.

        Of an even number of weeks it is the lower of the two in the middle: in a shop that grew,
        the days before are not holes.
        """
        usual = median_low([len(times) for times in self.others]) if self.others else 0
        return usual if usual >= _ENOUGH else None

    def hole(self) -> Hole | None:
        """Return the day as a hole if it has far fewer events than usual."""
        if self.usual is None:
            return None
        least = _LEAST_SHARE * self.usual
        n_low = sum(len(times) < least for times in self.others)
        if len(self.sold) >= least or n_low >= _REGULAR * len(self.others):
            return None
        return Hole(self.day, len(self.sold), self.usual)


def find_holes(log: Log, window: Window, until: date) -> list[Hole]:
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
    days = (local_day(window.stop - 1, log.tz) - first).days + 1
    found = (
        compare_weekday(times, log.tz, first + timedelta(n), until).hole() for n in range(days)
    )
    return [hole for hole in found if hole is not None]


def compare_weekday(times: Ints, tz: str, day: date, until: date) -> Weekday:
    """Return a day and the same weekday of the weeks around it, as far as the log goes."""
    first = local_day(times[0], tz)
    weeks = [*range(-1, -_COMPARED_WEEKS - 1, -1), *range(1, _COMPARED_WEEKS + 1)]
    others = [day + timedelta(7 * week) for week in weeks]
    return Weekday(
        day,
        _sale_times(times, day, tz),
        [_sale_times(times, other, tz) for other in others if first <= other < until],
    )


def _sale_times(times: Ints, day: date, tz: str) -> Ints:
    window = Window.of(day, 1, tz)
    begin, end = window.rows(times)
    sold: Ints = times[begin:end] - window.start
    return sold
