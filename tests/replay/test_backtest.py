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
from trimtab.datasets import generate_log, make_log
from trimtab.datasets.generated_log import generate_items
from trimtab.engines import Markov
from trimtab.errors import DataError, SettingError, StoreError
from trimtab.replay.judge import run_backtest, sales_around, total_steps
from trimtab.replay.outcome import Case
from trimtab.replay.plan import make_plan, read_plan_file
from trimtab.replay.results import CELLS, SCHEMAS, CellDone, Pace, Results, load_results
from trimtab.replay.windows import Window, earlier_windows, event_times, split_log
from trimtab.report import build_page
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment

N_ITEMS = 80
EVENTS = generate_log(n_users=250, n_items=N_ITEMS, days=70, purchases_per_user=25, drift=1, seed=3)
CATEGORIES = [f"c{c}" for c in generate_items(N_ITEMS, 1, 3).category]
LOG = make_log(EVENTS, items=pa.table({"item_id": np.arange(N_ITEMS), "aisle": CATEGORIES}))
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
METRICS = ("acc", "map", "ndcg")
pytestmark = pytest.mark.xdist_group("backtest")  # one run of the whole plan for all tests


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    return run_backtest(make_plan(SETTINGS, LOG), LOG, tmp_path_factory.mktemp("backtest"))


def rows(results: Results, name: str = "results", **wanted: object) -> list[dict]:
    found = results.table(name).to_pylist()
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def small_plan(**settings: object):
    wanted = {"dates": ["2026-03-02"], "engines": ["popularity"], "methods": ["ratio"]}
    return make_plan({**wanted, "metrics": ["ndcg"], "k": 5, "n_draws": 10, **settings}, LOG)


def test_figures_equal_those_computed_step_by_step(results):
    for day, engine in product(SETTINGS["dates"], SETTINGS["engines"]):
        judged = rows(results, date=day, engine=engine)
        found = {(row["method"], row["objective"], row["metric"]) for row in judged}
        assert found == {*product(RIVALS, [""], METRICS), *product(LEARNED, METRICS, METRICS)}
    assert {row["method"] for row in rows(results, engine="popularity")} == {"long"}
    assert set(results.tables) == set(SCHEMAS)
    for row in rows(results, method="long"):
        assert (row["lift"], row["lift_low"], row["lift_high"]) == (0.0, 0.0, 0.0)
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
    assert np.count_nonzero(bias.bias) == len(rows(results, "biases", **key))


def test_windows_go_back_as_far_as_the_log_and_the_engine():
    days = ["2026-02-17", "2026-02-14", "2026-02-11", "2026-02-08"]
    for day, min_support, most, expected in (
        ("2026-02-20", 1, 4, days),
        ("2026-02-20", 1, 1, days[:1]),
        # The log begins on 5 January, and an engine needs some events before the earliest window.
        ("2026-01-14", 1, 9, ["2026-01-11", "2026-01-08"]),
        ("2026-01-14", 9, 9, ["2026-01-11"]),  # no buyer of the earliest window has a list
    ):
        split = split_log(LOG, day)
        earlier = earlier_windows(LOG, split, 3 * DAY, most)
        training = Case(Markov(min_support=min_support), LOG, split, 20, 5, earlier).training
        assert [str(own.first) for own in training.windows] == expected
        for table in (training.listed, training.recent):
            labels = table["window"].unique().to_pylist() if len(expected) > 1 else expected
            assert labels == expected


class CountedMarkov(Markov):
    """Counts how often it is trained."""

    trained: ClassVar[list[datetime]] = []

    def fit(self, events, as_of):
        self.trained.append(as_of)
        return super().fit(events, as_of)


def test_lists_are_made_once_per_window(tmp_path):
    CountedMarkov.trained.clear()
    plan = small_plan(methods=["paper", "default"], metrics=["acc", "ndcg"])
    plan = replace(plan, engines={"counted": CountedMarkov(min_support=1)})
    run_backtest(plan, LOG, tmp_path)
    days = [(at.month, at.day) for at in sorted(CountedMarkov.trained)]
    assert days == [(2, 21), (2, 24), (2, 27), (3, 2)]


def test_sales_are_buyers(results):
    """Per week, around a date; and by month. Items that were never sold have none."""
    find = sales_around(LOG, split_log(LOG, "2026-03-02"))
    for item in (-5, N_ITEMS + 7):
        assert list(find(item).values()) == [str(item), str(item), 0.0, 0.0, 0.0]
    frame, row = EVENTS.to_pandas(), rows(results, "biases", date="2026-03-02")[0]
    split, item = split_log(LOG, "2026-03-02"), int(row["item_id"])
    for column, events, days in (("sales_recent", split.recent, 3), ("sales_after", split.test, 7)):
        own = events.to_pandas()
        buyers = own[own.item_id == item].user_id.nunique()
        assert row[column] == pytest.approx(buyers * 7 / days)
    frame["month"] = frame.timestamp.dt.strftime("%Y-%m")
    once = frame.drop_duplicates(["month", "user_id", "item_id"])
    buyers = once.groupby(["month", "item_id"]).size()
    for row in rows(results, "sellers"):
        month, item = buyers[row["month"]], int(row["item_id"])
        better = (month > month[item]).sum() + ((month == month[item]) & (month.index < item)).sum()
        assert (row["buyers"], row["rank"]) == (month[item], better + 1)


def test_training_windows_are_relative_to_the_shortest(results):
    found = rows(results, "windows", date="2026-03-02", engine="markov", metric="ndcg")
    assert [row["days"] for row in found] == [7, 30, 0]
    assert found[0]["relative"] == 1.0
    assert found[2]["relative"] == pytest.approx(found[2]["value"] / found[0]["value"])
    (alone,) = rows(results, date="2026-03-02", engine="markov", method="long", metric="ndcg")
    assert found[2]["value"] == pytest.approx(alone["value"])


def stop_at(place: str):
    """A step that interrupts a run."""

    def step(text: str) -> None:
        if text.startswith(place):
            raise KeyboardInterrupt

    return step


def test_an_interrupted_run_continues(results, tmp_path):
    plan = make_plan(SETTINGS, LOG)
    with pytest.raises(KeyboardInterrupt):
        run_backtest(plan, LOG, tmp_path, stop_at("2026-02-20 popularity"))
    assert not (tmp_path / "about.json").exists()
    done = {place: place.stat().st_mtime_ns for place in (tmp_path / CELLS).rglob("about.json")}
    so_far = load_results(tmp_path)
    assert so_far.about["incomplete"] == {"done": len(done), "total": 6} == {"done": 2, "total": 6}
    assert so_far.table("results").equals(results.table("results")[: len(so_far.table("results"))])
    assert "(incomplete: 2 of 6 finished)" in build_page(so_far)
    steps: list[str] = []
    cells: list[CellDone] = []
    again = run_backtest(plan, LOG, tmp_path, steps.append, cells.append)
    assert len(steps) == total_steps(plan)
    assert [cell.place for cell in cells] == [1, 2, 3, 4, 5, 6]
    assert [cell.seconds is None for cell in cells] == [True, True, False, False, False, False]
    assert {"2026-02-20 markov: already done", "2026-03-02 markov: long"} < {*steps}
    assert {place: place.stat().st_mtime_ns for place in done} == done
    loaded = Results.load(tmp_path)
    assert load_results(tmp_path).about == again.about == loaded.about
    assert loaded.tables == again.tables
    assert len(list((tmp_path / CELLS).rglob("about.json"))) == 6
    assert again.table("results").equals(results.table("results"))


def test_folders_without_results_are_refused(tmp_path):
    with pytest.raises(StoreError, match=f"{tmp_path}.*about.json"):
        Results.load(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_backtest(small_plan(), LOG, tmp_path, stop_at(""))
    with pytest.raises(StoreError, match="no date of this backtest is finished"):
        load_results(tmp_path)
    for name in ("other", "trimtab-results"):
        (tmp_path / "about.json").write_text(f'{{"format": "{name}", "version": 1}}')
        with pytest.raises(StoreError, match=r"about.json"):
            Results.load(tmp_path)


def test_the_time_left_is_that_of_cells_like_those_that_are_left():
    pace = Pace(["a", "b", "a", "b", "a"], [True, False, False, False, True])
    assert pace.finish("one", None) == ("one", 1, 5, None, None)
    assert pace.finish("two", 4.0).left == 8.0  # an a is not known yet, and takes as long as a b
    assert pace.finish("three", 1.0).left == 4.0
    assert pace.finish("four", 6.0).left == 0.0  # the last is stored


def test_what_runs_again(tmp_path):
    """Another setting, and a damaged cell; tables of an earlier plan go."""
    steps: list[str] = []
    found = [run_backtest(small_plan(n_draws=n), LOG, tmp_path, steps.append) for n in (10, 90, 90)]
    assert ["already done" in step for step in steps] == [False] * 4 + [True] * 2
    one, two, same = (rows(own, method="ratio")[0] for own in found)
    assert (one["lift"], two) == (two["lift"], same)
    assert one["lift_low"] != two["lift_low"]
    run_backtest(small_plan(methods=["default"]), LOG, tmp_path)
    assert (tmp_path / "biases.parquet").exists()
    shutil.rmtree(tmp_path / CELLS)
    first = run_backtest(small_plan(), LOG, tmp_path)
    assert not (tmp_path / "biases.parquet").exists()
    (cell,) = (tmp_path / CELLS).iterdir()
    (cell / "results.parquet").write_bytes(b"PAR1")
    steps.clear()
    again = run_backtest(small_plan(), LOG, tmp_path, steps.append)
    assert not any("already done" in step for step in steps)
    assert again.table("results").equals(first.table("results"))


def test_the_plan_in_the_docs_works(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (tmp_path / "plan.toml").write_text(*re.findall(r"```toml\n(.*?)```", guide, re.S))
    settings = read_plan_file(tmp_path / "plan.toml")
    for name in ("purchases", "products"):
        assert str(tmp_path / f"{name}.parquet") in settings.values()
    plan = make_plan(settings, LOG)
    assert (str(plan.dates[1]), len(plan.dates)) == ("2026-01-12", 26)
    assert (list(plan.engines), list(plan.baselines)) == (
        ["markov", "factorization", "deep"], ["popularity", "repeat"],
    )  # fmt: skip
    assert plan.engines["deep"] == Markov(order=2)
    names = ["long", "truncate", "ratio", "default", "reranker", "bold"]
    assert [method.name for method in plan.methods] == names
    bold = plan.methods[-1]
    assert (bold.kind, bold.settings) == ("paper", {"unlisted": "never", "penalty": 0.3})
    assert (plan.metrics, plan.windows, plan.training_windows) == (("ndcg",), 3, (7, 30, 91))


def reranker(name: str, **settings: object) -> dict:
    return {"methods": [name], "method": {name: settings}}


BAD_PLANS = [
    ({"dates": None, "engines": ["markov"]}, "dates.*first.*last"),
    ({"engines": []}, "engines is empty"),
    ({"engines": ["oracle"]}, "engine 'oracle'.*markov"),
    ({"methods": ["magic"]}, "method 'magic'.*long, truncate"),
    ({"metrics": ["recall"]}, "metrics='recall'.*acc, map, ndcg"),
    ({"engine": {"category": {"level": "shelf"}}}, "engine category: level='shelf'.*aisle"),
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
    (reranker("mine", kind="reranker", penalty=1), "'penalty' of method mine.*widen, repeats"),
    (reranker("mine", kind="reranker", widen="all"), "widen='all'.*any, listed, none"),
    (reranker("reranker", widen="none"), r"\[method.reranker\].*another name"),
]


def test_bad_plans_are_refused(tmp_path):
    for settings, message in BAD_PLANS:
        given = {"dates": ["2026-03-02"], **settings}
        with pytest.raises(SettingError, match=message):
            make_plan({name: value for name, value in given.items() if value is not None}, LOG)
    plain = make_log(EVENTS)
    assert list(make_plan({"dates": ["2026-03-02"]}, plain).engines) == ["markov", "factorization"]
    with pytest.raises(SettingError, match="engine category"):
        make_plan({"dates": ["2026-03-02"], "engines": ["category"]}, plain)
    late = make_plan({**SETTINGS, "dates": ["2026-03-02", "2027-01-01"]}, LOG)
    with pytest.raises(DataError, match="as_of=2027-01-01"):  # before anything is done
        run_backtest(late, LOG, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_names_of_engines_methods_and_metrics(tmp_path):
    names = ["a b", "a_b", "x" * 300]  # engines, also if their names differ in a sign only
    plan = small_plan(engines=names, engine={name: {"kind": "popularity"} for name in names})
    assert {row["engine"] for row in rows(run_backtest(plan, LOG, tmp_path))} == set(names)
    plan = small_plan(dates=["2026-03-02"] * 2, methods=["ratio"] * 2, metrics=["ndcg"] * 2)
    assert len(plan.dates) == len(plan.metrics) == 1
    assert [method.name for method in plan.methods] == ["long", "ratio"]


def test_no_list_counts_as_0_and_the_same_lists_lift_by_0(tmp_path):
    own = {"truncate": {"days": 1}, "idle": {"kind": "default", "max_bias": 0}}
    given = {"engines": ["markov"], "engine": {"markov": {"min_support": 5}}}
    plan = small_plan(**given, methods=["truncate"], method={"truncate": own["truncate"]})
    (row,) = rows(run_backtest(plan, LOG, tmp_path), method="truncate")
    assert (row["value"], row["lift"]) == (0.0, -1.0)
    plan = small_plan(methods=["idle"], method={"idle": own["idle"]})
    (row,) = rows(run_backtest(plan, LOG, tmp_path), method="idle")
    assert row["lift"] == 0.0
    plan = small_plan(engines=["markov"], engine={"markov": {"min_support": 200}})
    with pytest.raises(DataError, match="2026-03-02, engine markov, method ratio: recs"):
        run_backtest(plan, LOG, tmp_path)


def without_day(log: Log, *days: date) -> Log:
    """Return a log in which some days have no events."""
    times, kept = event_times(log), np.ones(log.events.num_rows, bool)
    for day in days:
        kept[slice(*Window.of(day, DAY, log.tz).rows(times))] = False
    return replace(log, events=log.events.filter(pa.array(kept)))


def test_holes_are_named_and_not_learned_from(tmp_path):
    """In the test, in the recent window, and in the earlier one of 24 to 26 February."""
    log = without_day(LOG, Moment(2026, 3, 4), Moment(2026, 2, 28), Moment(2026, 2, 25))
    plan = small_plan(methods=["default"], dates=["2026-03-02", "2026-02-18"])
    with pytest.warns(tt.TrimtabWarning) as warned:
        run_backtest(plan, log, tmp_path)
    said = [str(own.message) for own in warned]
    assert re.fullmatch(
        r"2026-03-02: in the test, 2026-03-04 has 0 events; that weekday usually has \d+: a hole "
        r"in the log or a holiday",
        said[0],
    )
    assert "2026-03-02: in the recent window, 2026-02-28 has 0 events" in said[1]
    assert "2026-03-02: in an earlier window, which is left out, 2026-02-25 has 0" in said[2]
    found = rows(Results.load(tmp_path), "holes", date="2026-03-02", events=0)
    days = {"test": "2026-03-04", "recent": "2026-02-28", "earlier": "2026-02-25"}
    assert {row["window"]: row["day"] for row in found} == days
    assert len(found) == len(said) == len(rows(Results.load(tmp_path), "holes")) == 3
    assert all(row["usual"] > 50 for row in found)
    kept = earlier_windows(log, split_log(log, "2026-03-02"), 3 * DAY, 3)
    assert [str(own.first) for own in kept] == ["2026-02-21"]


def test_days_after_the_date_do_not_decide_what_is_learned_from():
    """A shop grows ninefold after the date; seen from there, the days before look empty."""
    day = Moment(2026, 2, 20)
    later = Window.of(day, 60 * DAY, "UTC").events(LOG)
    grown = replace(LOG, events=pa.concat_tables([split_log(LOG, day).known, *[later] * 9]))
    grown = replace(grown, events=grown.events.sort_by("timestamp"))
    assert len(earlier_windows(grown, split_log(grown, day), 3 * DAY, 3)) == 2


def test_a_closed_weekday_is_not_a_hole(tmp_path):
    every_saturday = [Moment(2026, 1, 10) + timedelta(7 * week) for week in range(9)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for days in (every_saturday, every_saturday[::2]):
            found = run_backtest(small_plan(), without_day(LOG, *days), tmp_path / str(len(days)))
            assert rows(found, "holes") == []


def test_results_of_earlier_versions_still_load(tmp_path):
    """They have no table of holes, and tables that nothing shows any more."""
    run_backtest(small_plan(), LOG, tmp_path)
    header = json.loads((tmp_path / "about.json").read_text())
    header["tables"] = [*(name for name in header["tables"] if name != "holes"), "overlap"]
    del header["about"]["windows"]
    (tmp_path / "about.json").write_text(json.dumps(header))
    (tmp_path / "holes.parquet").unlink()
    loaded = Results.load(tmp_path)
    assert loaded.table("holes").num_rows == 0
    assert "popularity" in build_page(loaded)
