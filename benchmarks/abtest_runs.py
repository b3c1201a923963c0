"""Error rates and power of A/B tests, over thousands of generated tests with fixed seeds.

python benchmarks/abtest_runs.py                           # an hour, most for unequal buckets
python benchmarks/abtest_runs.py --parts chance cuped plan # minutes
python benchmarks/abtest_runs.py --runs 200                # quick; its limits are for 2,000

A/A: how often a difference is found without one. Peeking: the same at any of 14 looks, with
intervals for one look and for every look. CUPED: its variance over the plain variance, compared
with 1 - ρ². Plan: how often the planned number of emails detects the planned lift. The parts
unequal, lifts, looks and power are in abtest_unequal.py; ramp, margin, ramped-looks,
returning and treatments in abtest_ramps.py. Exits with status 1 if a value is outside its limits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import abtest_ramps
import abtest_unequal
from abtest_unequal import BUCKETS, FAILED, report
from trimtab.abtest import (
    Settings,
    analyse,
    analyse_counts,
    baseline_of,
    baseline_of_counts,
    plan,
)

LOOKS = 14


def people(random: np.random.Generator, n: int, lift: float = 0.0) -> dict[str, np.ndarray]:
    """Return users who differ in opens, clicks and spending; the second half has the lift."""
    treated = np.arange(n) >= n // 2
    opens = 1 + random.poisson(0.8, n)
    liking = random.beta(1.5, 6.0, n) * np.where(treated, 1 + lift, 1.0)
    clicks = random.binomial(opens, np.minimum(liking, 1.0))
    orders = random.poisson(0.03 * opens * np.where(treated, 1 + lift, 1.0))
    spent = random.lognormal(3.0, 0.6, n) * orders
    return {
        "bucket": BUCKETS[treated.astype(int)], "opens": opens, "clicks": clicks, "orders": orders,
        "revenue": spent,
    }  # fmt: skip


def by_chance(runs: int) -> None:
    """A/A: clicks, orders and revenue per open."""
    random = np.random.default_rng(1)
    names = ("clicks", "orders", "revenue")
    found = np.zeros(3)
    for _ in range(runs):
        seen = analyse(pa.table(people(random, 2_000)))
        found += [seen.of(name, "opens").reading.p < 0.05 for name in names]
    for name, rate in zip(names, found / runs, strict=True):
        report(f"A/A, {name} per open different", rate, 0.03, 0.06)


def peeking(runs: int) -> None:
    """A/A with 14 looks."""
    random = np.random.default_rng(2)
    n = 200 * LOOKS
    settings = Settings(planned=n)
    naive = careful = 0
    for _ in range(runs):
        rows = people(random, n)
        kept = {name: rows[name] for name in ("bucket", "opens", "clicks")}
        dates = random.permutation(np.repeat(np.arange(LOOKS), n // LOOKS))
        seen = analyse(pa.table({**kept, "date": dates}), settings)
        naive += any(look.reading.p < 0.05 for look in seen.looks)
        spans = [look.reading.sequence for look in seen.looks]
        careful += any(span[0] > 0 or span[1] < 0 for span in spans if span)
    report("A/A, 14 looks, intervals that hold at every look", careful / runs, 0.0, 0.05)
    report("A/A, 14 looks, intervals for one look only", naive / runs, 0.05, 1.0)


def cuped() -> None:
    """Variance reduction for several correlations."""
    random = np.random.default_rng(3)
    n = 200_000
    for strength in (0.3, 0.6, 0.9):
        before = random.normal(5.0, 1.0, n)
        now = strength * before + np.sqrt(1 - strength**2) * random.normal(0.0, 1.0, n)
        bucket = BUCKETS[np.arange(n) % 2]
        table = pa.table({"bucket": bucket, "now": now, "before": before})
        plain, adjusted = (
            analyse(table, amounts=["now/user"], covariates=names).findings[0].reading.error
            for names in ([], ["before"])
        )
        got = (adjusted / plain) ** 2
        expected = 1 - np.corrcoef(now, before)[0, 1] ** 2
        report(f"CUPED, variance over 1 - ρ², ρ = {strength}", got / expected, 0.95, 1.05, "6.4f")


def outcomes(random: np.random.Generator, emails: float, rates: dict[str, float]) -> Iterator[dict]:
    """Return totals of both buckets for a number of emails."""
    half = int(emails // 2)
    for up in (1.0, 1 + rates["lift"]):
        opens = random.binomial(half, rates["opens"])
        yield {
            "emails": half,
            "opens": opens,
            "clicks": random.binomial(opens, rates["clicks"] * up),
            "orders": min(random.poisson(opens * rates["orders"] * up), opens),
        }


def planned(runs: int) -> None:
    """Measure how often the planned emails detect the planned lift."""
    random = np.random.default_rng(4)
    base = {"emails": 1_000_000, "opens": 150_000, "clicks": 22_500, "orders": 300}
    known = {b.metric.numerator: b for b in baseline_of_counts(base) if b.metric[1] == "opens"}
    for name, lift in (("clicks", 0.05), ("orders", 0.5)):
        (row,) = plan([known[name]], [lift])
        rates = {"opens": 0.15, "clicks": 0.15, "orders": 0.002, "lift": lift}
        found = 0
        for _ in range(runs):
            seen = analyse_counts(*outcomes(random, row.emails, rates))
            found += seen.of(name, "opens").reading.p < 0.05
        report(
            f"plan, {row.emails:,.0f} emails, {name} {lift:+.0%}: power", found / runs, 0.77, 0.83
        )
    past = pa.table(people(random, 400_000)).drop(["bucket"])
    for metric in ("clicks", "revenue"):
        (base_of,) = [b for b in baseline_of(past) if b.metric[:2] == (metric, "opens")]
        (row,) = plan([base_of], [0.3 if metric == "revenue" else 0.15])
        found = 0
        for _ in range(runs):
            seen = analyse(pa.table(people(random, int(row.emails), row.lift)), Settings())
            found += seen.of(metric, "opens").reading.p < 0.05
        name = f"plan from a table, {row.emails:,.0f} emails, {metric} {row.lift:+.0%}: power"
        report(name, found / runs, 0.77, 0.83)


PARTS = {
    "chance": by_chance,
    "peeking": peeking,
    "cuped": lambda _: cuped(),
    "plan": planned,
    **abtest_unequal.PARTS,
    **abtest_ramps.PARTS,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    for part in given.parts:
        PARTS[part](given.runs)
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
