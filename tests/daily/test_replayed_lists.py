"""The daily job replayed on dated lists: what an engine's own replay gives, without the future."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import AS_OF, FIRST, NIGHTS, Shop, run_in_process
from trimtab.daily.simulate import Month, Simulation
from trimtab.engines import Markov, Popularity
from trimtab.errors import DataError, SettingError
from trimtab.replay import open_lists
from trimtab.replay.results import CellDone
from trimtab.report.month_page import build_month
from trimtab.report.month_page import say as sentence
from trimtab.store import Store
from trimtab.tables.columns import TRAINED_UNTIL

pytestmark = pytest.mark.xdist_group("shop")
LAST = FIRST + timedelta(NIGHTS - 1)  # the log ends on the day after
LEARNER = tt.BiasLearner(k=5)


def replay(lists: Path, shop: Shop, days: int = 2, columns: dict | None = None) -> Simulation:
    items = shop.folder / "items.parquet"
    folder = open_lists(lists, shop.events, tz="UTC", items=items, columns=columns)
    return Simulation(log=folder.log, supplied=folder, days=days, learner=LEARNER)


def test_lists_of_an_engine_give_what_its_own_replay_gives(made_shop: Shop, tmp_path: Path) -> None:
    log = replay(made_shop.lists, made_shop).log
    engine = Simulation(log=log, engine=Markov(), days=2, learner=LEARNER, retrain_every=6)
    by_engine = engine.run(tmp_path / "one", lambda _: 0)
    steps: list[str] = []
    simulation = replay(tmp_path / "one" / "lists", made_shop)
    by_lists = simulation.run(tmp_path / "two", steps.append)
    for one, two in zip(by_engine.rows, by_lists.rows, strict=True):
        assert {**one, "seconds": None} == {**two, "seconds": None}
    assert len(steps) == simulation.n_steps == 2
    assert by_lists.about["lists"]["folder"] == "lists"
    assert "The lists are those of 20 days in the folder lists" in sentence("setup", by_lists)


def test_mornings_end_after_the_newest_lists_and_begin_with_lists_to_learn_from(
    made_shop: Shop, tmp_path: Path
) -> None:
    mornings = replay(made_shop.lists, made_shop, days=90).mornings()
    # The first window of three days begins the day after the first lists.
    assert mornings == [FIRST + timedelta(day) for day in range(4, NIGHTS)]
    for day in range(NIGHTS - 4):  # as if nothing had been listed since
        path = made_shop.lists / f"{FIRST + timedelta(day)}.parquet"
        (tmp_path / path.name).symlink_to(path)
    assert replay(tmp_path, made_shop, days=1).mornings() == [FIRST + timedelta(NIGHTS - 4)]


def test_lists_with_own_names_of_columns_are_read_as_the_job_reads_them(
    made_shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "named").mkdir()
    for path in made_shop.lists.iterdir():
        lists = pq.read_table(path).rename_columns(["customer", "item_id", "score"])
        pq.write_table(lists, tmp_path / "named" / path.name)
    found = []
    for lists, columns in ((made_shop.lists, None), (tmp_path / "named", {"user": "customer"})):
        simulation = replay(lists, made_shop, days=1, columns=columns)
        assert simulation.mornings() == [LAST]
        out = tmp_path / f"by {lists.name}"
        found.append({**simulation.run(out, lambda _: 0).rows[0], "seconds": None})
        # Lists of a day may have seen that day: those of the last morning itself are not used.
        manifest = Store(out / "store").current().manifest
        used = (manifest["reranked"], manifest["lists"][0])
        assert used == (str(LAST - timedelta(1)), str(LAST - timedelta(4)))
    assert found[0] == found[1]


def test_days_are_judged_by_weights(made_shop: Shop, tmp_path: Path) -> None:
    events = pq.read_table(made_shop.events)
    day = pc.floor_temporal(events["timestamp"], unit="day").cast("date32")
    weights = np.random.default_rng(0).choice([0.1, 1.0], events.num_rows)
    weights[np.array(day) == np.datetime64(LAST)] = 0
    weighted = events.append_column("weight", pa.array(weights))
    pq.write_table(weighted, tmp_path / "weighted.parquet")
    folder = open_lists(made_shop.lists, tmp_path / "weighted.parquet", tz="UTC")
    simulation = Simulation(log=folder.log, supplied=folder, days=2, learner=LEARNER)
    before, last = simulation.run(tmp_path / "month", lambda _: 0).rows
    truth = weighted.filter(pc.equal(day, LAST - timedelta(1)))
    lists = pq.read_table(made_shop.lists / f"{LAST - timedelta(2)}.parquet")
    figures = tt.evaluate(lists, truth, k=5, weight="weight")
    assert before["baseline"] == pytest.approx(figures["ndcg"])
    assert before["baseline"] != pytest.approx(tt.evaluate(lists, truth, k=5)["ndcg"])
    assert (last["value"], last["n_users"]) == (None, 0)  # its events do not count


def test_from_the_command_line(made_shop: Shop, tmp_path: Path) -> None:
    given = ("simulate", "--lists", made_shop.lists, "--events", made_shop.events)
    out = ("--out", tmp_path / "out")
    ran = run_in_process(*given, *out, "--tz", "UTC", "--days", 1, "--no-report")
    assert ran.returncode == 0, ran.stderr
    assert f"1 of 1: {LAST}" in ran.stderr
    assert "The job published on 1 of 1 morning" in ran.stdout
    for more in (("engine", "markov"), ("set", "n_listed=20"), ("set", "retrain_every=7")):
        ran = run_in_process(*given, *out, f"--{more[0]}", more[1])
        said = f"--{more[0]} {more[1].replace('=', ' ')}: cannot be used with --lists"
        assert ran.returncode == 2
        assert re.fullmatch(f"trimtab: {said}.*\n", ran.stderr)


def test_an_interrupted_replay_keeps_its_mornings(made_shop: Shop, tmp_path: Path) -> None:
    def stop(cell: CellDone) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(made_shop.lists, made_shop, days=3).run(tmp_path, lambda _: 0, stop)
    month = Month.load(tmp_path)
    assert month.about["incomplete"] == {"done": 1, "total": 3}
    assert month.about["last"] == month.rows[0]["day"] == str(LAST - timedelta(2))
    assert "(incomplete: 1 of 3 days)" in build_month(month)


def test_what_cannot_be_replayed_is_refused(made_shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="engine and supplied: give one of them"):
        Simulation(log=made_shop.log)
    (tmp_path / f"{AS_OF}.parquet").symlink_to(made_shop.lists / f"{AS_OF}.parquet")
    with pytest.raises(DataError, match="leave no morning to replay: it needs lists made before"):
        replay(tmp_path, made_shop).mornings()


def test_the_lists_are_never_removed_by_the_run_on_them(made_shop: Shop, tmp_path: Path) -> None:
    engine = Simulation(
        log=made_shop.log, engine=Popularity(), days=1, learner=LEARNER, n_listed=10
    )
    month, lists = tmp_path / "month", tmp_path / "month" / "lists"
    engine.run(month, lambda _: 0)
    n_before = len(list(lists.iterdir()))
    ran = run_in_process("simulate", "--lists", lists, "--events", made_shop.events, "--out", month)
    assert (ran.returncode, "choose another path" in ran.stderr) == (2, True)
    assert len(list(lists.iterdir())) == n_before
    replay(made_shop.lists, made_shop, days=1).run(month, lambda _: 0)
    assert pq.read_table(made_shop.lists / f"{FIRST}.parquet").num_rows
    assert TRAINED_UNTIL not in pq.read_schema(made_shop.lists / f"{FIRST}.parquet").names
