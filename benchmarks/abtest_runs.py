"""Error rates and power of A/B tests, over thousands of generated tests with fixed seeds.

python benchmarks/abtest_runs.py                           # hours, most for unequal buckets
python benchmarks/abtest_runs.py --parts chance cuped plan # minutes
python benchmarks/abtest_runs.py --runs 200                # quick; its limits are for 2,000

A/A: how often a difference is found without one. Peeking: the same at any of 14 looks, with
intervals for one look and for every look. CUPED: its variance over the plain variance, compared
with 1 - ρ². Plan: how often the planned number of emails detects the planned lift. Unequal: A/A
with a treatment group of 50 to 1 % of users and heavy-tailed revenue; tests with a verdict of too
few are counted apart. Looks: 30 looks at unequal buckets, as planned and three times as far.
Power: revenue in equal buckets, redistributed over Welch. Exits with status 1 if a value is
outside its limits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from trimtab.abtest import (
    Settings,
    analyse,
    analyse_counts,
    baseline_of,
    baseline_of_counts,
    plan,
)
from trimtab.abtest.cuped import Observed, adjust
from trimtab.abtest.readings import ratio

BUCKETS = np.array(["control", "treatment"])
LOOKS = 14
FAILED: list[str] = []


def report(name: str, value: float, low: float, high: float, style: str = "6.2%") -> None:
    """Print a value, and whether it is within its limits."""
    ok = low <= value <= high
    limits = f"{low:{style}} to {high:{style}}"
    print(f"{name:58} {value:{style}}   ({limits}) {'' if ok else 'OUTSIDE'}", flush=True)
    if not ok:
        FAILED.append(name)


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
    """A/A: CTR, revenue, and orders by the exact test."""
    random = np.random.default_rng(1)
    found = np.zeros(4)
    settings = Settings(draws=0)
    for _ in range(runs):
        seen = analyse(pa.table(people(random, 2_000)), settings)
        clicks, orders, revenue = (seen.of(n, "opens") for n in ("clicks", "orders", "revenue"))
        exact = next(r.p for r in orders.readings if r.method == "exact")
        found += np.array([clicks.main.p, revenue.main.p, exact, orders.p]) < 0.05
    rates = found / runs
    report("A/A, clicks per open different", rates[0], 0.04, 0.06)
    report("A/A, revenue per open different", rates[1], 0.04, 0.06)
    report("A/A, orders per open, exact test", rates[2], 0.0, 0.06)
    report("A/A, orders per open, as judged", rates[3], 0.0, 0.06)


def peeking(runs: int) -> None:
    """A/A with 14 looks."""
    random = np.random.default_rng(2)
    n = 200 * LOOKS
    settings = Settings(draws=0, planned=n)
    naive = careful = 0
    for _ in range(runs):
        rows = people(random, n)
        kept = {name: rows[name] for name in ("bucket", "opens", "clicks")}
        dates = random.permutation(np.repeat(np.arange(LOOKS), n // LOOKS))
        seen = analyse(pa.table({**kept, "date": dates}), settings)
        naive += any(look.reading.p < 0.05 for look in seen.looks)
        careful += any(s[0] > 0 or s[1] < 0 for look in seen.looks if (s := look.sequence))
    report("A/A, 14 looks, intervals that hold at every look", careful / runs, 0.0, 0.05)
    report("A/A, 14 looks, intervals for one look only", naive / runs, 0.05, 1.0)


def cuped() -> None:
    """Variance reduction for several correlations."""
    random = np.random.default_rng(3)
    n = 200_000
    for strength in (0.3, 0.6, 0.9):
        before = random.normal(5.0, 1.0, n)
        now = strength * before + np.sqrt(1 - strength**2) * random.normal(0.0, 1.0, n)
        ones = np.ones(n // 2)
        halves = [(now[half], before[half]) for half in (slice(0, n // 2), slice(n // 2, n))]
        adjusted = adjust(*(Observed(y, ones, x, ones) for y, x in halves))
        plain = [ratio(y, ones) for y, _ in halves]
        got = sum(e.variance for e in adjusted) / sum(e.variance for e in plain)
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
            found += seen.of(name, "opens").p < 0.05
        report(
            f"plan, {row.emails:,.0f} emails, {name} {lift:+.0%}: power", found / runs, 0.77, 0.83
        )
    past = pa.table(people(random, 400_000)).drop(["bucket"])
    for metric in ("clicks", "revenue"):
        (base_of,) = [b for b in baseline_of(past) if b.metric[:2] == (metric, "opens")]
        (row,) = plan([base_of], [0.3 if metric == "revenue" else 0.15])
        found = 0
        for _ in range(runs):
            seen = analyse(pa.table(people(random, int(row.emails), row.lift)), Settings(draws=0))
            found += seen.of(metric, "opens").main.p < 0.05
        name = f"plan from a table, {row.emails:,.0f} emails, {metric} {row.lift:+.0%}: power"
        report(name, found / runs, 0.77, 0.83)


AMOUNTS = {
    "lognormal": lambda random, n: random.lognormal(3.0, 1.0, n),
    "Pareto 1.5": lambda random, n: 1 + random.pareto(1.5, n),
    "Pareto 2.5": lambda random, n: 1 + random.pareto(2.5, n),
}


def buyers(
    random: np.random.Generator, n: int, share: float, amounts: str, lift: float = 0.0
) -> pa.Table:
    """Return users with clicks, orders and revenue, a share of them treated."""
    treated = random.permutation(np.arange(n) < max(1, round(share * n)))
    opens = 1 + random.poisson(0.8, n)
    orders = random.poisson(0.1 * opens)
    return pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)],
            "emails": opens,  # one family of metrics, each a ratio
            "clicks": random.binomial(opens, random.beta(1.5, 6.0, n)),
            "orders": orders,
            "revenue": AMOUNTS[amounts](random, n) * orders * np.where(treated, 1 + lift, 1.0),
        }
    )


def unequal(runs: int) -> None:
    """A/A with treatment groups of all sizes, by side."""
    for n in (200, 2_000, 20_000):
        for share in (0.5, 0.3, 0.1, 0.01):
            for amounts in AMOUNTS:
                _count_sides(runs, n, share, amounts)


def _count_sides(runs: int, n: int, share: float, amounts: str) -> None:
    random = np.random.default_rng(5)
    sides: dict[str, list[float]] = {"clicks": [], "orders": [], "revenue": []}
    for run in range(runs):
        seen = analyse(buyers(random, n, share, amounts), Settings(draws=0, share=share, seed=run))
        for name, found in sides.items():
            own = seen.of(name, "emails")
            if own.verdict not in ("too few", None):
                found.append(np.sign(own.main.difference) * (own.p < 0.05))
    for name, found in sides.items():
        if name != "revenue" and amounts != "lognormal":
            continue  # the same whatever the amounts
        title = f"A/A, {n:,} users, {share:.0%}, {amounts if name == 'revenue' else name}"
        print(f"{title:58} {1 - len(found) / runs:6.1%} too few", flush=True)
        if len(found) > runs / 2:
            worse, better = np.mean(np.array(found) < 0), np.mean(np.array(found) > 0)
            report(f"{title}: different", worse + better, 0.03, 0.06)
            report(f"{title}: worse", worse, 0.015, 0.035)
            report(f"{title}: better", better, 0.015, 0.035)


def unequal_looks(runs: int, n_looks: int = 30) -> None:
    """A/A with 30 looks: how often an interval for every look excludes 0."""
    for share in (0.5, 0.1):
        for times in (1, 3):
            random = np.random.default_rng(6)
            n = 100 * n_looks
            left = np.zeros(2)
            for run in range(runs):
                table = buyers(random, n, share, "lognormal").drop(["orders"])
                dates = pa.array(np.repeat(np.arange(n_looks), n // n_looks))
                emails = int(np.sum(table["emails"]))
                settings = Settings(draws=0, share=share, planned=emails // times, seed=run)
                seen = analyse(table.append_column("date", dates), settings).looks
                for place, name in enumerate(("clicks", "revenue")):
                    spans = [own.sequence for own in seen if own.metric.numerator == name]
                    left[place] += any(s[0] > 0 or s[1] < 0 for s in spans if s)
            for place, name in enumerate(("clicks", "revenue")):
                title = f"A/A, {n_looks} looks, {share:.0%}, {times} x the plan, {name}"
                report(title, left[place] / runs, 0.0, 0.05)


def power(runs: int) -> None:
    """Revenue in equal buckets with a true lift: redistributed compared with Welch."""
    for amounts, lift in (("lognormal", 0.5), ("Pareto 2.5", 0.4)):
        random = np.random.default_rng(7)
        found = np.zeros(2)
        for run in range(runs):
            seen = analyse(buyers(random, 2_000, 0.5, amounts, lift), Settings(draws=0, seed=run))
            readings = {own.method: own.p for own in seen.of("revenue", "emails").readings}
            found += [readings["redistributed"] < 0.05, readings["Welch"] < 0.05]
        title = f"power, 2,000 users, {amounts} {lift:+.0%}"
        report(f"{title}: redistributed", found[0] / runs, 0.0, 1.0)
        report(f"{title}: over Welch's", found[0] / max(found[1], 1), 0.95, 2.0)


PARTS = {
    "chance": by_chance,
    "peeking": peeking,
    "cuped": lambda _: cuped(),
    "plan": planned,
    "unequal": unequal,
    "looks": unequal_looks,
    "power": power,
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
