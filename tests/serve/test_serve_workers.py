"""`--workers 2`: one port, one set of metrics, swaps seen by all, and no list lost."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from services import (
    ADMIN_TOKEN,
    Running,
    make_bias,
    publish,
    refused_port,
    request_of,
    running,
    wait_for,
)
from trimtab.errors import SettingError
from trimtab.serve import read_exposures, run
from trimtab.serve.settings import Settings
from trimtab.store import Store

pytestmark = [
    pytest.mark.xdist_group("serve-workers"),
    pytest.mark.skipif(sys.platform != "linux", reason="workers share a port on Linux only"),
]


def numbered(version: int):
    return make_bias(range(50), np.full(50, float(version)))


@pytest.fixture(scope="module")
def exposures(tmp_path_factory) -> Path:
    """The folder of the exposure log."""
    return tmp_path_factory.mktemp("exposures")


@pytest.fixture(scope="module")
def shared(tmp_path_factory, exposures):
    """A server with two workers, and its store."""
    store = Store(tmp_path_factory.mktemp("workers") / "store")
    publish(store, numbered(1))
    options = ("--workers", 2, "--exposures", exposures)
    with running(store, *options, TRIMTAB_ADMIN_TOKEN=ADMIN_TOKEN) as server:
        yield server, store


def ask_on_new_connections(
    server: Running, n: int, version: int | None = None, first_user: int = 0
) -> None:
    """Send lists, each on a connection of its own; check that no answer mixes versions."""

    def ask(user: int) -> None:
        asked = request_of(range(20), [0.5] * 20, user_id=user)
        answer = httpx.post(f"{server.url}/rerank", json=asked, timeout=30)
        assert answer.status_code == 200, answer.text
        ranked = answer.json()
        assert {item["score"] for item in ranked["items"]} == {ranked["version"] + 0.5}
        assert version in (None, ranked["version"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(first_user, first_user + n)))


def versions(server: Running) -> list[float]:
    """Return the version of each worker, asked on a connection of its own."""
    lines = httpx.get(f"{server.url}/metrics", timeout=30).text.splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith("trimtab_worker_version{")]


def test_any_worker_has_the_metrics_of_all(shared):
    server, _ = shared
    before = server.count("trimtab_lists_total")
    ask_on_new_connections(server, 40)
    for _ in range(6):
        with httpx.Client(base_url=server.url) as client:
            fresh = Running(server.process, server.line, client)
            assert fresh.count("trimtab_lists_total") - before == 40
            assert [fresh.count("trimtab_version")] * 2 == versions(server)


def test_a_reload_and_a_hangup_reach_all_workers(shared):
    server, store = shared
    number = publish(store, numbered(store.current().number + 1))
    assert server.reload()["version"] == number
    wait_for(lambda: versions(server) == [number] * 2)
    ask_on_new_connections(server, 10, number)
    number = publish(store, numbered(number + 1))
    server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: versions(server) == [number] * 2)
    ask_on_new_connections(server, 10, number)


def test_a_worker_that_ends_is_replaced(shared):
    server, store = shared
    counted = server.count("trimtab_lists_total")
    killed = server.workers()[0]
    server.client.close()  # it may be connected to that worker
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in server.workers())
    ask_on_new_connections(server, 10)
    with httpx.Client(base_url=server.url, timeout=30) as client:
        fresh = Running(server.process, server.line, client)
        wait_for(lambda: fresh.count("trimtab_worker_restarts_total") == 1)
        wait_for(lambda: versions(server) == [store.current().number] * 2)
        assert fresh.count("trimtab_lists_total") == counted + 10
        assert fresh.count("trimtab_requests_now") == 1
    assert len(server.workers()) == 2


def test_a_port_that_others_use_is_refused(shared, store):
    server, _ = shared
    port = server.client.base_url.port
    for n in (1, 2):
        with pytest.raises(SettingError, match=refused_port(port)):
            run(store, Settings(port=port, workers=n))


def test_swaps_under_load_lose_and_mix_nothing_and_the_end_writes_all(store, tmp_path):
    publish(store, numbered(2))
    folder = tmp_path / "exposures"
    with running(store, "--workers", 2, "--exposures", folder) as server:
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(ask_on_new_connections, server, 150)
            for number in range(3, 9):
                assert publish(store, numbered(number)) == number
                wait_for(lambda wanted=number: versions(server) == [wanted] * 2)
            load.result()
        assert server.count("trimtab_version_swaps_total") == 12
        status, errors = server.stop()
    assert (status, errors.count("now serving"), errors.count("\n")) == (0, 12, 12)
    assert sorted(map(int, read_exposures(folder)["user_id"].to_pylist())) == list(range(150))
    assert len({file.name.split("-")[2] for file in folder.iterdir()}) in {1, 2}


def test_workers_end_with_their_parent_and_write_all(shared, exposures):
    server, _ = shared
    ask_on_new_connections(server, 20, first_user=1_000)
    workers = server.workers()
    server.process.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    users = map(int, read_exposures(exposures)["user_id"].to_pylist())
    assert sorted(user for user in users if user >= 1_000) == list(range(1_000, 1_020))


def test_other_systems_have_one_worker(store, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SettingError, match="workers=2: only Linux"):
        run(store, Settings(port=0, workers=2))
