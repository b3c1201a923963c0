"""Days with far fewer events than usual: against other weeks, by hand."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest

from trimtab.datasets import make_log
from trimtab.tables.log import Hole, Log, Window, find_holes

MONDAY = date(2026, 3, 2)
END = MONDAY + timedelta(70)


def log_of(counts: dict[int, int], usual: int = 40, weeks: int = 9, tz: str = "UTC") -> Log:
    """Return a log of some weeks around a Monday; `counts` gives the events of other Mondays."""
    stamps = []
    for week in range(-4, weeks - 4):
        day = MONDAY + timedelta(7 * week)
        n_events = counts.get(week, usual)
        stamps += [f"{day} {9 + n % 10:02d}:{n // 10:02d}:00" for n in range(n_events)]
        stamps += [f"{day + timedelta(1)} 12:00:00"]  # a Tuesday always has one
    n = len(stamps)
    return make_log(pa.table({"user_id": [1] * n, "item_id": [1] * n, "timestamp": stamps}), tz)


def holes(log: Log, until: date = END, days: int = 1) -> list[Hole]:
    return find_holes(log, Window.of(MONDAY, days, log.tz), until)


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_a_day_below_a_fifth_is_a_hole(tz):
    assert holes(log_of({0: 7}, tz=tz)) == [Hole(MONDAY, 7, 40)]
    assert holes(log_of({0: 0}, tz=tz)) == [Hole(MONDAY, 0, 40)]
    assert holes(log_of({0: 8}, tz=tz)) == []
    assert str(Hole(MONDAY, 7, 40)) == "2026-03-02 has 7 events; that weekday usually has 40"


def test_days_of_a_window_are_looked_at_one_by_one():
    assert holes(log_of({0: 0}), days=3) == [Hole(MONDAY, 0, 40)]  # Tuesdays always have one event
    assert find_holes(log_of({0: 0, 1: 0}), Window.of(MONDAY, 8, "UTC"), END) == [
        Hole(MONDAY, 0, 40), Hole(MONDAY + timedelta(7), 0, 40),
    ]  # fmt: skip


def test_weekdays_with_few_events_are_not_compared():
    assert holes(log_of({0: 0}, usual=19)) == []
    assert holes(log_of({0: 0}, usual=20)) == [Hole(MONDAY, 0, 20)]


def test_a_weekday_that_is_often_empty_is_never_a_hole():
    assert holes(log_of(dict.fromkeys(range(-4, 5), 0))) == []
    assert holes(log_of({0: 0, -2: 0, -4: 0, 2: 0, 4: 0})) == []  # every other week
    assert holes(log_of({0: 0, -2: 0, 2: 0})) == [Hole(MONDAY, 0, 40)]


def test_weeks_after_count_where_they_are_known():
    grown = dict.fromkeys(range(1, 5), 400)
    assert holes(log_of({0: 30, **grown})) == []  # a shop that grew: as many as before
    assert holes(log_of({0: 0, **grown})) == [Hole(MONDAY, 0, 40)]
    # Only the weeks before: 25 December is a hole even if 1 January is one too.
    after_one_week = MONDAY + timedelta(8)
    assert holes(log_of({0: 0, 1: 0}), until=after_one_week) == [Hole(MONDAY, 0, 40)]
    # A log that begins with the day has only weeks after it.
    late = log_of({-4: 0, -3: 0, -2: 0, -1: 0, 0: 1})
    first = late.events.slice(4)  # without the four Tuesdays before
    begun = make_log(first, "UTC")
    assert holes(begun) == [Hole(MONDAY, 1, 40)]
    earlier = Window.of(MONDAY - timedelta(14), 15, "UTC")  # the days before the log do not count
    assert find_holes(begun, earlier, END) == [Hole(MONDAY, 1, 40)]
    assert holes(begun, until=MONDAY + timedelta(1)) == []
