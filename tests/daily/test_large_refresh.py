"""The daily job on lists that stay in their files: the same version as with lists in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shops import AS_OF, TONIGHT, Shop, retyped
from trimtab.errors import DataError, RefusedError
from trimtab.learn import BiasLearner
from trimtab.replay import dated_lists
from trimtab.replay.dated_lists import find_lists, open_rows, some_lists
from trimtab.store import Version
from trimtab.tables.rows import ParquetRows

pytestmark = pytest.mark.xdist_group("shop")


def files_of(version: Version) -> dict[str, bytes]:
    paths = (path for path in version.folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(version.folder)): path.read_bytes() for path in paths}
    found.pop("manifest.json")  # it has the time of day
    return found


def manifest_of(version: Version) -> dict[str, object]:
    differs = {"created", "seconds", "files", "number"}
    return {name: told for name, told in version.manifest.items() if name not in differs}


@pytest.fixture
def keep_in_files(monkeypatch):
    """Treat lists of any size as large, and note which are read into memory as a whole."""
    read, whole = [], ParquetRows.read

    def note(rows):
        if "score" in rows.names:
            read.append(rows)
        return whole(rows)

    monkeypatch.setattr(dated_lists, "LARGE", 10)
    monkeypatch.setattr(ParquetRows, "read", note)
    return read


@pytest.mark.parametrize(
    "options",
    [
        {"method": "reranker"}, {"finish_lists": True}, {"method": "auto"},
        {"learner": BiasLearner(method="ascent")},
    ],
)  # fmt: skip
def test_the_same_version(shop: Shop, keep_in_files, monkeypatch, options):
    found = shop.job(**options).run(AS_OF).version
    assert keep_in_files == [] or "learner" in options
    assert [path.name for path in shop.store.iterdir() if path.name.startswith(".staging")] == []
    monkeypatch.setattr(dated_lists, "LARGE", 10**9)
    expected = shop.job(**options).run(AS_OF).version
    assert files_of(found) == files_of(expected)
    assert manifest_of(found) == manifest_of(expected)
    found.check()


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=["string", "string_view", "dictionary"],
)
def test_text_ids_of_any_kind(shop: Shop, monkeypatch, kind):
    for path in (shop.events, *shop.lists.iterdir()):
        table = pq.read_table(path)
        for name in ("user_id", "item_id"):
            table = retyped(retyped(table, name, pa.string()), name, kind)
        pq.write_table(table, path)
        assert pq.read_schema(path).field("item_id").type == kind
    biases, lists = [], []
    for large in (10**9, 10):
        monkeypatch.setattr(dated_lists, "LARGE", large)
        files = files_of(shop.job(finish_lists=True).run(AS_OF).version)
        lists.append(pq.read_table(pa.BufferReader(files.pop("top.parquet"))).to_pydict())
        biases.append(files)
    assert biases[0] == biases[1]
    assert lists[0] == lists[1]


def test_refusals_are_those_in_memory(shop: Shop, monkeypatch):
    whole, events = shop.of(TONIGHT), pq.read_table(shop.events)
    for large in (10**9, 10):
        monkeypatch.setattr(dated_lists, "LARGE", large)
        shop.change(TONIGHT, lambda table: table.slice(0, table.num_rows // 4))
        with pytest.raises(RefusedError, match=r"lists of .* cover \d+ users"):
            shop.job(method="reranker").run(AS_OF)
        assert not (shop.store / "current.json").exists()
        pq.write_table(whole, shop.lists / f"{TONIGHT}.parquet")
        text = pa.array([f"u{user}" for user in events["user_id"].to_pylist()])
        pq.write_table(events.set_column(0, "user_id", text), shop.events)
        with pytest.raises(DataError, match=r"user_id.*integers.*strings"):
            shop.job(method="reranker").run(AS_OF)
        pq.write_table(events, shop.events)


def test_lists_to_look_at_are_whole(shop: Shop, monkeypatch):
    monkeypatch.setattr(dated_lists, "LARGE", 10)
    monkeypatch.setattr(dated_lists, "_MOST_CHECKED", 500)
    lists = pq.read_table(shop.lists / f"{TONIGHT}.parquet")
    some, n_users = some_lists(open_rows(find_lists(shop.lists, "UTC"), TONIGHT))
    every = lists["user_id"].value_counts().to_pylist()
    counts = {found["values"]: found["counts"] for found in every}
    picked = some["user_id"].value_counts().to_pylist()
    assert 0 < len(picked) < len(counts)
    assert all(counts[found["values"]] == found["counts"] for found in picked)
    assert n_users == pytest.approx(len(counts), rel=0.2)
