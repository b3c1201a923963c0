"""Spark gives the bytes, digits and refusals of memory, for any number of partitions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
from repeat_shop import NOW
from trimtab import spark as spark_api
from trimtab.learn import counted

pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.TrimtabWarning")


@contextmanager
def settings(spark: Any, **values: Any) -> Iterator[None]:
    """Settings of `spark.sql`, with _ for a dot; what was there before comes back."""
    names = {name: "spark.sql." + name.replace("_", ".") for name in values}
    before = {name: spark.conf.get(names[name]) for name in names}
    for name, value in values.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(names[name], value)


def partitions(spark: Any, n: int) -> Any:
    """Shuffles into n partitions, none of them merged for being small."""
    return settings(spark, shuffle_partitions=n, adaptive_coalescePartitions_enabled="false")


@dataclass
class OnSpark:
    """Frames of a session, divided into some partitions."""

    session: Any
    partitions: int

    def _frames(self, given: dict[str, Any]) -> dict[str, Any]:
        tables = {name: own for name, own in given.items() if isinstance(own, pa.Table)}
        frames = given | {name: self.session.createDataFrame(t) for name, t in tables.items()}
        for name, own in tables.items():  # times without a zone stay so
            if "timestamp" in own.column_names:
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
    "reranker, windows of an hour",
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
