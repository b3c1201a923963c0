"""Splits by date: half-open windows, days in the shop's time zone, errors."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import make_log
from trimtab.errors import DataError, SettingError
from trimtab.replay.windows import (
    Window,
    find_holes,
    recent_windows,
    rolling_dates,
    split_log,
)
from trimtab.tables.times import HOUR, Moment, local_day, read_duration

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
        for rows, as_of in ((BASIC, "2026-03-10"), (BASIC[::-1], Moment(2026, 3, 10))):
            split = split_log(log_of(*rows, tz=tz), as_of)
            parts = items(split.train, split.recent, split.known, split.test)
            assert parts == [[1, 2], [3, 4], [1, 2, 3, 4], [5, 6]]
            shown = "Split(2026-03-10: 2 events to train on, 2 recent, 2 to test on)"
            assert str(split) == shown
        split = split_log(log_of(*BASIC, tz=tz), "2026-03-10", window="8d", test="8d")
        assert items(split.train, split.recent, split.test) == [[1], [2, 3, 4], [5, 6, 7]]


def test_days_on_which_clocks_change():
    days = [(1, day, f"2018-11-{day:02}") for day in range(1, 12)]  # midnight of the 4th is skipped
    split = split_log(log_of(*days, tz="America/Sao_Paulo"), "2018-11-04", window="2d")
    assert items(split.recent, split.test) == [[2, 3], [4, 5, 6, 7, 8, 9, 10]]
    zone = "America/New_York"  # clocks go forward on 8 March 2026
    first, second = (Moment(2026, 3, day).instant(zone) for day in (8, 9))
    assert second - first == 23 * 3600 * 10**6
    assert local_day(second - 1, zone) == Moment(2026, 3, 8)


def test_a_window_shorter_than_a_day():
    hours = [(user, hour, f"2026-03-01T{hour:02}:30") for user in (1, 2) for hour in range(24)]
    hours += [(3, 24, "2026-03-02T00:30"), (1, 24, "2026-03-02T00:45")]
    split = split_log(log_of(*hours), "2026-03-01T20:00", window="2h")
    assert (str(split.as_of), str(split.window.first)) == ("2026-03-01T20:00", "2026-03-01T18:00")
    assert items(split.recent, split.test) == [[18, 18, 19, 19], [20, 20, 21, 21]]
    with pytest.raises(DataError, match="test of 6 hours, to 2026-03-02T02:00, must not run past"):
        split_log(log_of(*hours), "2026-03-01T20:00", window="2h", test="6h")
    times = rolling_dates("2026-03-01T22:00", "2026-03-02T03:00", every="2h")
    assert list(map(str, times)) == ["2026-03-01T22:00", "2026-03-02", "2026-03-02T02:00"]
    with pytest.raises(SettingError, match="must be a day like 2017-11-01, or a time of the shop"):
        split_log(log_of(*hours), "2026-03-01T20:00Z", window="2h")


def test_short_windows_to_learn_from_are_spread_over_a_day():
    """Neighbouring hours are alike: they begin two hours apart; longer ones right after another."""
    rows = [(1, hour, f"2026-03-0{1 + hour // 24}T{hour % 24:02}:30") for hour in range(48)]
    for length, apart in (("1h", 2), ("3h", 3)):
        found = recent_windows(log_of(*rows), Moment(2026, 3, 2, 12), read_duration("", length), 6)
        first = [str(own.first) for own in found]
        begun = Moment(2026, 3, 2, 12) - timedelta(hours=int(length[0]))
        steps = range(min(12, 33 // apart))
        assert first == [str(begun - timedelta(hours=apart * n)) for n in steps]
    for day in (29, 25):  # of March and October, when clocks change in London: none overlap
        month = 3 if day == 29 else 10
        rows = [(1, n, f"2026-{month:02}-{day - 2 + n // 24:02}T{n % 24:02}:30") for n in range(72)]
        log = log_of(*rows, tz="Europe/London")
        found = recent_windows(log, Moment(2026, month, day, 12), 3 * HOUR, 6)
        starts = [own.start for own in found]
        assert np.diff(starts).tolist() == [-3 * HOUR] * 11
        assert len({str(own.first) for own in found}) == 12


def test_an_hour_with_far_fewer_events_than_on_other_days_is_a_hole():
    rows = [
        (user, user, f"2026-03-0{day}T{hour:02}:{user:02}")
        for day in range(1, 6) for hour in (8, 9) for user in range(1, 41)
        if not (day == 4 and hour == 9 and user > 3)
    ]  # fmt: skip
    log = log_of(*rows)
    hole = "2026-03-04T09:00 has 3 events; that time of day usually has 40"
    for hour, expected in ((8, []), (9, [hole])):
        window = Window.of(Moment(2026, 3, 4, hour), HOUR, "UTC")
        assert [str(own) for own in find_holes(log, window, Moment(2026, 3, 6))] == expected


def test_rolling_dates():
    days = rolling_dates("2026-03-01", "2026-03-15")
    assert [str(day) for day in days] == ["2026-03-01", "2026-03-08", "2026-03-15"]
    assert rolling_dates("2026-03-01", "2026-03-01", every="30d") == [Moment(2026, 3, 1)]
    with pytest.raises(SettingError, match=r"last=2026-02-01.*first=2026-03-01"):
        rolling_dates("2026-03-01", "2026-02-01")


STRANGERS = ((1, 1, "2026-03-01"), (2, 1, "2026-03-08"), (1, 1, "2026-03-10"), (1, 1, "2026-03-17"))
NEWCOMERS = ((1, 1, "2026-03-01"), (1, 1, "2026-03-08"), (2, 1, "2026-03-10"), (1, 1, "2026-03-17"))


def test_dates_and_settings_that_make_no_sense_are_refused():
    for rows, as_of, days, message in (
        (BASIC, "2026-03-01", 7, "as_of=2026-03-01.*first of the log's days, 2026-03-01"),
        (BASIC, "2026-03-18", 7, r"as_of=2026-03-18.*2026-03-17 \(UTC\)"),
        (BASIC, "1999-01-01", 7, "as_of=1999-01-01"),
        (BASIC, "9999-12-31", 7, "as_of=9999-12-31"),
        (BASIC, "2026-03-12", 7, "as_of=2026-03-12.*2026-03-17.* 7 days, to 2026-03-19"),
        (BASIC, "2026-03-06", 7, "recent window, 2026-03-03 to 2026-03-05"),
        (BASIC, "2026-03-11", 3, "test window, 2026-03-11 to 2026-03-13"),
        (STRANGERS, "2026-03-10", 7, "no buyer of the recent window"),
        (NEWCOMERS, "2026-03-10", 7, "no buyer of the test window"),
    ):
        with pytest.raises(DataError, match=message):
            split_log(log_of(*rows), as_of, test=f"{days}d")
    for as_of in ("soon", "2026-13-01", 20260301, None):
        with pytest.raises(SettingError, match="as_of="):
            split_log(log_of(*BASIC), as_of)
    wrong = ({"window": "0d"}, {"test": "-1d"}, {"window": 1.5}, {"test": "9999999d"})
    for given in wrong:
        with pytest.raises(SettingError, match=f"{next(iter(given))}="):
            split_log(log_of(*BASIC), "2026-03-10", **given)
