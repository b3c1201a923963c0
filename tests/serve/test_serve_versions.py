"""Versions change under load; a bad one is refused, and the one before it is still served."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from services import ADMIN_TOKEN, make_bias, publish, request_of, running, wait_for
from trimtab.errors import StoreError
from trimtab.serve import Settings, make_app
from trimtab.serve import watcher as watching_module
from trimtab.serve.watcher import StoreWatcher
from trimtab.store.versions import POINTER, Store

pytestmark = pytest.mark.xdist_group("serve-versions")
ITEMS = 50


def numbered(version: int):
    return make_bias(range(ITEMS), np.full(ITEMS, float(version)))


def served(server) -> int:
    return server.client.get("/version").json()["version"]


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    """A server and its store."""
    store = Store(tmp_path_factory.mktemp("watched") / "store")
    publish(store, numbered(1))
    with running(store, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as server:
        yield server, store


def publish_damaged(store: Store, name: str, content: bytes) -> Callable[[], object]:
    """Publish a version with a damaged file; return a function that repairs it."""
    aside = Store(store.folder.with_name("aside"))
    shutil.copytree(store.folder, aside.folder)
    publish(aside, numbered(99))
    version = aside.current().folder
    (path,) = version.glob(name)
    whole = path.read_bytes()
    path.write_bytes(content)
    shutil.copytree(version, store.folder / "versions" / version.name)
    (aside.folder / POINTER).replace(store.folder / POINTER)
    shutil.rmtree(aside.folder)
    damaged = store.folder / "versions" / version.name / path.relative_to(version)
    return lambda: put(damaged, whole)


def damage(store: Store, kind: str) -> Callable[[], object]:
    """Damage a store in some way; return a function that repairs it."""
    pointer, away = store.folder / POINTER, store.folder.with_name("away")
    if kind == "table":
        return publish_damaged(store, "bias/*.parquet", b"damaged")
    if kind == "manifest":
        return publish_damaged(store, "manifest.json", b"{}")
    if kind == "pointer":
        return overwrite(pointer, b'{"format": "trimtab-store", "layout')
    if kind == "empty pointer":
        whole = json.loads(pointer.read_bytes())
        return overwrite(pointer, json.dumps({**whole, "published": [{}]}).encode())
    moved = pointer if kind == "no pointer" else store.folder
    moved.rename(away)
    return lambda: away.rename(moved)


def overwrite(path: Path, content: bytes) -> Callable[[], object]:
    whole = path.read_bytes()
    put(path, content)
    return lambda: put(path, whole)


def put(path: Path, content: bytes) -> None:
    """Replace a file in one step: half a file would be another kind of damage."""
    part = path.with_name("part")
    part.write_bytes(content)
    part.replace(path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("table", ".parquet"), ("manifest", "manifest.json"), ("pointer", POINTER),
        ("empty pointer", "at published[0]: Object missing required field `number`"),
        ("no pointer", POINTER), ("no store", POINTER),
    ],
)  # fmt: skip
def test_a_bad_version_is_refused_and_the_one_before_is_still_served(watching, kind, reason):
    server, store = watching
    before, refusals = served(server), server.count("trimtab_version_refusals_total")
    repair = damage(store, kind)
    try:
        wait_for(lambda: server.client.get("/version").json()["refused"] is not None)
        about = server.client.get("/version").json()
        assert about["version"] == before
        assert reason in about["refused"]["reason"]
        assert server.count("trimtab_version_refusals_total") > refusals
        assert server.count("trimtab_version_refused") == 1
        assert server.rerank(request_of([3], [1.0]))["version"] == before
        assert server.reload()["refused"]["reason"] == about["refused"]["reason"]
    finally:
        repair()
    assert server.reload()["refused"] is None
    assert server.count("trimtab_version_refused") == 0
    assert served(server) == store.current().number


def test_a_rollback_is_served(watching):
    server, store = watching
    number = publish(store, numbered(store.current().number + 1))
    wait_for(lambda: served(server) == number)
    store.rollback()
    wait_for(lambda: served(server) == store.current().number < number)


def test_biases_too_large_for_ordinary_scores_are_refused(store):
    publish(store, make_bias([1, 2], [0.5, 1e308], scale="log"))
    with pytest.raises(StoreError, match=r"1e\+308"):
        StoreWatcher(store, Settings()).load()


def with_unsigned_ids(ids: list[int]):
    return replace(make_bias(range(len(ids)), np.ones(len(ids))), item_ids=np.array(ids, np.uint64))


def test_unsigned_ids_are_not_published(watching):
    """Fits make signed ids of them; a table made by hand is refused, and the service goes on."""
    server, store = watching
    before = served(server)
    with pytest.raises(StoreError, match="'item_id' holds uint64, but must hold int64 or text"):
        publish(store, with_unsigned_ids([5, 2**62]))
    assert server.rerank(request_of([5], [1.0]))["version"] == before == served(server)


def test_a_refused_version_is_tried_again(store, monkeypatch):
    """Also if the pointer did not change; less often than a sound store is checked."""
    assert watching_module.RETRY_SECONDS > watching_module.POLL_SECONDS
    monkeypatch.setattr(watching_module, "RETRY_SECONDS", 0.01)
    watcher = StoreWatcher(store, Settings())
    watcher.start()
    publish(store, numbered(2))
    (path,) = store.current().folder.glob("bias/*.parquet")
    repair = overwrite(path, b"")
    assert not watcher.check()
    refused = watcher.refused
    wait_for(lambda: watcher.refused is not refused)
    repair()
    wait_for(lambda: watcher.refused is None)
    watcher.stop()
    assert watcher.served().number == 2


def test_a_new_store_in_the_same_folder_is_noticed(store, tmp_path):
    watcher = StoreWatcher(store, Settings())
    watcher.load()
    store.folder.rename(tmp_path / "old")
    publish(store, numbered(5))
    assert watcher.check()
    assert (watcher.served().number, watcher.about().n_items) == (1, ITEMS)


def test_an_app_in_another_server_answers_503_until_it_is_loaded(store):
    async def ask() -> None:
        app = make_app(store)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/health")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            async with app.lifespan_context(app):
                assert (await client.get("/health")).json() == {"status": "ok", "version": 1}
                assert (await client.get("/version")).json()["n_items"] == 100

    with ThreadPoolExecutor(1) as pool:  # a browser's event loop may be running in this thread
        pool.submit(asyncio.run, ask()).result()
