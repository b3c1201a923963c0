"""Windows of hours: the job, a backtest, history and a simulation of a shop that runs fast."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shops import Shop, make_shop, run_in_process
from trimtab.daily import realised_lifts
from trimtab.datasets import make_log
from trimtab.engines import Markov
from trimtab.errors import RefusedError, SettingError
from trimtab.replay import open_lists
from trimtab.replay.windows import Window
from trimtab.store import Store
from trimtab.tables.times import HOUR, Moment, as_datetime

END = Moment(2026, 2, 25)  # of the log: 51 days of the slow shop are 51 hours of this one
NOW = Moment(2026, 2, 24, 20)
LISTED = [Moment(2026, 2, 24, hour) for hour in range(0, 23, 2)]  # when lists are made
pytestmark = pytest.mark.xdist_group("hours")


@pytest.fixture(scope="module")
def fast(tmp_path_factory) -> Shop:
    slow = make_shop(tmp_path_factory.mktemp("slow"))
    end = END.instant("UTC")
    times = slow.log.events["timestamp"].cast(pa.int64()).to_numpy()
    squeezed = pa.array(end - 1 - (end - 1 - times) // 24).cast(pa.timestamp("us", "UTC"))
    log = make_log(slow.log.events.set_column(2, "timestamp", squeezed), "UTC")
    shop = Shop(tmp_path_factory.mktemp("fast"), log)
    shop.lists.mkdir()
    pq.write_table(log.events, shop.events)
    for made in LISTED:
        known = Window.of(made, HOUR, "UTC").history(log)
        lists = Markov(min_support=1).fit(known, as_datetime(made.instant("UTC"))).recommend(n=30)
        pq.write_table(lists, shop.lists / f"{made:%Y-%m-%dT%H-%M}.parquet")
    return shop


def own(shop: Shop) -> tuple[object, ...]:
    return ("--lists", shop.lists, "--events", shop.events, "--tz", "UTC", "--window", "3h")


def test_a_refresh_at_a_time_of_the_day(fast: Shop, tmp_path: Path):
    job = fast.job(store=tmp_path, window="3h", method="reranker", tz="UTC")
    done = job.run("2026-02-24T20:00")
    told = done.version.manifest
    assert told["as_of"] == "2026-02-24T20:00"
    assert done.version.folder.name == "000001-2026-02-24T20-00"
    assert told["window"] | {"events": 0} == {
        "first": "2026-02-24T02:00", "length": "3h", "windows": 6, "events": 0,
    }  # fmt: skip
    # Made before each window: windows begin three hours apart, and lists are made every two.
    hours = ("16", "14", "10", "08", "04", "02")
    assert told["lists"] == [f"2026-02-24T{hour}:00" for hour in hours]
    assert told["reranked"] == "2026-02-24T20:00"
    assert told["settings"]["window"] == "3h"
    assert done.reranker.window_length == 3 * HOUR
    assert done.reranker.learned_until <= NOW.instant("UTC")
    assert done.reranker.summary.forecast > 0
    # What comes later is not used.
    late = fast.log.events.filter(
        pc.less(fast.log.events["timestamp"], as_datetime(NOW.instant("UTC")))
    )
    pq.write_table(late, tmp_path / "events.parquet")
    again = fast.job(
        store=tmp_path / "again", window="3h", method="reranker", tz="UTC",
        events=tmp_path / "events.parquet",
    )  # fmt: skip
    assert again.run(NOW).version.lists().equals(done.version.lists())
    with pytest.raises(RefusedError, match="is for a later day, 2026-02-24T20:00"):
        job.run("2026-02-24T18:00")
    with pytest.raises(SettingError, match="a time of the shop's clock like 2017-11-01T14:00"):
        job.run("2026-02-24T18:00Z")


def test_history_judges_the_hour_that_follows(fast: Shop, tmp_path: Path):
    for hour in (18, 20):
        fast.job(store=tmp_path, window="3h", method="reranker", tz="UTC").run(
            NOW.replace(hour=hour)
        )
    rows = realised_lifts(Store(tmp_path), fast.events, test="1h")
    assert [(row.as_of, row.over_on) for row in rows] == [
        ("2026-02-24T18:00", "2026-02-24T19:00"), ("2026-02-24T20:00", "2026-02-24T21:00"),
    ]  # fmt: skip
    assert all(row.lift is not None for row in rows)
    ran = run_in_process("history", "--store", tmp_path, "--events", fast.events, "--test", "5h")
    assert "2026-02-25T01:00" in ran.stdout  # the log ends before


def test_a_backtest_over_the_hours_of_a_day(fast: Shop, tmp_path: Path):
    ran = run_in_process(
        "backtest",
        *own(fast),
        "--test",
        "2h",
        "--method",
        "bias",
        "--method",
        "bestsellers",
        "--out",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    found = pq.read_table(tmp_path / "results.parquet").to_pylist()
    dates = sorted({row["date"] for row in found})
    assert dates[-1] == "2026-02-24T22:00"
    assert dates == [f"2026-02-24T{hour:02}:00" for hour in range(24 - 2 * len(dates), 24, 2)]
    assert len(dates) > 6
    lifts = [row["lift"] for row in found if row["method"] == "default"]
    assert sum(lifts) / len(lifts) > 0.02
    assert {row["method"] for row in found} == {
        "long", "default", "bestsellers-twelfth", "bestsellers-quarter", "bestsellers-window",
    }  # fmt: skip
    assert "2 hours from it on" in (tmp_path / "report.html").read_text()


def test_a_backtest_of_quarters_of_an_hour_is_judged_at_whole_minutes(fast: Shop):
    """A twelfth of a quarter of an hour is 75 seconds."""
    folder = open_lists(fast.lists, fast.events, tz="UTC")
    dates = folder.recent_dates(3 * HOUR, HOUR // 4)
    assert [str(own) for own in dates[-2:]] == ["2026-02-24T21:45", "2026-02-24T23:45"]


def test_a_simulation_of_a_job_that_runs_every_four_hours(fast: Shop, tmp_path: Path):
    ran = run_in_process(
        "simulate", *own(fast), "--days", 1, "--set", "every=4h", "--out", tmp_path, "--no-report"
    )
    assert ran.returncode == 0, ran.stderr
    rows = pq.read_table(tmp_path / "days.parquet").to_pylist()
    assert [row["day"] for row in rows] == [
        f"2026-02-24T{hour:02}:00" for hour in (4, 8, 12, 16, 20)
    ]
    assert sum(row["value"] - row["baseline"] for row in rows) > 0
    assert json.loads((tmp_path / "month.json").read_text())["window"] == "3h"
