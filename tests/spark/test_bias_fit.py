"""fit on Spark in local mode: the local result, the same for any number of partitions."""

from __future__ import annotations

import logging
import re

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from dated_shop import DatedShop
from trimtab.datasets import generate_drift, load_complete_journey
from trimtab.engines import Markov
from trimtab.experiments.timeline import split_log
from trimtab.learn.partitions import partitioned_fit
from trimtab.spark import fit
from trimtab.tables.timestamps import as_datetime


@pytest.fixture(scope="module")
def journey():
    """Real lists and purchases: a Markov engine's, and the three days after it was trained."""
    split = split_log(load_complete_journey(), "2017-06-01", recent_days=3)
    engine = Markov(window_days=60).fit(split.train, as_of=as_datetime(split.recent_from))
    return engine.recommend(split.recent, n=50), split.recent


def frames(spark, *tables):
    return [spark.createDataFrame(table) for table in tables]


def objectives(caplog) -> list[float]:
    said = (record.getMessage() for record in caplog.records)
    return [float(found[1]) for text in said if (found := re.search(r"objective (\S+),", text))]


@pytest.mark.minutes
def test_paper_method_on_a_real_log(spark, journey, caplog, bytes_of):
    learner = tt.BiasLearner.paper(metric="acc")
    caplog.set_level(logging.INFO, "trimtab.spark")
    recs, recent = frames(spark, journey[0], journey[1].select(["user_id", "item_id"]))
    found = [fit(learner, recs, recent, partitions=n, max_rounds=4) for n in (2, 7)]  # of eight
    assert bytes_of(found[0].table()) == bytes_of(found[1].table())
    assert found[0].summary == found[1].summary
    local = tt.BiasLearner.paper(metric="acc").fit(*journey)
    assert found[0].summary.objective_after >= 0.995 * local.summary.objective_after
    assert found[0].summary.objective_before == local.summary.objective_before
    assert found[0].summary.before == pytest.approx(local.summary.before, rel=1e-9)
    told = objectives(caplog)[: found[0].summary.cycles]
    assert told == sorted(told)
    assert len(told) == 4
    # The objective claimed is that of applying the biases.
    lists = found[0].apply(journey[0], k=10)
    after = tt.evaluate(lists, journey[1], k=10)["acc"]
    assert found[0].summary.after == pytest.approx(after, rel=1e-9)


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


def in_words(table: pa.Table) -> pa.Table:
    """The same ids as text."""
    named = {"user_id": "u", "item_id": "é"}
    for place, name in enumerate(table.column_names):
        if name in named:
            text = [f"{named[name]}{value:05d}" for value in table[name].to_pylist()]
            table = table.set_column(place, name, pa.array(text))
    return table


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
    tables = {name: in_words(table) for name, table in zip(names, given, strict=True)}
    on_spark = {name: spark.createDataFrame(table) for name, table in tables.items()}
    local = tt.BiasLearner(k=5).fit(**tables)
    found = fit(tt.BiasLearner(k=5), **on_spark, partitions=3)
    assert found.item_ids.equals(local.item_ids)
    assert found.support.tolist() == local.support.tolist()
    assert found.bias == pytest.approx(local.bias, rel=1e-6, abs=1e-9)
    assert found.summary.forecast == pytest.approx(local.summary.forecast, rel=1e-6)
    assert found.summary.n_users == local.summary.n_users


def test_windows_held_out_equal_the_local_fit(spark, monkeypatch):
    monkeypatch.setattr(partitioned_fit, "_FEW_ENTRIES", 0)  # as if units with hits were many
    shop = DatedShop(n_users=800)
    tables = {"recs": shop.recs, "recent": shop.recent, "history": shop.history}
    local = tt.BiasLearner().fit(**tables)
    on_spark = {name: spark.createDataFrame(table) for name, table in tables.items()}
    found = fit(tt.BiasLearner(), **on_spark, partitions=3)
    assert local.summary.forecast_windows == 3
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)


SMALL = generate_drift(400, 60, 12, drift=1.0, seed=8)


@pytest.fixture(scope="module")
def small(spark):
    return frames(spark, SMALL.recs(), SMALL.recent_events())


@pytest.mark.minutes
def test_rounds_on_the_log_scale(small, bytes_of):
    settings = {"metric": "map", "penalty": 0.5, "scale": "log"}
    learner = tt.BiasLearner(k=5, **settings)
    one, many = (fit(learner, *small, partitions=n, max_rounds=3) for n in (1, 3))
    assert bytes_of(one.table()) == bytes_of(many.table())
    assert one.summary == many.summary
    assert one.depth == many.depth == learner.fit(SMALL.recs(), SMALL.recent_events()).depth
    assert one.summary.objective_after > one.summary.objective_before
    figures = tt.evaluate(one.apply(SMALL.recs(), k=5), SMALL.recent_events(), k=5)
    assert one.summary.after == pytest.approx(figures["map"], rel=1e-9)


@pytest.mark.minutes
def test_rounds_on_the_scale_of_each_list(small, bytes_of):
    learner = tt.BiasLearner(k=5, method="ascent", scale="list")
    one, many = (fit(learner, *small, partitions=n, max_rounds=3) for n in (1, 3))
    assert bytes_of(one.table()) == bytes_of(many.table())
    assert (one.scale, one.summary.unit) == ("list", 1.0)
    figures = tt.evaluate(one.apply(SMALL.recs(), k=5), SMALL.recent_events(), k=5)
    assert one.summary.after == pytest.approx(figures["ndcg"], rel=1e-9)
    assert one.summary.after > one.summary.before


@pytest.mark.minutes
def test_many_small_partitions(small, bytes_of):
    learner = tt.BiasLearner.paper(k=5)
    few, many = (fit(learner, *small, partitions=n, max_rounds=1) for n in (2, 32))
    assert bytes_of(few.table()) == bytes_of(many.table())
    assert few.summary.updates > 0


@pytest.mark.minutes
def test_warm_start_and_checkpoint(small, tmp_path, caplog, bytes_of):
    caplog.set_level(logging.INFO, "trimtab.spark")
    learner = tt.BiasLearner(k=5, method="ascent", metric="acc")
    folder = tmp_path.as_uri()
    found = fit(learner, *small, checkpoint=folder, partitions=2)
    steps = [record.getMessage() for record in caplog.records if "step" in record.getMessage()]
    caplog.clear()
    again = fit(learner, *small, checkpoint=folder, partitions=2)
    assert bytes_of(again.table()) == bytes_of(found.table())
    assert sum("found" in record.getMessage() for record in caplog.records) == len(steps) > 5
    with pytest.raises(tt.StoreError, match="checkpoint="):
        fit(learner, *small, checkpoint=folder, start=found, partitions=2)
    warm = fit(learner, *small, start=found, partitions=2)
    assert warm.summary.objective_after >= found.summary.objective_after
    assert warm.summary.cycles < found.summary.cycles


RECS, RECENT = SMALL.recs(), SMALL.recent_events()
TWICE = pa.concat_tables([RECS, RECS.slice(0, 1)])
STRANGE = pa.table({"user_id": [9999], "item_id": [1]})


def one_row(score):
    return pa.table({"user_id": [1], "item_id": [2], "score": [score]})


REFUSED = {
    "column": (RECS, RECENT.select(["user_id"]), {}, "missing column 'item_id' in recent"),
    "repeated": (TWICE, RECENT, {}, "more than once"),
    "kinds": (RECS, in_words(RECENT), {}, "'user_id'.*integers in recs"),
    "overlap": (RECS, STRANGE, {}, "no user_id in recent"),
    "empty": (RECS.slice(0, 0), RECENT, {}, "recs is empty"),
    "negative": (
        one_row(-1.0),
        RECENT,
        {"unlisted": "zero"},
        "'score' of recs has -1.*unlisted='zero'",
    ),
    "weighted": (
        RECS,
        RECENT.append_column("weight", pa.repeat(0.5, len(RECENT))),
        {},
        "recent has a column 'weight': a Spark fit counts all events alike",
    ),
    "nan": (one_row(float("nan")), RECENT, {}, "'score' of recs has 1 "),
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


def test_max_cycles_is_replaced_by_max_rounds():
    warned = pytest.warns(tt.TrimtabWarning, match=r"max_cycles=3.*max_rounds")
    with warned, pytest.raises(tt.DataError, match="recs"):
        fit(tt.BiasLearner(method="ascent", max_cycles=3), SMALL.recs(), SMALL.recent_events())


def test_bad_settings_and_tables_are_refused():
    with pytest.raises(tt.SettingError, match="max_rounds=0"):
        fit(tt.BiasLearner(), "a", "b", max_rounds=0)
    with pytest.raises(tt.SettingError, match="partitions=0"):
        fit(tt.BiasLearner(), "a", "b", partitions=0)
    with pytest.raises(tt.DataError, match="recs is a Table"):
        fit(tt.BiasLearner(), SMALL.recs(), SMALL.recent_events())
