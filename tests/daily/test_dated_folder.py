"""Dated lists in a backtest: which lists are judged, on which dates, and by which methods."""

from __future__ import annotations

import re
import shutil
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import Ran, run_in_process
from trimtab.errors import DataError, SettingError
from trimtab.replay import open_lists, plan_lists, split_log
from trimtab.replay.plan import read_plan_file
from trimtab.replay.results import Results
from trimtab.replay.rivals import LEARNERS, LISTS_METHODS, standard_methods
from trimtab.replay.windows import Window
from trimtab.report.words import percent
from trimtab.tables.times import DAY, Moment

pytestmark = pytest.mark.xdist_group("dated_folder")

GIFT_SHOP = Path(__file__).parents[1] / "files" / "gift_shop" / "sales.parquet"
LONDON = ZoneInfo("Europe/London")
DATES = (Moment(2010, 11, 10), Moment(2010, 11, 17))  # Wednesdays; lists are of the Tuesdays before
K, RECENT, TEST = 10, 3, 7


def make_als_lists(folder: Path) -> None:
    """Write lists of five Tuesdays, by a factorization of what was bought until then."""
    events = pq.read_table(GIFT_SHOP)
    (folder / "lists").mkdir()
    shutil.copy(GIFT_SHOP, folder / "sales.parquet")
    for week in range(5):
        day = Moment(2010, 10, 19) + timedelta(7 * week)
        known = events.filter(np.array(events["timestamp"]) < np.datetime64(day + timedelta(1)))
        bought = tt.user_items(known)
        factors = factorize(bought.matrix.toarray() > 0)
        lists = tt.recs_from(factors, n=50, user_ids=bought.user_ids, item_ids=bought.item_ids)
        pq.write_table(lists, folder / "lists" / f"{day}.parquet")


def factorize(bought: np.ndarray, n_factors: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Alternating least squares on who bought what."""
    users = np.random.default_rng(0).normal(size=(bought.shape[0], n_factors))
    ridge = 5 * np.eye(n_factors)
    for _ in range(3):
        items = np.linalg.solve(users.T @ users + ridge, users.T @ bought).T
        users = np.linalg.solve(items.T @ items + ridge, items.T @ bought.T).T
    return users, items


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gifts")
    make_als_lists(folder)
    return folder


def backtest(shop: Path, out: Path, *more: object, events: Path | None = None) -> Ran:
    events = events or shop / "sales.parquet"
    given = ("--lists", shop / "lists", "--events", events, "--tz", "Europe/London")
    return run_in_process("backtest", *given, "--out", out, *more)


@pytest.fixture(scope="module")
def judged(shop: Path) -> Ran:
    return backtest(shop, shop / "judged", "--date", DATES[0], "--date", DATES[1])


def lists_of(shop: Path, day: date) -> pa.Table:
    return pq.read_table(shop / "lists" / f"{day}.parquet")


def results_of(folder: Path) -> list[dict]:
    return Results.load(folder).table("results").to_pylist()


def test_lifts_and_the_page_are_those_of_each_method(shop: Path, judged: Ran) -> None:
    """The bias and the reranker are those of a refresh: see test_day_of_a_file.py."""
    assert judged.returncode == 0, judged.stderr
    found = {(row["date"], row["method"]): row for row in results_of(shop / "judged")}
    page = (shop / "judged" / "report.html").read_text()
    # Of best sellers, the page and the summary have those of the best number of days.
    means = {
        days: np.mean([found[str(day), f"bestsellers-{days}"]["lift"] for day in DATES])
        for days in (1, 3, 7)
    }
    best = max(means, key=means.__getitem__)
    (line,) = [line for line in judged.stdout.splitlines() if line.startswith(" best sellers")]
    assert line.split("  ")[0] == f" best sellers, {best} day{'s' * (best > 1)}"
    assert percent(means[best]) in line
    hidden = {f"bestsellers-{days}" for days in means if days != best} | {"long"}
    kinds = [kind for kind in LISTS_METHODS if kind not in LEARNERS]
    methods = [method for kind in kinds for method in standard_methods(kind)]
    for day in DATES:
        split = split_log(open_shop(shop).log, day, f"{RECENT}d", f"{TEST}d")
        lists, before = (lists_of(shop, day - timedelta(back)) for back in (1, 8))
        lists = lists.filter(pc.is_in(lists["user_id"], split.test["user_id"]))
        case = SimpleNamespace(lists=lists, before=before, split=split, k=K, lists_hold_own=True)
        for method in methods:
            row, shown = found.pop((str(day), method.name)), method.lists(case)
            told = tt.evaluate(shown, split.test, K, baseline=lists)
            assert (row["value"], row["lift"]) == pytest.approx((told["ndcg"], told["ndcg_lift"]))
            assert row["n_users"] == told["n_users"]
            assert method.name in hidden or percent(row["lift"]) in page
    assert {method for _, method in found} == {"default", "reranker"}  # nothing else was judged
    assert "lists judged on 2 dates from 2010-11-10 to 2010-11-17" in judged.stdout
    lines = judged.stderr.splitlines()
    assert re.fullmatch(r"1 of 2: 2010-11-10 lists, \d+ \w+; about \d+ \w+ left", lines[0])
    assert re.fullmatch(r"2 of 2: 2010-11-17 lists, \d+ \w+", lines[1])
    assert "each judged on the 7 days from it on" in page
    assert "The metric to learn for" not in page  # one metric is no choice


def test_weights_judge_as_they_teach(shop: Path, tmp_path: Path) -> None:
    day, events = DATES[-1], pq.read_table(shop / "sales.parquet")
    weights = np.random.default_rng(0).choice([0.1, 1.0], events.num_rows)
    weighted = events.append_column("weight", pa.array(weights))
    pq.write_table(weighted, tmp_path / "weighted.parquet")
    more = ("--date", day, "--method", "default")
    ran = backtest(shop, tmp_path / "judged", *more, events=tmp_path / "weighted.parquet")
    lines = ran.stdout.splitlines()
    assert "events count by their column 'weight'" in lines
    assert f"lists judged on {day} by the 7 days from it on" in lines
    page = (tmp_path / "judged" / "report.html").read_text()
    assert "Events count by their weights." in page
    lists = lists_of(shop, day - timedelta(1))
    log = open_lists(shop / "lists", tmp_path / "weighted.parquet", tz="Europe/London").log
    test = Window.of(day, TEST * DAY, log.tz).events(log)
    figures = tt.evaluate(lists, test, weight="weight")
    assert figures["ndcg"] != pytest.approx(tt.evaluate(lists, test)["ndcg"])
    found = results_of(tmp_path / "judged")
    assert [row["baseline"] for row in found] == pytest.approx([figures["ndcg"]] * 2)
    assert found[1]["lift"] == pytest.approx(found[1]["value"] / figures["ndcg"] - 1)


def open_shop(shop: Path, lists: Path | str = "lists"):
    return open_lists(shop / lists, shop / "sales.parquet", tz="Europe/London")


def test_dates_are_those_of_the_last_weeks_that_lists_and_log_cover(shop: Path) -> None:
    folder = open_shop(shop)
    # Lists of five Tuesdays; the first has none before the window of the Wednesday after it.
    dates = [Moment(2010, 10, 27), Moment(2010, 11, 3), *DATES]
    for settings, expected in (
        ({}, dates),
        ({"every": "8d"}, dates[1::2]),
        # The log ends on 30 November: fifteen days from 17 November on are too many.
        ({"test": "15d"}, dates[:-1]),
        ({"dates": ["2010-11-12"]}, [Moment(2010, 11, 12)]),
    ):
        assert list(plan_lists(settings, folder).dates) == expected


def test_lists_that_say_what_they_have_seen_are_used_on_their_own_day(
    shop: Path, tmp_path: Path
) -> None:
    for path in (shop / "lists").iterdir():
        lists = pq.read_table(path)
        until = pa.repeat(pa.scalar(f"{path.stem} 00:00:00"), lists.num_rows)
        pq.write_table(lists.append_column("trained_until", until), tmp_path / path.name)
    folder = open_shop(shop, tmp_path)
    assert plan_lists({}, folder).dates[-1] == Moment(2010, 11, 16)
    start = int(datetime(2010, 11, 16, tzinfo=LONDON).timestamp()) * 1_000_000
    # On the day before they did not exist.
    for day, listed in ((16, "2010-11-16"), (15, "2010-11-09")):
        scores = pq.read_table(tmp_path / f"{listed}.parquet")["score"]
        assert folder.find(start, Moment(2010, 11, day), None)["score"].equals(scores)
    with pytest.raises(DataError, match=r"2010-11-16.parquet has no list of any buyer"):
        folder.find(start, DATES[1], [-1])


def test_a_changed_file_changes_only_later_dates(shop: Path, tmp_path: Path) -> None:
    shutil.copytree(shop / "lists", tmp_path / "lists")
    old, new = (open_shop(shop, tmp_path / "lists").describe(day) for day in DATES)
    newest = tmp_path / "lists" / "2010-11-16.parquet"
    pq.write_table(pq.read_table(newest).slice(1), newest)
    after = open_shop(shop, tmp_path / "lists")
    assert (after.describe(DATES[0]), after.describe(DATES[1]) != new) == (old, True)
    assert (old["folder"], old["days"], old["last"]) == ("lists", 4, "2010-11-09")


def test_csv_lists_with_numbers_that_are_text(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    for day in ("2026-03-01", "2026-03-05"):
        (tmp_path / "lists" / f"{day}.csv").write_text("user_id,item_id,score\n1,7,0.5\n1,8,0.4\n")
    times = [datetime(2026, 2, 20), *(datetime(2026, 3, day) for day in (4, 6, 7))]
    events = pa.table({"user_id": ["1"] * 4, "item_id": ["7"] * 4, "timestamp": times})
    pq.write_table(events, tmp_path / "events.parquet")
    folder = open_lists(tmp_path / "lists", tmp_path / "events.parquet", tz="UTC")
    found = folder.find(folder.seen_until(Moment(2026, 3, 5)), Moment(2026, 3, 6), ["1"])
    assert found["item_id"].to_pylist() == ["7", "8"]
    assert folder.recent_dates(3 * DAY, 2 * DAY) == [Moment(2026, 3, 6)]


def test_errors_are_one_sentence(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for more, message in (
        (["--engine", "markov"], "engines=.'markov'.: cannot be used with lists"),
        (["--set", "n_listed=20"], "n_listed=20: cannot be used with lists"),
        (["--method", "truncate"], "method truncate: needs an engine that Trimtab can train"),
        (["--test", "60d"], "leave no date to judge: it needs lists made before it"),
        (["--date", "2010-10-20"], "all lists in .* may have seen the window"),
        (["--set", "every=0d"], "every=0d: must be whole days like 3d"),
        (["--query", "select 1"], "is not a database"),
    ):
        ran = backtest(shop, out, *more)
        assert ran.returncode == 2
        assert re.fullmatch(f"trimtab: .*{message}.*\n", ran.stderr)
    for command in ("backtest", "simulate"):
        for more, message in (
            (("--lists", shop / "lists"), "needs --events"),
            (("--query", "select 1"), "needs --lists"),
        ):
            ran = run_in_process(command, *more, "--out", out)
            assert (ran.returncode, message in ran.stderr) == (2, True)
    assert not out.exists()
    with pytest.raises(SettingError, match="training_windows"):
        plan_lists({"training_windows": [7]}, open_shop(shop))
    plan = tmp_path / "plan.toml"
    plan.write_text(f'log = "{shop}/sales.parquet"\nlists = "{shop}/lists"\ntz = "Europe/London"\n')
    assert read_plan_file(plan)["lists"] == str(shop / "lists")
