"""Refreshes killed at random moments, while another process reads the store.

    python benchmarks/killed_refreshes.py                 200 kills, about 2 minutes
    python benchmarks/killed_refreshes.py --kills 20
    python benchmarks/killed_refreshes.py --reranker      with a reranker and its lists

Each refresh is the real command in its own process, a copy of one that has already imported
everything, so that it starts at once. Half are killed (SIGKILL) at a random
moment, half soon after they begin to write, when it matters most; some finish first. Meanwhile a
process reads the store without pause and checks every file. At the end:

- every read was a whole version with correct checksums: none was torn;
- every version that a refresh reported is there, in the order of the numbers;
- the next refresh removes everything that the killed ones left.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from trimtab.cli import app, guarded
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.replay.windows import Window
from trimtab.store import Store
from trimtab.tables.times import DAY, as_datetime

FIRST = date(2026, 2, 10)
FORK = multiprocessing.get_context("fork")
READER = """
import json, os, sys, time
from trimtab.store import Store

def read(store):
    version = store.current()
    version.check()
    assert len(store.load()) > 0
    if version.lists() is None:
        assert version.top().num_rows > 0
    else:
        assert version.lists().num_rows > 0 and len(version.reranker()) == len(version.bias())
    return version.number

store, reads, torn, numbers, began = Store(sys.argv[1]), 0, [], set(), time.time()
print("reading", flush=True)
while not os.path.exists(sys.argv[2]):
    reads += 1
    try:
        numbers.add(read(store))
    except Exception as error:
        torn.append(repr(error))
found = {"reads": reads, "torn": torn, "versions": len(numbers), "seconds": time.time() - began}
print(json.dumps(found))
"""


def make_shop(folder: Path) -> None:
    """Write events, and lists for six days."""
    events = generate_log(n_users=600, n_items=100, days=45, purchases_per_user=25, drift=1.0)
    (folder / "lists").mkdir()
    pq.write_table(events, folder / "events.parquet")
    log = make_log(events, "UTC")
    for night in range(6):
        day = FIRST + timedelta(night)
        window = Window.of(day, DAY, "UTC")
        engine = Markov(min_support=1).fit(window.history(log), as_datetime(window.start))
        pq.write_table(engine.recommend(n=30), folder / "lists" / f"{day}.parquet")


class Job(NamedTuple):
    """How refreshes are run."""

    folder: Path
    keep: int
    reranker: bool

    def arguments(self, store: str = "store") -> list[str]:
        """Return the arguments of the command."""
        more = ["--method", "reranker"] if self.reranker else ["--set", "method=ascent"]
        return [*map(str, [
            "refresh", "--lists", self.folder / "lists", "--events", self.folder / "events.parquet",
            "--store", self.folder / store, "--as-of", FIRST + timedelta(5), "--finish-lists",
            "--set", f"keep={self.keep}", "--json", *more,
        ])]  # fmt: skip


class Running(FORK.Process):
    """A refresh in its own process; what it prints goes to files."""

    def __init__(self, job: Job) -> None:
        self.files = [job.folder / name for name in ("out.txt", "errors.txt")]
        super().__init__(target=run_here, args=(job.arguments(), self.files))
        self.start()

    def number(self) -> int | None:
        """Return the number of the version that it reported; None if it did not get so far."""
        out = self.files[0].read_text()
        return json.loads(out)["number"] if out.endswith("}\n") else None

    def finish(self) -> None:
        """Wait for its end, which must be good."""
        self.join()
        assert self.exitcode == 0, self.files[1].read_text()


def run_here(arguments: list[str], files: list[Path]) -> None:
    """Run the command in this process, and print to files."""
    for descriptor, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.exit(guarded(lambda: app(arguments, standalone_mode=False)))


def publish(job: Job) -> int:
    """Run a refresh to its end; return the number of its version."""
    running = Running(job)
    running.finish()
    return running.number()


def kill_at_random(running: Running, store: Path, whole: float, turn: int) -> tuple[bool, bool]:
    """Kill a refresh unless it finishes first; return whether it was killed, and while writing."""
    if turn % 2:
        running.join(random.uniform(0, 1.2 * whole))
    else:
        until = time.monotonic() + 60
        while running.is_alive() and not any(store.glob(".staging-*")) and time.monotonic() < until:
            time.sleep(0.0005)
        running.join(random.expovariate(1 / 0.1) if turn else 0.0)
    if not running.is_alive():
        return False, False
    running.kill()
    running.join()
    return True, any(store.glob(".staging-*"))


def run(n_kills: int, job: Job) -> dict[str, float]:
    """Kill refreshes and check the store; return the counts."""
    make_shop(job.folder)
    with contextlib.redirect_stdout(io.StringIO()):  # kernels are ready in every copy
        assert guarded(lambda: app(job.arguments("other"), standalone_mode=False)) == 0
    begun = time.monotonic()
    published = [publish(job)]
    whole = time.monotonic() - begun
    store, stop = job.folder / "store", job.folder / "stop"
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(store), str(stop)], stdout=subprocess.PIPE, text=True
    )
    reader.stdout.readline()
    turn = killed = in_writing = 0
    while killed < n_kills:
        running = Running(job)
        was_killed, was_writing = kill_at_random(running, store, whole, turn)
        turn += 1
        killed += was_killed
        in_writing += was_writing
        if (number := running.number()) is not None:  # reported before it was killed
            published.append(number)
        if not was_killed:
            running.finish()
        assert reader.poll() is None
    stop.touch()
    found = json.loads(reader.communicate(timeout=60)[0])
    published.append(publish(job))
    check_store(Store(store), published, job.reranker)
    assert in_writing > 0, "no refresh was killed while writing: nothing was tested"
    return {
        **found, "in_writing": in_writing, "over": turn - killed,
        "kept": len(Store(store).numbers()), "whole": whole,
    }  # fmt: skip


def check_store(store: Store, published: list[int], reranker: bool) -> None:
    """Check that all versions are whole, that none was lost, and that nothing else is left."""
    versions = store.history()
    for version in versions:
        version.check()
        assert (version.lists() is not None) == (version.reranker() is not None) == reranker
    kept = [version.number for version in versions]
    assert set(published) <= set(kept), "a version was lost"
    assert kept == sorted(kept)
    assert kept == store.numbers(), "a version is damaged"
    folders = {path.name for path in (store.folder / "versions").iterdir()}
    assert folders == {version.folder.name for version in versions}
    assert not list(store.folder.glob(".staging-*")) + list(store.folder.glob("*.part"))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reranker", action="store_true")
    given = parser.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), 2 * given.kills + 50, given.reranker)
        found = run(given.kills, job)
    print(
        f"{given.kills} kills of refreshes that take about {found['whole']:.1f} s, "
        f"{found['in_writing']} of them while writing; {found['over']} refreshes finished first: "
        f"0 of {found['kept']} versions lost or damaged, 0 leftovers\n"
        f"{found['reads']} reads of {found['versions']} versions meanwhile in "
        f"{found['seconds']:.0f} s: {len(found['torn'])} torn"
    )
    if found["torn"]:
        sys.exit(found["torn"][0])


if __name__ == "__main__":
    main()
