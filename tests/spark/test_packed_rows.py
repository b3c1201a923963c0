"""Rows packed for the shuffle: all of them arrive, each range of users in one partition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import trimtab as tt
from drift import generate_drift
from large_tables import as_text
from trimtab.parts.spark import SparkTable, open_spark
from trimtab.parts.spark import _batches_of_many_rows as batches_of_many_rows
from trimtab.spark import fit

LISTS, SALES = "recs", "recent"
MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_LIMIT = str(2**31 - 1)


def tables(text: bool) -> tuple[pa.Table, pa.Table]:
    """Lists and purchases in any order; some users have only purchases."""
    rng = np.random.default_rng(3)
    lists, sales = (
        pa.table({"user_id": rng.integers(0, n_users, n), "item_id": rng.integers(0, 60, n)})
        for n_users, n in ((200, 3_000), (300, 400))
    )
    lists = lists.append_column("score", pa.array(rng.random(3_000)))
    return (as_text(lists), as_text(sales)) if text else (lists, sales)


def forget_ids(monkeypatch, spark) -> None:
    """Make frames those of Spark 4.0."""
    for kind in type(spark.range(1)).__mro__:
        if "repartitionById" in vars(kind):
            monkeypatch.delattr(kind, "repartitionById")


def rows_of(table: pa.Table) -> list[tuple]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def packed(n_parts: int, **frames):
    """Frames by name, in parts."""
    tables = {name: SparkTable(name, frame, frame.columns) for name, frame in frames.items()}
    return open_spark(tables, n_parts)


def columns():
    """A function that makes values that can be packed of a part's tables.

    Workers cannot import this module, so it travels by value.
    """

    def columns_of(tables):
        return {
            kind: {name: table[name].combine_chunks() for name in table.column_names}
            for kind, table in tables.items()
        }

    return columns_of


@pytest.mark.parametrize("text", [False, True], ids=["integers", "text"])
@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by hash"])
def test_all_rows_of_a_range_arrive_in_one_partition(spark, monkeypatch, text, by_id):
    if not by_id:  # Spark 4.0
        forget_ids(monkeypatch, spark)
    lists, sales = tables(text)
    given = spark.createDataFrame(lists).repartition(3), spark.createDataFrame(sales)
    with packed(5, recs=given[0], recent=given[1]) as packs:
        parts = list(packs.map(columns()))
        places = packs.frame.rdd.mapPartitionsWithIndex(
            lambda place, rows: [(row["part"], place) for row in rows]
        ).collect()
    assert len(parts) == 5
    for kind, whole in ((LISTS, lists), (SALES, sales)):
        found = [
            row
            for part in parts
            for row in zip(*map(pa.Array.to_pylist, part[kind].values()), strict=True)
        ]
        assert sorted(found) == rows_of(whole)
    users = [sorted(set(part[LISTS]["user_id"].to_pylist())) for part in parts]
    assert all(one[-1] < next_[0] for one, next_ in pairwise(users))
    assert max(map(len, users)) < 2 * min(map(len, users))
    assert len(set(places)) == 5


def test_a_fit_with_two_ranges_in_a_partition_is_the_same(spark, monkeypatch):
    forget_ids(monkeypatch, spark)
    data = generate_drift(600, 80, 15, drift=1.0, seed=8)
    given = data.recs(), data.recent_events()
    local = tt.BiasLearner(k=5).fit(*given)
    found = fit(tt.BiasLearner(k=5), *map(spark.createDataFrame, given), partitions=7)
    assert local.bias.any()
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)


def test_one_user_and_large_whole_numbers_arrive_too(spark):
    users = pa.table({"user_id": [2**40, -(2**40), 3, 2**31], "item_id": [1, 2**62, -5, 4]})
    for n_parts, table in ((4, users.slice(2, 1)), (1, users)):
        with packed(n_parts, recent=spark.createDataFrame(table)) as packs:
            (part,) = packs.map(columns())
        found = zip(*map(pa.Array.to_pylist, part[SALES].values()), strict=True)
        assert sorted(found) == rows_of(table)


@pytest.fixture
def settings(spark):
    """The session's settings, restored after the test."""
    yield spark.conf
    spark.conf.unset(MOST_BYTES)
    spark.conf.unset(MOST_ROWS)


def test_batches_are_not_measured_while_rows_are_sent(spark, settings, monkeypatch):
    for own in (None, "1000000"):
        if own is not None:
            settings.set(MOST_BYTES, own)
        with batches_of_many_rows(spark):
            with batches_of_many_rows(spark):  # as when two fits run at a time
                assert settings.get(MOST_BYTES) == NO_LIMIT
            assert settings.get(MOST_BYTES) == NO_LIMIT
        assert settings.get(MOST_BYTES, None) == own
        with pytest.raises(ZeroDivisionError), batches_of_many_rows(spark):
            raise ZeroDivisionError
        assert settings.get(MOST_BYTES, None) == own
    for rows in ("0", "10000000"):  # batches of any number of rows stay small
        settings.set(MOST_ROWS, rows)
        with batches_of_many_rows(spark):
            assert settings.get(MOST_BYTES, None) == own
    settings.unset(MOST_ROWS)

    def refuse(self, key, value):
        raise AnalysisException("this platform does not allow that")

    monkeypatch.setattr(type(spark.conf), "set", refuse)
    with batches_of_many_rows(spark):
        assert settings.get(MOST_BYTES, None) == own
