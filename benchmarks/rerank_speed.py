"""Times a Reranker's fit and apply against one argsort of the listed scores.

    python benchmarks/rerank_speed.py                    # 1,000,000 users x 50, 20M events
    python benchmarks/rerank_speed.py --users 100000     # smaller
    python benchmarks/rerank_speed.py --users 200000 --double users   # or items, listed, events

Lists and recent purchases are generated; the events of history are drawn from a few favourites of
each user, over two months. Integer ids, Arrow tables. Each time is the median of the rounds. The
tables are made in another process, so that peak memory is that of reading, fit and apply alone.
With --double, what fit and apply cost as one size doubles: both sizes take turns, so that other
work on the machine hits both.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trimtab as tt
from favourites import Favourites, to_events
from shared import generate_drift, in_process, peak_memory, seconds

FIT_AIM, APPLY_AIM, MEMORY_AIM = 6.0, 2.0, 8.0
DOUBLE_AIM, ITEMS_AIM = 2.2, 1.2
START, SPAN = "2026-01-01", 60  # days of history
DAY = 86_400_000_000


def make_tables(
    folder: Path, n_users: int, n_items: int, n_events: int, n_listed: int = 50
) -> None:
    """Write lists, recent purchases and history as Parquet."""
    data = generate_drift(n_users=n_users, n_items=n_items, n_listed=n_listed)
    recs, recent = data.recs(), data.recent_events()
    random = np.random.default_rng(0)
    start = int(np.datetime64(START, "us").astype(np.int64))
    listed = recs["item_id"].to_numpy().reshape(n_users, -1)
    favourites = Favourites(listed, n_items, random)
    users = random.integers(0, n_users, n_events)
    items = favourites.draw(users)
    times = start + np.sort(random.integers(0, SPAN * DAY, n_events))
    history = to_events(users, items, times)
    sold = start + SPAN * DAY + np.sort(random.integers(0, 3 * DAY, recent.num_rows))
    buyers, bought = recent["user_id"].to_numpy(), recent["item_id"].to_numpy()
    recent = to_events(buyers, favourites.repeat(buyers, bought), sold)
    for name, table in (("recs", recs), ("recent", recent), ("history", history)):
        pq.write_table(table, folder / f"{name}.parquet")


Tables = tuple[pa.Table, pa.Table, pa.Table]  # lists, recent purchases, history


def read_tables(folder: Path) -> Tables:
    recs, recent, history = (
        pq.read_table(folder / f"{name}.parquet") for name in ("recs", "recent", "history")
    )
    return recs, recent, history


def fit_and_apply(tables: Tables) -> tuple[float, float, tt.Reranker]:
    """Seconds of a fit and of an apply, and the Reranker."""
    recs, recent, history = tables
    fit, reranker = seconds(lambda: tt.RerankLearner().fit(recs, recent, history=history))
    everything = pa.concat_tables([history, recent])
    apply, _ = seconds(lambda: reranker.apply(recs, history=everything))
    return fit, apply, reranker


def warm_up(tables: Tables) -> None:
    """Compile and load the kernels."""
    recs, recent, history = tables
    few, known = (pa.compute.less(table["user_id"], 2000) for table in (recs, recent))
    fit_and_apply((recs.filter(few), recent.filter(known), history.slice(0, 200_000)))


def measure(folder: Path, rounds: int) -> None:
    """Print the ratios of fit and apply to one argsort of the listed scores."""
    tables = recs, recent, history = read_tables(folder)
    warm_up(tables)
    scores = recs["score"].to_numpy()
    argsort = median(seconds(lambda: np.argsort(scores))[0] for _ in range(rounds))
    sizes = f"{recs.num_rows:,} rows, {recent.num_rows:,} purchases, {history.num_rows:,} events"
    print(f"{sizes}; one argsort {argsort:.2f} s", flush=True)
    fits, applies, rerankers = zip(*(fit_and_apply(tables) for _ in range(rounds)), strict=True)
    print(rerankers[0], dict(rerankers[0].summary.lifts))
    fit, apply = median(fits), median(applies)
    bias = seconds(lambda: tt.BiasLearner().fit(recs, recent, history=history))[0]
    print(f"fit    {fit:6.1f} s  {fit / argsort:5.2f} x (aim: at most {FIT_AIM:g})")
    print(f"  (the biases alone {bias:.1f} s, {bias / argsort:.2f} x)")
    print(f"apply  {apply:6.1f} s  {apply / argsort:5.2f} x (aim: at most {APPLY_AIM:g})")
    print(f"peak memory {peak_memory():.1f} GiB (aim: at most {MEMORY_AIM:g})")


def compare(sizes: dict[str, int], double: str, rounds: int) -> None:
    """Print what fit and apply cost with one size doubled, over what they cost without."""
    with tempfile.TemporaryDirectory() as name:
        tables = []
        for part, factor in (("single", 1), ("double", 2)):
            folder = Path(name) / part
            folder.mkdir()
            own = {**sizes, double: factor * sizes[double]}
            if double == "users":  # as many events each
                own["events"] *= factor
            in_process(make_tables, folder, *own.values())
            tables.append(read_tables(folder))
    warm_up(tables[0])
    times = np.array([[fit_and_apply(own)[:2] for own in tables] for _ in range(rounds)])
    single, double_time = np.median(times, axis=0)
    fit, apply = double_time / single
    aim = ITEMS_AIM if double == "items" else DOUBLE_AIM
    print(f"twice the {double}: fit {fit:.2f} x, apply {apply:.2f} x (aim: at most {aim:g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--events", type=int, help="default: 20 per user")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--double", choices=("users", "items", "events", "listed"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.GuardWarning)
    sizes = {
        "users": options.users, "items": options.items,
        "events": options.events or 20 * options.users, "listed": 50,
    }  # fmt: skip
    if options.double:
        compare(sizes, options.double, options.rounds)
        return
    with tempfile.TemporaryDirectory() as name:
        in_process(make_tables, Path(name), *sizes.values())
        measure(Path(name), options.rounds)


if __name__ == "__main__":
    main()
