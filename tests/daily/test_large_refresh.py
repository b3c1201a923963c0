"""The daily job on lists that stay in their files: the same version as with lists in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shops import AS_OF, TONIGHT, Shop
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
    "options", [{"method": "reranker"}, {"finish_lists": True}, {"method": "auto"}]
)
def test_the_same_version(shop: Shop, keep_in_files, monkeypatch, options):
    found = shop.job(**options).run(AS_OF).version
    assert keep_in_files == []
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
            ids = table[name].cast(pa.string())
            ids = ids.dictionary_encode() if pa.types.is_dictionary(kind) else ids.cast(kind)
            table = table.set_column(table.column_names.index(name), name, ids)
        pq.write_table(table, path)
        assert pq.read_schema(path).field("item_id").type == kind
    biases, lists = [], []
    for large in (10**9, 10):
        monkeypatch.setattr(dated_lists, "LARGE", large)
        version = shop.job(finish_lists=True).run(AS_OF).version
        files = files_of(version)
        lists.append(pq.read_table(pa.BufferReader(files.pop("top.parquet"))).to_pydict())
        biases.append(files)
    assert biases[0] == biases[1]
    assert lists[0] == lists[1]


def test_the_ascent_learns_from_large_lists(shop: Shop, monkeypatch):
    learner = BiasLearner(method="ascent")
    expected = shop.job(learner=learner).run(AS_OF).version
    monkeypatch.setattr(dated_lists, "LARGE", 10)
    found = shop.job(learner=learner).run(AS_OF).version
    assert files_of(found) == files_of(expected)


def test_lists_of_few_users_are_refused(shop: Shop, keep_in_files):
    newest = shop.lists / f"{TONIGHT}.parquet"
    lists = pq.read_table(newest)
    pq.write_table(lists.slice(0, lists.num_rows // 4), newest)
    with pytest.raises(RefusedError, match=r"lists of .* cover \d+ users"):
        shop.job(method="reranker").run(AS_OF)
    assert not (shop.store / "current.json").exists()


def test_events_with_ids_of_another_kind_are_refused_as_in_memory(shop: Shop, monkeypatch):
    events = pq.read_table(shop.events)
    text = [f"u{user}" for user in events["user_id"].to_pylist()]
    place = events.column_names.index("user_id")
    pq.write_table(events.set_column(place, "user_id", pa.array(text)), shop.events)
    said = []
    for large in (10**9, 10):
        monkeypatch.setattr(dated_lists, "LARGE", large)
        with pytest.raises(DataError, match="user_id") as refused:
            shop.job(method="reranker").run(AS_OF)
        said.append(str(refused.value))
    assert "integers in recs but strings in recent" in said[0]
    assert all("integers" in one and "strings" in one for one in said)


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
