"""Dated lists in a backtest: the figures are those of the daily job, computed by hand."""

from __future__ import annotations

import re
import shutil
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from shops import Ran, run_in_process
from trimtab.errors import DataError, SettingError
from trimtab.replay import open_lists, plan_lists
from trimtab.replay.plan import read_plan_file
from trimtab.replay.results import Results
from trimtab.report.words import percent

pytestmark = pytest.mark.xdist_group("dated_folder")

GIFT_SHOP = Path(__file__).parents[1] / "files" / "gift_shop" / "sales.parquet"
LONDON = ZoneInfo("Europe/London")
DATES = (date(2010, 11, 10), date(2010, 11, 17))  # Wednesdays; lists are of the Tuesdays before
K, RECENT, TEST = 10, 3, 7


def make_als_lists(folder: Path) -> None:
    """Write lists of five Tuesdays, by a factorization of what was bought until then."""
    events = pq.read_table(GIFT_SHOP)
    (folder / "lists").mkdir()
    shutil.copy(GIFT_SHOP, folder / "sales.parquet")
    for week in range(5):
        day = date(2010, 10, 19) + timedelta(7 * week)
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


@pytest.fixture(scope="module")
def judged(shop: Path) -> Ran:
    chosen = [word for day in DATES for word in ("--date", day)]
    return run_in_process(
        "backtest", "--lists", shop / "lists", "--events", shop / "sales.parquet", "--tz",
        "Europe/London", *chosen, "--out", shop / "judged",
    )  # fmt: skip


def ndcg_by_hand(lists: dict[int, list[str]], bought: dict[int, set[str]]) -> float:
    """NDCG@10 over all buyers; one without a list counts as 0."""
    gains = 1 / np.log2(np.arange(2, K + 2))
    values = []
    for user, items in bought.items():
        hits = [item in items for item in lists.get(user, [])[:K]]
        values.append(gains[: len(hits)] @ hits / gains[: min(K, len(items))].sum())
    return float(np.mean(values))


def bought_between(first: date, days: int) -> list[tuple[int, str]]:
    """User and item of every purchase on some days of the shop's calendar."""
    table = pq.read_table(GIFT_SHOP)
    times = np.array(table["timestamp"])
    start, stop = np.datetime64(first), np.datetime64(first + timedelta(days))
    rows = table.filter((times >= start) & (times < stop))
    return list(zip(rows["user_id"].to_pylist(), rows["item_id"].to_pylist(), strict=True))


def sets_of(purchases: list[tuple[int, str]]) -> dict[int, set[str]]:
    sets = defaultdict(set)
    for user, item in purchases:
        sets[user].add(item)
    return sets


def lists_of(table: pa.Table, users: Iterable[int]) -> pa.Table:
    return table.filter(np.isin(table["user_id"], list(users)))


def ranked(table: pa.Table) -> dict[int, list[str]]:
    """The items of each user, best first; ties go to the smaller id."""
    rows = sorted(table.to_pylist(), key=lambda row: (-row["score"], row["item_id"]))
    lists = defaultdict(list)
    for row in rows:
        lists[row["user_id"]].append(row["item_id"])
    return lists


def published(shop: Path, day: date) -> tuple[pa.Table, pa.Table]:
    """The lists that the daily job publishes for a day: by biases, and by a reranker."""
    job = tt.daily.Refresh(
        lists=shop / "lists", events=shop / "sales.parquet", store=shop / f"store-{day}",
        tz="Europe/London", finish_lists=True, accept=("guard", "incomplete"),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        top = job.run(day).version.top()
        return top, replace(job, method="reranker").run(day).version.lists()


def sellers_by_hand(lists: pa.Table, day: date, days: int) -> pa.Table:
    """What was bought most on the last days, for all users with a list; ALS lists own items."""
    sold = Counter(item for _, item in bought_between(day - timedelta(days), days))
    best = sorted(sold, key=lambda item: (-sold[item], item))[:K]
    rows = [
        {"user_id": user, "item_id": item, "score": sold[item]}
        for user in lists["user_id"].unique().to_pylist() for item in best
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def rivals_by_hand(lists: pa.Table, shown: pa.Table, day: date) -> dict[str, pa.Table]:
    """Lists re-scored by the formulas of the rivals that need only lists."""
    recent, before = (
        Counter(item for _, item in purchases)
        for purchases in (
            bought_between(day - timedelta(RECENT), RECENT),
            bought_between(date(2010, 1, 1), (day - timedelta(RECENT) - date(2010, 1, 1)).days),
        )
    )
    listed = Counter(shown["item_id"].to_pylist())
    average = sum(recent[item] for item in listed) / sum(listed.values())
    totals = Counter()
    for user, score in zip(*(lists[c].to_pylist() for c in ("user_id", "score")), strict=True):
        totals[user] += score

    def rescored(rule) -> pa.Table:
        scores = [rule(*row.values()) for row in lists.to_pylist()]
        return lists.set_column(2, "score", pa.array(scores, pa.float64()))

    def share(item: str) -> float:
        return recent[item] / recent.total() - before[item] / before.total()

    def times(score: float, factor: float) -> float:
        return score * factor if score >= 0 else score / factor

    return {
        **{f"bestsellers-{days}": sellers_by_hand(lists, day, days) for days in (1, 3, 7)},
        "recent": rescored(lambda u, i, s: times(s, (1 + recent[i]) ** 0.1)),
        "ratio": rescored(
            lambda u, i, s: times(s, ((recent[i] + 10 * average) / (listed[i] + 10)) ** 0.2)
        ),
        "distrdiff": rescored(lambda u, i, s: s / totals[u] + share(i)),
    }


def test_lifts_are_those_of_the_daily_job_computed_by_hand(shop: Path, judged: Ran) -> None:
    assert judged.returncode == 0, judged.stderr
    rows = Results.load(shop / "judged").table("results").to_pylist()
    found = {(row["date"], row["method"]): row for row in rows}
    page = (shop / "judged" / "report.html").read_text()
    for day in DATES:
        bought = sets_of(bought_between(day, TEST))
        lists, shown = (
            pq.read_table(shop / "lists" / f"{day - timedelta(back)}.parquet") for back in (1, 8)
        )
        by_bias, finished = (lists_of(table, bought) for table in published(shop, day))
        lists = lists_of(lists, bought)
        methods = {"long": lists, **rivals_by_hand(lists, shown, day)}
        methods |= {"default": by_bias, "reranker": finished}
        alone = ndcg_by_hand(ranked(lists), bought)
        for method, table in methods.items():
            row, value = found.pop((str(day), method)), ndcg_by_hand(ranked(table), bought)
            assert row["n_users"] == len(bought)
            assert row["value"] == pytest.approx(value, rel=1e-12), method
            assert row["lift"] == pytest.approx(value / alone - 1, abs=1e-12), method
            assert method == "long" or percent(value / alone - 1) in page, method
    assert found == {}  # nothing else was judged


def test_weights_judge_as_they_teach(shop: Path, tmp_path: Path) -> None:
    day = DATES[-1]
    events = pq.read_table(shop / "sales.parquet")
    weights = np.random.default_rng(0).choice([0.1, 1.0], events.num_rows)
    pq.write_table(events.append_column("weight", pa.array(weights)), tmp_path / "weighted.parquet")
    given = ("--lists", shop / "lists", "--events", tmp_path / "weighted.parquet")
    ran = run_in_process(
        "backtest", *given, "--tz", "Europe/London", "--date", day, "--method", "default",
        "--out", tmp_path / "judged",
    )  # fmt: skip
    lines = ran.stdout.splitlines()
    assert "events count by their column 'weight'" in lines
    assert f"lists judged on {day} by the 7 days from it on" in lines
    page = (tmp_path / "judged" / "report.html").read_text()
    assert "Events count by their weights." in page
    times = np.array(events["timestamp"])
    later = (times >= np.datetime64(day)) & (times < np.datetime64(day + timedelta(TEST)))
    test = pq.read_table(tmp_path / "weighted.parquet").filter(later)
    lists = pq.read_table(shop / "lists" / f"{day - timedelta(1)}.parquet")
    figures = tt.evaluate(lists, test, weight="weight")
    assert figures["ndcg"] != pytest.approx(tt.evaluate(lists, test)["ndcg"])
    found = Results.load(tmp_path / "judged").table("results").to_pylist()
    assert [row["baseline"] for row in found] == pytest.approx([figures["ndcg"]] * 2)
    assert found[1]["lift"] == pytest.approx(found[1]["value"] / figures["ndcg"] - 1)


def test_the_summary_has_the_best_sellers_of_the_best_number_of_days(
    shop: Path, judged: Ran
) -> None:
    rows = Results.load(shop / "judged").table("results").to_pylist()
    means = {
        days: np.mean([r["lift"] for r in rows if r["method"] == f"bestsellers-{days}"])
        for days in (1, 3, 7)
    }
    best = max(means, key=lambda days: means[days])
    (line,) = [line for line in judged.stdout.splitlines() if line.startswith(" best sellers")]
    assert line.split("  ")[0] == f" best sellers, {best} day{'s' * (best > 1)}"
    assert percent(means[best]) in line


def test_each_date_is_a_line_and_the_page_is_named(shop: Path, judged: Ran) -> None:
    assert "lists judged on 2 dates from 2010-11-10 to 2010-11-17" in judged.stdout
    lines = judged.stderr.splitlines()
    assert re.fullmatch(r"1 of 2: 2010-11-10 lists, \d+ \w+; about \d+ \w+ left", lines[0])
    assert re.fullmatch(r"2 of 2: 2010-11-17 lists, \d+ \w+", lines[1])
    page = (shop / "judged" / "report.html").read_text()
    assert "each judged on the 7 days from it on" in page
    assert "Items with a bias (lists)" in page  # one metric is no choice of what to learn for
    assert "The metric to learn for" not in page


def open_shop(shop: Path, lists: str = "lists"):
    return open_lists(shop / lists, shop / "sales.parquet", tz="Europe/London")


def test_dates_are_those_of_the_last_weeks_that_lists_and_log_cover(shop: Path) -> None:
    folder = open_shop(shop)
    # Lists of five Tuesdays; the first has none before the window of the Wednesday after it.
    dates = [date(2010, 10, 27), date(2010, 11, 3), *DATES]
    assert list(plan_lists({}, folder).dates) == dates
    assert list(plan_lists({"every": 8}, folder).dates) == [dates[1], dates[3]]
    # The log ends on 30 November: fifteen days from 17 November on are too many.
    assert list(plan_lists({"test_days": 15}, folder).dates) == dates[:-1]
    assert folder.recent_dates(3, 7, 7, weeks=2) == dates[-2:]
    assert list(plan_lists({"dates": ["2010-11-12"]}, folder).dates) == [date(2010, 11, 12)]


def test_lists_that_say_what_they_have_seen_are_used_on_their_own_day(
    shop: Path, tmp_path: Path
) -> None:
    for path in (shop / "lists").iterdir():
        lists = pq.read_table(path)
        until = pa.repeat(pa.scalar(f"{path.stem} 00:00:00"), lists.num_rows)
        pq.write_table(lists.append_column("trained_until", until), tmp_path / path.name)
    folder = open_lists(tmp_path, shop / "sales.parquet", tz="Europe/London")
    assert plan_lists({}, folder).dates[-1] == date(2010, 11, 16)
    start = int(datetime(2010, 11, 16, tzinfo=LONDON).timestamp()) * 1_000_000
    own, older = (
        pq.read_table(tmp_path / f"{day}.parquet")["score"] for day in ("2010-11-16", "2010-11-09")
    )
    assert folder.find(start, date(2010, 11, 16), None)["score"].equals(own)
    # On the day before they did not exist.
    assert folder.find(start, date(2010, 11, 15), None)["score"].equals(older)


def test_a_changed_file_changes_only_later_dates(shop: Path, tmp_path: Path) -> None:
    shutil.copytree(shop / "lists", tmp_path / "lists")
    before = open_lists(tmp_path / "lists", shop / "sales.parquet", tz="Europe/London")
    old, new = before.describe(DATES[0]), before.describe(DATES[1])
    newest = tmp_path / "lists" / "2010-11-16.parquet"
    pq.write_table(pq.read_table(newest).slice(1), newest)
    after = open_lists(tmp_path / "lists", shop / "sales.parquet", tz="Europe/London")
    assert after.describe(DATES[0]) == old
    assert after.describe(DATES[1]) != new
    assert (old["folder"], old["days"], old["last"]) == ("lists", 4, "2010-11-09")


def test_csv_lists_with_numbers_that_are_text(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    for day in ("2026-03-01", "2026-03-05"):
        (tmp_path / "lists" / f"{day}.csv").write_text("user_id,item_id,score\n1,7,0.5\n1,8,0.4\n")
    times = [datetime(2026, 2, 20), *(datetime(2026, 3, day) for day in (4, 6, 7))]
    events = pa.table({"user_id": ["1"] * 4, "item_id": ["7"] * 4, "timestamp": times})
    pq.write_table(events, tmp_path / "events.parquet")
    folder = open_lists(tmp_path / "lists", tmp_path / "events.parquet", tz="UTC")
    found = folder.find(folder.lists.seen_until(date(2026, 3, 5)), date(2026, 3, 6), ["1"])
    assert found["item_id"].to_pylist() == ["7", "8"]
    assert folder.recent_dates(3, 2, 7) == [date(2026, 3, 6)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--engine", "markov"], "engines=.'markov'.: cannot be used with lists"),
        (["--set", "n_listed=20"], "n_listed=20: cannot be used with lists"),
        (["--method", "truncate"], "method truncate: needs an engine that Trimtab can train"),
        (["--test-days", "60"], "leave no date to judge: it needs lists made before it"),
        (["--date", "2010-10-20"], "all lists in .* may have seen the window"),
        (["--set", "every=0"], "every=0: must be between 1 and 36500"),
        (["--query", "select 1"], "is not a database"),
    ],
)
def test_errors_are_one_sentence(shop: Path, tmp_path: Path, more: list[str], message: str) -> None:
    ran = run_in_process(
        "backtest", "--lists", shop / "lists", "--events", shop / "sales.parquet", "--tz",
        "Europe/London", "--out", tmp_path / "out", *more,
    )  # fmt: skip
    assert ran.returncode == 2
    assert re.fullmatch(f"trimtab: .*{message}.*\n", ran.stderr)
    assert not (tmp_path / "out").exists()


def test_lists_need_events_and_a_query_needs_lists(shop: Path, tmp_path: Path) -> None:
    for command in ("backtest", "simulate"):
        ran = run_in_process(command, "--lists", shop / "lists", "--out", tmp_path / "out")
        assert (ran.returncode, "needs --events" in ran.stderr) == (2, True)
        ran = run_in_process(command, "--query", "select 1", "--out", tmp_path / "out")
        assert (ran.returncode, "needs --lists" in ran.stderr) == (2, True)


def test_no_buyer_with_a_list_is_refused(shop: Path) -> None:
    folder = open_shop(shop)
    start = int(datetime(2010, 11, 17, tzinfo=LONDON).timestamp()) * 1_000_000
    with pytest.raises(DataError, match=r"2010-11-16.parquet has no list of any buyer"):
        folder.find(start, DATES[1], [-1])


def test_a_plan_file_names_lists(shop: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f'log = "{shop}/sales.parquet"\nlists = "{shop}/lists"\ntz = "Europe/London"\n')
    settings = read_plan_file(plan)
    assert settings["lists"] == str(shop / "lists")
    with pytest.raises(SettingError, match="training_windows"):
        plan_lists({"training_windows": [7]}, open_shop(shop))
