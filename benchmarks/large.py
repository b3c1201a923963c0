"""Time and peak memory of `refresh` on lists that do not fit into memory.

    python benchmarks/large.py                       # 10,000,000 users x 50, 60M events: 25 minutes
    python benchmarks/large.py --users 1000000 --same    # and the same bytes as in memory
    python benchmarks/large.py --shop FOLDER         # a shop that large_shop.py has written

A refresh learns biases and a Reranker, and publishes them and the finished lists of every user. It
runs in a process of its own, so that peak memory is its own; kernels are compiled beforehand. The
unit of time is one argsort of 50 million scores, measured in the same run. With --same the refresh
runs once more with all lists in memory, and the published files are compared byte by byte.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from large_shop import AS_OF, write_shop

MINUTES_AIM, MEMORY_AIM = 15.0, 8.0
N_SORTED = 50_000_000


def argsort_seconds() -> float:
    """Seconds of one argsort."""
    scores = np.random.default_rng(0).random(N_SORTED)
    began = time.perf_counter()
    np.argsort(scores)
    return time.perf_counter() - began


def run_refresh(folder: Path, store: Path, in_memory: bool, found: Any) -> None:
    """Refresh, and send seconds, GiB and what was published."""
    import trimtab as tt
    from trimtab.daily import Refresh, large_lists

    warnings.simplefilter("ignore", tt.TrimtabWarning)
    large_lists.LARGE = 2**62 if in_memory else 0
    job = Refresh(
        lists=folder / "lists", events=folder / "events.parquet", store=store, reranker=True,
        tz="UTC", recent_days=3,
    )  # fmt: skip
    began = time.perf_counter()
    done = job.run(AS_OF)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()  # getrusage begins with the parent's peak
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**20
    found.send((seconds, peak, f"{done.reranker}, kept {done.version.manifest['method']}"))


def in_process(function: Callable[..., None], *given: Any) -> Any:
    """What a function sends from a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=function, args=(*given, sender))
    worker.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        worker.join()


def make_shop(folder: Path, n_users: int, n_items: int, found: Any) -> None:
    """Write a shop."""
    write_shop(folder, n_users, n_items, 6 * n_users)
    found.send(None)


def files_of(store: Path) -> dict[str, bytes]:
    """What was published, without the manifest, which has the time of day."""
    (version,) = (store / "versions").iterdir()
    paths = (path for path in version.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(version)): path.read_bytes() for path in paths}


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--shop", type=Path)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with ExitStack() as stack:
        room = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        shop = options.shop or room / "shop"
        if options.shop is None:
            in_process(make_shop, shop, options.users, options.items)
        in_process(make_shop, room / "small", 2_000, 1_000)
        in_process(run_refresh, room / "small", room / "small-store", False)  # compiles
        unit = argsort_seconds()
        seconds, peak, said = in_process(run_refresh, shop, room / "files", False)
        lists = room / "files" / "versions"
        written = sum(path.stat().st_size for path in lists.rglob("lists.parquet")) / 2**30
        print(said)
        print(
            f"refresh {seconds / 60:.1f} minutes (aim {MINUTES_AIM:g}), {seconds / unit:.1f} x one "
            f"argsort of {N_SORTED:,} scores ({unit:.1f} s); peak memory {peak:.1f} GiB "
            f"(aim {MEMORY_AIM:g}); finished lists {written:.1f} GiB",
            flush=True,
        )
        if not options.same:
            return 0
        in_memory, peak, _ = in_process(run_refresh, shop, room / "memory", True)
        same = files_of(room / "files") == files_of(room / "memory")
        print(
            f"in memory {in_memory / 60:.1f} minutes, {peak:.1f} GiB: files over memory "
            f"{seconds / in_memory:.2f} x; the same bytes: {same}"
        )
        return int(not same)


if __name__ == "__main__":
    sys.exit(main())
