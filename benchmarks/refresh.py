"""Time of `refresh`, from Parquet to published biases, compared with `fit` in memory.

python benchmarks/refresh.py                     1,000,000 users x 50, 100,000 items
python benchmarks/refresh.py --users 100000      smaller
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trimtab as tt
from shared import DriftData, generate_drift, peak_memory, seconds
from trimtab.daily import Refresh
from trimtab.tables.times import DAY, read_day

AIM = 3.0
AS_OF, LISTS, HISTORY_DAYS = "2026-03-31", "2026-03-27", 90


def timed(events: pa.Table, first: int, days: int, seed: int) -> pa.Table:
    """Return events at random times on some days, sorted."""
    random = np.random.default_rng(seed)
    times = np.sort(first + random.integers(0, days * DAY, events.num_rows))
    stamps = pa.array(times).cast(pa.timestamp("us", tz="UTC"))
    return events.select(["user_id", "item_id"]).append_column("timestamp", stamps)


def write_shop(data: DriftData, folder: Path) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Write lists and events; return the tables for `fit`."""
    recs = data.recs()
    start = read_day("", AS_OF).instant("UTC") - 3 * DAY
    recent = timed(data.recent_events(), start, 3, 0)
    history = timed(data.history_events(), start - HISTORY_DAYS * DAY, HISTORY_DAYS, 1)
    (folder / "lists").mkdir()
    pq.write_table(recs, folder / "lists" / f"{LISTS}.parquet")
    pq.write_table(pa.concat_tables([history, recent]), folder / "events.parquet")
    return recs, recent, history


def compare(name: str, learner: tt.BiasLearner, tables: tuple[Any, ...], folder: Path) -> None:
    """Print both times and their ratio."""
    recs, recent, history = tables
    known = {"history": history} if learner.is_hierarchy else {}
    job = Refresh(
        lists=folder / "lists", events=folder / "events.parquet", store=folder / f"store-{name}",
        learner=learner, tz="UTC",
    )  # fmt: skip
    in_memory, bias = seconds(lambda: learner.fit(recs, recent, **known))
    through, done = seconds(lambda: job.run(AS_OF))
    assert np.array_equal(done.version.bias().bias, bias.bias), "biases differ"
    print(
        f"{name:8s} fit {in_memory:6.1f} s, refresh {through:6.1f} s: {through / in_memory:.2f} x "
        f"(aim: at most {AIM:g}); same biases",
        flush=True,
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.GuardWarning)
    learners = {
        "default": tt.BiasLearner(),
        "ascent": tt.BiasLearner(method="ascent"),
        "paper": tt.BiasLearner.paper(),
    }
    small = generate_drift(n_users=2_000, n_items=500)
    for learner in learners.values():  # compile and load kernels
        learner.fit(small.recs(), small.recent_events())
    with tempfile.TemporaryDirectory() as folder:
        data = generate_drift(n_users=options.users, n_items=options.items)
        tables = write_shop(data, Path(folder))
        rows = [f"{table.num_rows:,}" for table in tables]
        print(f"{options.users:,} users: lists {rows[0]}, recent {rows[1]}, history {rows[2]}")
        for name, learner in learners.items():
            compare(name, learner, tables, Path(folder))
    print(f"peak memory {peak_memory():.1f} GiB")


if __name__ == "__main__":
    main()
