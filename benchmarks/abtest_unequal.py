"""Parts of abtest_runs.py: tests with unequal buckets, rare orders and heavy-tailed revenue.

Unequal: A/A with a treatment group of 50 to 1 % of users; tests with a verdict of too few are
counted apart. Lifts: how often the interval of the relative difference holds the true lift. Looks:
30 looks at an A/A test with a plan, without one, and three times as far as planned. Power:
redistributed users compared with Welch's test, in equal buckets. Runs have seeds of their own, so
the number of processes changes nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import t

from trimtab.abtest import Settings, analyse

BUCKETS = np.array(["control", "treatment"])
SIZES = (200, 2_000, 20_000)
SHARES = (0.5, 0.3, 0.1, 0.01)
AMOUNTS: dict[str, Callable[..., Any]] = {
    "lognormal": lambda random, n: random.lognormal(3.0, 1.0, n),
    "lognormal 2": lambda random, n: random.lognormal(3.0, 2.0, n),
    "Pareto 1.5": lambda random, n: 1 + random.pareto(1.5, n),
    "Pareto 2.5": lambda random, n: 1 + random.pareto(2.5, n),
}
OUTCOMES = ("clicks", "orders", "revenue")
N_LOOKS = 30
FAILED: list[str] = []


def report(name: str, value: float, low: float, high: float, style: str = "6.2%") -> None:
    """Print a value, and whether it is within its limits."""
    ok = low <= value <= high
    limits = f"{low:{style}} to {high:{style}}"
    print(f"{name:58} {value:{style}}   ({limits}) {'' if ok else 'OUTSIDE'}", flush=True)
    if not ok:
        FAILED.append(name)


def buyers(
    run: int,
    n: int,
    share: float,
    amounts: str,
    lift: float = 0.0,
    outcomes: Sequence[str] = OUTCOMES,
) -> pa.Table:
    """Return users with clicks, orders and revenue, a share of them treated."""
    random = np.random.default_rng([run, n, round(1_000 * share)])
    treated = random.permutation(np.arange(n) < max(1, round(share * n)))
    up = np.where(treated, 1 + lift, 1.0)
    emails = 1 + random.poisson(0.8, n)  # one family of metrics, each a ratio
    clicks = random.binomial(emails, np.minimum(random.beta(1.5, 6.0, n) * up, 1.0))
    orders = random.poisson(0.1 * emails * up)
    revenue = AMOUNTS[amounts](random, n) * orders
    made = {"clicks": clicks, "orders": orders, "revenue": revenue}
    return pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)],
            "emails": emails,
            **{name: made[name] for name in outcomes},
        }
    )


def unequal(runs: int) -> None:
    """A/A with treatment groups of all sizes, by side."""
    for n in SIZES:
        for share in SHARES:
            for amounts in ("lognormal", "Pareto 1.5", "Pareto 2.5"):
                _report_sides(runs, n, share, amounts)


def _report_sides(runs: int, n: int, share: float, amounts: str) -> None:
    outcomes = OUTCOMES if amounts == "lognormal" else ("revenue",)  # the others would be the same
    found = run_all(
        partial(_find_sides, n=n, share=share, amounts=amounts, outcomes=outcomes), runs
    )
    for place, name in enumerate(outcomes):
        own = found[:, place]
        tested = own[np.isfinite(own)]
        title = f"A/A, {n:,} users, {share:.0%}, {amounts if name == 'revenue' else name}"
        print(f"{title:58} {1 - len(tested) / runs:6.1%} too few", flush=True)
        if len(tested) > runs / 2:
            worse, better = np.mean(tested < 0), np.mean(tested > 0)
            report(f"{title}: different", worse + better, 0.03, 0.06)
            report(f"{title}: worse", worse, 0.015, 0.035)
            report(f"{title}: better", better, 0.015, 0.035)


def _find_sides(run: int, n: int, share: float, amounts: str, outcomes: Sequence[str]) -> list:
    """Return -1 or 1 for a difference found, 0 for none, nan for too few."""
    table = buyers(run, n, share, amounts, 0.0, outcomes)
    seen = analyse(table, Settings(share=share, seed=run))
    own = [seen.of(name, "emails") for name in outcomes]
    return [
        np.nan
        if f.verdict in ("too few", None)
        else np.sign(f.reading.difference) * (f.reading.p < 0.05)
        for f in own
    ]


def lifts(runs: int, lift: float = 0.3) -> None:
    """Coverage of the relative interval, with and without a lift."""
    for n, share in ((2_000, 0.5), (2_000, 0.1), (20_000, 0.5), (20_000, 0.1), (20_000, 0.01)):
        for amounts in ("lognormal", "Pareto 2.5"):
            outcomes = OUTCOMES if amounts == "lognormal" else ("revenue",)
            for up in (0.0, lift, -lift):
                task = partial(
                    _find_covered, n=n, share=share, amounts=amounts, lift=up, outcomes=outcomes
                )
                found = run_all(task, runs)
                for place, name in enumerate(outcomes):
                    own = found[:, place]
                    kind = amounts if name == "revenue" else name
                    title = f"interval, {n:,} users, {share:.0%}, {kind}, lift {up:+.0%}"
                    report(title, float(np.nanmean(own)), 0.94, 0.97)


def _find_covered(
    run: int, n: int, share: float, amounts: str, lift: float, outcomes: Sequence[str]
) -> list:
    """Return whether the interval holds the lift; nan for too few."""
    table = buyers(run, n, share, amounts, lift, outcomes)
    seen = analyse(table, Settings(share=share, seed=run))
    covered = []
    for name in outcomes:
        own = seen.of(name, "emails")
        low, high = own.reading.relative_low, own.reading.relative_high
        outside = low > lift or high < lift  # not if an end is unbounded
        covered.append(np.nan if own.verdict in ("too few", None) else float(not outside))
    return covered


def looks(runs: int) -> None:
    """A/A with 30 looks: how often an interval for every look excludes 0."""
    plans = {"as planned": 1.0, "3 x the plan": 1 / 3, "no plan": 0.0}
    for share in (0.5, 0.1):
        for plan, fraction in plans.items():
            found = run_all(partial(_find_left, share=share, planned=fraction), runs)
            for place, name in enumerate(("clicks", "revenue")):
                title = f"A/A, {N_LOOKS} looks, {share:.0%}, {plan}, {name}"
                report(title, float(found[:, place].mean()), 0.0, 0.05)


def _find_left(run: int, share: float, planned: float, n_a_look: int = 100) -> list:
    """Return whether 0 is outside an interval for every look at any look."""
    n = n_a_look * N_LOOKS
    table = buyers(run, n, share, "lognormal", 0.0, ("clicks", "revenue"))
    table = table.append_column("date", pa.array(np.repeat(np.arange(N_LOOKS), n_a_look)))
    emails = round(1.8 * n * planned) or None
    seen = analyse(table, Settings(share=share, planned=emails, seed=run)).looks
    left = []
    for name in ("clicks", "revenue"):
        spans = [own.reading.relative_sequence for own in seen if own.metric.numerator == name]
        left.append(any(span[0] > 0 or span[1] < 0 for span in spans if span))
    return left


def power(runs: int) -> None:
    """Power in equal buckets: redistributed over Welch's."""
    for amounts, lift in (("lognormal", 0.3), ("Pareto 2.5", 0.25)):
        found = run_all(partial(_find_power, amounts=amounts, lift=lift), runs).mean(axis=0)
        for place, name in enumerate(("orders", "revenue")):
            ours, welch = found[2 * place : 2 * place + 2]
            title = f"power, 2,000 users, {lift:+.0%} orders, {amounts}, {name}"
            report(f"{title}", ours, 0.0, 1.0)
            report(f"{title}: over Welch's", ours / welch, 0.95, 2.0, "6.3f")


def _find_power(run: int, amounts: str, lift: float) -> list:
    table = buyers(run, 2_000, 0.5, amounts, lift, ("orders", "revenue"))
    seen = analyse(table, Settings(seed=run))
    found = []
    for name in ("orders", "revenue"):
        own = seen.of(name, "emails").reading
        welch = 2 * t.sf(abs(own.difference) / own.error, own.freedom)
        found += [own.p < 0.05, welch < 0.05]
    return found


def run_all(task: Callable[[int], list], runs: int) -> np.ndarray:
    """Return a row for each run, from as many processes as there are cores."""
    chunk = max(1, runs // 50)
    return np.array(list(_pool().map(task, range(runs), chunksize=chunk)), float)


_pools: list[ProcessPoolExecutor] = []


def _pool() -> ProcessPoolExecutor:
    if not _pools:
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"))
        spawn = multiprocessing.get_context("spawn")
        _pools.append(ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawn))
    return _pools[0]


PARTS = {"unequal": unequal, "lifts": lifts, "looks": looks, "power": power}
