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
import random
import socket
import subprocess
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
from shared import start_service
from trimtab.models import Coefficient, RerankSummary
from trimtab.models.widening import SOURCES, TERMS
from trimtab.store import Store
from trimtab.store.writer import open_writer

N_ITEMS = 100_000
CONNECTIONS = 32
BODIES = 500
MAX_P99_MS = 20.0


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


def request_bytes(port: int, n_listed: int, n_recent: int, rng: random.Random) -> bytes:
    """Return a request: headers and body."""
    items = [
        {"item_id": 3 * item, "score": rng.random()}
        for item in rng.sample(range(N_ITEMS), n_listed)
    ]
    body = json.dumps({"items": items, "k": 10, **make_recent(n_recent, rng)}).encode()
    head = (
        f"POST /rerank HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One open connection with one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.answer: asyncio.Future[bool] | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Collect an answer until it has the length that its headers give."""
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if found:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                self.received = b""
                self.answer.set_result(head.startswith(b"HTTP/1.1 200 "))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the open request."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(False)

    async def ask(self, request: bytes) -> bool:
        """Send a request; return whether the answer was 200."""
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answer


async def send_at_rate(port: int, requests: list[bytes], rate: float, seconds: float) -> dict:
    """Send requests when they are due; return times in milliseconds and the number that failed."""
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        free.put_nowait(connection)
    times, failed, tasks = [], 0, set()

    async def send(request: bytes, due: float) -> None:
        nonlocal failed
        connection = await free.get()
        failed += not await connection.ask(request)
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


def run_client(arguments: argparse.Namespace) -> None:
    """Send requests that do nothing, then lists; print the figures as JSON."""
    port, rng = arguments.client, random.Random(1)
    idle = [f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()]
    n_listed, n_recent = arguments.listed, arguments.recent
    lists = [request_bytes(port, n_listed, n_recent, rng) for _ in range(BODIES)]
    found = {}
    for name, requests in (("health", idle), ("rerank", lists)):
        asyncio.run(send_at_rate(port, requests, arguments.rate, 1))  # warms up
        found[name] = asyncio.run(send_at_rate(port, requests, arguments.rate, arguments.seconds))
    print(json.dumps(found))


def batch_bytes(port: int, rng: random.Random) -> bytes:
    """Return a request for a batch as large as the default limits allow."""
    lists = [
        {"items": [{"item_id": 3 * item, "score": round(rng.random(), 3)}
                   for item in rng.sample(range(N_ITEMS), 100)]}
        for _ in range(500)
    ]  # fmt: skip
    body = json.dumps({"lists": lists}, separators=(",", ":")).encode()
    head = (
        f"POST /rerank/batch HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_batches(port: int, n: int) -> None:
    """Send large batches on n connections without pause."""
    loop, request = asyncio.get_running_loop(), batch_bytes(port, random.Random(2))

    async def repeat() -> None:
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        while await connection.ask(request):
            pass
        raise SystemExit("a batch failed")

    await asyncio.gather(*(repeat() for _ in range(n)))


def hold(port: int, asked: bytes, n: int) -> None:
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


def held_bytes(kind: str, port: int) -> bytes:
    """Return what a connection that is held open sends."""
    if kind == "sleep":
        return b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
    whole = request_bytes(port, 100, 0, random.Random(3))
    return whole[: len(whole) // 2]


@contextlib.contextmanager
def in_background(arguments: argparse.Namespace, port: str) -> Iterator[None]:
    """Run the other clients that were asked for."""
    options = {
        "--batch-client": arguments.batches, "--sleep-client": arguments.sleepers,
        "--half-client": arguments.half_sent,
    }  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, __file__, option, port, "--number", str(n)])
        for option, n in options.items()
        if n
    ]
    if started:
        time.sleep(3)
    try:
        yield
        assert all(process.poll() is None for process in started), "another client failed"
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(arguments: argparse.Namespace, folder: Path) -> dict:
    """Start a server and a client; return the client's figures."""
    store = make_store(folder / "store", arguments.recent > 0)
    server, port = start_service(store.folder)
    try:
        with in_background(arguments, str(port)):
            client = subprocess.run(
                [sys.executable, __file__, "--client", str(port), "--rate", str(arguments.rate),
                 "--seconds", str(arguments.seconds), "--listed", str(arguments.listed),
                 "--recent", str(arguments.recent)],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
    finally:
        server.terminate()
        server.wait()
    return json.loads(client.stdout)


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--listed", type=int, default=100)
    parser.add_argument("--recent", type=int, default=0)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--sleepers", type=int, default=0)
    parser.add_argument("--half-sent", type=int, default=0)
    for name in ("--client", "--batch-client", "--sleep-client", "--half-client", "--number"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client is not None:
        run_client(arguments)
        return
    if arguments.batch_client is not None:
        asyncio.run(send_batches(arguments.batch_client, arguments.number))
    for kind in ("sleep", "half"):
        if (port := getattr(arguments, f"{kind}_client")) is not None:
            hold(port, held_bytes(kind, port), arguments.number)
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
