"""The daily job replayed: run and judged day by day, without seeing the future."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import run_in_process
from trimtab.daily.simulate import SCHEMA, Month, Simulation, lift_of, prepare_folder, require_free
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov, Popularity
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.report.month_page import say as sentence
from trimtab.report.words import percent
from trimtab.store import Store
from trimtab.tables.columns import TRAINED_UNTIL
from trimtab.tables.files import write_table
from trimtab.tables.log import Log
from trimtab.tables.times import Moment

TZ = "America/New_York"
HOSTILE = "</script><img src=x onerror=alert(1)>"
N_DAYS, RECENT = 4, 2
BEFORE = 6 * RECENT  # nights: the first morning learns from six windows
EVENTS = generate_log(n_users=400, n_items=60, days=30, purchases_per_user=30, drift=1, seed=2)
NAMES = pa.table({"item_id": np.arange(60), "name": [f"{HOSTILE} {item}" for item in range(60)]})
LOG = make_log(EVENTS, TZ, NAMES)
LEARNER = tt.BiasLearner(k=5)
SIMULATION = Simulation(
    log=LOG, engine=Markov(min_support=1), days=N_DAYS, n_listed=15, learner=LEARNER,
    settings={"window": f"{RECENT}d"},
)  # fmt: skip
MORNINGS = SIMULATION.mornings()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("month")


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def month(folder: Path, steps: list[str]) -> Month:
    return SIMULATION.run(folder, steps.append)


def bought_on(day: date) -> pa.Table:
    """Return the events of a day by the shop's own calendar."""
    local = pc.local_timestamp(LOG.events["timestamp"].cast(pa.timestamp("us", TZ)))
    return LOG.events.filter(pc.equal(pc.cast(pc.floor_temporal(local, unit="day"), "date32"), day))


def shut(day: date) -> Log:
    """Return the log in which a day has no events."""
    gone = bought_on(day)["timestamp"]
    return make_log(LOG.events.filter(pc.invert(pc.is_in(LOG.events["timestamp"], gone))), TZ)


def lists_of(folder: Path, day: object) -> pa.Table:
    lists = pq.read_table(folder / "lists" / f"{day}.parquet")
    return lists.drop_columns([TRAINED_UNTIL])


def test_the_days_are_the_last_whole_ones_and_all_work_is_reported(
    month: Month, steps: list[str]
) -> None:
    local = pc.local_timestamp(LOG.events["timestamp"].cast(pa.timestamp("us", TZ)))
    last = Moment.of(pc.max(local).as_py().date())
    assert [last - timedelta(back) for back in (4, 3, 2, 1)] == MORNINGS
    assert [row["day"] for row in month.rows] == [str(day) for day in MORNINGS]
    assert (month.about["first"], month.about["engine"]) == (str(MORNINGS[0]), "Markov")
    assert any(row["n_biases"] > 0 for row in month.rows)
    assert len(steps) == SIMULATION.n_steps
    assert str(MORNINGS[-1]) in steps[-1]


def test_lists_are_made_before_their_day_and_say_so(month: Month, folder: Path) -> None:
    files = sorted((folder / "lists").iterdir())
    assert len(files) == N_DAYS + BEFORE
    for path in files:
        lists = pq.read_table(path)
        (until,) = set(lists[TRAINED_UNTIL].to_pylist())
        start = until.astimezone(ZoneInfo(TZ))
        assert (str(start.date()), start.hour) == (path.stem, 0)
        seen = LOG.events.filter(pc.less(LOG.events["timestamp"], pa.scalar(until)))
        again = Markov(min_support=1).fit(seen, until).recommend(n=15)
        assert lists.drop_columns([TRAINED_UNTIL]).equals(again)


def test_each_morning_is_in_the_store_and_values_are_those_of_evaluate(
    month: Month, folder: Path
) -> None:
    versions = {version.as_of: version for version in Store(folder / "store").history()}
    assert [*versions] == [row["day"] for row in month.rows if row["refused"] is None]
    for row in month.rows:
        truth, lists = bought_on(Moment.fromisoformat(row["day"])), lists_of(folder, row["day"])
        served = max((day for day in versions if day <= row["day"]), default=None)
        top = lists if served is None else versions[served].bias().apply(lists, 5)
        alone, biased = tt.evaluate(lists, truth, k=5), tt.evaluate(top, truth, k=5)
        assert row["value"] == biased["ndcg"]
        assert (row["baseline"], row["n_users"]) == (alone["ndcg"], alone["n_users"])
        assert lift_of(row) == pytest.approx(biased["ndcg"] / alone["ndcg"] - 1)
        if row["refused"] is None:
            version, bias = versions[row["day"]], versions[row["day"]].bias()
            taught = Moment.fromisoformat(version.manifest["lists"][0])
            assert taught == Moment.fromisoformat(row["day"]) - timedelta(RECENT)
            assert version.manifest["reranked"] == row["day"]
            assert version.top().equals(top)
            assert version.lists() is None
            assert row["n_biases"] == np.count_nonzero(bias.bias)
            assert row["forecast"] == bias.summary.forecast
            assert row["seconds"] == version.manifest["seconds"]


def test_a_refused_morning_keeps_the_served_version(tmp_path: Path) -> None:
    """A day without events in the window: the log looks incomplete."""
    month = replace(SIMULATION, log=shut(MORNINGS[-2])).run(tmp_path, lambda _: None)
    before, refused = month.rows[-2:]
    assert f"{MORNINGS[-2]} has 0 events" in refused["refused"]
    assert refused["n_biases"] == before["n_biases"]
    assert [refused[name] for name in ("seconds", "forecast")] == [None] * 2
    n_refused = sum(row["refused"] is not None for row in month.rows)
    assert f"{N_DAYS - n_refused} of {N_DAYS}" in sentence("days", month)


def test_with_a_reranker_its_lists_are_judged(month: Month, folder: Path, tmp_path: Path) -> None:
    settings = {"window": f"{RECENT}d", "method": "reranker"}
    simulation = replace(SIMULATION, log=shut(MORNINGS[-2]), settings=settings)
    found = simulation.run(tmp_path, lambda _: None)
    versions = {version.as_of: version for version in Store(tmp_path / "store").history()}
    published = [row for row in found.rows if row["refused"] is None and row["n_users"]]
    assert len(published) >= 2
    for row in published:
        truth, version = bought_on(Moment.fromisoformat(row["day"])), versions[row["day"]]
        assert row["value"] == tt.evaluate(version.lists(), truth, k=5)["ndcg"]
        by_bias = version.bias().apply(lists_of(tmp_path, row["day"]), 5)
        assert row["biases_alone"] == tt.evaluate(by_bias, truth, k=5)["ndcg"]
        assert row["forecast"] == version.reranker().summary.forecast
    row = found.rows[-1]  # a refused morning keeps the reranker
    assert "has 0 events" in row["refused"]
    served, lists = Store(tmp_path / "store").current(), lists_of(tmp_path, row["day"])
    start = datetime.combine(MORNINGS[-1], datetime.min.time(), ZoneInfo(TZ))
    events = pq.read_table(tmp_path / "events.parquet")
    known = events.filter(pc.less(events["timestamp"], pa.scalar(start)))
    top = served.reranker().apply(lists, 5, history=known, as_of=start)
    truth = bought_on(MORNINGS[-1])
    assert row["value"] == tt.evaluate(top, truth, k=5)["ndcg"]
    assert row["biases_alone"] == tt.evaluate(served.bias().apply(lists, 5), truth, k=5)["ndcg"]
    loaded = Month.load(tmp_path)
    assert loaded.days.equals(found.days)
    assert loaded.about["reranker"] is True
    said = f"The biases alone changed it by {percent(found.lift('biases_alone'))}."
    assert said in sentence("outcome", loaded)
    assert "learned a reranker" in sentence("setup", loaded)
    # Without one, a month is as before.
    plain = Month.load(folder)
    assert (plain.about, plain.days) == (month.about, month.days)
    assert plain.days.schema.equals(SCHEMA)
    assert "reranker" not in plain.about
    assert "The biases alone" not in sentence("outcome", plain)


def test_lists_stay_between_trainings(tmp_path: Path) -> None:
    engine = Popularity()
    replace(SIMULATION, engine=engine, days=3, retrain_every=3).run(tmp_path, lambda _: None)

    trained = [
        pq.read_table(path)[TRAINED_UNTIL][0].as_py().astimezone(ZoneInfo(TZ))
        for path in sorted((tmp_path / "lists").iterdir())
    ]
    first = MORNINGS[1] - timedelta(BEFORE)
    expected = [first + timedelta(night - night % 3) for night in range(BEFORE + 3)]
    assert [day.date() for day in trained] == [day.date() for day in expected]
    nights = [pq.read_table(path) for path in sorted((tmp_path / "lists").iterdir())]
    assert nights[0].equals(nights[2])
    assert not nights[2].equals(nights[3])


def test_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    short = replace(SIMULATION, engine=Popularity(), days=2)
    for days in (3, 2):
        month = replace(short, days=days).run(tmp_path, lambda _: None)
    (tmp_path / "month.html").write_text("of the run before")
    again = short.run(tmp_path, lambda _: None)

    assert len(list((tmp_path / "lists").iterdir())) == 2 + BEFORE
    published = [row["day"] for row in again.rows if row["refused"] is None]
    assert [version.as_of for version in Store(tmp_path / "store").history()] == published
    assert not (tmp_path / "month.html").exists()
    drop = ["seconds"]
    assert again.days.drop_columns(drop).equals(month.days.drop_columns(drop))


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "mine.txt").write_text("kept")
    for about in (None, "[]"):
        if about is not None:
            (tmp_path / "month.json").write_text(about)
        for refuse in (require_free, prepare_folder):
            with pytest.raises(StoreError, match=tmp_path.name):
                refuse(tmp_path)
    assert (tmp_path / "lists" / "mine.txt").read_text() == "kept"


def test_an_interrupted_run_does_not_load_but_may_be_repeated(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SIMULATION.run(tmp_path, stop)
    with pytest.raises(StoreError, match=rf"{tmp_path.name}.*trimtab simulate"):
        Month.load(tmp_path)
    require_free(tmp_path)


def test_days_without_buyers_are_not_judged(tmp_path: Path) -> None:
    log = shut(MORNINGS[-2])
    month = replace(SIMULATION, log=log, engine=Popularity(), days=2).run(tmp_path, lambda _: None)
    row, last = month.rows
    assert [row[name] for name in ("day", "value", "baseline", "n_users")] == [
        str(MORNINGS[-2]), None, None, 0
    ]  # fmt: skip
    assert lift_of(row) is None
    assert month.days_above()[1] == 1
    assert month.lift() == pytest.approx(lift_of(last))
    with pytest.raises(DataError, match=rf"window=1d.*{MORNINGS[-1]}"):
        replace(SIMULATION, log=log, settings={"window": "1d"}).mornings()


def test_settings_out_of_range() -> None:
    # The log's 30 days in UTC touch 31 days of the shop. Three kinds are not replayed: the last
    # day, the first window, and one day to train the first lists on.
    most = replace(SIMULATION, days=31 - 1 - RECENT - 1)
    assert len(most.mornings()) == 27
    for days in (most.days + 1, 10**12):
        with pytest.raises(DataError, match=rf"days={days}: .*31 days"):
            replace(SIMULATION, days=days).mornings()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"days": 0}, "days=0"), ({"retrain_every": 0}, "retrain_every=0"),
        ({"settings": {"windows": 0}}, "windows=0"), ({"n_listed": 4}, "n_listed=4.*k=5"),
    ]  # fmt: skip
    for given, said in wrong:
        with pytest.raises(SettingError, match=said):
            replace(SIMULATION, **given)


def test_sums_by_hand() -> None:
    def row(value: float, n_users: int, seconds: float | None = None) -> dict[str, object]:
        known = {"value": value, "baseline": 0.1, "n_users": n_users, "seconds": seconds}
        return {**dict.fromkeys(SCHEMA.names), **known}

    rows = [row(0.2, 10, 9.0), row(0.1, 30, 1.0), row(0.1, 60, 3.0), row(0.1, 0)]
    month = Month({}, pa.Table.from_pylist(rows, SCHEMA))

    assert month.lift() == pytest.approx((0.2 * 10 + 0.1 * 90) / (0.1 * 100) - 1)
    assert month.days_above() == (1, 4)
    empty = Month({}, SCHEMA.empty_table())
    assert np.isnan(empty.lift())


FLAGS = ("--events", "<b>sales.parquet", "--items", "items.parquet", "--tz", TZ, "--days", "2",
         "--k", "5", "--set", "n_listed=15", "--window", "2d")  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    write_table(EVENTS, place / "<b>sales.parquet")
    write_table(EVENTS, place / "sales.parquet")
    write_table(NAMES, place / "items.parquet")
    return place


def test_from_the_command_line(shop: Path, trimtab_with_extras) -> None:
    run = trimtab_with_extras("simulate", *FLAGS, "--out", "out", cwd=shop)
    assert run.returncode == 0
    lines = r"1 of 2: 2026-02-01, \d+ \w+; about \d+ \w+ left\n2 of 2: 2026-02-02, \d+ \w+\n"
    assert re.fullmatch(lines, run.stderr)
    assert "of 2 mornings" in run.stdout
    assert (shop / "out" / "month.html").resolve().as_uri() in run.stdout
    month = Month.load(shop / "out")
    assert percent(month.lift()) in run.stdout
    page = (shop / "out" / "month.html").read_text()
    assert "of the daily job on &lt;b&gt;sales" in page
    assert "<b>" not in page.partition("<script")[0]
    assert HOSTILE not in page
    assert Month.load(shop / "out").about["days"] == 2


def test_without_the_libraries_that_draw(shop: Path, trimtab) -> None:
    flags = ("simulate", "--events", "sales.parquet", "--days", "1", "--engine", "popularity")
    refused = trimtab(*flags, "--out", "undrawn", cwd=shop)
    assert refused.returncode == 2
    assert "trimtab[report]" in refused.stderr
    assert not (shop / "undrawn").exists()

    run = trimtab(*flags, "--no-report", "--out", "undrawn", cwd=shop)
    assert run.returncode == 0, run.stderr
    assert "of 1 morning" in run.stdout
    assert not (shop / "undrawn" / "month.html").exists()
    assert json.loads((shop / "undrawn" / "month.json").read_text())["engine"] == "Popularity"


def test_refusals(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    given = ("simulate", "--events", "sales.parquet", "--out", "refused")
    for flags, said in (
        ("--days 40", "--days 40"),
        ("--engine als", "--engine als"),
        ("--set level=aisle", "--set level=aisle"),
        ("--engine category", "category"),
        ("--events absent.parquet", "absent.parquet"),
        ("--out .", ". has files"),
        ("--out items.parquet", "items.parquet"),
    ):
        ran = run_in_process(*given, *flags.split())
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert said in ran.stderr
        assert not (shop / "refused").exists()
