"""The daily job replayed: made and judged day by day, and nothing seen too early."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from trimtab.daily.dated_lists import TRAINED_UNTIL
from trimtab.daily.simulate import Simulation
from trimtab.daily.simulated_month import (
    COLD,
    DEFAULT,
    JOBS,
    SCHEMA,
    WARM,
    Month,
    begin,
    compare,
    lift_of,
    require_free,
)
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov, Popularity
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.report.month.month_words import lift_by_day
from trimtab.store import Store
from trimtab.tables.files import write_table

TZ = "America/New_York"
HOSTILE = "</script><img src=x onerror=alert(1)>"
N_DAYS, RECENT = 4, 2
BEFORE = 6  # nights: few buyers, so that the first morning learns from three windows
EVENTS = generate_log(n_users=400, n_items=60, days=30, purchases_per_user=30, drift=1, seed=6)
NAMES = pa.table({"item_id": np.arange(60), "name": [f"{HOSTILE} {item}" for item in range(60)]})
LOG = make_log(EVENTS, TZ, NAMES)
SIMULATION = Simulation(
    log=LOG, engine=Markov(min_support=1), days=N_DAYS, k=5, n_listed=15, recent_days=RECENT
)
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


def store_of(folder: Path, job: str) -> Store:
    return Store(folder / f"store-{job.replace(', ', '-')}")


def bought_on(day: date) -> pa.Table:
    """The events of a day, by the calendar of the shop itself."""
    local = pc.local_timestamp(LOG.events["timestamp"].cast(pa.timestamp("us", TZ)))
    return LOG.events.filter(pc.equal(pc.cast(pc.floor_temporal(local, unit="day"), "date32"), day))


def test_the_days_are_the_last_whole_ones() -> None:
    local = pc.local_timestamp(LOG.events["timestamp"].cast(pa.timestamp("us", TZ)))
    last = pc.max(local).as_py().date()

    assert [last - timedelta(4), last - timedelta(1)] == [MORNINGS[0], MORNINGS[-1]]
    assert len(MORNINGS) == N_DAYS


def test_a_row_a_day_and_job(month: Month) -> None:
    rows = month.days.to_pylist()

    assert [(row["day"], row["job"]) for row in rows] == [
        (str(day), job) for day in MORNINGS for job in JOBS
    ]
    assert month.about["first"] == str(MORNINGS[0])
    assert month.about["engine"] == "Markov"
    assert any(row["n_biases"] > 0 for row in month.of(DEFAULT))
    assert all(row["n_biases"] > 0 for row in month.of(COLD) + month.of(WARM))
    assert [row["changed"] is None for row in month.of(WARM)] == [True, False, False, False]


def test_every_piece_of_work_is_told_of(month: Month, steps: list[str]) -> None:
    assert len(steps) == SIMULATION.n_steps
    assert steps[-1] == f"{MORNINGS[-1]}, {WARM}"


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


@pytest.mark.parametrize("job", JOBS)
def test_each_morning_is_in_its_store(month: Month, folder: Path, job: str) -> None:
    versions = store_of(folder, job).history()
    rows = [row for row in month.of(job) if row["refused"] is None]

    assert [version.as_of for version in versions] == [row["day"] for row in rows]
    assert len(rows) == N_DAYS - (job == DEFAULT)  # its guard refuses one: the forecast is no lift
    for version, row in zip(versions, rows, strict=True):
        bias, day = version.bias(), date.fromisoformat(version.as_of)
        taught = date.fromisoformat(version.manifest["lists"][0])
        assert taught == day - timedelta(RECENT)
        assert version.manifest["reranked"] == version.as_of
        lists = pq.read_table(folder / "lists" / f"{day}.parquet").drop_columns([TRAINED_UNTIL])
        assert version.top().equals(bias.apply(lists, 5))
        assert row["n_biases"] == np.count_nonzero(bias.bias)
        assert row["objective"] == bias.summary.objective_after


@pytest.mark.parametrize("job", JOBS)
def test_values_are_those_of_evaluate(month: Month, folder: Path, job: str) -> None:
    versions = {version.as_of: version for version in store_of(folder, job).history()}
    for row in month.of(job):
        truth = bought_on(date.fromisoformat(row["day"]))
        lists = pq.read_table(folder / "lists" / f"{row['day']}.parquet")
        served = versions[max(day for day in versions if day <= row["day"])]
        top = served.bias().apply(lists, 5)
        alone, biased = tt.evaluate(lists, truth, k=5), tt.evaluate(top, truth, k=5)
        assert row["value"] == biased["ndcg"]
        assert (row["baseline"], row["n_users"]) == (alone["ndcg"], alone["n_users"])
        assert lift_of(row) == pytest.approx(biased["ndcg"] / alone["ndcg"] - 1)


def test_a_refused_morning_leaves_what_was_served(month: Month) -> None:
    (refused,) = [row for row in month.of(DEFAULT) if row["refused"] is not None]
    before = month.of(DEFAULT)[month.of(DEFAULT).index(refused) - 1]

    assert "the forecast is no lift of NDCG@5" in refused["refused"]
    assert refused["n_biases"] == before["n_biases"]
    assert [refused[name] for name in ("seconds", "cycles", "objective", "changed")] == [None] * 4
    assert [month.refusals(job) for job in JOBS] == [1, 0, 0]
    assert "On 1 morning its job was refused" in lift_by_day(month)


def test_only_the_warm_ascent_starts_from_the_day_before(month: Month, folder: Path) -> None:
    starts = {
        job: [version.manifest["started_from"] for version in store_of(folder, job).history()]
        for job in JOBS
    }

    assert starts == {DEFAULT: [None] * 3, COLD: [None] * 4, WARM: [None, 1, 2, 3]}
    assert month.of(WARM)[0]["objective"] == month.of(COLD)[0]["objective"]


def test_changes_are_those_between_versions(month: Month, folder: Path) -> None:
    versions = store_of(folder, COLD).history()
    for before, after, row in zip(versions, versions[1:], month.later(COLD), strict=False):
        assert compare(before.bias(), after.bias()) == (row["changed"], row["moved"])


def test_saved_and_loaded(month: Month, folder: Path, tmp_path: Path) -> None:
    loaded = Month.load(folder)
    assert loaded.about == month.about
    assert loaded.days.equals(month.days)

    month.save(tmp_path)
    assert Month.load(tmp_path).days.equals(month.days)


def test_lists_stay_between_trainings(tmp_path: Path) -> None:
    engine = Popularity()
    replace(SIMULATION, engine=engine, days=3, retrain_every=3).run(tmp_path, lambda _: None)

    trained = [
        pq.read_table(path)[TRAINED_UNTIL][0].as_py().astimezone(ZoneInfo(TZ))
        for path in sorted((tmp_path / "lists").iterdir())
    ]
    first = MORNINGS[1] - timedelta(4)  # two windows before
    later = [first + timedelta(nights) for nights in (3, 6)]
    assert [day.date() for day in trained] == [first] * 3 + [later[0]] * 3 + [later[1]]
    nights = [pq.read_table(path) for path in sorted((tmp_path / "lists").iterdir())]
    assert nights[0].equals(nights[2])
    assert not nights[2].equals(nights[3])


def test_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    short = replace(SIMULATION, engine=Popularity(), days=2)
    for days in (3, 2):
        month = replace(short, days=days).run(tmp_path, lambda _: None)
    (tmp_path / "month.html").write_text("of the run before")
    again = short.run(tmp_path, lambda _: None)

    assert len(list((tmp_path / "lists").iterdir())) == 2 + 4  # two windows before
    history = store_of(tmp_path, WARM).history()
    assert [version.manifest["started_from"] for version in history] == [None, 1]
    assert not (tmp_path / "month.html").exists()
    drop = ["seconds"]
    assert again.days.drop_columns(drop).equals(month.days.drop_columns(drop))


def test_other_things_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "mine.txt").write_text("kept")
    for refuse in (require_free, begin):
        with pytest.raises(StoreError, match="holds other things than a simulation; choose a new"):
            refuse(tmp_path)
    (tmp_path / "month.json").write_text("[]")
    with pytest.raises(StoreError, match="holds other things"):
        begin(tmp_path)
    assert (tmp_path / "lists" / "mine.txt").read_text() == "kept"


def test_a_run_that_was_cut_short_is_no_month_but_may_be_begun_again(tmp_path: Path) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SIMULATION.run(tmp_path, stop)
    with pytest.raises(StoreError, match=r"no finished simulation .*; run trimtab simulate"):
        Month.load(tmp_path)
    require_free(tmp_path)


def test_days_without_buyers_are_not_judged(tmp_path: Path) -> None:
    closed = MORNINGS[-2]
    shut = bought_on(closed)["timestamp"]
    events = LOG.events.filter(pc.invert(pc.is_in(LOG.events["timestamp"], shut)))
    log = make_log(events, TZ)
    month = replace(SIMULATION, log=log, engine=Popularity(), days=2).run(tmp_path, lambda _: None)

    row = month.of(DEFAULT)[0]
    assert (row["day"], row["value"], row["baseline"], row["n_users"]) == (
        str(closed),
        None,
        None,
        0,
    )
    assert lift_of(row) is None
    assert month.days_above(COLD)[1] == 1
    assert month.lift(COLD) == pytest.approx(lift_of(month.of(COLD)[1]))
    with pytest.raises(DataError, match=rf"nothing was bought in the window before {MORNINGS[-1]}"):
        replace(SIMULATION, log=log, recent_days=1).mornings()


def test_too_many_days_are_refused() -> None:
    # The log's 30 days in UTC are parts of 31 days of the shop. Not replayed are the last one, the
    # first window, and a day for the first lists to be trained on.
    most = replace(SIMULATION, days=31 - 1 - RECENT - 1)
    assert len(most.mornings()) == 27

    for days in (most.days + 1, 10**12):
        with pytest.raises(DataError, match=rf"days={days}: the log has \d+ days, .* to .*fewer"):
            replace(SIMULATION, days=days).mornings()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"days": 0}, "days=0: must be at least 1"),
        ({"retrain_every": 0}, "retrain_every=0: must be at least 1"),
        ({"metric": "auc"}, "metric='auc': must be one of acc, map, ndcg"),
        ({"n_listed": 4}, "n_listed=4: must be at least k=5"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        replace(SIMULATION, **wrong)  # type: ignore[arg-type]


def biases(ids: list[object], values: list[float], **more: object) -> tt.ItemBias:
    recs = pa.table({"user_id": [1] * len(ids), "item_id": ids, "score": [1.0] * len(ids)})
    made = tt.BiasLearner(k=1, method="ascent").fit(recs, recs.slice(0, 1))
    order = np.argsort(np.array(ids))
    summary = replace(made.summary, unit=2.0)
    return replace(made, bias=np.array(values)[order], summary=summary, **more)


def test_compared_by_hand() -> None:
    before = biases([1, 2, 3, 4, 5], [1.0, 0.5, 0.0, 0.3, 0.0])
    # 1 as it was; 2 by less than 0.2, a tenth of a unit; 3 by more; 4 gone; 5 never had one; 6 new
    after = biases([1, 2, 3, 5, 6], [1.0, 0.6, -0.4, 0.0, 0.1])

    assert compare(before, after) == (4 / 5, 2 / 5)
    assert compare(None, after) == (None, None)
    assert compare(before, before) == (0.0, 0.0)
    assert compare(before, biases([1, 2], [0.5, 0.5], scale="log")) == (None, None)
    nothing = biases([1, 2], [0.0, 0.0])
    assert compare(nothing, nothing) == (0.0, 0.0)


def by_hand(rows: list[dict[str, object]]) -> Month:
    full = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    return Month({}, pa.Table.from_pylist(full, SCHEMA))


def test_sums_by_hand() -> None:
    def row(job: str, value: float, n_users: int, **more: float) -> dict[str, object]:
        return {"job": job, "value": value, "baseline": 0.1, "n_users": n_users, **more}

    month = by_hand([
        row(COLD, 0.2, 10, seconds=9.0, cycles=1, objective=5.0),
        row(WARM, 0.2, 10, seconds=1.0, cycles=1, objective=5.0),
        row(COLD, 0.1, 30, seconds=4.0, cycles=10, objective=10.0, moved=0.25),
        row(WARM, 0.1, 30, seconds=1.0, cycles=4, objective=9.0),
        row(COLD, 0.1, 60, seconds=4.0, cycles=10, objective=10.0, moved=0.75),
        row(WARM, 0.1, 60, seconds=1.0, cycles=6, objective=10.0),
        row(COLD, 0.1, 0, seconds=99.0, cycles=0, objective=0.0),
        row(WARM, 0.1, 0, seconds=1.0, cycles=0, objective=0.0),
    ])  # fmt: skip

    assert month.lift(COLD) == pytest.approx((0.2 * 10 + 0.1 * 90) / (0.1 * 100) - 1)
    assert month.days_above(WARM) == (1, 4)
    assert month.time_ratio() == 0.25
    assert month.warm_ratio("cycles") == 0.5
    assert month.objective_ratio() == pytest.approx(-0.05)
    assert (month.median(COLD, "moved"), month.median(WARM, "moved")) == (0.5, None)
    one = by_hand([row(COLD, 0.2, 10, seconds=1.0), row(WARM, 0.2, 10, seconds=1.0)])
    assert np.isnan([one.time_ratio(), one.objective_ratio(), one.total(COLD, "seconds")]).all()


FLAGS = ("--log", "<b>sales.parquet", "--items", "items.parquet", "--tz", TZ, "--days", "2",
         "--k", "5", "--n-listed", "15", "--recent-days", "2")  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    write_table(EVENTS, place / "<b>sales.parquet")
    write_table(EVENTS, place / "sales.parquet")
    write_table(NAMES, place / "items.parquet")
    return place


def test_from_the_command_line(shop: Path, trimtab_with_extras) -> None:
    run = trimtab_with_extras("simulate", *FLAGS, "--out", "out", cwd=shop)
    assert (run.returncode, run.stderr) == (0, "")
    for job in JOBS:
        assert job in run.stdout
    assert "Started from the day before, the ascent takes" in run.stdout
    assert (shop / "out" / "month.html").resolve().as_uri() in run.stdout
    month = Month.load(shop / "out")
    assert f"{month.lift(DEFAULT):+.1%}".replace("-", "−").replace("%", "\u00a0%") in run.stdout
    page = (shop / "out" / "month.html").read_text()
    assert "of the daily job on &lt;b&gt;sales" in page
    assert "<b>" not in page.partition("<script")[0]
    assert HOSTILE not in page
    assert Month.load(shop / "out").about["days"] == 2


def test_without_the_libraries_that_draw(shop: Path, trimtab) -> None:
    flags = ("simulate", "--log", "sales.parquet", "--days", "1", "--engine", "popularity")
    refused = trimtab(*flags, "--out", "undrawn", cwd=shop)
    assert refused.returncode == 2
    assert "charts need altair" in refused.stderr
    assert not (shop / "undrawn").exists()

    run = trimtab(*flags, "--no-report", "--out", "undrawn", cwd=shop)
    assert (run.returncode, run.stderr) == (0, "")
    assert "A warm start shows from the second day on" in run.stdout
    assert not (shop / "undrawn" / "month.html").exists()
    assert json.loads((shop / "undrawn" / "month.json").read_text())["engine"] == "Popularity"


REFUSALS = {
    "too many days": (["--days", "40"], "days=40: the log has 3"),
    "an unknown engine": (["--engine", "als"], "engine='als': must be one of markov, factoriz"),
    "a level of another engine": (["--level", "aisle"], "--level aisle: goes with --engine categ"),
    "no categories": (["--engine", "category"], "engine category: the log has no category"),
    "no such log": (["--log", "absent.parquet"], "absent.parquet: no such file"),
    "another folder": (["--out", "."], ". holds other things than a simulation"),
    "a file": (["--out", "items.parquet"], "items.parquet is not a folder; choose another"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str, shop: Path, trimtab_with_extras) -> None:
    flags, said = REFUSALS[case]
    run = trimtab_with_extras(
        "simulate", "--log", "sales.parquet", "--out", "refused", *flags, cwd=shop
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (shop / "refused").exists()
