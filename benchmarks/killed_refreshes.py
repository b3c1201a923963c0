"""Refreshes killed at random moments, while another process reads the store.

    python benchmarks/killed_refreshes.py                 200 refreshes, about 10 minutes
    python benchmarks/killed_refreshes.py --refreshes 20
    python benchmarks/killed_refreshes.py --reranker      with a reranker and its lists

Each refresh is the real command in its own process. Half are killed (SIGKILL) at a random moment,
half soon after they begin to write, when it matters most; some finish first. Meanwhile a process
reads the store without pause and checks every file. At the end:

- every read was a whole version with correct checksums;
- every version that a refresh reported is there, in the order of the numbers;
- the next refresh removes everything that the killed ones left.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.store import Store
from trimtab.tables.log_windows import Window
from trimtab.tables.timestamps import as_datetime

FIRST = date(2026, 2, 10)
READER = """
import json, sys, time
from trimtab.store import Store
store, reads, numbers, began = Store(sys.argv[1]), 0, set(), time.time()
print("reading", flush=True)
while not __import__("os").path.exists(sys.argv[2]):
    version = store.current()
    version.check()
    bias = store.load()
    assert len(bias) > 0 and version.top().num_rows > 0
    if version.lists() is not None:
        assert version.lists().num_rows > 0 and len(version.reranker()) == len(version.bias())
    reads += 1
    numbers.add(version.number)
print(json.dumps({"reads": reads, "versions": len(numbers), "seconds": time.time() - began}))
"""


def make_shop(folder: Path) -> None:
    """Write events, and lists for six days."""
    events = generate_log(n_users=600, n_items=100, days=45, purchases_per_user=25, drift=1.0)
    (folder / "lists").mkdir()
    pq.write_table(events, folder / "events.parquet")
    log = make_log(events, "UTC")
    for night in range(6):
        day = FIRST + timedelta(night)
        window = Window.of(day, 1, "UTC")
        engine = Markov(min_support=1).fit(window.history(log), as_datetime(window.start))
        pq.write_table(engine.recommend(n=30), folder / "lists" / f"{day}.parquet")


def refresh(folder: Path, keep: int, reranker: bool) -> subprocess.Popen[str]:
    """Start a refresh in its own process."""
    more = ["--reranker"] if reranker else ["--set", "method=ascent"]
    command = [
        Path(sysconfig.get_path("scripts")) / "trimtab", "refresh", "--lists", folder / "lists",
        "--events", folder / "events.parquet", "--store", folder / "store", "--as-of",
        FIRST + timedelta(5), "--rerank", "--keep", keep, "--json", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill_at_random(
    process: subprocess.Popen[str], store: Path, whole: float, turn: int
) -> tuple[bool, bool]:
    """Kill a refresh unless it finishes first; return whether it was killed, and while writing."""
    if turn % 2:
        wait_until(lambda: process.poll() is not None, random.uniform(0, 1.2 * whole))
    else:
        wait_until(lambda: process.poll() is not None or any(store.glob(".staging-*")), 60)
        patience = random.expovariate(1 / 0.05) if turn else 0.0
        wait_until(lambda: process.poll() is not None, patience)
    if process.poll() is not None:
        return False, False
    process.kill()
    process.wait()
    return True, any(store.glob(".staging-*"))


def wait_until(done, seconds: float) -> None:
    """Wait until `done()` is true, for some seconds at most."""
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.0005)


def run(n_refreshes: int, folder: Path, reranker: bool) -> dict[str, float]:
    """Kill refreshes and check the store; return the counts."""
    make_shop(folder)
    keep = n_refreshes + 9
    begun = time.monotonic()
    first = refresh(folder, keep, reranker)
    published = [json.loads(first.communicate()[0])["number"]]
    whole = time.monotonic() - begun
    store, stop = folder / "store", folder / "stop"
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(store), str(stop)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    reader.stdout.readline()
    killed = in_writing = 0
    for turn in range(n_refreshes):
        process = refresh(folder, keep, reranker)
        was_killed, was_writing = kill_at_random(process, store, whole, turn)
        out, errors = process.communicate()
        killed += was_killed
        in_writing += was_writing
        if out.endswith("}\n"):  # it reported the version before it was killed
            published.append(json.loads(out)["number"])
        assert was_killed or process.returncode == 0, errors
        assert reader.poll() is None, reader.communicate()[1]
    stop.touch()
    out, errors = reader.communicate(timeout=60)
    assert reader.returncode == 0, errors
    last, errors = refresh(folder, keep, reranker).communicate()
    published.append(json.loads(last)["number"])
    kept = [version.number for version in Store(store).history()]
    for version in Store(store).history():
        version.check()
        assert (version.lists() is not None) == (version.reranker() is not None) == reranker
    assert set(published) <= set(kept), "a version was lost"
    assert kept == sorted(kept)
    folders = {path.name for path in (store / "versions").iterdir()}
    assert folders == {version.folder.name for version in Store(store).history()}
    assert not list(store.glob(".staging-*")) + list(store.glob("*.part"))
    assert in_writing > 0, "no refresh was killed while writing: nothing was tested"
    return {
        "killed": killed,
        "in_writing": in_writing,
        "published": len(kept),
        "whole": whole,
        **json.loads(out),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refreshes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reranker", action="store_true")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        found = run(arguments.refreshes, Path(folder), arguments.reranker)
    print(
        f"{arguments.refreshes} refreshes of about {found['whole']:.1f} s: {found['killed']} "
        f"killed, {found['in_writing']} of them while writing; {found['published']} versions "
        f"published and kept, 0 lost, 0 leftovers\n"
        f"{found['reads']} reads of {found['versions']} versions meanwhile in "
        f"{found['seconds']:.0f} s: 0 damaged"
    )


if __name__ == "__main__":
    main()
