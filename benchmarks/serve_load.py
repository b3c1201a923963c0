"""Latency of `trimtab serve` under a steady load, compared with a request that does nothing.

    python benchmarks/serve_load.py
    python benchmarks/serve_load.py --rate 500 --seconds 20 --listed 100
    python benchmarks/serve_load.py --recent 20
    python benchmarks/serve_load.py --batches 4
    python benchmarks/serve_load.py --sleepers 128
    python benchmarks/serve_load.py --rate 200 --seconds 10 --half-sent 130

The command serves a store of 100,000 items. With --recent, it has a reranker, and each request
carries that many recent items; up to 60 items are added to each list. A client in another process
sends lists at a fixed rate over open connections, without waiting for earlier answers; a request's
time counts from the moment it was due. The same load of GET /health comes first, to show what the
server, the client and the machine cost without ranking. With --batches, that many connections of a
third process send batches of 500 lists of 100 without pause; with --sleepers, that many ask for
5 MB of answers and never read; with --half-sent, that many send half a body and no more. Those
that are disconnected begin again. Exits with 1 if a request failed or the 99th percentile is 20 ms
or more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import trimtab as tt
from shared import in_process, start_service
from trimtab.models import Coefficient, RerankSummary
from trimtab.models.widening import SOURCES, TERMS
from trimtab.store import Store
from trimtab.store.writer import open_writer

N_ITEMS = 100_000
CONNECTIONS = 32
BODIES = 500
MAX_P99_MS = 20.0
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def spread_biases(item_ids: np.ndarray, biases: np.ndarray) -> tt.ItemBias:
    """Return a result that has these biases."""
    learned = tt.BiasLearner(method="ascent", k=1).fit(
        pa.table({"user_id": [1, 1], "item_id": [7, 8], "score": [0.9, 0.8]}),
        pa.table({"user_id": [1], "item_id": [8]}),
    )
    nothing, false = np.zeros(len(biases)), np.zeros(len(biases), bool)
    return replace(
        learned, item_ids=item_ids, bias=biases, excluded=false, gain=nothing,
        support=np.zeros(len(biases), np.int64), low=nothing, high=nothing, trend=nothing,
        category=nothing, fresh=false, depth=None,
    )  # fmt: skip


def make_reranker(bias: tt.ItemBias) -> tt.Reranker:
    """Return a reranker with both sources of added items."""
    rng = np.random.default_rng(1)
    names = ("score", *TERMS, *SOURCES)
    return tt.Reranker(
        bias=bias, item_part=rng.normal(size=N_ITEMS), score_unit=1.0, learned_until=0,
        trending=rng.choice(N_ITEMS, 30, replace=False).astype(np.int32),
        learned=tuple(Coefficient(name, "", 0.5, 0.1) for name in names),
        summary=RerankSummary("ndcg", 10, 1, 1, 1.0, tuple(SOURCES)), settings={"widen": "any"},
        may_repeat=True, has_zone=True,
    )  # fmt: skip


def make_store(folder: Path, has_reranker: bool) -> Store:
    """Return a store with one version of many items."""
    drawn = np.random.default_rng(0).normal(size=N_ITEMS)
    bias = replace(spread_biases(np.arange(N_ITEMS) * 3, drawn), scale="log")
    store = Store(folder)

    def fill(place: Path) -> None:
        bias.save(place / "bias")
        if has_reranker:
            make_reranker(bias).save(place / "reranker")

    with open_writer(store) as writer:
        writer.publish(fill, {"as_of": "2026-03-01"}, 3)
    return store


def make_recent(n: int, rng: random.Random) -> dict[str, Any]:
    """Return the part of a request with recent items; half of them have days, half timestamps."""
    days = [{"days_ago": rng.randrange(365)} for _ in range(n // 2)]
    times = [{"timestamp": f"2026-02-{rng.randrange(1, 29):02}T12:00Z"} for _ in range(n - n // 2)]
    entries = [{"item_id": 3 * rng.randrange(N_ITEMS), **when} for when in (*days, *times)]
    return {"recent": entries} if n else {}


def post_bytes(path: str, asked: dict[str, Any]) -> bytes:
    """Return a request: headers and body."""
    body = json.dumps(asked, separators=(",", ":")).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def make_list(n_listed: int, rng: random.Random) -> dict[str, Any]:
    """Return a list to re-rank."""
    items = rng.sample(range(N_ITEMS), n_listed)
    return {"items": [{"item_id": 3 * item, "score": round(rng.random(), 3)} for item in items]}


def request_bytes(n_listed: int, n_recent: int, rng: random.Random) -> bytes:
    """Return a request to re-rank a list."""
    return post_bytes("/rerank", {**make_list(n_listed, rng), **make_recent(n_recent, rng)})


async def connect(port: int) -> Connection:
    """Open a connection."""
    return await asyncio.open_connection("127.0.0.1", port)


async def ask(connection: Connection, request: bytes) -> bool:
    """Send a request and read the answer; return whether it was 200."""
    reader, writer = connection
    writer.write(request)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
    except (OSError, asyncio.IncompleteReadError):
        return False
    return head.startswith(b"HTTP/1.1 200 ")


async def send_at_rate(port: int, requests: list[bytes], rate: float, seconds: float) -> dict:
    """Send requests when they are due; return times in milliseconds and the number that failed."""
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await connect(port))
    times, failed, tasks = [], 0, set()

    async def send(request: bytes, due: float) -> None:
        nonlocal failed
        connection = await free.get()
        failed += not await ask(connection, request)
        times.append((loop.time() - due) * 1000)
        free.put_nowait(connection)

    begun = loop.time() + 0.1
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        task = loop.create_task(send(requests[number % len(requests)], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50": p50, "p99": p99, "max": max(times), "failed": failed, "sent": len(times)}


def run_client(port: int, rate: float, seconds: float, n_listed: int, n_recent: int) -> dict:
    """Send requests that do nothing, then lists; return the figures of both."""
    rng, found = random.Random(1), {}
    lists = [request_bytes(n_listed, n_recent, rng) for _ in range(BODIES)]
    for name, requests in (("health", [HEALTH]), ("rerank", lists)):
        asyncio.run(send_at_rate(port, requests, rate, 1))  # warms up
        found[name] = asyncio.run(send_at_rate(port, requests, rate, seconds))
    return found


async def send_batches(port: int, n: int) -> None:
    """Send large batches on n connections without pause."""
    rng = random.Random(2)
    request = post_bytes("/rerank/batch", {"lists": [make_list(100, rng) for _ in range(500)]})

    async def repeat() -> None:
        connection = await connect(port)
        while await ask(connection, request):
            pass
        raise SystemExit("a batch failed")

    await asyncio.gather(*(repeat() for _ in range(n)))


def run_batches(port: int, n: int) -> None:
    """Send large batches until the process is killed."""
    asyncio.run(send_batches(port, n))


def hold(port: int, n: int, asked: bytes) -> None:
    """Hold n connections that send this, read nothing, and begin again when they are closed."""
    connections = [open_held(port, asked) for _ in range(n)]
    while True:
        for place, connection in enumerate(connections):
            try:
                connection.send(b"\r\n")
            except BlockingIOError:
                pass
            except ConnectionError:
                connection.close()
                connections[place] = open_held(port, asked)
        time.sleep(0.1)


def open_held(port: int, asked: bytes) -> socket.socket:
    """Return a connection that has sent something and has little room for the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(asked)
    connection.setblocking(False)
    return connection


@contextlib.contextmanager
def in_background(port: int, arguments: argparse.Namespace) -> Iterator[None]:
    """Run the other clients that were asked for."""
    whole = request_bytes(100, 0, random.Random(3))
    large = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
    kinds = [
        (run_batches, arguments.batches), (hold, arguments.sleepers, large),
        (hold, arguments.half_sent, whole[: len(whole) // 2]),
    ]  # fmt: skip
    spawn = multiprocessing.get_context("spawn").Process
    started = [spawn(target=run, args=(port, n, *rest)) for run, n, *rest in kinds if n]
    for process in started:
        process.start()
    if started:
        time.sleep(3)
    try:
        yield
        assert all(process.is_alive() for process in started), "another client failed"
    finally:
        for process in started:
            process.kill()


def measure(arguments: argparse.Namespace, folder: Path) -> dict:
    """Start a server and a client; return the client's figures."""
    store = make_store(folder / "store", arguments.recent > 0)
    server, port = start_service(store.folder)
    asked = (arguments.rate, arguments.seconds, arguments.listed, arguments.recent)
    try:
        with in_background(port, arguments):
            return in_process(run_client, port, *asked)
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--listed", type=int, default=100)
    for name in ("--recent", "--batches", "--sleepers", "--half-sent"):
        parser.add_argument(name, type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments, Path(folder))
    for name, figures in found.items():
        print(
            f"{name:7} {arguments.rate:g}/s: p50 {figures['p50']:.2f} ms, p99 {figures['p99']:.2f} "
            f"ms, max {figures['max']:.1f} ms, {figures['failed']} of {figures['sent']} failed"
        )
    lists, idle = found["rerank"], found["health"]
    ratio = lists["p50"] / idle["p50"]
    print(f"lists of {arguments.listed} take {ratio:.2f} x the time of GET /health")
    sys.exit(lists["failed"] + idle["failed"] > 0 or lists["p99"] >= MAX_P99_MS)


if __name__ == "__main__":
    main()
