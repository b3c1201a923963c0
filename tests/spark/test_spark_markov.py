"""Markov on Spark counts and lists what the local engine does, for any partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from spark_settings import settings
from trimtab import engines
from trimtab.datasets import load_complete_journey
from trimtab.engines.base import Events
from trimtab.engines.markov import count_first_order
from trimtab.errors import DataError, SettingError, TrimtabError
from trimtab.spark.markov import Markov
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import microseconds

START = datetime(2026, 1, 1, tzinfo=UTC)
AS_OF = START + timedelta(days=40)
ALL_NAMES = ("user_id", "item_id", "timestamp")


def table(*rows):
    """A log of (user, item, day)."""
    users, items, days = zip(*rows, strict=True)
    times = pa.array([START + timedelta(days=day) for day in days], pa.timestamp("us", "UTC"))
    return pa.table([users, items, times], names=ALL_NAMES)


def random_log(seed, text=False):
    """Few different times, so that many purchases are made at once."""
    random = np.random.default_rng(seed)
    users, days = random.integers(0, 60, 900), random.integers(0, 30, 900)
    items = (random.random(900) ** 2 * 15).astype(int)
    if text:
        users, items = ([f"ü{id_}" for id_ in ids] for ids in (users, items))
    return table(*zip(users, items, map(int, days), strict=True))


def rows_of(frame):
    return sorted(map(tuple, frame.collect()))


# Counts ------------------------------------------------------------------------------------------


def test_counts_by_hand(spark):
    log = table(
        (1, 7, 0), (1, 8, 1), (1, 7, 2),  # 8 after 7, 7 after 8, 7 again
        (2, 7, 0), (2, 8, 0),  # at once: neither after the other
        (3, 8, 5), (3, 7, 6), (3, 8, 5),
    )  # fmt: skip
    engine = Markov(min_support=1).fit(spark.createDataFrame(log), AS_OF)
    assert rows_of(engine.buyers) == [(7, 3), (8, 3)]
    assert rows_of(engine.followers) == [(7, 7, 1), (7, 8, 1), (8, 7, 2)]
    assert (engine.pairs, engine.pair_followers) == (None, None)


@pytest.mark.minutes
def test_counts_on_a_whole_real_log(spark, tmp_path):
    log = load_complete_journey().events.select(ALL_NAMES)
    pq.write_table(log, tmp_path / "log.parquet")
    user_ids, (users,) = encode_ids([id_column("log", "user_id", log["user_id"])])
    item_ids, (items,) = encode_ids([id_column("log", "item_id", log["item_id"])])
    times = microseconds(log["timestamp"])
    as_of = datetime(2018, 1, 2, tzinfo=UTC)
    coded = Events(users, items, times, len(user_ids), len(item_ids), int(times.max()) + 1)
    least = 300
    local, local_buyers = count_first_order(coded, least)

    engine = Markov(min_support=least).fit(spark.read.parquet(str(tmp_path)), as_of)
    order = [("item_id", "ascending"), ("next_item_id", "ascending")]
    found = engine.followers.toArrow().sort_by(order)
    leading = np.repeat(item_ids, np.diff(local.indptr))
    columns = [leading, item_ids[local.items], local.counts.astype(np.int64)]
    expected = pa.table(columns, names=found.column_names).sort_by(order)
    assert found.cast(expected.schema).equals(expected)
    buyers = engine.buyers.toArrow().sort_by("item_id")
    assert np.array_equal(buyers["item_id"], item_ids)
    assert np.array_equal(buyers["users"], local_buyers)
    engine.unpersist()


# Lists -------------------------------------------------------------------------------------------


CASES = {
    "first order": ({}, False, 7),
    "decay": ({"window_days": 30, "decay_days": 0.5, "n_states": 4}, True, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_lists_are_the_local_ones(spark, name):
    options, text, n = CASES[name]
    log = random_log(1, text)
    with settings(spark, shuffle_partitions=n, adaptive_coalescePartitions_enabled="false"):
        engine = Markov(**options).fit(spark.createDataFrame(log), AS_OF)
        found = engine.recommend(n=8).toArrow()
        engine.unpersist()
    local = engines.Markov(**options).fit(log, AS_OF).recommend(n=8)
    assert found.select(["user_id", "item_id"]).equals(local.select(["user_id", "item_id"]))
    if "decay_days" in options:
        np.testing.assert_allclose(found["score"], local["score"], rtol=1e-12)
    else:
        assert found["score"].equals(local["score"])


@pytest.mark.minutes
def test_second_order_for_some_users_in_another_time_zone(spark):
    options = {"order": 2, "pair_support": 5, "max_pairs": 30, "window_days": 33}
    log = random_log(2)
    log = log.set_column(0, "user_id", log["user_id"].cast(pa.int32()))
    asked = pa.table({"user_id": pa.array([3, 3, 1, 999, *range(20, 60)])})
    with settings(spark, session_timeZone="Pacific/Auckland", shuffle_partitions=1):
        engine = Markov(**options).fit(spark.createDataFrame(log), AS_OF.isoformat())
        found = engine.recommend(spark.createDataFrame(asked), 5).toArrow()
        assert engine.pairs.count() == 30
        engine.unpersist()
    assert found.equals(engines.Markov(**options).fit(log, AS_OF).recommend(asked, 5))


def test_weights_of_pairs_by_hand(spark):
    log = table((1, 7, 0), (1, 8, 1), (1, 9, 2), (2, 8, 0), (2, 7, 4), (2, 9, 4), (3, 7, 0))
    engine = Markov(order=2, min_support=1, pair_support=2, max_pairs=1, decay_days=10)
    engine.fit(spark.createDataFrame(log), START + timedelta(days=5))
    ((*pair, total),) = engine.pairs.collect()
    assert pair == [7, 8, 2]  # and not 7 with 9, of as many users
    assert total == pytest.approx(np.exp(-0.4) + np.exp(-0.1))  # each user's later one of the two
    ((*followers, weight),) = engine.pair_followers.collect()
    assert followers == [7, 8, 9, 1]  # for user 2 not after both
    assert weight == pytest.approx(np.exp(-0.3))


def test_weights_far_apart_are_summed_exactly(spark):
    """Of what a float can hold: from about 1 down to exp(-480), and the sums of all between."""
    days = [0, 5, 11, 17, 23, 29]
    log = table(*((u, i, day + (i % 3) / 4) for u, day in enumerate(days) for i in range(3)))
    old = table((9, 10, 0), (9, 11, 1))
    log = pa.concat_tables([log, old])
    engine = Markov(decay_days=0.06, min_support=1)
    engine.fit(spark.createDataFrame(log), START + timedelta(days=30))
    found = {(j, i): weight for j, i, _, weight in engine.followers.collect()}
    ages = (30 - np.array(days) - 0.5) / 0.06
    assert found[0, 2] == pytest.approx(np.exp(-ages).sum(), rel=1e-13, abs=0)
    assert found[10, 11] == pytest.approx(np.exp(-29 / 0.06), rel=1e-13, abs=0)


# Refused -----------------------------------------------------------------------------------------


def same_error(local, on_spark):
    """Both refuse, in the same words."""
    with pytest.raises(TrimtabError) as told:
        local()
    with pytest.raises(type(told.value)) as found:
        on_spark()
    assert str(found.value) == str(told.value)


def test_what_is_refused_is_told_in_the_same_words(spark):
    log = random_log(3)
    frame = spark.createDataFrame(log)
    for options, as_of in [({}, START + timedelta(days=20)), ({"window_days": 5}, AS_OF), ({}, 7)]:
        same_error(
            partial(engines.Markov(**options).fit, log, as_of),
            partial(Markov(**options).fit, frame, as_of),
        )
    same_error(engines.Markov().recommend, Markov().recommend)
    for options in ({"order": 3}, {"window_days": 0}, {"min_support": 1.5}):
        same_error(partial(engines.Markov, **options), partial(Markov, **options))
    engine, local = Markov().fit(frame, AS_OF), engines.Markov().fit(log, AS_OF)
    same_error(partial(local.recommend, n=0), partial(engine.recommend, n=0))
    asked = pa.table({"user_id": ["1"]})
    same_error(
        partial(local.recommend, asked),
        partial(engine.recommend, spark.createDataFrame(asked)),
    )
    engine.unpersist()


def test_only_instants(spark):
    log = random_log(3)
    naive = spark.createDataFrame(log).withColumn("timestamp", F.to_timestamp_ntz("timestamp"))
    with pytest.raises(DataError, match=r"'timestamp' of events holds timestamp_ntz: engines need"):
        Markov().fit(naive, AS_OF)
    with pytest.raises(DataError, match=r"events is a Table: pass a Spark data frame or the name"):
        Markov().fit(log, AS_OF)
    with pytest.raises(SettingError, match=r"n_states=0: must be at least 1"):
        Markov(n_states=0)
