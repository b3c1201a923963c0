"""Figures by hand, and the summary of `fit` equals what `apply` and `evaluate` give."""

from __future__ import annotations

import datetime as dt
import itertools
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import rows_of
from drift import DriftData, generate_drift
from plain_metrics import METRICS as MEANS


def ranked(*rows):
    return rows_of(rows, "user_id", "item_id", "rank")


def bought(*rows):
    return rows_of(rows, "user_id", "item_id")


# By hand ---------------------------------------------------------------------------------------


def test_one_hit_at_the_second_rank_or_beyond_k():
    figures = tt.evaluate(ranked((1, 7, 1), (1, 8, 2), (1, 9, 3)), bought((1, 8)), k=3)
    assert figures == {
        "acc": pytest.approx(1 / 3),
        "map": pytest.approx(1 / 2),
        "ndcg": pytest.approx(1 / math.log2(3)),
        "hit_rate": 1,
        "recall": 1,
        "mrr": 1 / 2,
        "coverage": 1,
        "n_users": 1,
        "n_skipped": 0,
    }
    figures = tt.evaluate(ranked((1, 7, 1), (1, 8, 2)), bought((1, 8)), k=1)
    assert (figures["acc"], figures["map"], figures["ndcg"]) == (0, 0, 0)


def test_rank_decides_then_score_then_the_smaller_id():
    rows = [(1, 7, 2, 0.9), (1, 8, 1, 0.1)]
    both = rows_of(rows, "user_id", "item_id", "rank", "score")
    assert tt.evaluate(both, bought((1, 8)), k=1)["acc"] == 1
    assert tt.evaluate(both.drop_columns("rank"), bought((1, 8)), k=1)["acc"] == 0
    by_value = rows_of([(1, 10, 0.5), (1, 9, 0.5)], "user_id", "item_id", "score")
    assert tt.evaluate(by_value, bought((1, 9)), k=1)["acc"] == 1
    by_code_point = rows_of([(1, "9", 0.5), (1, "10", 0.5)], "user_id", "item_id", "score")
    assert tt.evaluate(by_code_point, bought((1, "10")), k=1)["acc"] == 1
    minus_zero = rows_of([(1, 10, 0.0), (1, 9, -0.0)], "user_id", "item_id", "score")
    assert tt.evaluate(minus_zero, bought((1, 9)), k=1)["acc"] == 1


def test_a_user_in_two_windows_is_two_units():
    topk = rows_of([(1, 7, 1, "a"), (1, 7, 1, "b")], "user_id", "item_id", "rank", "window")
    truth = rows_of([(1, 7, "a"), (1, 8, "c")], "user_id", "item_id", "window")
    figures = tt.evaluate(topk, truth, k=1)
    assert {figures[name] for name in MEANS} == {0.5}
    assert (figures["n_users"], figures["n_skipped"]) == (2, 1)


# fit, apply and evaluate agree -----------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(data):
    """Lists that some buyers lack, and lists of users who bought nothing."""
    recs, recent = data.recs(), data.recent_events()
    recs = recs.filter(pc.not_equal(pc.bit_wise_and(recs["user_id"], 15), 3))
    return recs, recent


@pytest.fixture(scope="module")
def weights(data):
    values = np.random.default_rng(0).choice([0.0, 0.3, 1.0, 7.5], data.n_users)
    # Half of the users have none, and some are not users at all.
    return pa.table({"user_id": np.arange(0, 2 * data.n_users, 2), "weight": values})


def check(learner, recs, recent, **options):
    """Check that the summary of `fit` equals what the biases do."""
    bias = learner.fit(recs, recent, **options)
    weights = options.get("weights")
    for figure, lists in (("before", recs), ("after", bias.apply(recs, k=learner.k))):
        found = tt.evaluate(lists, recent, k=learner.k, weights=weights)
        assert found[learner.metric] == pytest.approx(bias.summary[figure], abs=1e-9)
        assert found["n_users"] == bias.summary.n_users
        assert found["n_skipped"] == bias.summary.n_skipped
    assert bias.summary.n_skipped > 0
    return bias


METRICS = ("acc", "map", "ndcg")
SETTINGS = {
    "default": {},
    "free": {"penalty": 0, "max_bias": None, "max_cycles": None},
    "zero": {"unlisted": "zero", "penalty": 0.1},
    "zero and unsold": {"unlisted": "zero", "exclude_unsold": True, "max_bias": None, "penalty": 0},
    "unsold": {"exclude_unsold": True},
    "log": {"scale": "log", "penalty": 0.1},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_summary_is_what_evaluate_finds(settings, tables, weights, data):
    for metric in METRICS:
        learner = tt.BiasLearner(method="ascent", k=5, metric=metric, **SETTINGS[settings])
        bias = check(learner, *tables)
        assert bias.summary.after > bias.summary.before
        check(learner, *tables, weights=weights)
    yesterday = learner.fit(data.recs(), data.history_events())
    check(learner, *tables, start=yesterday)


def test_counts_are_those_of_the_tables(tables):
    recs, recent = tables
    listed, buyers = set(recs["user_id"].to_pylist()), set(recent["user_id"].to_pylist())
    summary = tt.BiasLearner(method="ascent", k=5).fit(recs, recent).summary
    assert buyers - listed
    assert summary.n_users == len(buyers)
    assert summary.n_skipped == len(listed - buyers) > 0
    assert summary.n_items == len({*recs["item_id"].to_pylist(), *recent["item_id"].to_pylist()})


LABELS = (
    [5, -3],
    ["this week", "last week"],
    [dt.date(2026, 11, 8), dt.date(2026, 11, 1)],
    [dt.datetime(2026, 11, 8, 6), dt.datetime(2026, 11, 8, 18)],
)


def stacked(labels):
    """Lists and purchases of two windows with these labels."""
    drawn = [
        generate_drift(n_users=200, n_items=80, n_listed=15, drift=1.0, seed=seed)
        for seed in (1, 2)
    ]
    for make in (DriftData.recs, DriftData.recent_events):
        parts = [make(data) for data in drawn]
        windows = [pa.array([label] * len(part)) for part, label in zip(parts, labels, strict=True)]
        yield pa.concat_tables(map(pa.Table.append_column, parts, ["window"] * 2, windows))


def test_windows_of_any_kind_are_stacked(weights, bytes_of):
    for labels, settings in itertools.product(LABELS, ("default", "zero and unsold")):
        recs, recent = stacked(labels)
        learner = tt.BiasLearner(method="ascent", k=5, **SETTINGS[settings])
        bias = check(learner, recs, recent, weights=weights)
        users = {(row["user_id"], row["window"]) for row in recent.to_pylist()}
        assert bias.summary.n_users == len(users)
        top = bias.apply(recs, k=5)
        assert top.column_names == ["user_id", "window", "item_id", "score", "rank"]
        assert top["window"].type == recs["window"].type
    results = set()
    for labels in (["a", "b"], [1, 2], [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]):
        learner = tt.BiasLearner(method="ascent", k=5)
        results.add(bytes_of(learner.fit(*stacked(labels)).table()))
    assert len(results) == 1


def test_the_same_for_merged_rows(tables):
    recs, recent = tables
    twice = pa.concat_tables([recs, recs.slice(0, 1000)])
    bias = tt.BiasLearner(method="ascent", k=5).fit(twice, recent, duplicates="max")
    assert bias.summary == tt.BiasLearner(method="ascent", k=5).fit(recs, recent).summary
    assert bias.apply(twice, k=5, duplicates="max").equals(bias.apply(recs, k=5))


def test_the_same_for_other_k(tables):
    for metric, k in itertools.product(METRICS, (1, 2, 20)):
        check(tt.BiasLearner(method="ascent", k=k, metric=metric), *tables)
        check(tt.BiasLearner.paper(k=k, metric=metric), *tables)
