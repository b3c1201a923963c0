"""Writes a large shop: lists of every user and two months of events, as Parquet.

    python benchmarks/large_shop.py FOLDER                    # 10,000,000 users x 50, 60M events
    python benchmarks/large_shop.py FOLDER --users 1000000    # smaller

lists/2026-02-28.parquet is from before the window of three days, lists/2026-03-04.parquet, the same
lists, from the evening after it. Users buy from a few favourites of their own and, in the window,
what drifted from the lists. Events are in the order of time.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from favourites import Favourites, to_events
from generated_drift import generate_drift
from trimtab.tables.times import DAY, day_start, read_day

AS_OF, LISTS, TONIGHT = "2026-03-04", "2026-02-28", "2026-03-04"
N_LISTED, SPAN, RECENT_DAYS = 50, 60, 3
PURCHASES_PER_USER = 0.3  # in the window
_USERS_AT_ONCE = 20_000  # a row group has a million rows


def write_shop(folder: Path, n_users: int, n_items: int, n_events: int) -> None:
    """Write lists and events."""
    data = generate_drift(n_users=n_users, n_items=n_items, purchases_per_user=PURCHASES_PER_USER)
    (folder / "lists").mkdir(parents=True)
    write_lists(data.lists, folder / "lists" / f"{LISTS}.parquet", n_users)
    os.link(folder / "lists" / f"{LISTS}.parquet", folder / "lists" / f"{TONIGHT}.parquet")
    listed = data.lists.items.reshape(n_users, N_LISTED)
    random = np.random.default_rng(0)
    favourites = Favourites(listed, n_items, random)
    start = day_start(read_day("", AS_OF), "UTC") - RECENT_DAYS * DAY
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


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--events", type=int, help="default: 6 per user")
    options = parser.parse_args()
    write_shop(options.folder, options.users, options.items, options.events or 6 * options.users)


if __name__ == "__main__":
    main()
