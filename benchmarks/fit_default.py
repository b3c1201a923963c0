"""Times the default learner against one argsort of its scores, and against a plain NDCG ascent.

python benchmarks/fit_default.py                     # 1,000,000 users x 50, 20M events of history
python benchmarks/fit_default.py --users 100000      # smaller
python benchmarks/fit_default.py --real              # the Complete Journey, four dates

Arrow tables with integer ids, made in another process, so that peak memory is that of reading and
fitting. The yardstick is one default `np.argsort` of all listed scores as float64, measured in
between; ratios are of medians over the rounds, and all seconds are printed. The plain ascent makes
two cycles. Exits with status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import rerank_speed
import trimtab as tt
from shared import generate_drift, in_process, peak_memory, seconds

AIM = 12.0  # times the plain ascent
WITHOUT_HISTORY, ADDED_BY_HISTORY = 2.5, 1.5  # times the argsort


def on_a_real_log() -> None:
    """Best of five runs each, without and with history and categories."""
    from trimtab.datasets import load_complete_journey
    from trimtab.engines import Category, Factorization, Markov
    from trimtab.replay.outcome import Case
    from trimtab.replay.rivals import Method
    from trimtab.replay.windows import split_log

    log = load_complete_journey()
    engines = {
        "markov": Markov(),
        "factorization": Factorization(),
        "category": Category(items=log.items, level=log.levels[-1]),
    }
    for day in ("2017-07-05", "2017-09-06", "2017-11-01", "2017-12-11"):
        split = split_log(log, day)
        for name, engine in engines.items():
            case = Case(engine, log, split, 50, 10)
            recs, recent = case.before, split.recent
            jobs: dict[str, Callable[[], Any]] = {
                "plain": lambda r=recs, s=recent: tt.BiasLearner(method="ascent").fit(r, s),
                "alone": lambda r=recs, s=recent: tt.BiasLearner().fit(r, s),
                "informed": lambda c=case: Method("default", "default").learn(c, "ndcg"),
            }
            for job in jobs.values():
                job()
            best = {key: min(seconds(job)[0] for _ in range(5)) for key, job in jobs.items()}
            print(
                f"{day} {name:14s} plain {1000 * best['plain']:4.0f} ms, default "
                f"{best['alone'] / best['plain']:4.1f} x, with {split.train.num_rows:,} events of "
                f"history and categories {best['informed'] / best['plain']:4.1f} x"
            )


def make_tables(folder: Path, n_users: int, n_items: int, n_events: int) -> None:
    """Write all tables as Parquet: those of `rerank_speed.py`, categories and later purchases."""
    import pyarrow.parquet as pq

    rerank_speed.make_tables(folder, n_users, n_items, n_events)
    data = generate_drift(n_users=n_users, n_items=n_items)
    for name, table in (("items", data.catalogue()), ("later", data.test_events())):
        pq.write_table(table, folder / f"{name}.parquet")


def warm_up() -> None:
    """Compile and load the kernels."""
    with tempfile.TemporaryDirectory() as name:
        make_tables(Path(name), 2_000, 500, 40_000)
        for job in make_jobs(read_tables(Path(name))).values():
            job()


def read_tables(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    names = ("recs", "recent", "history", "items", "later")
    return {name: pq.read_table(folder / f"{name}.parquet") for name in names}


def make_jobs(tables: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; one chunk per column, as a table in memory has."""
    recs, recent, history, items = (
        tables[name].combine_chunks() for name in ("recs", "recent", "history", "items")
    )
    default, plain = tt.BiasLearner(), tt.BiasLearner(method="ascent")
    return {
        "argsort": lambda: np.argsort(recs["score"].to_numpy()),
        "plain ascent": lambda: plain.fit(recs, recent),
        "default": lambda: default.fit(recs, recent),
        "default, with history": lambda: default.fit(recs, recent, history=history),
        "default, with history and categories": lambda: default.fit(
            recs, recent, history=history, items=items
        ),
    }


def measure(folder: Path, rounds: int) -> bool:
    """Time everything and print the ratios; returns whether the targets are met."""
    tables = read_tables(folder)
    recs, recent, history, later = (tables[n] for n in ("recs", "recent", "history", "later"))
    print(
        f"{recs.num_rows:,} rows, {recent.num_rows:,} purchases, {history.num_rows:,} events",
        flush=True,
    )
    jobs, times, found = make_jobs(tables), {}, {}
    for _ in range(rounds):
        for name, job in jobs.items():
            spent, found[name] = seconds(job)
            times.setdefault(name, []).append(spent)
            print(f"  {name:40} {spent:8.2f} s", flush=True)
    peak = peak_memory()
    before = tt.evaluate(recs, later)["ndcg"]
    typical = {name: median(each) for name, each in times.items()}
    unit = typical["argsort"]
    print(f"{'':40} {'seconds':>8} {'/ argsort':>10} {'/ plain':>8}   NDCG later")
    for name in list(jobs)[1:]:
        lift = tt.evaluate(found[name].apply(recs), later)["ndcg"] / before - 1
        ratios = f"{typical[name] / unit:10.2f} {typical[name] / typical['plain ascent']:8.2f}"
        print(f"{name:40} {typical[name]:8.1f} {ratios}   {lift:+.1%}")
    added = typical["default, with history"] - typical["default"]
    targets = (
        ("default / argsort", typical["default"] / unit, WITHOUT_HISTORY),
        ("added by history / argsort", added / unit, ADDED_BY_HISTORY),
        ("default / plain", typical["default"] / typical["plain ascent"], AIM),
    )
    for name, value, most in targets:
        print(f"{name:40} {value:8.2f}  <= {most:g}{'' if value <= most else '  MISSED'}")
    print(f"peak memory {peak:.1f} GiB")
    return all(value <= most for _, value, most in targets)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--events", type=int, help="of history; default: 20 per user")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--real", action="store_true", help="on the Complete Journey instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.GuardWarning)
    if options.real:
        on_a_real_log()
        return 0
    warm_up()
    sizes = (options.users, options.items, options.events or 20 * options.users)
    with tempfile.TemporaryDirectory() as name:
        in_process(make_tables, Path(name), *sizes)
        return int(not measure(Path(name), options.rounds))


if __name__ == "__main__":
    sys.exit(main())
