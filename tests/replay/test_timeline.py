"""Splits by date: half-open windows, days in the shop's time zone, errors."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from trimtab.datasets import make_log
from trimtab.errors import DataError, SettingError
from trimtab.replay.timeline import rolling_dates, split_log
from trimtab.tables.times import day_start, local_day


def log_of(*rows: tuple[int, int, str], tz: str = "UTC"):
    users, items, stamps = zip(*rows, strict=True)
    return make_log(pa.table({"user_id": users, "item_id": items, "timestamp": stamps}), tz=tz)


BASIC = (
    (1, 1, "2026-03-01 00:00:00"),
    (1, 2, "2026-03-06 23:59:59.999999"),  # the last instant before the window
    (1, 3, "2026-03-07 00:00:00"),  # its first
    (1, 4, "2026-03-09 23:59:59.999999"),  # its last
    (1, 5, "2026-03-10 00:00:00"),  # the first of the test
    (1, 6, "2026-03-16 23:59:59.999999"),  # its last
    (1, 7, "2026-03-17 00:00:00"),  # after it
)


def items(table: pa.Table) -> list[int]:
    return table["item_id"].to_pylist()


@pytest.mark.parametrize("as_of", ["2026-03-10", date(2026, 3, 10)])
def test_windows_are_half_open(as_of):
    split = split_log(log_of(*BASIC), as_of)
    assert items(split.train) == [1, 2]
    assert items(split.recent) == [3, 4]
    assert items(split.known) == [1, 2, 3, 4]
    assert items(split.test) == [5, 6]


def test_a_split_is_printed_on_one_line():
    shown = str(split_log(log_of(*BASIC), "2026-03-10"))
    assert shown == "Split(2026-03-10: 2 events to train on, 2 recent, 2 to test on)"


def test_windows_of_other_lengths():
    split = split_log(log_of(*BASIC), "2026-03-10", recent_days=8, test_days=8)
    assert (items(split.train), items(split.recent), items(split.test)) == (
        [1],
        [2, 3, 4],
        [5, 6, 7],
    )


@pytest.mark.parametrize("tz", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_days_begin_in_the_shops_own_zone(tz):
    split = split_log(log_of(*BASIC, tz=tz), "2026-03-10")
    assert (items(split.recent), items(split.test)) == ([3, 4], [5, 6])


def test_a_midnight_that_clocks_skip_belongs_to_its_day():
    days = [(1, day, f"2018-11-{day:02}") for day in range(1, 12)]  # midnight of the 4th is skipped
    split = split_log(log_of(*days, tz="America/Sao_Paulo"), "2018-11-04", recent_days=2)
    assert items(split.recent) == [2, 3]
    assert items(split.test) == [4, 5, 6, 7, 8, 9, 10]


def test_a_test_that_runs_past_the_log_is_refused():
    message = "as_of=2026-03-12.* 7 days.*2026-03-18.*2026-03-17"
    with pytest.raises(DataError, match=message):
        split_log(log_of(*BASIC), "2026-03-12")
    assert items(split_log(log_of(*BASIC), "2026-03-12", recent_days=5, test_days=6).test) == [6, 7]


def test_a_day_of_23_hours():
    zone = "America/New_York"  # clocks go forward on 8 March 2026
    assert (
        day_start(date(2026, 3, 9), zone) - day_start(date(2026, 3, 8), zone) == 23 * 3600 * 10**6
    )
    assert local_day(day_start(date(2026, 3, 9), zone) - 1, zone) == date(2026, 3, 8)


def test_rows_in_any_order_are_split_the_same():
    split = split_log(log_of(*reversed(BASIC)), "2026-03-10")
    assert items(split.recent) == [3, 4]


def test_rolling_dates():
    days = rolling_dates("2026-03-01", "2026-03-15")
    assert [str(day) for day in days] == ["2026-03-01", "2026-03-08", "2026-03-15"]
    assert rolling_dates("2026-03-01", "2026-03-01", every=30) == [date(2026, 3, 1)]


BAD_DATES = {
    "2026-03-01": "as_of=2026-03-01.*first day, 2026-03-01",
    "2026-03-18": r"as_of=2026-03-18.*2026-03-17 \(UTC\)",
    "1999-01-01": "as_of=1999-01-01",
}


@pytest.mark.parametrize("as_of", BAD_DATES)
def test_a_date_outside_the_log_is_refused(as_of):
    with pytest.raises(DataError, match=BAD_DATES[as_of]):
        split_log(log_of(*BASIC), as_of)


@pytest.mark.parametrize("as_of", ["soon", "2026-13-01", 20260301, None])
def test_an_invalid_date_is_refused(as_of):
    with pytest.raises(SettingError, match="as_of="):
        split_log(log_of(*BASIC), as_of)


def test_an_empty_window_is_refused():
    with pytest.raises(DataError, match="recent window, 2026-03-03 to 2026-03-05"):
        split_log(log_of(*BASIC), "2026-03-06")
    with pytest.raises(DataError, match="test window, 2026-03-11 to 2026-03-13"):
        split_log(log_of(*BASIC), "2026-03-11", test_days=3)


def test_a_window_without_returning_users_is_refused():
    strangers = log_of(
        (1, 1, "2026-03-01"), (2, 1, "2026-03-08"), (1, 1, "2026-03-10"), (1, 1, "2026-03-17")
    )
    with pytest.raises(DataError, match="no buyer of the recent window"):
        split_log(strangers, "2026-03-10")
    newcomers = log_of(
        (1, 1, "2026-03-01"), (1, 1, "2026-03-08"), (2, 1, "2026-03-10"), (1, 1, "2026-03-17")
    )
    with pytest.raises(DataError, match="no buyer of the test window"):
        split_log(newcomers, "2026-03-10")


@pytest.mark.parametrize(
    "days", [{"recent_days": 0}, {"test_days": -1}, {"recent_days": 1.5}, {"test_days": 10**12}]
)
def test_wrong_lengths_are_refused(days):
    with pytest.raises(SettingError, match=f"{next(iter(days))}="):
        split_log(log_of(*BASIC), "2026-03-10", **days)


def test_dates_backwards_are_refused():
    with pytest.raises(SettingError, match=r"last=2026-02-01.*first=2026-03-01"):
        rolling_dates("2026-03-01", "2026-02-01")
