"""Stores to serve from, and servers: `trimtab serve` in its own process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

import trimtab as tt
from stores import ABOUT, BIAS
from trimtab.serve import Settings, make_app
from trimtab.store import Store
from trimtab.store.writer import open_writer

SCRIPT = Path(sysconfig.get_path("scripts")) / "trimtab"
TOKEN, ADMIN_TOKEN = "t0ken-of-the-tests!", "admin-t0ken-of-the-tests"
ADMIN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
RERANK_HEAD = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def make_bias(
    item_ids: Any, bias: Any, excluded: Any = None, scale: str = "additive",
    unlisted: str = "never", depth: int | None = None,
) -> tt.ItemBias:  # fmt: skip
    """Return biases by item; ids must ascend."""
    n = len(bias)
    nothing, false = np.zeros(n), np.zeros(n, bool)
    is_text = n and isinstance(item_ids[0], str)
    return replace(
        BIAS,
        item_ids=pa.array(item_ids, pa.large_string()) if is_text else np.array(item_ids, np.int64),
        bias=np.array(bias, float),
        excluded=false if excluded is None else np.array(excluded, bool),
        gain=nothing, support=np.zeros(n, np.int64), low=nothing, high=nothing, trend=nothing,
        category=nothing, fresh=false, scale=scale, unlisted=unlisted, depth=depth,
    )  # fmt: skip


def publish(store: Store, bias: tt.ItemBias, keep: int = 3) -> int:
    """Publish a version and return its number."""
    with open_writer(store) as writer:
        return writer.publish(lambda folder: bias.save(folder / "bias"), ABOUT, keep)


def request_of(ids: Any, scores: Any, **more: Any) -> dict[str, Any]:
    """Return a request to re-rank a list."""
    pairs = zip(ids, scores, strict=True)
    return {"items": [{"item_id": item, "score": score} for item, score in pairs], **more}


def applied(model: Any, asked: dict[str, Any], user: Any = 1, **options: Any) -> list[Any]:
    """Return what `apply` returns for the same request, with further options."""
    ids = [item["item_id"] for item in asked["items"]]
    if not ids:
        return []
    scores = [float(item["score"]) for item in asked["items"]]
    recs = pa.table({"user_id": [user] * len(ids), "item_id": ids, "score": scores})
    if "exclude" in asked:
        hidden, kind = asked["exclude"], recs["item_id"].type
        options["exclude"] = pa.table(
            {"user_id": [user] * len(hidden), "item_id": pa.array(hidden, kind)}
        )
    if "allowed" in asked:
        options["allowed"] = pa.table({"item_id": asked["allowed"]})
    if "depth" in asked:
        options["depth"] = asked["depth"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)  # k is longer than the list, late events
        top = model.apply(recs, asked.get("k", 10), **options)
    assert top["rank"].to_pylist() == list(range(1, len(top) + 1))
    return top.select(["item_id", "score"]).to_pylist()


def ask_until(stopping: threading.Event, url: str, **more: Any) -> tuple[int, list[int]]:
    """Send lists and batches on one connection until told to stop.

    Returns the number of lists, and the versions in the order in which they were seen. In version v
    every bias is v, so each score shows which version it comes from.
    """
    one, n, versions = request_of(range(20), [0.5] * 20, k=20, **more), 0, []
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stopping.is_set():
            batch = ("/rerank/batch", {"lists": [one, one]})
            path, body = batch if n % 3 else ("/rerank", one)
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            ranked = answer.json()
            lists = ranked.get("lists", [ranked])
            scores = [item["score"] for own in lists for item in own["items"]]
            assert scores == [ranked["version"] + 0.5] * 20 * len(lists)
            n += len(lists)
            versions += [ranked["version"]] * (ranked["version"] not in versions)
    return n, versions


def refused_port(port: int) -> str:
    """Return a pattern: what is said of a port that others use."""
    reason = r"\(\[Errno \d+\] Address already in use\)"
    return f"^port={port}: cannot be used with host=127.0.0.1 {reason}; choose others, or port 0$"


def wait_for(is_done: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something has happened, and fail if it never does."""
    until = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.005)


def read_all(connection: socket.socket) -> bytes:
    """Return all bytes until the other side closes the connection."""
    received = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**20):
            received += part
    return bytes(received)


@dataclass(frozen=True)
class Running:
    """A running server."""

    process: subprocess.Popen[str]
    line: str  # printed when it was ready
    client: httpx.Client

    @property
    def url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def connect(self) -> socket.socket:
        """Open a connection, to send bytes that no client library would send."""
        address = (self.client.base_url.host, self.client.base_url.port)
        return socket.create_connection(address, timeout=20)

    def send_raw(self, content: bytes) -> bytes:
        """Return the start of the answer to some bytes."""
        with self.connect() as connection:
            connection.sendall(content)
            return connection.recv(65536)

    def rerank(self, asked: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post("/rerank", json=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def reload(self) -> dict[str, Any]:
        """Make it check the store; it may have done so already."""
        answer = self.client.post("/admin/reload", headers=ADMIN)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def count(self, name: str) -> float:
        """Return a number from /metrics."""
        lines = self.client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def memory(self) -> int:
        """Return the resident memory of all workers in bytes."""
        return sum(map(resident, self.workers()))

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        commands = {child: command_of(child) for child in children}
        return [
            int(child) for child, own in commands.items() if own and "resource_tracker" not in own
        ]

    def stop(self) -> tuple[int, str]:
        """Stop it with SIGTERM; return its exit status and its stderr."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def command_of(pid: str) -> str:
    """The command of a process; empty if it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def environment(**tokens: str) -> dict[str, str]:
    """Return the environment with these tokens and no others."""
    kept = {name: value for name, value in os.environ.items() if "TRIMTAB_" not in name}
    return {**kept, "COLUMNS": "200", **tokens}


def command(store: Store | Path, *options: object) -> list[str]:
    """Return the command line of a server on a free port."""
    folder = store.folder if isinstance(store, Store) else store
    return [str(part) for part in (SCRIPT, "serve", "--store", folder, "--port", 0, *options)]


@contextlib.contextmanager
def running(store: Store | Path, *options: object, **tokens: str) -> Iterator[Running]:
    """Start a server; stop it afterwards if it still runs."""
    process = subprocess.Popen(
        command(store, *options), env=environment(**tokens), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert " at http://" in line, process.communicate(timeout=60)
        address = line.split(" at ")[1].split(",")[0]
        with httpx.Client(base_url=address, timeout=30) as client:
            yield Running(process, line, client)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


class InProcess:
    """A client of a service that runs in this process, where tests can change its limits."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return an answer; the body can be an asynchronous iterator."""
        return self.run(self.ask(method, path, **options))

    def run(self, something: Any) -> Any:
        """Return the result of a coroutine that runs beside the service."""
        return asyncio.run_coroutine_threadsafe(something, self._loop).result(60)

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)


@contextlib.contextmanager
def serving(store: Store | Path, settings: Settings) -> Iterator[InProcess]:
    """Run the service in a thread of this process."""
    app, loop = make_app(store, settings), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    lifespan = app.lifespan_context(app)
    try:
        asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result(60)
        yield InProcess(app, loop)
        asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def refused_start(store: Store | Path, *options: object, **tokens: str) -> tuple[int, str]:
    """Return the exit status and stderr of a server that must not start."""
    done = subprocess.run(
        command(store, *options), env=environment(**tokens), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr
