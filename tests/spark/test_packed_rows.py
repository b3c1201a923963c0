"""Rows packed for the shuffle: as Spark 4.0 divides them, and in batches of any size."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException

import trimtab as tt
from changed_tables import with_column
from drift import generate_drift
from trimtab.parts.spark import _batches_of_many_rows as batches_of_many_rows
from trimtab.spark import fit

MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_LIMIT = str(2**31 - 1)


def forget_ids(monkeypatch, spark) -> None:
    """Make frames those of Spark 4.0."""
    for kind in type(spark.range(1)).__mro__:
        if "repartitionById" in vars(kind):
            monkeypatch.delattr(kind, "repartitionById")


def test_a_fit_with_two_ranges_in_a_partition_is_the_same(spark, monkeypatch):
    forget_ids(monkeypatch, spark)
    """Users have large numbers, and more parts are asked for than there are partitions."""
    data = generate_drift(600, 80, 15, drift=1.0, seed=8)
    given = [
        with_column(table, "user_id", pc.subtract(2**40, table["user_id"]))
        for table in (data.recs(), data.recent_events())
    ]
    local = tt.BiasLearner(k=5).fit(*given)
    found = fit(tt.BiasLearner(k=5), *map(spark.createDataFrame, given), partitions=7)
    assert local.bias.any()
    assert found.table().equals(local.table())
    assert dict(found.summary) == dict(local.summary)


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
