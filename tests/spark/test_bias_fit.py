"""fit on Spark in local mode: the local result, the same for any number of partitions."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from dated_shop import DatedShop
from drift import generate_drift
from large_tables import as_text, saved, weighed
from spark_settings import on_spark
from trimtab.datasets import load_complete_journey
from trimtab.engines import Markov
from trimtab.learn import counted
from trimtab.replay.windows import split_log
from trimtab.spark import fit
from trimtab.tables.times import as_datetime


@pytest.fixture(scope="module")
def journey():
    """Real lists and purchases: a Markov engine's, and the three days after it was trained."""
    split = split_log(load_complete_journey(), "2017-06-01", recent_days=3)
    engine = Markov(window_days=60).fit(split.train, as_of=as_datetime(split.recent_from))
    return engine.recommend(split.recent, n=50), split.recent


def frames(spark, *tables):
    return [spark.createDataFrame(table) for table in tables]


def test_default_on_a_real_log_equals_the_local_fit(spark, journey):
    recs, recent = frames(spark, *journey)
    held = spark.sparkContext._jsc.getPersistentRDDs().size()
    found = fit(tt.BiasLearner(), recs, recent, partitions=2)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == held  # it cleans up
    local = tt.BiasLearner().fit(*journey)
    assert found.table().equals(local.table())
    assert found.depth == local.depth
    same = [name for name in found.summary if found.summary[name] == local.summary[name]]
    assert same == list(found.summary)


def test_scale_of_each_list_equals_the_local_fit(spark):
    learner = tt.BiasLearner(scale="list")
    data = generate_drift(800, 100, 20, drift=1.0, seed=8)
    tables = data.recs(), data.recent_events()
    found, local = fit(learner, *frames(spark, *tables), partitions=3), learner.fit(*tables)
    assert local.bias.any()
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)
    assert (found.scale, found.depth) == ("list", local.depth)


@pytest.mark.minutes
def test_windows_history_categories_weights_and_text_ids(spark):
    data = generate_drift(300, 60, 15, drift=1.0, seed=2)
    days = np.datetime64("2026-03-01T00:00", "us")
    rng = np.random.default_rng(1)

    def dated(table, first, length):
        minutes = rng.integers(0, length * 1440, table.num_rows).astype("timedelta64[m]")
        return table.append_column(
            "timestamp", pa.array(days + np.timedelta64(first, "D") + minutes)
        )

    def windows(early, late):
        both = [
            table.append_column("window", pa.array([name] * table.num_rows))
            for name, table in (("a", early), ("b", late))
        ]
        return pa.concat_tables(both)

    recent = windows(dated(data.test_events(), 30, 3), dated(data.recent_events(), 33, 3))
    recs = windows(data.recs(), data.recs())
    users = np.arange(0, 300, 2)
    weights = pa.table({"user_id": users, "weight": np.where(users % 4 == 0, 2.0, 0.5)})
    history = dated(data.history_events(), 0, 36)
    names = ("recs", "recent", "history", "items", "weights")
    given = (recs, recent, history, data.catalogue(), weights)
    tables = {name: as_text(table) for name, table in zip(names, given, strict=True)}
    local = tt.BiasLearner(k=5).fit(**tables)
    found = fit(tt.BiasLearner(k=5), **on_spark(spark, tables), partitions=3)
    assert found.item_ids.equals(local.item_ids)
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)


def test_windows_held_out_equal_the_local_fit(spark, monkeypatch):
    monkeypatch.setattr(counted, "MOST_ENTRIES", 40_000)  # as if units with hits were many
    shop = DatedShop(n_users=800)
    tables = {"recs": shop.recs, "recent": shop.recent, "history": shop.history}
    local = tt.BiasLearner().fit(**tables)
    found = fit(tt.BiasLearner(), **on_spark(spark, tables), partitions=3)
    assert local.summary.forecast_windows == 3
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)


SMALL = generate_drift(400, 60, 12, drift=1.0, seed=8)


@pytest.fixture(scope="module")
def small(spark):
    return frames(spark, SMALL.recs(), SMALL.recent_events())


ASCENTS = {
    "log scale": tt.BiasLearner(k=5, metric="map", penalty=0.5, scale="log"),
    "scale of each list": tt.BiasLearner(k=5, method="ascent", scale="list"),
    "one cycle": tt.BiasLearner.paper(k=5, max_cycles=1),
}


@pytest.mark.parametrize("name", ASCENTS)
def test_ascent_equals_the_local_fit(small, name, bytes_of):
    found = fit(ASCENTS[name], *small, partitions=3)
    local = ASCENTS[name].fit(SMALL.recs(), SMALL.recent_events())
    assert local.bias.any()
    assert bytes_of(found.table()) == bytes_of(local.table())
    assert dict(found.summary) == dict(local.summary)
    assert (found.scale, found.depth) == (local.scale, local.depth)


def test_ascent_with_windows_times_weights_and_a_start(spark, bytes_of):
    shop = DatedShop(n_users=200)
    users = np.arange(0, 200, 2)
    tables = {
        "recs": pa.concat_tables([shop.recs, shop.recs.slice(0, 50)]),
        "recent": shop.recent,
        "weights": pa.table({"user_id": users, "weight": 0.3 + users % 3}),
    }
    learner = tt.BiasLearner.paper(metric="acc")
    options = {"start": learner.fit(*shop.newest()), "duplicates": "max"}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = fit(learner, **on_spark(spark, tables), **options)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    local = learner.fit(**tables, **options)
    assert local.window["first"].endswith("+00:00")
    assert bytes_of(found.table()) == bytes_of(local.table())
    assert dict(found.summary) == dict(local.summary)
    assert (found.window, found.settings) == (local.window, local.settings)


# What works in memory works on Spark --------------------------------------------------------------

SHOP = DatedShop(n_users=200)
SEVERAL = {"recs": SHOP.recs, "recent": SHOP.recent, "history": SHOP.history}


def front_door_cases():
    """Learner and tables of each case."""
    recs, recent, history = SEVERAL.values()
    users = np.arange(0, 190)
    user_weights = pa.table({"user_id": users, "weight": (users % 3) * 0.7})
    items, counts = np.unique(history["item_id"].to_numpy(), return_counts=True)
    weighted = SEVERAL | {"recent": weighed(recent), "history": weighed(history)}
    default = tt.BiasLearner()
    yield default, weighted | {"weights": user_weights}
    yield default, SEVERAL | {"history": pa.table({"item_id": items, "count": counts})}
    yield default, SEVERAL | {"history": weighed(history).drop_columns(["user_id"])}
    yield default, SEVERAL | {"recent": recent.drop_columns(["timestamp"])}
    yield tt.RerankLearner(), SEVERAL | {"weights": user_weights}
    paper = tt.BiasLearner.paper(max_cycles=1)
    yield paper, {"recs": recs, "recent": recent, "weights": user_weights}


def test_every_feature_gives_the_local_bytes(spark, tmp_path):
    for number, (learner, tables) in enumerate(front_door_cases()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tt.TrimtabWarning)
            models = learner.fit(**tables), fit(learner, **on_spark(spark, tables), partitions=2)
        local, found = (
            saved(model, tmp_path / f"{name}-{number}")
            for model, name in zip(models, ("local", "spark"), strict=True)
        )
        assert found == local, number


RECS, RECENT = SMALL.recs(), SMALL.recent_events()
TWICE = pa.concat_tables([RECS, RECS.slice(0, 1)])
STRANGE = pa.table({"user_id": [9999], "item_id": [1]})


def one_row(score):
    return pa.table({"user_id": [1], "item_id": [2], "score": [score]})


REFUSED = {
    "column": (RECS, RECENT.select(["user_id"]), {}, "missing column 'item_id' in recent"),
    "repeated": (TWICE, RECENT, {}, "more than once"),
    "kinds": (RECS, as_text(RECENT), {}, "'user_id'.*integers in recs"),
    "overlap": (RECS, STRANGE, {}, "no user_id in recent"),
    "empty": (RECS.slice(0, 0), RECENT, {}, "recs is empty"),
    "negative": (
        RECS.set_column(2, "score", pc.negate(RECS["score"])),
        RECENT,
        {"unlisted": "zero"},
        "'score' of recs has -.*unlisted='zero'",
    ),
    "nan": (one_row(float("nan")), RECENT, {}, "'score' of recs has nan"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_tables_are_refused(spark, name):
    recs, recent, settings, message = REFUSED[name]
    learner = tt.BiasLearner(k=5, **settings)
    with pytest.raises(tt.DataError, match=message):
        fit(learner, *frames(spark, recs, recent), partitions=2)


def test_weights_of_zero_are_refused(spark, small):
    users = RECS["user_id"].unique()
    weights = pa.table({"user_id": users, "weight": np.zeros(len(users))})
    with pytest.raises(tt.DataError, match="'weight' of weights is 0"):
        fit(tt.BiasLearner(k=5), *small, weights=spark.createDataFrame(weights), partitions=2)


def test_bad_settings_and_tables_are_refused():
    with pytest.raises(tt.SettingError, match="partitions=0"):
        fit(tt.BiasLearner(), "a", "b", partitions=0)
    with pytest.raises(tt.DataError, match="recs is a Table"):
        fit(tt.BiasLearner(), SMALL.recs(), SMALL.recent_events())
