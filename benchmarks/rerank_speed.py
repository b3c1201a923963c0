"""Times a Reranker's fit and apply against one argsort of the listed scores.

    python benchmarks/rerank_speed.py                    # 1,000,000 users x 50, 20M events
    python benchmarks/rerank_speed.py --users 100000     # smaller

Lists and recent purchases are generated; the events of history are drawn from a few favourites of
each user, over two months. Integer ids, Arrow tables. Each time is the median of the rounds. The
tables are made in another process, so that peak memory is that of reading, fit and apply alone.
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
START, SPAN = "2026-01-01", 60  # days of history
DAY = 86_400_000_000


def make_tables(folder: Path, n_users: int, n_items: int, n_events: int) -> None:
    """Write lists, recent purchases and history as Parquet."""
    data = generate_drift(n_users=n_users, n_items=n_items)
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


def measure(folder: Path, rounds: int) -> None:
    """Print the ratios of fit and apply to one argsort of the listed scores."""
    warnings.simplefilter("ignore", tt.GuardWarning)
    recs, recent, history = (
        pq.read_table(folder / f"{name}.parquet") for name in ("recs", "recent", "history")
    )
    few = recs.filter(pa.compute.less(recs["user_id"], 2000))
    known = pa.compute.less(recent["user_id"], 2000)
    learner = tt.RerankLearner()
    small = learner.fit(few, recent.filter(known), history=history.slice(0, 200_000))
    everything = pa.concat_tables([history, recent])
    small.apply(few, history=everything.slice(0, 100_000))  # compile and load kernels
    scores = recs["score"].to_numpy()
    argsort = median(seconds(lambda: np.argsort(scores))[0] for _ in range(rounds))
    print(
        f"{recs.num_rows:,} rows, {recent.num_rows:,} purchases, {history.num_rows:,} events; "
        f"one argsort {argsort:.2f} s",
        flush=True,
    )
    fits = [seconds(lambda: learner.fit(recs, recent, history=history)) for _ in range(rounds)]
    reranker = fits[0][1]
    print(reranker, dict(reranker.summary.lifts))
    fit = median(spent for spent, _ in fits)
    bias = seconds(lambda: tt.BiasLearner().fit(recs, recent, history=history))[0]
    apply = median(
        seconds(lambda: reranker.apply(recs, history=everything))[0] for _ in range(rounds)
    )
    print(f"fit    {fit:6.1f} s  {fit / argsort:5.2f} x (aim: at most {FIT_AIM:g})")
    print(f"  (the biases alone {bias:.1f} s, {bias / argsort:.2f} x)")
    print(f"apply  {apply:6.1f} s  {apply / argsort:5.2f} x (aim: at most {APPLY_AIM:g})")
    print(f"peak memory {peak_memory():.1f} GiB (aim: at most {MEMORY_AIM:g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--events", type=int, help="default: 20 per user")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    n_events = options.events or 20 * options.users
    with tempfile.TemporaryDirectory() as name:
        in_process(make_tables, Path(name), options.users, options.items, n_events)
        measure(Path(name), options.rounds)


if __name__ == "__main__":
    main()
