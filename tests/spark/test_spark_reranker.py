"""fit of a Reranker on Spark in local mode: the local Reranker, byte for byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from large_tables import as_text, saved
from repeat_shop import RepeatShop
from spark_settings import on_spark, settings
from trimtab.spark import fit

NAMES = ("recs", "recent", "history")


@pytest.fixture(scope="module")
def shop():
    return RepeatShop(repeats=0.4, drift=1.0, n_users=300, n_items=60, n_listed=12)


def tables_of(shop):
    return {name: getattr(shop, name) for name in NAMES}


def same_bytes(spark, learner, tables, folder, *counts):
    """The local Reranker, after comparing its files with those of fits on Spark."""
    local = learner.fit(**tables)
    expected, frames = saved(local, folder / "local"), on_spark(spark, tables)
    for n in counts:
        found = fit(learner, **frames, partitions=n)
        assert saved(found, folder / str(n)) == expected
    return local


def test_windows_equal_the_local_fit_to_the_byte(spark, shop, tmp_path):
    local = same_bytes(spark, tt.RerankLearner(), tables_of(shop), tmp_path, 3)
    assert local.learned
    assert local.summary.sources


@pytest.mark.minutes
def test_any_partitions_and_text_ids(spark, shop, tmp_path):
    tables = {name: as_text(table) for name, table in tables_of(shop).items()}
    learner = tt.RerankLearner(widen="listed", metric="map", k=5, scale="list", seed=3)
    local = same_bytes(spark, learner, tables, tmp_path, 1, 7)
    assert local.learned


@pytest.mark.minutes
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
def test_one_window_with_dates_or_local_times(spark, shop, tmp_path, kind):
    newest = pc.equal(shop.recent["window"], pc.max(shop.recent["window"]))
    listed = pc.equal(shop.recs["window"], pc.max(shop.recs["window"]))
    tables = {
        "recs": shop.recs.filter(listed).drop_columns(["window"]),
        "recent": shop.recent.filter(newest).drop_columns(["window"]),
        "history": shop.known,  # also of the window itself
    }
    for name in ("recent", "history"):
        times = tables[name]["timestamp"].cast(pa.timestamp("us")).cast(kind, safe=False)
        place = tables[name].column_names.index("timestamp")
        tables[name] = tables[name].set_column(place, "timestamp", times)
    learner = tt.RerankLearner(repeats="add")
    with settings(spark, timestampType="TIMESTAMP_NTZ"):
        local = same_bytes(spark, learner, tables, tmp_path, 2)
    assert not local.has_zone
    assert local.learned


@pytest.mark.minutes
def test_lists_without_what_users_have_categories_and_weights(spark, tmp_path):
    shop = RepeatShop(0.4, drift=1.0, lists_own=False, n_users=300, n_items=60, n_listed=12)
    items = pa.table({"item_id": np.arange(60), "category": np.arange(60) % 5})
    local = same_bytes(spark, tt.RerankLearner(), tables_of(shop) | {"items": items}, tmp_path, 2)
    assert not local.may_repeat
    weights = pa.table({"user_id": np.arange(200), "weight": 0.1 + np.arange(200) % 3})
    tables = tables_of(shop) | {"weights": weights}
    (tmp_path / "weights").mkdir()
    same_bytes(spark, tt.RerankLearner(), tables, tmp_path / "weights", 3)


def changed(**columns):
    """Tables with other columns: None drops one."""

    def change(tables):
        for name, drop in columns.items():
            table = tables[name]
            if drop == "count":
                tables[name] = table.append_column("count", pa.repeat(1, table.num_rows))
            else:
                tables[name] = table.drop_columns([drop])
        return tables

    return change


REFUSED = {
    "history": lambda tables: tables | {"history": None},
    "user": changed(history="user_id"),
    "time": changed(history="timestamp"),
    "recent": changed(recent="timestamp"),
    "counts": changed(history="count"),
    "kinds": lambda tables: tables | {"history": as_text(tables["history"])},
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_tables_are_refused_with_the_same_message(spark, shop, name):
    tables = REFUSED[name]({name: table.slice(0, 200) for name, table in tables_of(shop).items()})
    with pytest.raises(tt.DataError) as told:
        tt.RerankLearner().fit(**tables)
    frames = on_spark(spark, tables)
    with pytest.raises(tt.DataError) as found:
        fit(tt.RerankLearner(), **frames, partitions=2)
    assert str(found.value).partition("' ")[2] == str(told.value).partition("' ")[2]


def test_start_is_refused(spark, shop):
    bias = tt.BiasLearner().fit(shop.recs, shop.recent)
    with pytest.raises(tt.SettingError, match="start is given"):
        fit(tt.RerankLearner(), "a", "b", history="c", start=bias)
