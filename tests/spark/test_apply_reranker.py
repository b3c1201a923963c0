"""apply of a Reranker on Spark: the local lists for any partitions, and the same errors."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from large_tables import require_same_refusal
from made_rerankers import UNTIL, events_of, make_reranker
from repeat_shop import NOW, RepeatShop
from spark_settings import on_spark, partitions
from trimtab import spark as spark_api


@pytest.fixture(scope="module")
def shop():
    return RepeatShop(repeats=0.4, drift=1.0, n_users=300, n_items=60, n_listed=12)


@pytest.fixture(scope="module")
def reranker(shop):
    return tt.RerankLearner().fit(shop.recs, shop.recent, history=shop.history)


@pytest.mark.parametrize("n", [1, 5])
def test_learned_lists_equal_the_local_ones(spark, shop, reranker, n):
    given = {"history": shop.known, "as_of": NOW}
    local = reranker.apply(shop.tonight, 10, **given)
    assert not local.equals(reranker.bias.apply(shop.tonight, 10))
    with partitions(spark, n):
        top = spark_api.apply(
            reranker,
            spark.createDataFrame(shop.tonight),
            10,
            **on_spark(spark, given),
            partitions=n,
        )
        assert top.toArrow().equals(local)
        assert top.rdd.getNumPartitions() == n


# Item 9 was not learned: users 1 and 2 bought it, and only user 3 has it on a list.
RECS = pa.table(
    {
        "user_id": pa.array([1, 1, 2, 2, 3, 3, 4, 4], pa.int32()),
        "item_id": pa.array([1, 2, 1, 3, 9, 2, 3, 1], pa.int16()),
        "score": [0.9, 0.8, 0.7, 0.4, 0.9, 0.2, 0.5, 0.6],
    }
)
EVENTS = events_of(
    (1, 9, 1), (1, 9, 1.1), (2, 9, 3), (2, 5, 2), (2, 6, 40), (3, 1, 2), (3, 8, 1), (7, 1, 1),
    (1, 5, -1), (1, 77, 2),
)  # fmt: skip
BIASES = {1: 0.1, 2: -0.2, 3: 0.0, 5: 0.3, 6: 0.0, 8: 0.5}
OPTIONS = {
    "any": {},
    "listed": {"widen": "listed"},
    "own only": {"sources": ("own",)},
    "nothing added": {"sources": ()},
    "biases only": {"learned": False},
    "no repeats": {"repeats": False},
    "each list's scale": {"scale": "list"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_items_that_only_others_list(spark, name):
    ranker = make_reranker(BIASES, {5: 0.2, 8: 0.1}, trending=(8, 2, 5), **OPTIONS[name])
    given, k = {"history": EVENTS, "as_of": UNTIL}, 4 if ranker.sources else 2
    with pytest.warns(tt.TrimtabWarning, match="at or after as_of"):
        local = ranker.apply(RECS, k, **given)
    with partitions(spark, 3):
        top = spark_api.apply(ranker, spark.createDataFrame(RECS), k, **on_spark(spark, given))
        found = top.toArrow()
    assert found.equals(local)
    if name == "any":
        assert 9 in local.filter(pc.equal(local["user_id"], 1))["item_id"].to_pylist()


def test_exclude_allowed_depth_duplicates_and_windows(spark):
    ranker = make_reranker(BIASES, {5: 0.2}, trending=(8, 2, 5), depth=1)
    windows = pa.array(["a", "b"]).take(pa.array(np.arange(16) % 2))
    recs = pa.concat_tables([RECS, RECS]).append_column("window", windows)
    recs = pa.concat_tables([recs, recs.slice(0, 3)])
    options = {
        "history": EVENTS,
        "exclude": pa.table({"user_id": [1, 2, 2], "item_id": [5, 9, 1]}),
        "allowed": pa.table({"item_id": [1, 2, 3, 5, 9]}),
        "duplicates": "max",
    }
    for depth in ({"depth": 1}, {"depth": "all"}):
        local = ranker.apply(recs, 3, **options, **depth)
        frames = on_spark(spark, options | depth)
        with partitions(spark, 2):
            found = spark_api.apply(ranker, spark.createDataFrame(recs), 3, **frames).toArrow()
        assert found.equals(local)


def test_end_of_what_is_known_with_dates_and_weights(spark):
    ranker = make_reranker(BIASES, trending=(8,), has_zone=False)
    days = EVENTS["timestamp"].cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    events = EVENTS.set_column(2, "timestamp", days)
    events = events.append_column("weight", pa.array([1.0, 0.0] * 5))
    local = ranker.apply(RECS, 4, history=events)
    frame = spark.createDataFrame(RECS)
    found = spark_api.apply(ranker, frame, 4, history=spark.createDataFrame(events))
    assert found.toArrow().equals(local)
    assert spark_api.apply(ranker, frame, 2).toArrow().equals(ranker.apply(RECS, 2))


def weighted(weights):
    return events_of(*((1, 1, 1),) * len(weights)).append_column("weight", pa.array(weights))


REFUSED = {
    "zone": {"history": events_of((1, 1, 1), has_zone=False)},
    "users": {"history": events_of(("1", 1, 1))},
    "items": {"history": events_of((1, "1", 1))},
    "no time": {"history": EVENTS.drop_columns(["timestamp"])},
    "early": {"history": EVENTS, "as_of": UNTIL - timedelta(1)},
    "early without events": {"as_of": UNTIL - timedelta(1)},
    "not a time": {"history": EVENTS, "as_of": "soon"},
    "far after all others": {"history": events_of(*((1, 1, 1),) * 1_000, (1, 1, -90))},
    "a weight below 0": {"history": weighted([1.0, -2.0])},
    "no weight": {"history": weighted([0.0, 0.0])},
    "k": {"k": 0},
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_events_are_refused_with_the_same_message(spark, name):
    ranker, given = make_reranker(BIASES), dict(REFUSED[name])
    frames = on_spark(spark, given)
    if name == "zone":
        times = frames["history"]["timestamp"].cast("timestamp_ntz")
        frames["history"] = frames["history"].withColumn("timestamp", times)
    own = partial(spark_api.apply, ranker, spark.createDataFrame(RECS), **frames)
    require_same_refusal(partial(ranker.apply, RECS, **given), own)


def test_biases_refuse_events(spark):
    bias = make_reranker(BIASES).bias
    with pytest.raises(tt.SettingError, match="history: only a Reranker"):
        spark_api.apply(bias, "lists", history="events")
