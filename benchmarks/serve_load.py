"""Latency of `trimtab serve` under a steady load, compared with a request that does nothing.

    python benchmarks/serve_load.py
    python benchmarks/serve_load.py --rate 500 --seconds 20 --listed 100

The command serves a store of 100,000 items. A client in another process sends lists at a fixed
rate over open connections, without waiting for earlier answers; a request's time counts from the
moment it was due. The same load of GET /health comes first, to show what the server, the client
and the machine cost without ranking. Exits with 1 if a request failed or the 99th percentile is
20 ms or more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import trimtab as tt
from trimtab.store import Store
from trimtab.store.writer import open_writer

N_ITEMS = 100_000
CONNECTIONS = 32
BODIES = 500
MAX_P99_MS = 20.0


def make_store(folder: Path) -> Store:
    """Return a store with one version of many items."""
    learned = tt.BiasLearner(method="ascent", k=1).fit(
        pa.table({"user_id": [1, 1], "item_id": [7, 8], "score": [0.9, 0.8]}),
        pa.table({"user_id": [1], "item_id": [8]}),
    )
    rng = np.random.default_rng(0)
    nothing, false = np.zeros(N_ITEMS), np.zeros(N_ITEMS, bool)
    bias = replace(
        learned, item_ids=np.arange(N_ITEMS) * 3, bias=rng.normal(size=N_ITEMS), excluded=false,
        gain=nothing, support=np.zeros(N_ITEMS, np.int64), low=nothing, high=nothing,
        trend=nothing, category=nothing, fresh=false, scale="log",
    )  # fmt: skip
    store = Store(folder)
    with open_writer(store) as writer:
        writer.publish(lambda place: bias.save(place / "bias"), {"as_of": "2026-03-01"}, 3)
    return store


def request_bytes(port: int, n_listed: int, rng: random.Random) -> bytes:
    """Return a request: headers and body."""
    items = [
        {"item_id": 3 * item, "score": rng.random()}
        for item in rng.sample(range(N_ITEMS), n_listed)
    ]
    body = json.dumps({"items": items, "k": 10}).encode()
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
    lists = [request_bytes(port, arguments.listed, rng) for _ in range(BODIES)]
    found = {}
    for name, requests in (("health", idle), ("rerank", lists)):
        asyncio.run(send_at_rate(port, requests, arguments.rate, 1))  # warms up
        found[name] = asyncio.run(send_at_rate(port, requests, arguments.rate, arguments.seconds))
    print(json.dumps(found))


def measure(arguments: argparse.Namespace, folder: Path) -> dict:
    """Start a server and a client; return the client's figures."""
    store = make_store(folder / "store")
    script = Path(sysconfig.get_path("scripts")) / "trimtab"
    server = subprocess.Popen(
        [str(script), "serve", "--store", str(store.folder), "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = server.stdout.readline().split(" at http://")[1].split(",")[0].split(":")[1]
        client = subprocess.run(
            [sys.executable, __file__, "--client", port, "--rate", str(arguments.rate),
             "--seconds", str(arguments.seconds), "--listed", str(arguments.listed)],
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
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client is not None:
        run_client(arguments)
        return
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
