"""Times the default learner against a plain NDCG ascent of two cycles on the same tables.

python benchmarks/fit_default.py                     # 1,000,000 users x 50, 100,000 items
python benchmarks/fit_default.py --users 100000      # smaller
python benchmarks/fit_default.py --real              # the Complete Journey, four dates
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import trimtab as tt
from trimtab.datasets import generate_drift

AIM = 12.0


def seconds(job: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = job()
    return time.perf_counter() - started, result


def on_a_real_log() -> None:
    """Best of five runs each, without and with history and categories."""
    from trimtab.datasets import load_complete_journey
    from trimtab.engines import Category, Factorization, Markov
    from trimtab.experiments.methods import Case, Method
    from trimtab.experiments.timeline import split_log

    log = load_complete_journey()
    engines = {
        "markov": Markov(),
        "factorization": Factorization(),
        "category": Category(items=log.items, level=log.levels[-1]),
    }
    for day in ("2017-07-05", "2017-09-06", "2017-11-01", "2017-12-11"):
        split = split_log(log, day)
        for name, engine in engines.items():
            case = Case(engine, split, 50, 10, log.catalogue())
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="on the Complete Journey instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.GuardWarning)
    if options.real:
        on_a_real_log()
        return 0
    small = generate_drift(n_users=2_000, n_items=500)
    default, plain = tt.BiasLearner(), tt.BiasLearner(method="ascent")
    for learner in (default, plain):  # compile and load kernels
        learner.fit(small.recs(), small.recent_events())
    data = generate_drift(n_users=options.users, n_items=options.items)
    recs, recent, later = data.recs(), data.recent_events(), data.test_events()
    history, items = data.history_events(), data.catalogue()
    before = tt.evaluate(recs, later)["ndcg"]
    print(f"{options.users:,} users, {recs.num_rows:,} rows, {recent.num_rows:,} purchases")
    for _ in range(options.rounds):
        times, found = {}, {}
        jobs: dict[str, Callable[[], tt.ItemBias]] = {
            "plain ascent, 2 cycles": lambda: plain.fit(recs, recent),
            "default": lambda: default.fit(recs, recent),
            "default, with history and categories": lambda: default.fit(
                recs, recent, history=history, items=items
            ),
        }
        for name, job in jobs.items():
            times[name], found[name] = seconds(job)
        unit = times["plain ascent, 2 cycles"]
        for name, spent in times.items():
            lift = tt.evaluate(found[name].apply(recs), later)["ndcg"] / before - 1
            print(f"{name:40s} {spent:7.1f} s  {spent / unit:5.1f} x  NDCG later {lift:+.1%}")
        print(f"default / plain: {times['default'] / unit:.1f} (aim: at most {AIM:g})")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
