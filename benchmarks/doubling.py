"""What a Reranker's fit and apply cost as one size doubles at a time.

    python benchmarks/doubling.py                     # from 200,000 users x 50 on: 15 minutes
    python benchmarks/doubling.py --users 50000       # smaller

Sizes: users, items, length of lists, events of history, windows. Each fit and apply is the median
of three; the two sizes of a pair are measured in turn, so that other work on the machine hits both.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import trimtab as tt
from favourites import Favourites, to_events
from shared import generate_drift, seconds
from trimtab.tables.times import DAY, day_start, read_day

AIM, ITEMS_AIM = 2.2, 1.2
START, SPAN, WINDOW_DAYS = "2026-01-01", 60, 3


@dataclass(frozen=True)
class Size:
    """The size of a shop."""

    users: int
    items: int = 100_000
    listed: int = 50
    events_per_user: int = 20
    windows: int = 1


def make_tables(size: Size) -> dict[str, pa.Table]:
    """Return lists, purchases of the windows and earlier events."""
    data = generate_drift(n_users=size.users, n_items=size.items, n_listed=size.listed)
    recs, bought = data.recs(), data.recent_events()
    listed = data.lists.items.reshape(size.users, size.listed)
    random = np.random.default_rng(0)
    favourites = Favourites(listed, size.items, random)
    start = day_start(read_day("", START), "UTC")
    n_events = size.users * size.events_per_user
    users = random.integers(0, size.users, n_events)
    times = start + np.sort(random.integers(0, SPAN * DAY, n_events))
    history = to_events(users, favourites.draw(users), times)
    lists, sales = [], []
    for window in range(size.windows):
        began = start + (SPAN - WINDOW_DAYS * (size.windows - 1 - window)) * DAY
        buyers = bought["user_id"].to_numpy()
        items = favourites.repeat(buyers, bought["item_id"].to_numpy())
        sold = began + np.sort(random.integers(0, WINDOW_DAYS * DAY, len(buyers)))
        sales.append(add(to_events(buyers, items, sold), window))
        lists.append(add(recs, window))
    return {
        "recs": pa.concat_tables(lists), "recent": pa.concat_tables(sales), "history": history,
    }  # fmt: skip


def add(table: pa.Table, window: int) -> pa.Table:
    """Return a table with the label of its window."""
    return table.append_column("window", pa.repeat(pa.scalar(window), table.num_rows))


def measure(tables: dict[str, pa.Table], size: Size) -> tuple[float, float]:
    """Return the seconds of a fit, and of an apply to the newest lists."""
    fit, reranker = seconds(lambda: tt.RerankLearner().fit(**tables))
    known = pa.concat_tables([tables["history"], tables["recent"].select([0, 1, 2])])
    recs = tables["recs"].select([0, 1, 2])
    newest = recs.slice(recs.num_rows - size.users * size.listed)
    return fit, seconds(lambda: reranker.apply(newest, history=known))[0]


def compare(sizes: tuple[Size, Size], rounds: int) -> tuple[float, float]:
    """Return the ratios of fit and apply, twice the size over once."""
    tables = [make_tables(size) for size in sizes]
    found = [
        [measure(*own) for own in zip(tables, sizes, strict=True)] for _ in range(rounds)
    ]  # by [round, size, (fit, apply)]
    fit, apply = np.median(np.array(found), axis=0).T
    print(f"  fit {fit[0]:.2f} s -> {fit[1]:.2f} s, apply {apply[0]:.2f} s -> {apply[1]:.2f} s")
    return fit[1] / fit[0], apply[1] / apply[0]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    compare((Size(2_000, 1_000), Size(2_000, 1_000, windows=2)), 1)  # compiles
    base = Size(options.users)
    pairs = {
        "users": (base, replace(base, users=2 * base.users)),
        "users again": (replace(base, users=2 * base.users), replace(base, users=4 * base.users)),
        "items": (base, replace(base, items=2 * base.items)),
        "length of lists": (base, replace(base, listed=2 * base.listed)),
        "events": (base, replace(base, events_per_user=2 * base.events_per_user)),
        "windows": (base, replace(base, windows=2)),
        "windows again": (replace(base, windows=2), replace(base, windows=4)),
    }
    failed = False
    for name, pair in pairs.items():
        fit, apply = compare(pair, options.rounds)
        aim = ITEMS_AIM if name == "items" else AIM
        print(f"twice the {name}: fit {fit:.2f} x, apply {apply:.2f} x (aim: at most {aim:g})")
        failed |= max(fit, apply) > aim
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
