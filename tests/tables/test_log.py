"""Logs from files and frames: time zones, catalogues, errors, two real logs, and holes."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import product

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from changed_tables import with_column
from trimtab.datasets import load_complete_journey, load_gift_shop, make_log, read_log
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.replay.windows import Window, find_holes
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment, duration_name, has_zone, read_duration, tick_length

EVENTS = pa.table(
    {
        "user_id": [2, 1, 1],
        "item_id": [7, 8, 7],
        "timestamp": ["2026-07-02 09:00:00", "2026-07-01 23:30:00", "2026-07-03 10:00:00"],
        "quantity": [1, 2, 0],
    }
)


def stamps(log) -> list[str]:
    return [f"{stamp:%d %H:%M}" for stamp in log.events["timestamp"].to_pylist()]


def test_times_become_utc_in_order_without_returns():
    log = make_log(EVENTS, tz="America/New_York")
    assert stamps(log) == ["02 03:30", "02 13:00"]
    assert log.events["item_id"].to_pylist() == [8, 7]
    assert log.tz == "America/New_York"
    times = EVENTS["timestamp"].cast(pa.timestamp("s"))
    zoned = with_column(EVENTS, "timestamp", pc.assume_timezone(times, "Asia/Tokyo"))
    for tz, expected in ((None, "Asia/Tokyo"), ("UTC", "UTC")):
        assert make_log(zoned, tz=tz).tz == expected
        assert stamps(make_log(zoned, tz=tz)) == ["01 14:30", "02 00:00"]
    offsets = with_column(EVENTS, "timestamp", ["2026-07-02T09:00:00+02:00"] * 3)
    assert stamps(make_log(offsets)) == ["02 07:00"] * 2
    for convert in (pa.Table.to_pandas, pl.from_arrow):
        assert make_log(convert(EVENTS), tz="UTC").events.num_rows == 2


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_any_kind_is_read_as_plain_text(kind):
    def as_kind(table: pa.Table, *names: str) -> pa.Table:
        for name in names:
            text = table[name].cast(pa.string())
            is_dictionary = pa.types.is_dictionary(kind)
            text = text.dictionary_encode() if is_dictionary else text.cast(kind)
            table = with_column(table, name, text)
        return table

    items = pa.table({"item_id": ["7", "8"], "name": ["cup", "hat"], "category": ["x", "y"]})
    times = ["timestamp"] if kind == pa.string_view() else []
    events, named = (
        as_kind(EVENTS, "user_id", "item_id", *times),
        as_kind(items, *items.schema.names),
    )
    log = make_log(events, tz="UTC", items=named)
    assert log.events["item_id"].to_pylist() == ["8", "7"]
    assert log.items.to_pylist() == items.to_pylist()
    assert log.count("user_id") == 2


SECONDS = [1_782_982_800, 1_782_948_600, 1_783_072_800]  # of EVENTS, in UTC


def test_numbers_are_instants_of_utc():
    for power, kind in product((0, 3, 6, 9), (pa.int64(), pa.uint64(), pa.float64())):
        times = pa.array([second * 10**power for second in SECONDS]).cast(kind, safe=False)
        for tz in ("UTC", "Europe/Berlin"):  # other days, the same instants
            log = make_log(with_column(EVENTS, "timestamp", times), tz=None if tz == "UTC" else tz)
            assert (log.tz, stamps(log)) == (tz, ["01 23:30", "02 09:00"])
    log = make_log(with_column(EVENTS, "timestamp", [second + 0.25 for second in SECONDS]))
    assert {stamp.microsecond for stamp in log.events["timestamp"].to_pylist()} == {250_000}
    assert has_zone(pa.chunked_array([SECONDS]))
    assert has_zone(pa.chunked_array([], pa.int64()))
    assert not has_zone(EVENTS["timestamp"])


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_with_a_catalogue(tmp_path, suffix):
    events, items = tmp_path / f"events.{suffix}", tmp_path / f"items.{suffix}"
    catalogue = pa.table({"item_id": [8, 9], "name": ["Tea", "Milk"], "aisle": ["hot", "cold"]})
    for table, path in ((EVENTS, events), (catalogue, items)):
        if suffix == "csv":
            table.to_pandas().to_csv(path, index=False)
        else:
            pq.write_table(table, path)
    log = read_log(events, tz="UTC", items=items)
    assert log.name == "events"
    assert log.levels == ("aisle",)
    assert log.items.to_pylist() == [
        {"item_id": 7, "name": "7", "aisle": None},
        {"item_id": 8, "name": "Tea", "aisle": "hot"},
    ]


def test_categories_in_the_events():
    log = make_log(EVENTS.append_column("category", pa.array(["a", "b", "c"])), tz="UTC")
    assert log.levels == ("category",)
    assert log.items["category"].to_pylist() == ["a", "b"]
    assert "category" not in log.events.column_names


FAR = r"'timestamp' of events .* in the years 2 to 9998; fix"
# Values of a column of events, and what is said of them.
BAD = {
    "text that is not a time": ("timestamp", ["yesterday"] * 3, "of events.*yesterday"),
    "numbers": ("timestamp", [1.5, 2.5, 3.5], "of events.*double"),
    "days": ("timestamp", [20260701] * 3, "of events.*20260701.*1980 and 2100.*since"),
    "digits": ("timestamp", [20260701093000] * 3, "of events.*20260701093000.*ISO text"),
    "two units": ("timestamp", [SECONDS[0], SECONDS[0] * 1000] * 2, "int64 from 178.*in one unit"),
    "before 1980": ("timestamp", [0, *SECONDS[:2]], "int64 from 0 to 1782982800"),
    "infinite": ("timestamp", [1_782_982_800.0, float("inf"), 1.0], "of events.*inf"),
    "not a number": ("timestamp", [1_782_982_800.0, float("nan"), 1.0], "of events.*nan"),
    "flags": ("timestamp", [True] * 3, "of events holds bool.*seconds since 1970"),
    "missing": ("timestamp", ["2026-07-02 09:00:00", None, None], "of events.*2 of 3 rows"),
    "missing numbers": ("timestamp", [1_782_982_800, None, None], "of events.*2 of 3 rows"),
    "before the calendar": (
        "timestamp", pa.array([-(2**62)] * 3).cast(pa.timestamp("us", "UTC")), FAR
    ),
    "after the calendar": ("timestamp", pa.array([2**40] * 3).cast(pa.timestamp("s")), FAR),
    "dates": ("timestamp", pa.array([2**30] * 3, pa.int32()).cast(pa.date32()), FAR),
    "the year 1": ("timestamp", ["0001-01-01 00:00:00"] * 3, FAR),
    "the year 9999": ("timestamp", ["9999-12-31 23:59:59"] * 3, FAR),
    "a missing user": ("user_id", [1, None, 2], "'user_id' of events.*1 of 3"),
    "items": ("item_id", [1.5, 2.5, 3.5], "'item_id' of events.*double"),
    "a missing quantity": ("quantity", [1, None, 2], "'quantity' of events.*1 of 3"),
    "words": ("quantity", ["x", "y", "z"], "'quantity' of events.*string"),
}  # fmt: skip


def test_bad_values_are_refused():
    for column, values, message in BAD.values():
        events = with_column(
            EVENTS, column, pa.array(values[:3]) if isinstance(values, list) else values
        )
        with pytest.raises(DataError, match=message):
            make_log(events, tz="America/New_York")


def test_bad_tables_and_time_zones_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"'timestamp'.*tz="):
        make_log(EVENTS)
    for tz in ("Mars/Olympus", 3):
        with pytest.raises(SettingError, match=f"tz={tz!r}"):
            make_log(EVENTS, tz=tz)
    offsets = pd.to_datetime(["2026-07-01 12:00+02:00"] * 3)
    with pytest.raises(DataError, match=r"'timestamp' of events.*\+02:00.*tz="):
        make_log(EVENTS.to_pandas().assign(timestamp=offsets))
    with pytest.raises(DataError, match="'timestamp' in events"):
        make_log(EVENTS.drop("timestamp"), tz="UTC")
    with pytest.raises(DataError, match=r"events .*quantity.* empty"):
        make_log(EVENTS.slice(2), tz="UTC")
    with pytest.raises(StoreError, match=r"nothing.parquet"):
        read_log(tmp_path / "nothing.parquet", tz="UTC")
    with pytest.raises(DataError, match="'item_id' in items"):
        make_log(EVENTS, tz="UTC", items=pd.DataFrame({"sku": [1]}))


ITEMS = {"item_id": [7, 8], "name": ["Tea", ""], "aisle": ["hot", "cold"]}


def test_bad_catalogues_are_refused():
    for ids, message in (
        (["7", "x"], "'item_id'.*integers in events.*strings in items"),
        ([7, 7], "'item_id' of items"),
        ([70, 80], "item_id of items.*70"),
        ([7.5, 8.5], "'item_id' of items.*double"),
    ):
        with pytest.raises(DataError, match=message):
            make_log(EVENTS, tz="UTC", items=pa.table({**ITEMS, "item_id": ids}))


def test_only_what_groups_items_is_a_level():
    more = {"price": [1.5, 2.5], "weight": [0.1, 0.2], "tags": [["a"], []], "shelf": [3, None]}
    events = EVENTS.append_column("category", pa.array(["a", "b", "c"]))
    log = make_log(events, tz="UTC", items=pa.table({**ITEMS, **more}))
    assert log.levels == ("category", "aisle", "shelf")
    assert log.items["name"].to_pylist() == ["Tea", "8"]
    assert log.items["shelf"].to_pylist() == ["3", None]


def test_complete_journey():
    log = load_complete_journey()
    assert log.tz == "America/New_York"
    assert log.levels == ("department", "product_category", "product_type")
    assert (log.count("user_id"), log.count("item_id")) == (2467, 68_123)
    assert log.events.num_rows == 1_442_827
    times = log.events["timestamp"]
    assert (str(times[0]), str(times[-1])) == (
        "2017-01-01 11:53:26+00:00",
        "2018-01-01 04:01:20+00:00",
    )
    assert pc.min(log.events["quantity"]).as_py() == 1
    assert log.items["item_id"].is_valid().to_pylist().count(False) == 0
    for level in ("department", "product_category"):
        assert not pc.any(pc.match_substring_regex(log.items[level], r"COUPON|\bFUEL\b")).as_py()
    hours = pc.hour(pc.local_timestamp(times.cast(pa.timestamp("us", log.tz))))
    assert pc.mean(pc.less(hours, 6)).as_py() < 0.03  # shops are quiet before six, local time


def test_gift_shop():
    log = load_gift_shop()
    counts = (log.events.num_rows, log.count("user_id"), log.count("item_id"))
    assert counts == (391_850, 4239, 3998)
    assert (log.tz, log.levels) == ("Europe/London", ())
    times = log.events["timestamp"]
    assert (str(times[0]), str(times[-1])) == (
        "2009-12-01 07:45:00+00:00",
        "2010-11-30 19:35:00+00:00",
    )
    assert log.items["name"][0].as_py() == "Inflatable political globe"
    assert not pc.any(pc.equal(log.items["name"], log.items["item_id"])).as_py()


# Holes, against other weeks, by hand ------------------------------------------------------------

MONDAY = Moment(2026, 3, 2)
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


def holes(log: Log, until: date = END, days: int = 1, first: date = MONDAY) -> list[tuple]:
    """Day, events and usual number of events of each hole."""
    found = find_holes(log, Window.of(first, days * DAY, log.tz), until)
    return [(day.window.first, day.events, day.usual) for day in found]


EMPTY, NEXT = (MONDAY, 0, 40), (MONDAY + timedelta(7), 0, 40)
GROWN = dict.fromkeys(range(1, 5), 400)
HOLES = (  # events of Mondays by week, options of the log, options of the search, what is found
    *(({0: n}, {"tz": tz}, {}, found)
      for tz in ("UTC", "America/New_York", "Asia/Tokyo")
      for n, found in ((7, [(MONDAY, 7, 40)]), (0, [EMPTY]), (8, []))),
    # The days of a window are looked at one by one; Tuesdays always have one event.
    ({0: 0}, {}, {"days": 3}, [EMPTY]),
    ({0: 0, 1: 0}, {}, {"days": 8}, [EMPTY, NEXT]),
    # Weekdays with few events are not compared.
    ({0: 0}, {"usual": 19}, {}, []),
    ({0: 0}, {"usual": 20}, {}, [(MONDAY, 0, 20)]),
    # A weekday that is often empty is never a hole, nor is every other week.
    (dict.fromkeys(range(-4, 5), 0), {}, {}, []),
    ({0: 0, -2: 0, -4: 0, 2: 0, 4: 0}, {}, {}, []),
    ({0: 0, -2: 0, 2: 0}, {}, {}, [EMPTY]),
    # Weeks after count where they are known: a shop that grew has as many as before.
    ({0: 30, **GROWN}, {}, {}, []),
    ({0: 0, **GROWN}, {}, {}, [EMPTY]),
    # Only the weeks before: 25 December is a hole even if 1 January is one too.
    ({0: 0, 1: 0}, {}, {"until": MONDAY + timedelta(8)}, [EMPTY]),
)  # fmt: skip


def test_a_day_below_a_fifth_of_other_weeks_is_a_hole():
    for counts, made, searched, expected in HOLES:
        assert holes(log_of(counts, **made), **searched) == expected
    (hole,) = find_holes(log_of({0: 7}), Window.of(MONDAY, DAY, "UTC"), END)
    assert str(hole) == "2026-03-02 has 7 events; that weekday usually has 40"


def test_a_log_that_begins_with_the_day_has_only_weeks_after_it():
    late = log_of({-4: 0, -3: 0, -2: 0, -1: 0, 0: 1})
    begun = make_log(late.events.slice(4), "UTC")  # without the four Tuesdays before
    assert holes(begun) == [(MONDAY, 1, 40)]
    # The days before the log do not count.
    assert holes(begun, days=15, first=MONDAY - timedelta(14)) == [(MONDAY, 1, 40)]
    assert holes(begun, until=MONDAY + timedelta(1)) == []


# Durations ----------------------------------------------------------------------------------------


def test_durations():
    hour = DAY // 24
    for text, length in (
        ("3d", 3 * DAY),
        ("6h", 6 * hour),
        ("15min", hour // 4),
        ("90min", 90 * hour // 60),
    ):
        assert read_duration("window", text) == length
        assert read_duration("window", duration_name(length)) == length
    assert read_duration("window", timedelta(hours=6)) == 6 * hour
    assert [tick_length(own) for own in (3 * DAY, DAY, hour)] == [DAY, DAY, hour // 12]
    for value in ("", "3", 3, "36h", "0d", "30s", "-1d", "1 d", timedelta(seconds=30), None):
        with pytest.raises(SettingError, match=r"window=.*must be whole days like 3d, or less"):
            read_duration("window", value)
