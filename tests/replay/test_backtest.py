"""Backtests: figures equal those computed step by step, and an interrupted run continues."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from trimtab.datasets import generate_items, generate_log, make_log
from trimtab.engines import Engine, Markov
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.replay.backtest import run_backtest, total_steps
from trimtab.replay.item_sales import WeeklySales
from trimtab.replay.methods import Case
from trimtab.replay.plan import make_plan, read_plan_file
from trimtab.replay.results import CELLS, SCHEMAS, CellDone, Pace, Results, load_results
from trimtab.replay.timeline import earlier_windows, split_log
from trimtab.replay.windows import Window, event_times
from trimtab.report import build_page
from trimtab.tables.log import Log

N_ITEMS = 80
EVENTS = generate_log(n_users=250, n_items=N_ITEMS, days=70, purchases_per_user=25, drift=1, seed=3)
CATEGORIES = [f"c{c}" for c in generate_items(N_ITEMS, 1, 3).category]
ITEMS = pa.table({"item_id": np.arange(N_ITEMS), "aisle": CATEGORIES})
LOG = make_log(EVENTS, items=ITEMS, name="generated")
SETTINGS = {
    "dates": ["2026-02-20", "2026-03-02"],
    "engines": ["markov", "category"],
    "baselines": ["popularity"],
    "training_windows": [7, 30],
    "k": 5,
    "n_listed": 20,
    "n_draws": 100,
    "engine": {"markov": {"min_support": 1}},
}
SELLERS = ["bestsellers-1", "bestsellers-3", "bestsellers-7"]
RIVALS = ["long", "truncate", "decay", "distrdiff", "ratio", *SELLERS]
LEARNED = ["paper", "default", "reranker"]


class InterruptedRunError(Exception):
    """Raised to interrupt a run."""


pytestmark = pytest.mark.xdist_group("backtest")  # one run of the whole plan for all tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("backtest")


@pytest.fixture(scope="module")
def results(folder) -> Results:
    return run_backtest(make_plan(SETTINGS, LOG), LOG, folder)


def rows(results: Results, name: str = "results", **wanted: object) -> list[dict]:
    found = results.table(name).to_pylist()
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def test_every_cell_method_and_metric_is_there(results):
    for day in SETTINGS["dates"]:
        for engine in SETTINGS["engines"]:
            found = {
                (r["method"], r["objective"], r["metric"])
                for r in rows(results, date=day, engine=engine)
            }
            metrics = ("acc", "map", "ndcg")
            assert found == {
                *product(RIVALS, [""], metrics),
                *product(LEARNED, metrics, metrics),
            }
        alone = rows(results, date=day, engine="popularity")
        assert {row["method"] for row in alone} == {"long"}
    assert set(results.tables) == set(SCHEMAS)
    for row in rows(results, method="long"):
        assert (row["lift"], row["lift_low"], row["lift_high"]) == (0.0, 0.0, 0.0)


def test_figures_equal_those_computed_step_by_step(results):
    split = split_log(LOG, "2026-03-02")
    seen = Markov(min_support=1).fit(split.known, datetime(2026, 3, 2, tzinfo=UTC))
    before = Markov(min_support=1).fit(split.train, datetime(2026, 2, 27, tzinfo=UTC))
    tonight = seen.recommend(n=20)
    alone = tt.evaluate(tonight, split.test, k=5)
    bias = tt.BiasLearner.paper(k=5, metric="map").fit(before.recommend(n=20), split.recent)
    after = tt.evaluate(bias.apply(tonight, k=5), split.test, k=5)
    key = {"date": "2026-03-02", "engine": "markov", "method": "paper", "objective": "map"}
    (row,) = rows(results, **key, metric="map")
    assert row["value"] == pytest.approx(after["map"])
    assert row["baseline"] == pytest.approx(alone["map"])
    assert row["lift"] == pytest.approx(after["map"] / alone["map"] - 1)
    assert row["lift_low"] <= row["lift"] <= row["lift_high"]
    assert row["n_users"] == after["n_users"]
    (fit,) = rows(results, "fits", **key)
    assert fit["n_biases"] == np.count_nonzero(bias.bias) == len(rows(results, "biases", **key))


class CountedMarkov(Markov):
    """Counts how often it is trained."""

    trained: ClassVar[list[datetime]] = []

    def fit(self, events, as_of):
        self.trained.append(as_of)
        return super().fit(events, as_of)


def learned_windows(day: str, engine: Engine, windows: int) -> list[str]:
    """Return the windows that the default learns from, newest first."""
    split = split_log(LOG, day)
    training = Case(engine, LOG, split, 20, 5, earlier_windows(LOG, split, 3, windows)).training
    recs, recent = training.recs, training.recent
    if "window" not in recs.column_names:
        return [str(split.window.first)]
    assert recs["window"].unique() == recent["window"].unique()
    return recs["window"].unique().to_pylist()


def test_windows_go_back_as_far_as_the_log_and_the_engine():
    days = ["2026-02-17", "2026-02-14", "2026-02-11", "2026-02-08"]
    assert learned_windows("2026-02-20", Markov(min_support=1), 4) == days
    assert learned_windows("2026-02-20", Markov(min_support=1), 1) == days[:1]
    # The log begins on 5 January, and an engine needs some events before the earliest window.
    first = ["2026-01-11", "2026-01-08"]
    assert learned_windows("2026-01-14", Markov(min_support=1), 9) == first
    # No buyer of the earliest window has a list.
    assert learned_windows("2026-01-14", Markov(min_support=9), 9) == first[:1]


def test_lists_are_made_once_per_window(tmp_path):
    CountedMarkov.trained.clear()
    plan = replace(
        small_plan(methods=["paper", "default"], metrics=["acc", "ndcg"]),
        engines={"counted": CountedMarkov(min_support=1)},
    )
    run_backtest(plan, LOG, tmp_path)
    days = [(at.month, at.day) for at in sorted(CountedMarkov.trained)]
    assert days == [(2, 21), (2, 24), (2, 27), (3, 2)]


def test_sales_are_buyers_per_week(results):
    row = rows(results, "biases", date="2026-03-02")[0]
    split = split_log(LOG, "2026-03-02")
    for column, events, days in (("sales_recent", split.recent, 3), ("sales_after", split.test, 7)):
        frame = events.to_pandas()
        buyers = frame[frame.item_id == int(row["item_id"])].user_id.nunique()
        assert row[column] == pytest.approx(buyers * 7 / days)


def test_items_that_were_never_sold_have_no_sales():
    sales = WeeklySales(LOG, split_log(LOG, "2026-03-02"))
    ids = np.array([-5, 3, N_ITEMS + 7])
    unsold, sold, later = sales.rows(ids, np.arange(3))
    for row, item in ((unsold, "-5"), (later, str(N_ITEMS + 7))):
        assert list(row.values()) == [item, item, 0.0, 0.0, 0.0]
    assert (sold["item_id"], sold["name"]) == ("3", "3")
    assert sold["sales_after"] > 0


def test_training_windows_are_relative_to_the_shortest(results):
    found = rows(results, "windows", date="2026-03-02", engine="markov", metric="ndcg")
    assert [row["days"] for row in found] == [7, 30, 0]
    assert found[0]["relative"] == 1.0
    assert found[2]["relative"] == pytest.approx(found[2]["value"] / found[0]["value"])
    (alone,) = rows(results, date="2026-03-02", engine="markov", method="long", metric="ndcg")
    assert found[2]["value"] == pytest.approx(alone["value"])


def test_best_sellers_month_by_month(results):
    frame = EVENTS.to_pandas()
    frame["month"] = frame.timestamp.dt.strftime("%Y-%m")
    buyers = (
        frame.drop_duplicates(["month", "user_id", "item_id"]).groupby(["month", "item_id"]).size()
    )
    for row in rows(results, "sellers"):
        month = buyers[row["month"]]
        own = month[int(row["item_id"])]
        assert row["buyers"] == own
        better = (month > own).sum() + ((month == own) & (month.index < int(row["item_id"]))).sum()
        assert row["rank"] == better + 1


def test_an_interrupted_run_continues(results, tmp_path):
    plan, seen = make_plan(SETTINGS, LOG), []

    def stop_in_the_third_cell(text: str) -> None:
        seen.append(text)
        if text.startswith("2026-02-20 popularity"):
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        run_backtest(plan, LOG, tmp_path, stop_in_the_third_cell)
    assert not (tmp_path / "about.json").exists()
    done = {place: place.stat().st_mtime_ns for place in (tmp_path / CELLS).rglob("about.json")}
    assert len(done) == 2
    so_far = load_results(tmp_path)
    assert so_far.about["incomplete"] == {"done": 2, "total": 6}
    assert so_far.table("results").equals(results.table("results")[: len(so_far.table("results"))])
    assert "(incomplete: 2 of 6 finished)" in build_page(so_far)
    steps: list[str] = []
    cells: list[CellDone] = []
    again = run_backtest(plan, LOG, tmp_path, steps.append, cells.append)
    assert len(steps) == total_steps(plan)
    assert [cell.place for cell in cells] == [1, 2, 3, 4, 5, 6]
    assert [cell.seconds is None for cell in cells] == [True, True, False, False, False, False]
    assert load_results(tmp_path).about == again.about
    assert "2026-02-20 markov: already done" in steps
    assert "2026-03-02 markov: long" in steps
    assert {place: place.stat().st_mtime_ns for place in done} == done
    loaded = Results.load(tmp_path)
    assert (loaded.about, loaded.tables) == (again.about, again.tables)
    assert len(list((tmp_path / CELLS).rglob("about.json"))) == 6
    assert again.table("results").equals(results.table("results"))


def test_folders_without_results_are_refused(tmp_path):
    def stop(text: str) -> None:
        raise InterruptedRunError

    with pytest.raises(StoreError, match=f"{tmp_path}.*about.json"):
        Results.load(tmp_path)
    with pytest.raises(InterruptedRunError):
        run_backtest(small_plan(), LOG, tmp_path, stop)
    with pytest.raises(StoreError, match="no date of this backtest is finished"):
        load_results(tmp_path)
    (tmp_path / "about.json").write_text('{"format": "other", "version": 1}')
    with pytest.raises(StoreError, match=r"about.json"):
        Results.load(tmp_path)


def test_the_time_left_is_that_of_cells_like_those_that_are_left():
    pace = Pace(["a", "b", "a", "b", "a"], [True, False, False, False, True])
    assert pace.finish("one", None) == ("one", 1, 5, None, None)
    assert pace.finish("two", 4.0).left == 8.0  # an a is not known yet, and takes as long as a b
    assert pace.finish("three", 1.0).left == 4.0
    assert pace.finish("four", 6.0).left == 0.0  # the last is stored


def test_another_seed_runs_again_and_changes_intervals_only(tmp_path):
    found = [run_backtest(small_plan(seed=seed, n_draws=100), LOG, tmp_path) for seed in (0, 9)]
    (one,), (two,) = (rows(own, method="ratio") for own in found)
    assert one["lift"] == two["lift"]
    assert one["lift_low"] != two["lift_low"]


PLAN = """
log = "events.parquet"
first = 2026-02-20
last = "2026-03-06"
every = 7
engines = ["deep", "repeat"]
methods = ["cautious", "ratio"]
metrics = ["ndcg"]

[engine.deep]
kind = "markov"
order = 2

[method.cautious]
kind = "default"
penalty = 3.0
"""


def test_a_plan_from_a_file(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    settings = read_plan_file(tmp_path / "plan.toml")
    assert settings["log"] == str(tmp_path / "events.parquet")
    plan = make_plan(settings, LOG)
    assert [str(day) for day in plan.dates] == ["2026-02-20", "2026-02-27", "2026-03-06"]
    assert plan.engines["deep"] == Markov(order=2)
    assert [(m.name, m.kind) for m in plan.methods] == [
        ("long", "long"), ("cautious", "default"), ("ratio", "ratio"),
    ]  # fmt: skip
    assert plan.methods[1].settings == {"penalty": 3.0}
    assert plan.metrics == ("ndcg",)


def test_the_plan_in_the_docs_works(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", guide, re.S)
    (tmp_path / "plan.toml").write_text(text)
    plan = make_plan(read_plan_file(tmp_path / "plan.toml"), LOG)
    assert list(plan.engines) == ["markov", "factorization", "deep"]
    assert [method.name for method in plan.methods] == [
        "long", "truncate", "ratio", "default", "reranker", "bold",
    ]  # fmt: skip
    assert len(plan.dates) == 26


BAD_PLANS = [
    ({"dates": None, "engines": ["markov"]}, "dates.*first.*last"),
    ({"engines": []}, "engines is empty"),
    ({"engines": ["oracle"]}, "engine 'oracle'.*markov"),
    ({"methods": ["magic"]}, "method 'magic'.*long, truncate"),
    ({"metrics": ["recall"]}, "metrics='recall'.*acc, map, ndcg"),
    ({"engine": {"category": {"level": "shelf"}}}, "level='shelf' of engine category.*aisle"),
    ({"engine": {"markov": {"ordr": 2}}}, "'ordr' of engine markov.*window_days"),
    ({"method": {"ratio": {"power": 2}}}, "'power' of method ratio.*gamma"),
    ({"method": {"m": {"kind": "default", "penalty": -1}}, "methods": ["m"]}, "penalty=-1"),
    ({"method": {"default": {"kind": "paper"}}}, r"\[method.default\].*'paper'"),
    ({"engine": {"markof": {"order": 2}}}, r"\[engine.markof\].*markov"),
    ({"method": {"truncate": {"days": "x"}}}, "days of method truncate='x'"),
    ({"windows": 0}, "windows=0"),
    ({"training_windows": [0.5]}, "training_windows=0.5"),
    ({"engine": {"category": {"items": 3}}}, "'items' of engine category"),
    ({"engines": [["markov"]]}, r"engine \['markov'\]"),
    ({"engine": {"markov": {"window_days": 1e300}}}, "window_days=1e[+]300.*36500"),
    ({"n_listed": 4}, "n_listed=4.*k=10"),
    ({"engines": "markov"}, "engines='markov'"),
    ({"dates": ["tomorrow"]}, "dates='tomorrow'"),
    ({"engine": {"markov": 3}}, r"\[engine.markov\]"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_PLANS)
def test_bad_plans_are_refused(settings, message):
    given = {"dates": ["2026-03-02"], **settings}
    with pytest.raises(SettingError, match=message):
        make_plan({name: value for name, value in given.items() if value is not None}, LOG)


def test_a_log_without_categories_has_no_category_engine():
    plain = make_log(EVENTS)
    plan = make_plan({"dates": ["2026-03-02"]}, plain)
    assert list(plan.engines) == ["markov", "factorization"]
    with pytest.raises(SettingError, match="engine category"):
        make_plan({"dates": ["2026-03-02"], "engines": ["category"]}, plain)


def test_a_bad_date_is_refused_before_anything_is_done(tmp_path):
    settings = {**SETTINGS, "dates": ["2026-03-02", "2027-01-01"]}
    with pytest.raises(DataError, match="as_of=2027-01-01"):
        run_backtest(make_plan(settings, LOG), LOG, tmp_path)
    assert list(tmp_path.iterdir()) == []


def small_plan(**settings: object):
    wanted = {"dates": ["2026-03-02"], "engines": ["popularity"], "methods": ["ratio"]}
    return make_plan({**wanted, "metrics": ["ndcg"], "k": 5, "n_draws": 10, **settings}, LOG)


def test_a_damaged_cell_runs_again_and_tables_of_an_earlier_plan_go(tmp_path):
    run_backtest(small_plan(methods=["default"]), LOG, tmp_path)
    assert (tmp_path / "biases.parquet").exists()
    shutil.rmtree(tmp_path / CELLS)
    first = run_backtest(small_plan(), LOG, tmp_path)
    assert not (tmp_path / "biases.parquet").exists()
    (cell,) = (tmp_path / CELLS).iterdir()
    (cell / "results.parquet").write_bytes(b"PAR1")
    steps: list[str] = []
    again = run_backtest(small_plan(), LOG, tmp_path, steps.append)
    assert not any("already done" in step for step in steps)
    assert again.table("results").equals(first.table("results"))


def test_names_of_engines_methods_and_metrics(tmp_path):
    names = ["a b", "a_b", "x" * 300]  # engines, also if their names differ in a sign only
    plan = small_plan(engines=names, engine={name: {"kind": "popularity"} for name in names})
    assert {row["engine"] for row in rows(run_backtest(plan, LOG, tmp_path))} == set(names)
    twice = {"dates": ["2026-03-02"] * 2, "methods": ["ratio"] * 2, "metrics": ["ndcg"] * 2}
    plan = small_plan(**twice)
    assert len(plan.dates) == len(plan.metrics) == 1
    assert [method.name for method in plan.methods] == ["long", "ratio"]


def test_no_list_counts_as_0_and_the_same_lists_lift_by_0(tmp_path):
    settings = {"engines": ["markov"], "methods": ["truncate"], "method": {"truncate": {"days": 1}}}
    plan = small_plan(**settings, engine={"markov": {"min_support": 5}})
    found = run_backtest(plan, LOG, tmp_path)
    (row,) = rows(found, method="truncate")
    assert (row["value"], row["lift"]) == (0.0, -1.0)
    plan = small_plan(methods=["idle"], method={"idle": {"kind": "default", "max_bias": 0}})
    (row,) = rows(run_backtest(plan, LOG, tmp_path), method="idle")
    assert row["lift"] == 0.0


def test_a_failure_says_where(tmp_path):
    plan = small_plan(engines=["markov"], engine={"markov": {"min_support": 200}})
    with pytest.raises(DataError, match="2026-03-02, engine markov, method ratio: recs"):
        run_backtest(plan, LOG, tmp_path)


def without_day(log: Log, *days: date) -> Log:
    """Return a log in which some days have no events."""
    events = log.events
    for day in days:
        window = Window.of(day, 1, log.tz)
        begin, end = window.rows(event_times(replace(log, events=events)))
        events = pa.concat_tables([events.slice(0, begin), events.slice(end)])
    return replace(log, events=events)


def test_holes_are_named_and_not_learned_from(tmp_path):
    """In the test, in the recent window, and in the earlier one of 24 to 26 February."""
    log = without_day(LOG, date(2026, 3, 4), date(2026, 2, 28), date(2026, 2, 25))
    plan = small_plan(methods=["default"], dates=["2026-03-02", "2026-02-18"])
    with pytest.warns(tt.TrimtabWarning) as warned:
        run_backtest(plan, log, tmp_path)
    said = [str(w.message) for w in warned]
    assert len(said) == 3
    assert re.fullmatch(
        r"2026-03-02: 2026-03-04, in the test, has 0 events; that weekday usually has \d+: a hole "
        r"in the log or a holiday",
        said[0],
    )
    assert "2026-03-02: 2026-02-28, in the recent window, has 0 events" in said[1]
    assert "2026-03-02: 2026-02-25, in an earlier window, which is left out, has 0" in said[2]
    found = rows(Results.load(tmp_path), "holes")
    assert [(row["date"], row["window"], row["day"], row["events"]) for row in found] == [
        ("2026-03-02", "test", "2026-03-04", 0),
        ("2026-03-02", "recent", "2026-02-28", 0),
        ("2026-03-02", "earlier", "2026-02-25", 0),
    ]
    assert all(row["usual"] > 50 for row in found)
    split = split_log(log, "2026-03-02")
    kept = earlier_windows(log, split, 3, 3)
    assert [str(own.first) for own in kept] == ["2026-02-21"]


def test_days_after_the_date_do_not_decide_what_is_learned_from():
    """A shop grows ninefold after the date; seen from there, the days before look empty."""
    day = date(2026, 2, 20)
    later = Window.of(day, 60, "UTC").events(LOG)
    grown = replace(LOG, events=pa.concat_tables([split_log(LOG, day).known, *[later] * 9]))
    grown = replace(grown, events=grown.events.sort_by("timestamp"))
    assert len(earlier_windows(grown, split_log(grown, day), 3, 3)) == 2


def test_a_closed_weekday_is_not_a_hole(tmp_path):
    every_saturday = [date(2026, 1, 10) + timedelta(7 * week) for week in range(9)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        closed = run_backtest(small_plan(), without_day(LOG, *every_saturday), tmp_path / "all")
        every_other = run_backtest(
            small_plan(), without_day(LOG, *every_saturday[::2]), tmp_path / "half"
        )
    assert rows(closed, "holes") == rows(every_other, "holes") == []


def test_results_made_before_holes_were_looked_for_still_load(tmp_path):
    run_backtest(small_plan(), LOG, tmp_path)
    header = json.loads((tmp_path / "about.json").read_text())
    header["tables"].remove("holes")
    del header["about"]["windows"]
    (tmp_path / "about.json").write_text(json.dumps(header))
    (tmp_path / "holes.parquet").unlink()
    loaded = Results.load(tmp_path)
    assert loaded.table("holes").num_rows == 0
    assert "popularity" in build_page(loaded)
