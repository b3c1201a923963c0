"""Parts of abtest_runs.py: shares that change from date to date, and lifts as large as a margin.

Ramp: A/A with a share that rises from 2 to 20 % over ten dates and skewed revenue. Margin: how
often a true lift of 50 % is called equivalent with a margin of 50 %. Ramped looks: A/A with a share
that rises from 10 to 70 % while orders rise by 15 % a day, looked at every day. Returning: A/A with
users on several dates of a ramp, who move to the treatment as the share passes their hash; with
and without the salt. Treatments: how often any of three treatments without an effect is found
better or worse than control, in 800 users with clicks per impression, orders and lognormal revenue.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from abtest_unequal import AMOUNTS, BUCKETS, buyers, report, run_all
from trimtab.abtest import Experiment, Settings, analyse

N_DATES = 10
REVENUE = {"amounts": ["revenue/user"]}
LABELS = ("control", "A", "B", "C")
METRICS = {"counts": ["clicks/impressions", "orders/user"], **REVENUE}


def ramped(
    run: int, n: int, shares: tuple[float, float], amounts: str, growth: float = 0.0
) -> tuple[pa.Table, float]:
    """Return users without a difference, and the share of all of them that is treated.

    Args:
        run: seed.
        n: users, the same number on each date.
        shares: share of the treatment on the first date and on the last.
        amounts: distribution of what an order is worth.
        growth: by how much orders rise from date to date.
    """
    random = np.random.default_rng([run, n])
    date = np.arange(n) % N_DATES
    share = np.linspace(*shares, N_DATES)[date]
    treated = random.random(n) < share
    orders = random.poisson(0.3 * (1 + growth) ** date)
    table = pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "date": date, "orders": orders,
            "revenue": orders * AMOUNTS[amounts](random, n),
        }
    )  # fmt: skip
    return table, float(share.mean())


def ramp(runs: int) -> None:
    """A/A with a ramp, by side."""
    for amounts in ("lognormal 2", "Pareto 1.5"):
        found = run_all(partial(_find_side, amounts=amounts), runs)[:, 0]
        title = f"A/A, 3,000 users, 2 to 20 %, {amounts}"
        report(f"{title}: different", float(np.mean(found != 0)), 0.03, 0.06)
        report(f"{title}: worse", float(np.mean(found < 0)), 0.015, 0.035)
        report(f"{title}: better", float(np.mean(found > 0)), 0.015, 0.035)


def _find_side(run: int, amounts: str) -> list:
    table, share = ramped(run, 3_000, (0.02, 0.2), amounts)
    seen = analyse(table, Settings(share=share, seed=run), **REVENUE).findings[0]
    return [np.sign(seen.reading.difference) * (seen.verdict == "significant")]


def margin(runs: int) -> None:
    """A lift as large as the margin: how often it is called equivalent."""
    for amounts in ("lognormal", "lognormal 2", "Pareto 2.5"):
        for lift in (0.5, -0.5):
            found = run_all(partial(_find_equivalent, amounts=amounts, lift=lift), runs)
            title = f"{lift:+.0%}, margin 50 %, 5 % of 8,000 users, {amounts}"
            report(f"{title}: equivalent", float(found[:, 0].mean()), 0.0, 0.05)
            report(f"{title}: and interval outside", float(found[:, 1].mean()), 0.0, 0.0)


def _find_equivalent(run: int, amounts: str, lift: float) -> list:
    """Return whether the verdict is equivalent, and whether it is so with an end outside."""
    table = buyers(run, 8_000, 0.05, amounts, lift, ("revenue",))
    seen = analyse(table, Settings(share=0.05, seed=run, margin=0.5)).findings[0]
    same = seen.verdict == "equivalent"
    return [same, same and not -0.5 < seen.reading.relative_low < seen.reading.relative_high < 0.5]


def ramped_looks(runs: int) -> None:
    """A/A with a ramp and rising orders: how often an interval for every look excludes 0."""
    found = run_all(_find_left, runs)
    for place, name in enumerate(("orders", "revenue")):
        title = f"A/A, {N_DATES} looks, 10 to 70 %, +15 % a day, {name}"
        report(title, float(found[:, place].mean()), 0.0, 0.05)


def _find_left(run: int) -> list:
    """Return whether 0 is outside an interval for every look at any look."""
    table, share = ramped(run, 3_000, (0.1, 0.7), "lognormal", 0.15)
    settings = Settings(share=share, planned=3_000, seed=run)
    seen = analyse(table, settings, counts=["orders/user"], **REVENUE).looks
    left = []
    for name in ("orders", "revenue"):
        spans = [own.reading.relative_sequence for own in seen if own.metric.numerator == name]
        left.append(any(span[0] > 0 or span[1] < 0 for span in spans if span))
    return left


def returning(runs: int) -> None:
    """A/A with users on several dates of a ramp, by side."""
    for known in (True, False):
        found = run_all(partial(_find_moved, known=known), runs)
        title = f"A/A, 1,500 users, 5 to 50 %, {'with' if known else 'without'} hashes"
        for place, name in enumerate(("orders", "revenue")):
            own = found[:, place]
            report(f"{title}, {name}: different", float(np.mean(own != 0)), 0.03, 0.06)
            report(f"{title}, {name}: worse", float(np.mean(own < 0)), 0.01, 0.035)
            report(f"{title}, {name}: better", float(np.mean(own > 0)), 0.01, 0.035)


def _find_moved(run: int, known: bool, n: int = 1_500, n_dates: int = 4) -> list:
    random = np.random.default_rng([run, n])
    test = Experiment(f"ramp {run}")
    liking = random.gamma(1.0, 0.3, n)  # users differ, and what they do on two dates is alike
    seen = random.random((n, n_dates)) < 0.5
    users, date = np.nonzero(seen)
    treated = test.positions(range(n))[users] < np.linspace(0.05, 0.5, n_dates)[date]
    orders = random.poisson(liking[users] * 1.3**date)
    table = pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "user_id": users, "date": date,
            "orders": orders, "revenue": orders * random.lognormal(3.0, 1.0, len(users)),
        }
    )  # fmt: skip
    settings = Settings(share=0.2, seed=run)
    options = {"counts": ["orders/user"], **REVENUE, "experiment": test if known else None}
    return [
        np.sign(own.reading.difference) * (own.reading.p < 0.05)
        for own in analyse(table, settings, **options).findings
    ]


def shoppers(random: np.random.Generator, n: int = 800) -> pa.Table:
    """Return users in four buckets without any difference."""
    bucket = np.array(LABELS)[random.permutation(np.arange(n) % len(LABELS))]
    impressions = 1 + random.poisson(8, n)
    clicks = random.binomial(impressions, random.beta(1.5, 12, n))
    orders = random.poisson(0.3, n)
    revenue = orders * random.lognormal(3, 1, n)
    return pa.table(
        {
            "bucket": bucket, "impressions": impressions, "clicks": clicks, "orders": orders,
            "revenue": revenue,
        }
    )  # fmt: skip


def treatments(runs: int) -> None:
    """A/A with three treatments, and how often the intervals of all hold the truth together."""
    random = np.random.default_rng(11)
    counted = np.zeros(3)
    for run in range(runs):
        found = analyse(shoppers(random), Settings(seed=run), labels=LABELS, **METRICS)
        clicks = [found.of("clicks", "impressions", name).reading for name in LABELS[1:]]
        counted += (
            any(own.verdict == "significant" for own in found.findings),
            any(own.reading.p < 0.05 for own in found.findings),
            all(own.low <= 0 <= own.high for own in clicks),
        )
    any_found, unadjusted, all_hold = counted / runs
    report("A/A, 3 treatments, any significant", any_found, 0.0, 0.06)
    report("A/A, 3 treatments, any significant, not adjusted", unadjusted, 0.05, 1.0)
    report("A/A, 3 treatments, all intervals of clicks hold", all_hold, 0.94, 1.0)


PARTS = {
    "ramp": ramp, "margin": margin, "ramped-looks": ramped_looks, "returning": returning,
    "treatments": treatments,
}  # fmt: skip
