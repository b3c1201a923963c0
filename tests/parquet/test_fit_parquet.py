"""Fits from files: the same bytes as fits in memory, however the rows are divided."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trimtab.learn.partitions import file_units

import trimtab as tt
from repeat_shop import RepeatShop
from trimtab.parquet import fit

NAMES = ("recs", "recent", "history")
Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def tables() -> Tables:
    shop = RepeatShop(repeats=0.4, drift=0.7, n_users=150)
    return {name: getattr(shop, name) for name in NAMES}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        yield


def write(tables: Tables, folder: Path) -> dict[str, Path]:
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=700)
    return {name: folder / f"{name}.parquet" for name in tables}


def saved(result: tt.ItemBias | tt.Reranker, folder: Path) -> dict[str, bytes]:
    result.save(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def require_same(learner, tables: Tables, folder: Path, rows_per_part: int, **more) -> None:
    expected = saved(learner.fit(**tables, **more), folder / "memory")
    paths = write(tables, folder)
    found = fit(learner, **paths, **more, rows_per_part=rows_per_part)
    assert saved(found, folder / "files") == expected


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(np.random.default_rng(5).permutation(table.num_rows))


def as_text(table: pa.Table) -> pa.Table:
    for place, name in enumerate(("user_id", "item_id")):
        text = pa.array([f"{name[0]}{value}" for value in table[name].to_pylist()])
        table = table.set_column(place, name, text)
    return table


@pytest.mark.parametrize("rows_per_part", [400, 3_000, 10**7])
@pytest.mark.parametrize("learner", [tt.BiasLearner(), tt.RerankLearner()])
def test_same_bytes_for_any_size_of_parts(tables, tmp_path, learner, rows_per_part):
    require_same(learner, tables, tmp_path, rows_per_part)


def test_same_bytes_for_rows_in_any_order(tables, tmp_path):
    mixed = {name: shuffled(table) for name, table in tables.items()}
    require_same(tt.RerankLearner(), mixed, tmp_path, 1_000)


def test_same_bytes_for_text_ids(tables, tmp_path):
    named = {name: as_text(table) for name, table in tables.items()}
    require_same(tt.RerankLearner(), named, tmp_path, 1_000)


def test_same_bytes_without_windows_and_with_categories_and_weights(tables, tmp_path):
    newest = max(tables["recs"]["window"].to_pylist())
    one = {
        name: table.filter(pa.compute.equal(table["window"], newest)).drop_columns(["window"])
        if "window" in table.column_names
        else table
        for name, table in tables.items()
    }
    items = sorted(set(tables["recs"]["item_id"].to_pylist()))
    catalogue = pa.table({"item_id": items, "category": [f"c{item % 5}" for item in items]})
    users = sorted(set(tables["recs"]["user_id"].to_pylist()))
    weights = pa.table({"user_id": users, "weight": [2.0] * len(users)})
    require_same(tt.RerankLearner(), one, tmp_path, 1_000, items=catalogue, weights=weights)


@pytest.mark.parametrize("scale", ["log", "additive", "list"])
def test_same_bytes_on_every_scale(tables, tmp_path, scale):
    require_same(tt.BiasLearner(scale=scale), tables, tmp_path, 2_000)


def test_same_bytes_without_history_or_times(tables, tmp_path):
    bare = {name: tables[name] for name in ("recs", "recent")}
    bare["recent"] = bare["recent"].drop_columns(["timestamp"])
    (tmp_path / "without").mkdir()
    require_same(tt.BiasLearner(), bare, tmp_path / "without", 1_000)
    untimed = {**bare, "history": tables["history"].drop_columns(["timestamp"])}
    require_same(tt.BiasLearner(), untimed, tmp_path, 1_000)


def test_same_bytes_for_a_dated_history_without_times_of_purchases(tables, tmp_path):
    days = pa.compute.floor_temporal(tables["history"]["timestamp"], unit="day")
    history = tables["history"].set_column(2, "timestamp", days)
    assert history.column_names == tables["history"].column_names
    untimed = {**tables, "recent": tables["recent"].drop_columns(["timestamp"]), "history": history}
    require_same(tt.BiasLearner(), untimed, tmp_path, 1_000)


def test_same_bytes_if_all_buyers_with_a_list_weigh_nothing(tables, tmp_path):
    newest = max(tables["recs"]["window"].to_pylist())
    one = {"history": tables["history"]}
    for name in ("recs", "recent"):
        of_newest = pa.compute.equal(tables[name]["window"], newest)
        one[name] = tables[name].filter(of_newest).drop_columns(["window"])
    listed = set(one["recs"]["user_id"].to_pylist())
    unlisted = max(listed) + 1
    bought = one["recent"].slice(0, 1).to_pydict() | {"user_id": [unlisted]}
    one["recent"] = pa.concat_tables([one["recent"], pa.table(bought, one["recent"].schema)])
    users = sorted(listed)
    weights = pa.table({"user_id": users, "weight": [0.0] * len(users)})
    require_same(tt.BiasLearner(), one, tmp_path, 1_000, weights=weights)


def test_same_bytes_if_units_with_hits_do_not_fit_into_memory(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(file_units, "_MOST_IN_MEMORY", 500)
    monkeypatch.setattr(file_units, "_ENTRIES_PER_FILE", 400)
    require_same(tt.RerankLearner(), tables, tmp_path, 1_000)


def test_temporary_files_are_removed(tables, tmp_path):
    paths = write(tables, tmp_path)
    room = tmp_path / "room"
    room.mkdir()
    fit(tt.BiasLearner(), **paths, rows_per_part=1_000, folder=room)
    assert list(room.iterdir()) == []
    twice = pa.concat_tables([tables["recs"], tables["recs"].slice(0, 1)])
    pq.write_table(twice, paths["recs"])
    with pytest.raises(tt.DataError, match="more than once"):
        fit(tt.BiasLearner(), **paths, rows_per_part=1_000, folder=room)
    assert list(room.iterdir()) == []


def test_what_only_a_fit_in_memory_takes_is_refused(tables):
    recs, recent, history = (tables[name] for name in NAMES)
    with pytest.raises(tt.SettingError, match="method='ascent': files are learned from by the"):
        fit(tt.BiasLearner(method="ascent"), recs, recent)
    with pytest.raises(tt.DataError, match="history must be events with 'user_id'"):
        fit(tt.BiasLearner(), recs, recent, history=history.drop_columns(["user_id"]))
    weighted = recent.append_column("weight", pa.array(np.ones(recent.num_rows)))
    with pytest.raises(tt.DataError, match="recent has a column 'weight'"):
        fit(tt.BiasLearner(), recs, weighted)
    with pytest.raises(tt.DataError, match="history is missing"):
        fit(tt.RerankLearner(), recs, recent)
    with pytest.raises(tt.DataError, match="recent has no column 'timestamp'"):
        fit(tt.RerankLearner(), recs, recent.drop_columns(["timestamp"]), history=history)
