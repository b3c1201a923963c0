"""Versions with a reranker: read, checked, damaged, rolled back, and removed like any other."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

import trimtab as tt
from made_rerankers import make_reranker
from stores import ABOUT, BIAS, publish
from trimtab import models
from trimtab.errors import StoreError
from trimtab.store import Store
from trimtab.store.writer import open_writer
from trimtab.tables.files import write_table

LISTS = pa.table({"user_id": [1, 2], "item_id": [7, 8], "score": [0.5, 0.25], "rank": [1, 1]})


@pytest.fixture(scope="module")
def reranker() -> tt.Reranker:
    return make_reranker({7: 0.5, 8: 0.0, 9: -0.25}, trending=[8], depth=3)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def publish_reranker(store: Store, reranker: tt.Reranker, keep: int = 3) -> int:
    def write(folder: Path) -> None:
        reranker.bias.save(folder / "bias")
        reranker.save(folder / "reranker")
        write_table(LISTS, folder / "lists.parquet")

    about = {**ABOUT, "reranker": {"summary": asdict(reranker.summary)}}
    with open_writer(store) as writer:
        return writer.publish(write, about, keep)


def test_a_version_holds_a_reranker_and_its_lists(store, reranker, bytes_of):
    publish_reranker(store, reranker)
    version = store.current()
    version.check()
    for found in (version.reranker(), tt.Reranker.load(store.folder)):
        assert found.summary == reranker.summary
        assert found.learned == reranker.learned
        assert bytes_of(found.bias.table()) == bytes_of(reranker.bias.table())
    assert version.lists().equals(LISTS)
    assert version.forecast["forecast"] == reranker.summary.forecast
    assert bytes_of(store.load().table()) == bytes_of(reranker.bias.table())


def test_a_version_without_one_says_so(store):
    publish(store)
    version = store.current()
    assert (version.reranker(), version.lists(), version.forecast) == (None, None, {})
    with pytest.raises(StoreError, match=r"/store: the version served, 000001-2026-03-01, has no "):
        tt.Reranker.load(store.folder)
    with pytest.raises(StoreError, match=r"/store is a store"):
        make_reranker({1: 0.5}).save(store.folder)


def files_of(folder: Path) -> tuple[Path, Path]:
    """The table and the header of the reranker."""
    (table,) = folder.glob("reranker/*.parquet")
    return table, folder / "reranker" / "header.json"


def break_table(folder: Path) -> None:
    content = bytearray(files_of(folder)[0].read_bytes())
    content[len(content) // 2] ^= 1
    files_of(folder)[0].write_bytes(content)


def cut_header(folder: Path) -> None:
    files_of(folder)[1].write_bytes(files_of(folder)[1].read_bytes()[:50])


DAMAGES = (
    break_table, cut_header, lambda folder: files_of(folder)[0].unlink(),
    lambda folder: shutil.rmtree(folder / "reranker"),
)  # fmt: skip


def test_a_damaged_reranker_is_refused_and_the_biases_are_still_served(store, reranker, bytes_of):
    for damage in DAMAGES:
        publish_reranker(store, reranker)
        version = store.current()
        damage(version.folder)
        for read in (version.reranker, version.check, lambda: tt.Reranker.load(store.folder)):
            with pytest.raises(StoreError, match="reranker"):
                read()
        assert bytes_of(store.load().table()) == bytes_of(reranker.bias.table())
        assert version.lists().equals(LISTS)


def test_damaged_lists_are_refused(store, reranker):
    publish_reranker(store, reranker)
    version = store.current()
    (version.folder / "lists.parquet").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"lists\.parquet: damaged"):
        version.lists()
    assert version.reranker() is not None


def test_a_rollback_passes_over_a_damaged_reranker(store, reranker):
    publish(store, keep=9)
    publish_reranker(store, reranker, keep=9)
    publish(store, keep=9)
    break_table(store.version(2).folder)
    with pytest.raises(StoreError, match="reranker"):
        store.rollback(2)
    assert store.current().number == 3
    assert store.rollback().number == 1


def test_a_rollback_brings_back_model_and_lists_and_old_versions_are_removed_whole(store, reranker):
    folder = store.version(publish_reranker(store, reranker)).folder
    publish(store)
    assert tt.ItemBias.load(store.folder).summary == BIAS.summary
    assert models.load(store.folder).summary == BIAS.summary
    store.rollback()
    assert models.load(store.folder).summary == reranker.summary
    assert store.current().lists().equals(LISTS)
    store.rollback(2)
    publish(store, keep=1)
    assert not folder.exists()
    assert [version.number for version in store.history()] == [3]
