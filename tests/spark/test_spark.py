"""Spark gives the bytes, digits and refusals of memory, for any number of partitions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import trimtab as tt
from changed_tables import files_of
from front_doors import (
    BIASES,
    apply_cases,
    check_fits,
    check_refused_fits,
    check_refused_lists,
    check_refused_metrics,
    draw_recs,
    evaluate_cases,
    shop_tables,
    with_type,
)
from golden_cases import cases, quiet
from made_biases import make_bias
from made_rerankers import events_of, make_reranker
from repeat_shop import NOW, RepeatShop
from spark_settings import on_spark, partitions, settings
from trimtab import spark as spark_api
from trimtab.learn import counted

pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")


@dataclass
class OnSpark:
    """Frames of a session, divided into some partitions."""

    session: Any
    partitions: int

    def _frames(self, given: dict[str, Any]) -> dict[str, Any]:
        frames = on_spark(self.session, given)
        for name, own in given.items():  # times without a zone stay so
            if isinstance(own, pa.Table) and "timestamp" in own.column_names:
                kind = own.schema.field("timestamp").type
                if pa.types.is_timestamp(kind) and kind.tz is None:
                    times = frames[name]["timestamp"].cast("timestamp_ntz")
                    frames[name] = frames[name].withColumn("timestamp", times)
        return {**frames, "partitions": self.partitions}

    def fit(self, learner, **given):
        return spark_api.fit(learner, **self._frames(given))

    def apply(self, model, **given):
        return spark_api.apply(model, **self._frames(given)).toArrow()

    def evaluate(self, **given):
        return spark_api.evaluate(**self._frames(given))


# Fits -------------------------------------------------------------------------------------------

SAME_BYTES = (
    "default, windows, text ids",
    "reranker, windows, text ids",
    *("paper, acc", "paper, map", "paper, ndcg"),
    "default, windows, categories, weights",
    "reranker, windows, categories, weights",
)


def test_the_same_fits_as_in_memory(spark, tmp_path):
    held = spark.sparkContext._jsc.getPersistentRDDs().size()
    check_fits([OnSpark(spark, 3)], tmp_path)
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == held  # it cleans up


@pytest.mark.parametrize("name", SAME_BYTES)
def test_the_golden_cases_have_the_same_bytes(spark, name, tmp_path):
    case = cases()[name]()
    expected = files_of(case.fit(), tmp_path / "memory")
    for n in (2, 7):
        with quiet():
            found = OnSpark(spark, n).fit(case.learner, **case.tables)
        assert files_of(found, tmp_path / str(n)) == expected


def test_the_same_bytes_if_only_a_sample_is_learned_from_in_any_time_zone(
    spark, monkeypatch, tmp_path
):
    whole, learner = tt.RerankLearner().fit(**shop_tables()), tt.RerankLearner()
    monkeypatch.setattr(counted, "MOST_ENTRIES", 3_000)
    local = learner.fit(**shop_tables())
    with settings(spark, session_timeZone="America/New_York"):
        found = OnSpark(spark, 3).fit(learner, **shop_tables())
    assert files_of(found, tmp_path / "found") == files_of(local, tmp_path / "local")
    assert whole.bias.window["first"].endswith("+00:00")
    assert whole.bias.summary.before == local.bias.summary.before  # everybody is counted
    assert files_of(whole, tmp_path / "whole") != files_of(local, tmp_path / "local")


@pytest.mark.minutes
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
def test_one_window_with_dates_or_local_times(spark, tmp_path, kind):
    shop = RepeatShop(0.4, drift=1.0, lists_own=False, n_users=300, n_items=60, n_listed=12)
    window = max(shop.recs["window"].to_pylist())
    tables = {
        name: getattr(shop, name)
        .filter(pa.compute.field("window") == window)
        .drop_columns("window")
        for name in ("recs", "recent")
    } | {"history": shop.known}  # also of the window itself
    for name in ("recent", "history"):
        local = with_type(tables[name], "timestamp", pa.timestamp("us"))
        tables[name] = with_type(local, "timestamp", kind)
    learner = tt.RerankLearner(repeats="add", widen="listed", metric="map", k=5, scale="list")
    local = learner.fit(**tables)
    with settings(spark, timestampType="TIMESTAMP_NTZ"):
        found = OnSpark(spark, 2).fit(learner, **tables)
    assert files_of(found, tmp_path / "found") == files_of(local, tmp_path / "local")
    assert local.learned
    assert not local.has_zone


# Lists and metrics ------------------------------------------------------------------------------


def test_the_same_lists_as_in_memory(spark):
    for number, (model, given) in enumerate(apply_cases()):
        zone = settings(spark, session_timeZone="Europe/Berlin")
        with partitions(spark, 1 + number % 3), zone:
            found = OnSpark(spark, 1 + number % 3).apply(model, **given)
        expected = model.apply(**given)
        if "window" in given["recs"].column_names:  # a time comes back in the session's zone
            kind = expected.schema.field("window").type
            assert pa.types.is_date(found.schema.field("window").type) == pa.types.is_date(kind)
            found = with_type(found, "window", kind)
        assert found.equals(expected), number


def test_learned_lists_partitions_and_tables_by_name(spark):
    case = cases()["reranker, windows"]()
    model, options = case.fit(), case.apply_options()
    local = model.apply(case.tonight, 10, **options)
    assert not local.equals(model.bias.apply(case.tonight, 10))
    spark.createDataFrame(case.tonight).createOrReplaceTempView("lists_of_tonight")
    history = spark.createDataFrame(options["history"])
    for n in (1, 5):
        with partitions(spark, n):
            top = spark_api.apply(
                model, "lists_of_tonight", 10, history=history, as_of=NOW, partitions=n
            )
            assert top.toArrow().equals(local)
            assert top.rdd.getNumPartitions() == n
    later = spark.createDataFrame(case.later)
    assert spark_api.evaluate(top, later) == tt.evaluate(local, case.later)


# Item 9 was not learned: users 1 and 2 bought it, and only user 3 has it on a list.
FEW = pa.table({
    "user_id": pa.array([1, 1, 2, 2, 3, 3, 4, 4], pa.int32()),
    "item_id": pa.array([1, 2, 1, 3, 9, 2, 3, 1], pa.int16()),
    "score": [0.9, 0.8, 0.7, 0.4, 0.9, 0.2, 0.5, 0.6],
})  # fmt: skip


def test_items_that_only_others_list(spark):
    history = events_of((1, 9, 1), (1, 9, 1.1), (2, 9, 3), (2, 5, 2), (3, 1, 2), (1, 77, 2))
    model = make_reranker({1: 0.1, 2: -0.2, 3: 0.0, 5: 0.3, 8: 0.5}, trending=(8, 2, 5))
    given = {"recs": FEW, "k": 4, "history": history}
    local = model.apply(**given)
    assert OnSpark(spark, 3).apply(model, **given).equals(local)
    assert (1, 9) in zip(local["user_id"].to_pylist(), local["item_id"].to_pylist(), strict=True)


def test_the_same_metrics_as_in_memory(spark):
    for number, given in enumerate(evaluate_cases()):
        assert str(OnSpark(spark, 1 + number % 4).evaluate(**given)) == str(tt.evaluate(**given))


# What is refused --------------------------------------------------------------------------------


def test_bad_tables_are_refused_as_in_memory(spark):
    with warnings.catch_warnings():
        check_refused_fits(OnSpark(spark, 2))
        check_refused_lists(OnSpark(spark, 2))
        check_refused_metrics(OnSpark(spark, 2))


def test_bad_settings_and_local_tables_are_refused():
    bias = make_bias(BIASES)
    with pytest.raises(tt.SettingError, match="partitions=0"):
        spark_api.fit(tt.BiasLearner(), "a", "b", partitions=0)
    with pytest.raises(tt.SettingError, match="history: only a Reranker"):
        spark_api.apply(bias, "lists", history="events")
    for call in (
        lambda: spark_api.fit(tt.BiasLearner(), **shop_tables()),
        lambda: spark_api.apply(bias, draw_recs()),
    ):
        with pytest.raises(tt.DataError, match="recs is a Table"):
            call()
