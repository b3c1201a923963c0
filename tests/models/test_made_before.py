"""Files written by version 0.1.0 still load, roll back and serve."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import trimtab as tt
from trimtab import models
from trimtab.serve import make_app

MADE = Path(__file__).parents[1] / "files" / "made_by_0_1_0"


@pytest.fixture(scope="module")
def recs() -> pa.Table:
    return pq.read_table(MADE / "recs.parquet")


@pytest.fixture
def store(tmp_path) -> tt.Store:
    """A copy that a test may change."""
    return tt.Store(shutil.copytree(MADE / "store", tmp_path / "store"))


def with_text_ids(recs: pa.Table) -> pa.Table:
    ids = pc.binary_join_element_wise("sku", recs["item_id"].cast(pa.string()), "-")
    return recs.set_column(1, "item_id", ids)


def rerank(store: tt.Store, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a service on the store."""

    async def ask() -> httpx.Response:
        app = make_app(store)
        transport = httpx.ASGITransport(app=app)
        async with (
            app.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await client.post("/rerank", json=request)

    with ThreadPoolExecutor(1) as pool:  # a browser test may have left a loop in this thread
        answer = pool.submit(asyncio.run, ask()).result()
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_saved_bias_ranks_as_it_did(recs):
    for name, lists in (("hierarchy", recs), ("paper", with_text_ids(recs))):
        top = models.load(MADE / name).apply(lists, k=5)
        expected = pq.read_table(MADE / f"{name}_top.parquet")
        assert top.to_pylist() == expected.to_pylist()
        assert top["score"].to_numpy().tobytes() == expected["score"].to_numpy().tobytes()


def test_a_store_loads_its_served_version_rolls_back_and_is_not_changed(store, bytes_of):
    def files() -> dict[str, bytes]:
        paths = (path for path in store.folder.rglob("*") if path.is_file())
        return {path.name: path.read_bytes() for path in paths}

    before = files()
    assert [version.number for version in store.history()] == [1, 2]
    assert [version.as_of for version in store.history()] == ["2026-02-19", "2026-02-20"]
    for version in store.history():
        version.check()
        assert (version.reranker(), version.lists()) == (None, None)
    assert store.current().number == 2
    first, second = (bytes_of(store.version(number).bias().table()) for number in (1, 2))
    assert first != second
    assert bytes_of(store.load().table()) == bytes_of(models.load(store.folder).table()) == second
    with pytest.raises(tt.StoreError, match="has no reranker"):
        tt.Reranker.load(store.folder)
    assert files() == before
    assert store.rollback().number == 1
    assert bytes_of(tt.ItemBias.load(store.folder).table()) == first
    changes = [change["by"] for change in store.pointer()["changes"]]
    assert changes == ["refresh", "refresh", "rollback"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_service_ranks_as_apply_does(number, store):
    if number == 1:
        store.rollback()
    bias = store.load()
    ids = bias.item_ids[::7].tolist()
    scores = [1.0 / (place + 2) for place in range(len(ids))]
    lists = pa.table({"user_id": [1] * len(ids), "item_id": ids, "score": scores})
    answer = rerank(store, {"items": lists.select(["item_id", "score"]).to_pylist(), "k": 5})
    assert answer["version"] == number
    top = bias.apply(lists, k=5)
    assert answer["items"] == top.select(["item_id", "score"]).to_pylist()
