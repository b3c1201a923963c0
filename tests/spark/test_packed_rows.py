"""Rows packed for the shuffle: all of them arrive, each range of users in one partition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from trimtab.datasets import generate_drift
from trimtab.spark import fit
from trimtab.spark.packed_rows import choose_ranges, pack_rows, schema_of, unpack_rows

LISTS, SALES = 0, 1


def tables(text: bool) -> tuple[pa.Table, pa.Table]:
    """Lists and purchases in any order; some users have only purchases."""
    rng = np.random.default_rng(3)

    def ids(letter, numbers):
        return pa.array([f"{letter}{n:03d}" for n in numbers]) if text else pa.array(numbers)

    lists = {
        "user_id": ids("ü", rng.integers(0, 200, 3_000)),
        "item_id": ids("i", rng.integers(0, 50, 3_000)),
        "score": rng.random(3_000),
    }
    sales = {
        "user_id": ids("ü", rng.integers(0, 300, 400)),
        "item_id": ids("i", rng.integers(0, 60, 400)),
    }
    return pa.table(lists), pa.table(sales)


def forget_ids(monkeypatch, spark) -> None:
    """Make frames those of Spark 4.0."""
    for kind in type(spark.range(1)).__mro__:
        if "repartitionById" in vars(kind):
            monkeypatch.delattr(kind, "repartitionById")


def rows_of(table: pa.Table) -> list[tuple]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("text", [False, True], ids=["integers", "text"])
@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by hash"])
def test_all_rows_of_a_range_arrive_in_one_partition(spark, monkeypatch, text, by_id):
    if not by_id:  # Spark 4.0
        forget_ids(monkeypatch, spark)
    lists, sales = tables(text)
    frames = {
        LISTS: spark.createDataFrame(lists).repartition(3),
        SALES: spark.createDataFrame(sales),
    }
    ranges = choose_ranges(frames[LISTS], len(lists), 5)
    assert ranges.n_parts == 5
    packs = pack_rows(frames, ranges)
    found = packs.toArrow()
    schemas = {kind: schema_of(frame) for kind, frame in frames.items()}
    parts = dict(unpack_rows(iter(found.to_batches()), schemas))
    assert sorted(parts) == list(range(5))
    for kind, whole in ((LISTS, lists), (SALES, sales)):
        assert rows_of(pa.concat_tables([parts[part][kind] for part in range(5)])) == rows_of(whole)
    users = [sorted(set(parts[part][LISTS]["user_id"].to_pylist())) for part in range(5)]
    assert all(one[-1] < next_[0] for one, next_ in pairwise(users))
    assert max(map(len, users)) < 2 * min(map(len, users))
    places = packs.rdd.mapPartitionsWithIndex(
        lambda place, rows: [(row["part"], place) for row in rows]
    ).collect()
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


def test_one_user(spark):
    lists = pa.table({"user_id": [7, 7], "item_id": [1, 2], "score": [1.0, 0.5]})
    assert choose_ranges(spark.createDataFrame(lists), 2, 4).n_parts <= 2
