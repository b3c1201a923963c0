"""apply and evaluate on Spark: the local results for any partitions, and the same errors."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from large_tables import as_text, require_same_refusal
from spark_settings import on_spark, partitions, settings
from trimtab import spark as spark_api
from trimtab.datasets import load_complete_journey
from trimtab.engines import Repeat
from trimtab.errors import SettingError

K = 5
APRIL = dt.datetime(2017, 4, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def tables(data):
    """Lists, what was bought, and biases: with integers as ids, and with strings."""
    recs, recent = data.recs(), data.recent_events()
    learner = tt.BiasLearner(k=K)
    return {
        kind: (*pair, learner.fit(*pair))
        for kind, pair in {
            "integers": (recs, recent),
            "strings": (as_text(recs), as_text(recent)),
        }.items()
    }


def windowed(table, windows):
    """Rows shared out among windows."""
    places = np.arange(len(table)) % len(windows)
    return table.append_column("window", pa.array(windows).take(pa.array(places)))


# Lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n"), [("integers", 1), ("strings", 2), ("integers", 7)])
def test_lists_equal_the_local_ones(spark, tables, kind, n):
    recs, _, bias = tables[kind]
    with partitions(spark, n):
        top = spark_api.apply(bias, spark.createDataFrame(recs), K, partitions=n)
        assert top.rdd.getNumPartitions() == n
        assert top.toArrow().equals(bias.apply(recs, K))


def test_exclude_allowed_duplicates_windows_and_types(spark, tables):
    recs, recent, bias = tables["integers"]
    bias = replace(bias, unlisted="zero")
    windows = [dt.date(2026, 9, 30), dt.date(2026, 10, 1)]
    recs = windowed(recs.set_column(1, "item_id", recs["item_id"].cast(pa.int16())), windows)
    recs = pa.concat_tables([recs, recs.slice(0, 1000)]).take(
        np.random.default_rng(0).permutation(len(recs) + 1000)
    )
    exclude = pa.concat_tables([recs.slice(0, 200).select(["user_id", "item_id"]), recent.cast(
        pa.schema([("user_id", pa.int64()), ("item_id", pa.int16())])
    )])  # fmt: skip
    allowed = pa.table({"item_id": np.arange(5, 100)})
    found = spark_api.apply(
        bias,
        spark.createDataFrame(recs),
        K,
        exclude=spark.createDataFrame(exclude),
        allowed=spark.createDataFrame(allowed),
        duplicates="sum",
    ).toArrow()
    local = bias.apply(recs, K, exclude=exclude, allowed=allowed, duplicates="sum")
    assert found.equals(local)
    assert found.schema.field("item_id").type == pa.int16()
    assert found.schema.field("window").type == pa.date32()


@pytest.mark.parametrize("scale", ["additive", "log", "list"])
def test_lists_are_re_ranked_as_deep_as_locally(spark, tables, scale):
    recs, recent, bias = tables["integers"]
    bias = replace(bias, scale=scale, depth=4)
    frame, pairs = spark.createDataFrame(recs), spark.createDataFrame(recent)
    whole = bias.apply(recs, 8, depth="all")
    for given in ({}, {"depth": 6}, {"depth": "all"}):
        options = {"depth": 4, **given}  # without the warning
        local = bias.apply(recs, 8, exclude=recent, **options)
        assert spark_api.apply(bias, frame, 8, exclude=pairs, **given).toArrow().equals(local)
        assert bias.apply(recs, 8, **options).equals(whole) == (given == {"depth": "all"})


def test_a_table_by_name(spark, tables):
    recs, _, bias = tables["strings"]
    spark.createDataFrame(recs.slice(0, 300)).createOrReplaceTempView("lists_of_today")
    assert (
        spark_api.apply(bias, "lists_of_today", K)
        .toArrow()
        .equals(bias.apply(recs.slice(0, 300), K))
    )


def test_timestamps_as_windows_are_unchanged(spark, tables):
    recs, _, bias = tables["integers"]
    hours = [dt.datetime(2026, 10, 25, hour, 30) for hour in (0, 1, 2)]  # clocks go back
    recs = windowed(recs.slice(0, 600), [hour.replace(tzinfo=dt.UTC) for hour in hours])
    with settings(spark, session_timeZone="Europe/Berlin"):
        found = spark_api.apply(bias, spark.createDataFrame(recs), K).toArrow()
    local = bias.apply(recs, K)
    assert (
        found["window"]
        .cast(pa.timestamp("us", "UTC"))
        .equals(local["window"].cast(pa.timestamp("us", "UTC")))
    )
    assert found.drop_columns(["window"]).equals(local.drop_columns(["window"]))


# Figures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "counts"), [("integers", (1, 2, 7)), ("strings", (2,))])
def test_metrics_equal_the_local_ones_for_any_partitions(spark, tables, kind, counts):
    recs, recent, bias = tables[kind]
    top = bias.apply(recs, K).filter(pc.greater(pc.random(400 * K, initializer=1), 0.2))
    users = pc.unique(recent["user_id"])[::2]
    weights = pa.table({"user_id": users, "weight": np.logspace(-200, 100, len(users))})
    if kind == "strings":
        top, recent = windowed(top, ["b", "a"]), windowed(recent, ["a", "b"])
        weights = None
    given = {"topk": top, "truth": recent, "k": K, "weights": weights}
    frames, local = on_spark(spark, given), tt.evaluate(**given)
    for n in counts:
        with partitions(spark, n):
            assert spark_api.evaluate(**frames, partitions=n) == local


@pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")
def test_lifts_novelty_and_weights_of_purchases(spark, tables):
    recs, recent, bias = tables["integers"]
    price = pa.array(np.random.default_rng(0).choice([0.0, 0.3, 2.0], len(recent)))
    counts = pa.table({"item_id": np.arange(150), "count": np.linspace(0, 9, 150)})
    for history in (recent.select(["item_id"]), counts):
        given = {
            "topk": bias.apply(recs, K), "truth": recent.append_column("price", price), "k": K,
            "baseline": recs.slice(0, len(recs) // 2), "weight": "price", "history": history,
        }  # fmt: skip
        assert spark_api.evaluate(**on_spark(spark, given)) == tt.evaluate(**given)


def test_metrics_of_lists_with_scores_only(spark, tables):
    recs, recent, _ = tables["integers"]
    found = spark_api.evaluate(spark.createDataFrame(recs), spark.createDataFrame(recent), 1)
    assert found == tt.evaluate(recs, recent, 1)


# Real lists --------------------------------------------------------------------------------------


@pytest.mark.minutes
def test_a_real_shop(spark):
    events = load_complete_journey().events.select(["user_id", "item_id", "timestamp"])
    before = events.filter(pc.less(events["timestamp"], APRIL))
    month = pc.less(events["timestamp"], APRIL + dt.timedelta(days=30))
    recent = events.filter(pc.and_(pc.greater_equal(events["timestamp"], APRIL), month))
    recs = Repeat().fit(before, APRIL).recommend(n=30)
    bias = tt.BiasLearner(max_cycles=1).fit(recs, recent)
    local = bias.apply(recs)
    top = spark_api.apply(bias, spark.createDataFrame(recs)).cache()
    assert top.toArrow().equals(local)
    found = spark_api.evaluate(top, spark.createDataFrame(recent.drop_columns(["timestamp"])))
    assert found == tt.evaluate(local, recent)


# Bad tables --------------------------------------------------------------------------------------


BAD_LISTS = {
    "a repeat": {"duplicates": "error", "user_id": [1, 2, 2, 2]},
    "a score below 0": {"score": [1.0, -2.0, 0.5, -0.25]},
    "other items": {"item_id": ["a", "b", "c", "d"]},
    "no rows": {"rows": 0},
    "k of 0": {"k": 0},
    "an unknown way": {"duplicates": "min"},
    "a depth of 0": {"depth": 0},
    "a depth where unlisted items enter": {"depth": 3},
    "other users": {"exclude": {"user_id": ["1"], "item_id": [1]}},
    "nothing allowed": {"allowed": pa.table({"item_id": pa.array([], pa.int64())})},
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_bad_lists_are_refused_with_the_same_message(spark, tables, name):
    bad = dict(BAD_LISTS[name])
    columns = {"user_id": [1, 2, 2, 3], "item_id": [1, 1, 2, 1], "score": [1.0, 2.0, 0.5, 0.1]}
    columns |= {c: bad.pop(c) for c in columns if c in bad}
    if name == "a repeat":
        columns["item_id"] = [1, 1, 2, 2]
    recs = pa.table(columns).slice(0, bad.pop("rows", 4))
    bias = replace(tables["integers"][2], unlisted="zero")
    for table in ("exclude", "allowed"):
        if table in bad:
            bad[table] = pa.table(bad[table]) if isinstance(bad[table], dict) else bad[table]
    own = partial(spark_api.apply, bias, spark.createDataFrame(recs), **on_spark(spark, bad))
    require_same_refusal(partial(bias.apply, recs, **bad), own)


TOPK = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 7], "rank": [1, 2, 1]})
TRUTH = pa.table({"user_id": [1, 2], "item_id": [8, 8]})
BAD_FIGURES = {
    "no common user": (TOPK, TRUTH.set_column(0, "user_id", pa.array([3, 3])), None),
    "one window": (windowed(TOPK, ["a"]), TRUTH, None),
    "other items": (TOPK, TRUTH.set_column(1, "item_id", pa.array(["7", "8"])), None),
    "neither rank nor score": (TOPK.drop_columns(["rank"]), TRUTH, None),
    "a weight below 0": (TOPK, TRUTH, ([1, 2], [1.0, -0.5])),
    "two weights": (TOPK, TRUTH, ([2, 1, 2], [1.0, 0.5, 1.0])),
    "no weight": (TOPK, TRUTH, ([2, 1], [0.0, 0.0])),
}
BAD_PRICES = {"a price below 0": [1.0, -0.5], "no price": [0.0, 0.0]}


@pytest.mark.parametrize("name", [*BAD_FIGURES, *BAD_PRICES])
def test_bad_evaluations_are_refused_with_the_same_message(spark, name):
    topk, truth, weights = BAD_FIGURES.get(name, (TOPK, TRUTH, None))
    if weights is not None:
        weights = pa.table({"user_id": weights[0], "weight": weights[1]})
    given = {"topk": topk, "truth": truth, "k": 2, "weights": weights}
    if name in BAD_PRICES:
        given["truth"] = truth.append_column("price", pa.array(BAD_PRICES[name]))
        given["weight"] = "price"
    own = partial(spark_api.evaluate, **on_spark(spark, given))
    require_same_refusal(partial(tt.evaluate, **given), own)


def test_local_tables_and_bad_k_are_refused(spark, tables):
    recs, _, bias = tables["integers"]
    with pytest.raises(tt.DataError, match="recs is a Table"):
        spark_api.apply(bias, recs)
    with pytest.raises(SettingError, match="k=0"):
        spark_api.evaluate(spark.createDataFrame(TOPK), spark.createDataFrame(TRUTH), 0)
