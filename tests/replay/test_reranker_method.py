"""The reranker in a backtest: its lists, its forecast, and what each part of it gains."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from habit_shop import N_ITEMS, habit_log
from made_rerankers import make_reranker
from trimtab.engines import Popularity
from trimtab.replay.judge import PARTS, find_gains, run_backtest
from trimtab.replay.outcome import Case
from trimtab.replay.plan import make_plan
from trimtab.replay.results import Results
from trimtab.replay.rivals import RERANKER, Method
from trimtab.replay.windows import Window, earlier_windows, split_log
from trimtab.tables.log import Log
from trimtab.tables.times import DAY

LOG = habit_log()
SETTINGS = {
    "dates": ["2026-02-05", "2026-02-10"],
    "engines": ["popularity"],
    "baselines": ["repeat"],
    "methods": ["default", "reranker", "narrow"],
    "method": {"narrow": {"kind": "reranker", "widen": "none"}},
    "metrics": ["acc", "ndcg"],
    "k": 5,
    "n_listed": 20,
    "n_draws": 100,
}
pytestmark = pytest.mark.xdist_group("reranker-method")


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    return run_backtest(make_plan(SETTINGS, LOG), LOG, tmp_path_factory.mktemp("backtest"))


def make_case(log: Log) -> Case:
    split = split_log(log, "2026-02-10")
    return Case(Popularity(), log, split, 20, 5, earlier_windows(log, split, 3 * DAY, 3))


def rows(results: Results, name: str = "results", **wanted: object) -> list[dict]:
    found = results.table(name).to_pylist()
    return [row for row in found if all(row[key] == value for key, value in wanted.items())]


def test_figures_equal_those_computed_step_by_step(results):
    split, recs, recent = split_log(LOG, "2026-02-10"), [], []
    for day in (7, 4, 1):
        window = Window.of(datetime(2026, 2, day).date(), 3 * DAY, "UTC")
        engine = Popularity().fit(window.history(LOG), datetime(2026, 2, day, tzinfo=UTC))
        own = window.events(LOG)
        lists = engine.recommend(None if day == 7 else own["user_id"], n=20)
        for tables, table in ((recs, lists), (recent, own)):
            labels = pa.array([f"2026-02-0{day}"] * table.num_rows)
            tables.append(table.append_column("window", labels))
    made = tt.RerankLearner(k=5).fit(*map(pa.concat_tables, (recs, recent)), history=split.train)
    tonight = Popularity().fit(split.known, datetime(2026, 2, 10, tzinfo=UTC)).recommend(n=20)
    top = made.apply(tonight, 5, history=split.known, as_of="2026-02-10T00:00:00+00:00")
    key = {"date": "2026-02-10", "method": "reranker", "objective": "ndcg"}
    (row,) = rows(results, **key, metric="ndcg")
    assert row["value"] == pytest.approx(tt.evaluate(top, split.test, k=5)["ndcg"])
    assert row["lift_low"] > 1.0
    (said,) = rows(results, "forecasts", **key)
    names = ("forecast", "forecast_low", "forecast_high")
    assert [said[name] for name in names] == [made.summary[name] for name in names]


def test_it_is_judged_for_every_objective_and_beats_the_bias(results):
    for day in SETTINGS["dates"]:
        for metric in SETTINGS["metrics"]:
            judged = rows(results, date=day, metric=metric)
            found = {r["method"]: r["lift"] for r in judged if r["objective"] in ("", metric)}
            assert list(found) == ["long", "default", "reranker", "narrow"]
            assert found["reranker"] > found["narrow"] > found["default"]
    found = rows(results, "forecasts", date="2026-02-10")
    assert [(row["method"], row["objective"]) for row in found] == [
        (method, metric) for method in SETTINGS["methods"] for metric in SETTINGS["metrics"]
    ]
    told = [row for row in found if row["forecast"] is not None]
    assert {row["method"] for row in told} >= {"reranker", "narrow"}
    assert all(row["forecast_low"] <= row["forecast"] <= row["forecast_high"] for row in told)


def test_nothing_of_the_test_days_is_seen():
    """Whatever is bought in the test, the reranker and its lists are the same."""
    known = split_log(LOG, "2026-02-10").known.num_rows
    items = LOG.events["item_id"].to_numpy().copy()
    items[known:] = (items[known:] + 7) % N_ITEMS
    column = LOG.events.column_names.index("item_id")
    other = replace(LOG, events=LOG.events.set_column(column, "item_id", pa.array(items)))
    one, two = map(make_case, (LOG, other))
    made, again = (Method("reranker", RERANKER).learn(case, "ndcg") for case in (one, two))
    assert not one.split.test.equals(two.split.test)
    assert made.coefficients().equals(again.coefficients())
    assert one.rank(made).equals(two.rank(again))


def test_the_gain_of_each_part_is_found_by_leaving_it_out(results):
    case = make_case(LOG)
    reranker = Method("reranker", RERANKER).learn(case, "ndcg")
    split, alone = case.split, tt.evaluate(case.lists, case.split.test, k=5)["ndcg"]

    def lift_of(*left_out: str) -> float:
        made = reduce(tt.Reranker.without, left_out, reranker)
        return tt.lift(tt.evaluate(case.rank(made), split.test, k=5)["ndcg"], alone)

    found = rows(results, "parts", date="2026-02-10", method="reranker", objective="ndcg")
    assert [row["part"] for row in found] == list(PARTS)
    used = [part in ("trend", "personal", *reranker.summary.sources) for part in PARTS]
    assert [row["used"] for row in found] == used
    assert "own" in reranker.summary.sources
    trend, listed, whole = lift_of("personal"), lift_of("own", "trending"), lift_of()
    gains = [trend, listed - trend, whole - lift_of("trending"), whole - lift_of("own")]
    assert [row["gain"] for row in found] == pytest.approx(gains)
    assert all(row["gain_low"] <= row["gain"] <= row["gain_high"] for row in found)
    (bias,) = rows(results, date="2026-02-10", method="default", objective="ndcg", metric="ndcg")
    assert found[0]["gain"] == pytest.approx(bias["lift"])
    for row in rows(results, "parts", method="narrow"):  # parts that are not used gain nothing
        if row["part"] in ("trending", "own"):
            assert (row["used"], row["gain"]) == (False, 0.0)
            assert (row["gain_low"], row["gain_high"]) == (0.0, 0.0)
    key = {"date": "2026-02-05", "method": "narrow", "objective": "acc"}
    (judged,) = rows(results, **key, metric="acc")
    assert sum(row["gain"] for row in rows(results, "parts", **key)) == pytest.approx(
        judged["lift"]
    )


def test_gains_are_differences_of_lifts():
    """With made-up values: 4 users, the engine alone has 0.1 each."""
    reranker = make_reranker({1: 0.5, 2: -0.5})
    values = {("trending", "own"): 0.4, ("own",): 0.3, ("trending",): 0.25, (): 0.2}

    def judge(made: tt.Reranker) -> np.ndarray:
        return np.full(4, values[made.summary.sources] if made.learned else 0.15)

    found = find_gains(reranker, judge, np.full(4, 0.1), 10)
    gains = {part: round(gain.lift, 9) for part, (_, gain) in found.items()}
    assert gains == {"trend": 0.5, "personal": 0.5, "trending": 1.0, "own": 1.5}
