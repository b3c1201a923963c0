"""Splits by date: half-open windows, days in the shop's time zone, errors."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from trimtab.datasets import make_log
from trimtab.errors import DataError, SettingError
from trimtab.replay.windows import rolling_dates, split_log
from trimtab.tables.times import day_start, local_day

BASIC = (
    (1, 1, "2026-03-01 00:00:00"),
    (1, 2, "2026-03-06 23:59:59.999999"),  # the last instant before the window
    (1, 3, "2026-03-07 00:00:00"),  # its first
    (1, 4, "2026-03-09 23:59:59.999999"),  # its last
    (1, 5, "2026-03-10 00:00:00"),  # the first of the test
    (1, 6, "2026-03-16 23:59:59.999999"),  # its last
    (1, 7, "2026-03-17 00:00:00"),  # after it
)


def log_of(*rows: tuple[int, int, str], tz: str = "UTC"):
    users, items, stamps = zip(*rows, strict=True)
    return make_log(pa.table({"user_id": users, "item_id": items, "timestamp": stamps}), tz=tz)


def items(*tables: pa.Table) -> list[list[int]]:
    return [table["item_id"].to_pylist() for table in tables]


def test_windows_are_half_open_and_of_days_in_the_shops_zone():
    for tz in ("America/New_York", "Asia/Tokyo", "UTC"):
        for rows, as_of in ((BASIC, "2026-03-10"), (BASIC[::-1], date(2026, 3, 10))):
            split = split_log(log_of(*rows, tz=tz), as_of)
            parts = items(split.train, split.recent, split.known, split.test)
            assert parts == [[1, 2], [3, 4], [1, 2, 3, 4], [5, 6]]
            shown = "Split(2026-03-10: 2 events to train on, 2 recent, 2 to test on)"
            assert str(split) == shown
        split = split_log(log_of(*BASIC, tz=tz), "2026-03-10", recent_days=8, test_days=8)
        assert items(split.train, split.recent, split.test) == [[1], [2, 3, 4], [5, 6, 7]]


def test_days_on_which_clocks_change():
    days = [(1, day, f"2018-11-{day:02}") for day in range(1, 12)]  # midnight of the 4th is skipped
    split = split_log(log_of(*days, tz="America/Sao_Paulo"), "2018-11-04", recent_days=2)
    assert items(split.recent, split.test) == [[2, 3], [4, 5, 6, 7, 8, 9, 10]]
    zone = "America/New_York"  # clocks go forward on 8 March 2026
    first, second = (day_start(date(2026, 3, day), zone) for day in (8, 9))
    assert second - first == 23 * 3600 * 10**6
    assert local_day(second - 1, zone) == date(2026, 3, 8)


def test_rolling_dates():
    days = rolling_dates("2026-03-01", "2026-03-15")
    assert [str(day) for day in days] == ["2026-03-01", "2026-03-08", "2026-03-15"]
    assert rolling_dates("2026-03-01", "2026-03-01", every=30) == [date(2026, 3, 1)]
    with pytest.raises(SettingError, match=r"last=2026-02-01.*first=2026-03-01"):
        rolling_dates("2026-03-01", "2026-02-01")


STRANGERS = ((1, 1, "2026-03-01"), (2, 1, "2026-03-08"), (1, 1, "2026-03-10"), (1, 1, "2026-03-17"))
NEWCOMERS = ((1, 1, "2026-03-01"), (1, 1, "2026-03-08"), (2, 1, "2026-03-10"), (1, 1, "2026-03-17"))


def test_dates_and_settings_that_make_no_sense_are_refused():
    for rows, as_of, days, message in (
        (BASIC, "2026-03-01", 7, "as_of=2026-03-01.*first day, 2026-03-01"),
        (BASIC, "2026-03-18", 7, r"as_of=2026-03-18.*2026-03-17 \(UTC\)"),
        (BASIC, "1999-01-01", 7, "as_of=1999-01-01"),
        (BASIC, "9999-12-31", 7, "as_of=9999-12-31"),
        (BASIC, "2026-03-12", 7, "as_of=2026-03-12.* 7 days.*2026-03-18.*2026-03-17"),
        (BASIC, "2026-03-06", 7, "recent window, 2026-03-03 to 2026-03-05"),
        (BASIC, "2026-03-11", 3, "test window, 2026-03-11 to 2026-03-13"),
        (STRANGERS, "2026-03-10", 7, "no buyer of the recent window"),
        (NEWCOMERS, "2026-03-10", 7, "no buyer of the test window"),
    ):
        with pytest.raises(DataError, match=message):
            split_log(log_of(*rows), as_of, test_days=days)
    for as_of in ("soon", "2026-13-01", 20260301, None):
        with pytest.raises(SettingError, match="as_of="):
            split_log(log_of(*BASIC), as_of)
    wrong = ({"recent_days": 0}, {"test_days": -1}, {"recent_days": 1.5}, {"test_days": 10**12})
    for given in wrong:
        with pytest.raises(SettingError, match=f"{next(iter(given))}="):
            split_log(log_of(*BASIC), "2026-03-10", **given)
