"""Time and peak memory of `refresh` on lists that do not fit into memory.

    python benchmarks/large.py                       # 10,000,000 users x 50, 60M events: 25 minutes
    python benchmarks/large.py --users 1000000 --same    # and the same bytes as in memory

There are lists of every user from before the window of three days and, the same lists, from the
evening after it, and two months of events in the order of time: users buy from a few favourites of
their own and, in the window, what drifted from the lists. A refresh learns biases and a Reranker,
and publishes them and the finished lists of every user. It runs in a process of its own, so that
peak memory is its own; kernels are compiled beforehand. The unit of time is one argsort of 50
million scores, measured in the same run. With --same the refresh runs once more with all lists in
memory, and the published files are compared byte by byte.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from favourites import Favourites, to_events
from shared import generate_drift, in_process, seconds
from trimtab.tables.times import DAY, read_day

AS_OF, LISTS, TONIGHT = "2026-03-04", "2026-02-28", "2026-03-04"
N_LISTED, SPAN, RECENT_DAYS = 50, 60, 3
PURCHASES_PER_USER = 0.3  # in the window
_USERS_AT_ONCE = 20_000  # a row group has a million rows
MINUTES_AIM, MEMORY_AIM = 15.0, 8.0
N_SORTED = 50_000_000


def write_shop(folder: Path, n_users: int, n_items: int, n_events: int) -> None:
    """Write lists and events."""
    data = generate_drift(n_users=n_users, n_items=n_items, purchases_per_user=PURCHASES_PER_USER)
    (folder / "lists").mkdir(parents=True)
    write_lists(data.lists, folder / "lists" / f"{LISTS}.parquet", n_users)
    os.link(folder / "lists" / f"{LISTS}.parquet", folder / "lists" / f"{TONIGHT}.parquet")
    listed = data.lists.items.reshape(n_users, N_LISTED)
    random = np.random.default_rng(0)
    favourites = Favourites(listed, n_items, random)
    start = read_day("", AS_OF).instant("UTC") - RECENT_DAYS * DAY
    lengths = np.diff(data.recent.indptr)
    buyers = np.repeat(np.arange(n_users), lengths)
    bought = favourites.repeat(buyers, data.recent.items)
    order = random.permutation(len(buyers))
    sold = start + np.sort(random.integers(0, RECENT_DAYS * DAY, len(buyers)))
    n_before = n_events - len(buyers)
    users = random.integers(0, n_users, n_before)
    times = start - SPAN * DAY + np.sort(random.integers(0, SPAN * DAY, n_before))
    recent = to_events(buyers[order], bought[order], sold, "UTC")
    with pq.ParquetWriter(folder / "events.parquet", recent.schema) as writer:
        writer.write_table(to_events(users, favourites.draw(users), times, "UTC"))
        writer.write_table(recent)
    print(f"{n_users:,} users x {N_LISTED}, {n_before:,} events and {len(buyers):,} purchases")


def write_lists(lists: Any, path: Path, n_users: int) -> None:
    """Write lists, a row group at a time."""
    writer = None
    for first in range(0, n_users, _USERS_AT_ONCE):
        some = slice(first * N_LISTED, min(first + _USERS_AT_ONCE, n_users) * N_LISTED)
        users = np.arange(some.start, some.stop) // N_LISTED
        table = pa.table({
            "user_id": users, "item_id": lists.items[some].astype(np.int64),
            "score": lists.scores[some],
        })  # fmt: skip
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def argsort_seconds() -> float:
    """Seconds of one argsort."""
    scores = np.random.default_rng(0).random(N_SORTED)
    return seconds(lambda: np.argsort(scores))[0]


def run_refresh(folder: Path, store: Path, in_memory: bool) -> tuple[float, float, str]:
    """Refresh; return seconds, GiB and what was published."""
    import trimtab as tt
    from trimtab.daily import Refresh
    from trimtab.replay import dated_lists

    warnings.simplefilter("ignore", tt.TrimtabWarning)
    dated_lists.LARGE = 2**62 if in_memory else 0
    job = Refresh(
        lists=folder / "lists", events=folder / "events.parquet", store=store, method="reranker",
        tz="UTC", window="3d",
    )  # fmt: skip
    lasted, done = seconds(lambda: job.run(AS_OF))
    status = Path("/proc/self/status").read_text()  # getrusage begins with the parent's peak
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 2**20
    return lasted, peak, f"{done.reranker}, kept {done.version.manifest['method']}"


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
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with ExitStack() as stack:
        room = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        in_process(write_shop, room / "shop", options.users, options.items, 6 * options.users)
        in_process(write_shop, room / "small", 2_000, 1_000, 12_000)
        in_process(run_refresh, room / "small", room / "small-store", False)  # compiles
        unit = argsort_seconds()
        lasted, peak, said = in_process(run_refresh, room / "shop", room / "files", False)
        lists = room / "files" / "versions"
        written = sum(path.stat().st_size for path in lists.rglob("lists.parquet")) / 2**30
        print(said)
        print(
            f"refresh {lasted / 60:.1f} minutes (aim {MINUTES_AIM:g}), {lasted / unit:.1f} x one "
            f"argsort of {N_SORTED:,} scores ({unit:.1f} s); peak memory {peak:.1f} GiB "
            f"(aim {MEMORY_AIM:g}); finished lists {written:.1f} GiB",
            flush=True,
        )
        if not options.same:
            return 0
        in_memory, peak, _ = in_process(run_refresh, room / "shop", room / "memory", True)
        same = files_of(room / "files") == files_of(room / "memory")
        print(
            f"in memory {in_memory / 60:.1f} minutes, {peak:.1f} GiB: files over memory "
            f"{lasted / in_memory:.2f} x; the same bytes: {same}"
        )
        return int(not same)


if __name__ == "__main__":
    sys.exit(main())
