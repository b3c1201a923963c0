"""Logs from files and frames: time zones, catalogues, errors, and two real logs."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from trimtab.datasets import load_complete_journey, load_gift_shop, make_log, read_log
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.tables.times import has_zone

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


def test_local_times_become_utc_in_order_without_returns():
    log = make_log(EVENTS, tz="America/New_York")
    assert stamps(log) == ["02 03:30", "02 13:00"]
    assert log.events["item_id"].to_pylist() == [8, 7]
    assert log.tz == "America/New_York"


def test_times_with_a_time_zone_keep_it():
    zoned = EVENTS.set_column(
        2,
        "timestamp",
        pc.assume_timezone(EVENTS["timestamp"].cast(pa.timestamp("s")), "Asia/Tokyo"),
    )
    assert make_log(zoned).tz == "Asia/Tokyo"
    assert stamps(make_log(zoned)) == ["01 14:30", "02 00:00"]
    assert make_log(zoned, tz="UTC").tz == "UTC"
    assert stamps(make_log(zoned, tz="UTC")) == ["01 14:30", "02 00:00"]


def test_text_with_offsets():
    given = EVENTS.set_column(2, "timestamp", pa.array(["2026-07-02T09:00:00+02:00"] * 3))
    assert stamps(make_log(given)) == ["02 07:00"] * 2


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_any_kind_is_read_as_plain_text(kind):
    def as_kind(table: pa.Table, name: str) -> pa.Table:
        text = table[name].cast(pa.string())
        text = text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)
        return table.set_column(table.column_names.index(name), name, text)

    items = pa.table({"item_id": ["7", "8"], "name": ["cup", "hat"], "category": ["x", "y"]})
    events, named = EVENTS, items
    for name in ("user_id", "item_id"):
        events = as_kind(events, name)
    if kind == pa.string_view():
        events = as_kind(events, "timestamp")
    for name in items.column_names:
        named = as_kind(named, name)
    log = make_log(events, tz="UTC", items=named)
    assert log.events["item_id"].to_pylist() == ["8", "7"]
    assert log.items.to_pylist() == items.to_pylist()
    assert log.count("user_id") == 2


FAR = {
    "before the calendar": pa.array([-(2**62)] * 3).cast(pa.timestamp("us", "UTC")),
    "after the calendar": pa.array([2**40] * 3).cast(pa.timestamp("s")),
    "dates": pa.array([2**30] * 3, pa.int32()).cast(pa.date32()),
    "the year 1": pa.array(["0001-01-01 00:00:00"] * 3),
    "the year 9999": pa.array(["9999-12-31 23:59:59"] * 3),
}


@pytest.mark.parametrize("times", FAR.values(), ids=FAR)
def test_times_outside_the_calendar_are_refused(times):
    with pytest.raises(DataError, match=r"'timestamp' of events .* in the years 2 to 9998; fix"):
        make_log(with_times(times), tz="America/New_York")


SECONDS = [1_782_982_800, 1_782_948_600, 1_783_072_800]  # of EVENTS, in UTC


def with_times(times: pa.Array) -> pa.Table:
    return EVENTS.set_column(2, "timestamp", times)


@pytest.mark.parametrize("per_second", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64()])
def test_numbers_are_instants_of_utc(per_second, kind):
    times = pa.array([second * per_second for second in SECONDS]).cast(kind, safe=False)
    log = make_log(with_times(times))
    assert (log.tz, stamps(log)) == ("UTC", ["01 23:30", "02 09:00"])
    berlin = make_log(with_times(times), tz="Europe/Berlin")  # other days, the same instants
    assert (berlin.tz, stamps(berlin)) == ("Europe/Berlin", ["01 23:30", "02 09:00"])


def test_fractions_of_seconds_are_kept():
    log = make_log(with_times(pa.array([second + 0.25 for second in SECONDS])))
    assert {stamp.microsecond for stamp in log.events["timestamp"].to_pylist()} == {250_000}


def test_numbers_have_a_time_zone_and_local_times_do_not():
    assert has_zone(pa.chunked_array([SECONDS]))
    assert has_zone(pa.chunked_array([], pa.int64()))
    assert not has_zone(EVENTS["timestamp"])


@pytest.mark.parametrize("convert", [lambda t: t, pa.Table.to_pandas, pl.from_arrow])
def test_any_frame(convert):
    assert make_log(convert(EVENTS), tz="UTC").events.num_rows == 2


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


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(DataError, match=r"'timestamp'.*tz="):
        make_log(EVENTS)


REFUSED = {
    "no such zone": (
        {"tz": "Mars/Olympus"},
        SettingError,
        "tz='Mars/Olympus'",
    ),
    "a number for a zone": ({"tz": 3}, SettingError, "tz=3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_settings_are_refused(name):
    settings, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        make_log(EVENTS, **settings)


BAD_TIMES = {
    "text that is not a time": (["yesterday"] * 3, "'timestamp' of events.*yesterday"),
    "numbers": ([1.5, 2.5, 3.5], "'timestamp' of events.*double"),
    "days as numbers": ([20260701] * 3, "'timestamp' of events.*20260701.*1980 and 2100.*since"),
    "times as numbers": ([20260701093000] * 3, "'timestamp' of events.*20260701093000.*ISO text"),
    "two units": ([1_782_982_800, 1_782_982_800_000, 1_782_982_800], "int64 from 178.*in one unit"),
    "a number before 1980": ([0, 1_782_982_800, 1_782_982_800], "int64 from 0 to 1782982800"),
    "a number that is none": ([1_782_982_800.0, float("inf"), 1.0], "'timestamp' of events.*inf"),
    "not a number": ([1_782_982_800.0, float("nan"), 1.0], "'timestamp' of events.*nan"),
    "flags": ([True] * 3, "'timestamp' of events holds bool.*seconds since 1970"),
    "missing": (["2026-07-02 09:00:00", None, None], "'timestamp' of events.*2 of 3 rows"),
    "missing numbers": ([1_782_982_800, None, None], "'timestamp' of events.*2 of 3 rows"),
}


@pytest.mark.parametrize("name", BAD_TIMES)
def test_bad_times_are_refused(name):
    values, message = BAD_TIMES[name]
    with pytest.raises(DataError, match=message):
        make_log(EVENTS.set_column(2, "timestamp", pa.array(values)), tz="UTC")


def test_bad_tables_are_refused(tmp_path):
    with pytest.raises(DataError, match="'timestamp' in events"):
        make_log(EVENTS.drop("timestamp"), tz="UTC")
    with pytest.raises(DataError, match=r"events .*quantity.* empty"):
        make_log(EVENTS.slice(2), tz="UTC")
    with pytest.raises(DataError, match=r"'quantity' of events.*string"):
        make_log(EVENTS.set_column(3, "quantity", pa.array(["x", "y", "z"])), tz="UTC")
    with pytest.raises(StoreError, match=r"nothing.parquet"):
        read_log(tmp_path / "nothing.parquet", tz="UTC")
    with pytest.raises(DataError, match="'item_id' in items"):
        make_log(EVENTS, tz="UTC", items=pd.DataFrame({"sku": [1]}))


ITEMS = {"item_id": [7, 8], "name": ["Tea", ""], "aisle": ["hot", "cold"]}
BAD_ITEMS = {
    "ids of another kind": (
        {"item_id": ["7", "x"]},
        "'item_id'.*integers in events.*strings in items",
    ),
    "an id twice": ({"item_id": [7, 7]}, "'item_id' of items"),
    "no id in common": ({"item_id": [70, 80]}, "item_id of items.*70"),
    "no ids at all": ({"item_id": [7.5, 8.5]}, "'item_id' of items.*double"),
}


@pytest.mark.parametrize("name", BAD_ITEMS)
def test_bad_catalogues_are_refused(name):
    changed, message = BAD_ITEMS[name]
    with pytest.raises(DataError, match=message):
        make_log(EVENTS, tz="UTC", items=pa.table({**ITEMS, **changed}))


def test_only_what_groups_items_is_a_level():
    more = {"price": [1.5, 2.5], "weight": [0.1, 0.2], "tags": [["a"], []], "shelf": [3, None]}
    events = EVENTS.append_column("category", pa.array(["a", "b", "c"]))
    log = make_log(events, tz="UTC", items=pa.table({**ITEMS, **more}))
    assert log.levels == ("category", "aisle", "shelf")
    assert log.items["name"].to_pylist() == ["Tea", "8"]
    assert log.items["shelf"].to_pylist() == ["3", None]


BAD_EVENTS = {
    "a missing user": (
        "user_id",
        [1, None, 2],
        "'user_id' of events.*1 of 3",
    ),
    "ids with a point": (
        "item_id",
        [1.5, 2.5, 3.5],
        "'item_id' of events.*double",
    ),
    "a missing quantity": ("quantity", [1, None, 2], "'quantity' of events.*1 of 3"),
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_bad_columns_are_refused(name):
    column, values, message = BAD_EVENTS[name]
    place = EVENTS.column_names.index(column)
    with pytest.raises(DataError, match=message):
        make_log(EVENTS.set_column(place, column, pa.array(values)), tz="UTC")


def test_an_offset_is_not_a_time_zone():
    stamps = pd.to_datetime(["2026-07-01 12:00+02:00"] * 3)
    with pytest.raises(DataError, match=r"'timestamp' of events.*\+02:00.*tz="):
        make_log(EVENTS.to_pandas().assign(timestamp=stamps))


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
