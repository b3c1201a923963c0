"""Version changes under load: no request may fail, and no answer may mix versions.

    python benchmarks/serve_swaps.py               1,000 swaps
    python benchmarks/serve_swaps.py --swaps 50
    python benchmarks/serve_swaps.py --workers 2

In version v every bias is v, so each score shows which version it comes from. Each version is
published to the store of a running `trimtab serve` as soon as the one before it is served. Two
clients in their own processes send lists and batches without pause and check every score; with
several workers, each of them opens a new connection now and then. Prints counts, and how long it
took until all workers served a version; exits with 1 if a request failed or an answer mixed
versions.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import signal
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from serve_load import spread_biases
from shared import start_service
from trimtab.store import Store
from trimtab.store.writer import open_writer

N_ITEMS, N_LISTED = 2_000, 50
CLIENTS = 2
TIMEOUT_SECONDS = 60


def publish(store: Store, version: int) -> None:
    """Publish a version in which every bias is the version's number."""
    made = spread_biases(np.arange(N_ITEMS), np.full(N_ITEMS, float(version)))
    with open_writer(store) as writer:
        number = writer.publish(lambda place: made.save(place / "bias"), {"as_of": "2026-03-01"}, 3)
    assert number == version


def is_mixed(answer: dict) -> bool:
    """Return whether some score does not come from the version that the answer names."""
    lists = answer.get("lists", [answer])
    expected = [answer["version"] + 0.5] * N_LISTED
    return any([item["score"] for item in one["items"]] != expected for one in lists)


def run_client(port: int, stop: Event, counted: Queue) -> None:
    """Send requests until told to stop; put what was counted, and the versions."""
    items = [{"item_id": item, "score": 0.5} for item in range(0, N_ITEMS, N_ITEMS // N_LISTED)]
    one = {"items": items, "k": N_LISTED}
    asked = [("/rerank", one), ("/rerank/batch", {"lists": [one, one, one]})]
    bodies = [(path, json.dumps(body)) for path, body in asked]
    counts: Counter[str] = Counter()
    versions: set[int] = set()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    counted.put("sending")
    while not stop.is_set():
        path, body = bodies[counts["requests"] % 2]
        counts["requests"] += 1
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException):
            counts["failed"] += 1
            connection.close()
            continue
        if response.status != 200:
            counts["failed"] += 1
        else:
            counts["mixed"] += is_mixed(answer)
            versions.add(answer["version"])
        if counts["requests"] % 10 == 0:
            connection.close()
    counted.put((counts, versions))


def wait_until_served(port: int, version: int) -> None:
    """Wait until all workers serve a version."""
    until = time.monotonic() + TIMEOUT_SECONDS
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    while time.monotonic() < until:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        assert "trimtab_version_refused 0.0" in lines, lines
        found = [
            line for line in lines if line.startswith(("trimtab_version ", "trimtab_worker_v"))
        ]
        if {float(line.split()[1]) for line in found} == {version}:
            connection.close()
            return
        time.sleep(0.005)
    raise SystemExit(f"version {version} was never served")


def run(n_swaps: int, n_workers: int, folder: Path) -> tuple[Counter[str], float]:
    """Publish versions to a server under load; return the counts, and the longest wait."""
    store, spawn = Store(folder / "store"), multiprocessing.get_context("spawn")
    publish(store, 1)
    server, port = start_service(store.folder, "--workers", n_workers)
    stop, counted = spawn.Event(), spawn.Queue()
    clients = [spawn.Process(target=run_client, args=(port, stop, counted)) for _ in range(CLIENTS)]
    longest, counts, versions = 0.0, Counter(swaps=n_swaps), set()
    try:
        for client in clients:
            client.start()
        for _ in clients:
            counted.get(timeout=TIMEOUT_SECONDS)  # it sends
        for version in range(2, n_swaps + 2):
            publish(store, version)
            server.send_signal(signal.SIGHUP)  # it looks twice a second by itself
            begun = time.monotonic()
            wait_until_served(port, version)
            longest = max(longest, time.monotonic() - begun)
        stop.set()
        for _ in clients:
            found, seen = counted.get(timeout=TIMEOUT_SECONDS)
            counts.update(found)
            versions |= seen
    finally:
        stop.set()
        server.terminate()
        server.wait()
        for client in clients:
            client.join()
    counts["versions"] = len(versions)
    counts["server status"] = server.returncode
    return counts, longest


def main() -> None:
    """Run the benchmark and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts, longest = run(arguments.swaps, arguments.workers, Path(folder))
    print(
        f"{counts['swaps']} swaps in {time.monotonic() - begun:.0f} s under {counts['requests']} "
        f"requests that saw {counts['versions']} versions ({CLIENTS} clients): "
        f"{counts['failed']} failed, {counts['mixed']} mixed; all workers ({arguments.workers}) "
        f"served a version within {longest:.2f} s"
    )
    sys.exit(counts["failed"] + counts["mixed"] + abs(counts["server status"]) > 0)


if __name__ == "__main__":
    main()
