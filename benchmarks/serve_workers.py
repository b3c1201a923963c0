"""Requests per second of `trimtab serve` with several workers, compared with one.

    python benchmarks/serve_workers.py
    python benchmarks/serve_workers.py --workers 2 --seconds 10 --listed 500

Clients need processor time too, and here they share the cores with the service. They are kept
cheap: one process sends requests that were made before, on many open connections, reads answers
without parsing them, and sends the next request at once. The lists are long enough that the
service takes most of the time; the share that the client took is printed. One worker and several
take turns, and the median of the ratios counts. It needs as many free cores as workers: the load
of other processes is printed too. Exits with 1 if a request failed or the ratio is below 1.6.
"""

from __future__ import annotations

import argparse
import os
import random
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from serve_load import make_store, request_bytes
from shared import start_service

CONNECTIONS = 24
MIN_RATIO = 1.6
Server = tuple[subprocess.Popen, int]  # and its port


class Measured(NamedTuple):
    """What a client found in a while."""

    rate: float  # answers per second
    client_share: float  # of one core
    others: float  # cores used by other processes
    failed: int


def send_for(port: int, requests: list[bytes], seconds: float) -> Measured:
    """Keep one request open on each connection for a while."""
    selector = selectors.DefaultSelector()
    for number in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(requests[number % len(requests)])
        selector.register(connection, selectors.EVENT_READ, [b""])
    n_answers = n_failed = 0
    begun, until = time.monotonic(), time.monotonic() + seconds
    cpu, busy = time.process_time(), busy_seconds()
    while time.monotonic() < until:
        for key, _ in selector.select(1):
            received = key.data
            received[0] += key.fileobj.recv(65536)
            if received[0].endswith(b"}"):  # every answer ends so, and no other part of one
                n_failed += not received[0].startswith(b"HTTP/1.1 200 ")
                n_answers += 1
                received[0] = b""
                key.fileobj.sendall(requests[n_answers % len(requests)])
    lasted = time.monotonic() - begun
    client = time.process_time() - cpu
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return Measured(n_answers / lasted, client / lasted, (busy_seconds() - busy) / lasted, n_failed)


def busy_seconds() -> float:
    """Return the processor time that all processes of the machine have taken."""
    user, nice, system, _, _, irq, soft = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children that still run."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, map(int, children)))


def measure(server: Server, requests: list[bytes], seconds: float) -> tuple[Measured, float]:
    """Return what a client finds, and the cores that the service used."""
    process, port = server
    send_for(port, requests, 0.5)
    before, begun = cpu_seconds(process.pid), time.monotonic()
    found = send_for(port, requests, seconds)
    return found, (cpu_seconds(process.pid) - before) / (time.monotonic() - begun)


def compare(arguments: argparse.Namespace, folder: Path) -> bool:
    """Print the rates of one worker and of several; return whether they are as they should be."""
    store = make_store(folder / "store", False)
    servers = {n: start_service(store.folder, "--workers", n) for n in (1, arguments.workers)}
    rng, ratios, per_core, failed = random.Random(1), [], [], 0
    try:
        for _ in range(arguments.turns):
            rates = {}
            for n, server in servers.items():
                requests = [request_bytes(arguments.listed, 0, rng) for _ in range(50)]
                found, used = measure(server, requests, arguments.seconds)
                others = found.others - used - found.client_share
                print(
                    f"{n} worker(s): {found.rate:.0f} requests/s, {found.failed} failed; cores: "
                    f"service {used:.2f}, client {found.client_share:.2f}, others {others:.2f}"
                )
                rates[n], failed = (found.rate, found.rate / used), failed + found.failed
            ratios.append(rates[arguments.workers][0] / rates[1][0])
            per_core.append(rates[arguments.workers][1] / rates[1][1])
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.wait()
    ratio = statistics.median(ratios)
    print(
        f"{arguments.workers} workers answer {ratio:.2f} x the requests of one per second (median "
        f"of {len(ratios)}), and {statistics.median(per_core):.2f} x those per second of "
        f"processor time"
    )
    return failed == 0 and ratio >= MIN_RATIO


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--listed", type=int, default=500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not compare(arguments, Path(folder)))


if __name__ == "__main__":
    main()
