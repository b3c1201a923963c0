"""Error rates, coverage and power of A/B tests, over thousands of generated tests.

python benchmarks/abtest_runs.py results.jsonl               # an hour on one core for 2,000 runs
python benchmarks/abtest_runs.py results.jsonl --runs 0      # the table of what there is

Tests are added to the file in rounds of 50 for every cell, so the program can be stopped at any
time, and goes on where it stopped. Each test has a seed of its own.

unequal: A/A with a treatment group of 50 to 1 % of users; tests with too few are counted apart.
interval: how often the interval of the relative difference holds the true lift. looks: 30 looks at
an A/A test with a plan, three times as far as planned, and without a plan. power: redistributed
users compared with Welch's test, in equal buckets. ramp: A/A with a share that rises from 2 to 20 %
over ten dates. margin: how often a true lift of 50 % is called equivalent with a margin of 50 %.
ramped looks: A/A with a share that rises from 10 to 70 % while orders rise by 15 % a day, looked at
every day. returning: A/A with users on several dates of a ramp, who move to the treatment as the
share passes their hash; with and without the salt. treatments: how often any of three treatments
without an effect differs from control. cuped: its variance over the plain one, compared with
1 - ρ². plan: how often the planned number of emails detects the planned lift.

Exits with status 1 if a value is outside its limits.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
from scipy.stats import t

from trimtab.abtest import Experiment, Finding, Settings, analyse, analyse_counts, plan, test
from trimtab.abtest.repeated_looks import UNPLANNED

ROUND = 50
BUCKETS = np.array(["control", "treatment"])
AMOUNTS: dict[str, Callable[..., Any]] = {
    "lognormal": lambda random, n: random.lognormal(3.0, 1.0, n),
    "lognormal 2": lambda random, n: random.lognormal(3.0, 2.0, n),
    "Pareto 1.5": lambda random, n: 1 + random.pareto(1.5, n),
    "Pareto 2.5": lambda random, n: 1 + random.pareto(2.5, n),
}
COUNTS = ("clicks", "orders")
N_LOOKS, N_DATES = 30, 10
PLANS = ("as planned", "3 x the plan", "no plan")
LABELS = ("control", "A", "B", "C")
MARGIN_AMOUNTS = ("lognormal", "lognormal 2", "Pareto 2.5")
RAMP_AMOUNTS = ("lognormal 2", "Pareto 1.5")
PER_USER = {"counts": ["orders/user"], "amounts": ["revenue/user"]}
Rows = Any  # an array with a row for each test


class Check(NamedTuple):
    """A number measured over all tests of a cell, and its limits."""

    title: str
    measure: Callable[[Rows], float]
    low: float
    high: float


class Cell(NamedTuple):
    """One kind of test: the numbers that a seed gives, what to measure, and at most how often."""

    name: str
    task: Callable[[int], list]
    checks: Sequence[Check]
    most: int = sys.maxsize


def mean_of(place: int) -> Callable[[Rows], float]:
    """Return the mean of a column; nan does not count."""
    return lambda rows: float(np.nanmean(rows[:, place]))


def sides(title: str, place: int, one_side: tuple[float, float] = (0.015, 0.035)) -> list[Check]:
    """Return checks of a column that has -1 for worse, 1 for better and nan for too few."""

    def share(is_found: Callable[[Rows], Rows], rows: Rows) -> float:
        tested = rows[np.isfinite(rows[:, place]), place]
        # A few tests that had enough by chance say nothing.
        return float(is_found(tested).mean()) if len(tested) > len(rows) / 2 else np.nan

    return [
        Check(f"{title}: different", partial(share, lambda own: own != 0), 0.03, 0.06),
        Check(f"{title}: worse", partial(share, lambda own: own < 0), *one_side),
        Check(f"{title}: better", partial(share, lambda own: own > 0), *one_side),
        Check(f"{title}: too few", lambda rows: float(np.isnan(rows[:, place]).mean()), 0.0, 1.0),
    ]


def is_untested(found: Finding) -> bool:
    """Return whether there were too few, or nothing varied."""
    return found.verdict in ("too few", None)


def side(found: Finding) -> float:
    """Return -1 or 1 for a difference found, 0 for none, nan for too few."""
    reading = found.reading
    return np.nan if is_untested(found) else np.sign(reading.difference) * (reading.p < 0.05)


def covers(found: Finding, lift: float) -> float:
    """Return whether the interval holds the lift; an end may be unbounded; nan for too few."""
    low, high = found.reading.relative_low, found.reading.relative_high
    return np.nan if is_untested(found) else float(not (low > lift or high < lift))


# Unequal buckets ----------------------------------------------------------------------------------


def buyers(run: int, n: int, share: float, amounts: Sequence[str], lift: float = 0.0) -> pa.Table:
    """Return users with clicks, orders and a column of revenue for each kind of amounts."""
    random = np.random.default_rng([run, n, round(1_000 * share)])
    treated = random.permutation(np.arange(n) < max(1, round(share * n)))
    up = np.where(treated, 1 + lift, 1.0)
    emails = 1 + random.poisson(0.8, n)
    clicks = random.binomial(emails, np.minimum(random.beta(1.5, 6.0, n) * up, 1.0))
    orders = random.poisson(0.1 * emails * up)
    columns = {"emails": emails, "clicks": clicks, "orders": orders}
    revenue = {kind: AMOUNTS[kind](random, n) * orders for kind in amounts}
    return pa.table({"bucket": BUCKETS[treated.astype(int)], **columns, **revenue})


def per_email(counts: Sequence[str], amounts: Sequence[str]) -> dict[str, list[str]]:
    """Return the metrics: everything by email, so that one set of assignments serves all."""
    return {
        "counts": [f"{name}/emails" for name in counts],
        "amounts": [f"{name}/emails" for name in amounts],
    }


def unequal() -> Iterator[Cell]:
    """A/A with treatment groups of all sizes, and the intervals of true lifts in most of them."""
    for n in (200, 2_000, 20_000):
        for share in (0.5, 0.3, 0.1, 0.01):
            has_lifts = n > 200 and share != 0.3 and n * share > 20
            for lift in (0.0, 0.3, -0.3) if has_lifts else (0.0,):
                amounts = ("lognormal", "Pareto 2.5", *(["Pareto 1.5"] if not lift else []))
                checks = []
                for place, name in enumerate((*COUNTS, *amounts)):
                    title = f"{n:,} users, {share:.0%}, {name}"
                    checks += sides(f"A/A, {title}", 2 * place) if not lift else []
                    if has_lifts and name != "Pareto 1.5":  # it has no variance
                        title = f"interval, {title}, lift {lift:+.0%}"
                        checks.append(Check(title, mean_of(2 * place + 1), 0.94, 0.97))
                task = partial(find_sides, n=n, share=share, amounts=amounts, lift=lift)
                yield Cell(f"unequal, {n:,} users, {share:.0%}, {lift:+.0%}", task, checks)


def find_sides(run: int, n: int, share: float, amounts: Sequence[str], lift: float) -> list:
    """Return the side of each outcome, and whether its interval holds the lift."""
    table = buyers(run, n, share, amounts, lift)
    found = analyse(table, Settings(share=share, seed=run), **per_email(COUNTS, amounts)).findings
    return [number for own in found for number in (side(own), covers(own, lift))]


def looks() -> Iterator[Cell]:
    """A/A with 30 looks: how often an interval for every look excludes 0."""
    for share in (0.5, 0.1):
        titles = [f"{name}, {outcome}" for name in PLANS for outcome in ("clicks", "revenue")]
        checks = [
            Check(f"A/A, {N_LOOKS} looks, {share:.0%}, {title}", mean_of(place), 0.0, 0.05)
            for place, title in enumerate(titles)
        ]
        yield Cell(f"looks, {share:.0%}", partial(find_left, share=share), checks)


def find_left(run: int, share: float, n_a_look: int = 100) -> list:
    """Return whether 0 is outside an interval for every look at any look, by plan and outcome."""
    n = n_a_look * N_LOOKS
    table = buyers(run, n, share, ["lognormal"])
    table = table.append_column("date", pa.array(np.repeat(np.arange(N_LOOKS), n_a_look)))
    read, readings = test.read_test, []

    def read_each(found: test.Test, alpha: float, fraction: float) -> test.Reading:
        # The plan only decides where an interval is tightest: all plans have the same tests.
        planned = (fraction, 3 * fraction, fraction * n / UNPLANNED)
        readings.append([read(found, alpha, own) for own in planned])
        return readings[-1][0]

    with mock.patch.object(test, "read_test", read_each):
        own = per_email(["clicks"], ["lognormal"])
        analyse(table, Settings(share=share, planned=n, seed=run), **own)
    return [
        excludes_0(reading[plan] for reading in readings[outcome::2])
        for plan in range(len(PLANS))
        for outcome in range(2)
    ]


def excludes_0(readings: Iterable[test.Reading]) -> bool:
    """Return whether any interval for every look excludes 0."""
    spans = [reading.relative_sequence for reading in readings]
    return any(span[0] > 0 or span[1] < 0 for span in spans if span)


def power() -> Iterator[Cell]:
    """Power in equal buckets: redistributed over Welch's."""
    for amounts, lift in (("lognormal", 0.3), ("Pareto 2.5", 0.25)):
        checks = []
        for place, name in enumerate(("orders", "revenue")):
            title = f"power, 2,000 users, {lift:+.0%} orders, {amounts}, {name}"
            ratio = partial(
                lambda rows, at: rows[:, at].mean() / rows[:, at + 1].mean(), at=2 * place
            )
            checks += [Check(title, mean_of(2 * place), 0.0, 1.0),
                       Check(f"{title}: over Welch's", ratio, 0.95, 2.0)]  # fmt: skip
        yield Cell(f"power, {amounts}", partial(find_power, amounts=amounts, lift=lift), checks)


def find_power(run: int, amounts: str, lift: float) -> list:
    """Return whether redistribution and Welch's test find a difference, by outcome."""
    table, found = buyers(run, 2_000, 0.5, [amounts], lift), []
    seen = analyse(table, Settings(seed=run), **per_email(["orders"], [amounts]))
    for own in (finding.reading for finding in seen.findings):
        welch = 2 * t.sf(abs(own.difference) / own.error, own.freedom)
        found += [own.p < 0.05, welch < 0.05]
    return found


def margin() -> Iterator[Cell]:
    """A lift as large as the margin: how often it is called equivalent."""
    for lift in (0.5, -0.5):
        checks = []
        for place, amounts in enumerate(MARGIN_AMOUNTS):
            title = f"{lift:+.0%}, margin 50 %, 5 % of 8,000 users, {amounts}"
            checks += [
                Check(f"{title}: equivalent", mean_of(2 * place), 0.0, 0.05),
                Check(f"{title}: and interval outside", mean_of(2 * place + 1), 0.0, 0.0),
            ]
        yield Cell(f"margin, {lift:+.0%}", partial(find_equivalent, lift=lift), checks)


def find_equivalent(run: int, lift: float) -> list:
    """Return whether verdicts are equivalent, and whether they are so with an end outside."""
    table = buyers(run, 8_000, 0.05, MARGIN_AMOUNTS, lift)
    settings, found = Settings(share=0.05, seed=run, margin=0.5), []
    for own in analyse(table, settings, **per_email([], MARGIN_AMOUNTS)).findings:
        low, high = own.reading.relative_low, own.reading.relative_high
        same = own.verdict == "equivalent"
        found += [same, same and not -0.5 < low < high < 0.5]
    return found


# Shares that change from date to date -------------------------------------------------------------


def ramped(
    run: int, n: int, shares: tuple[float, float], amounts: Sequence[str], growth: float = 0.0
) -> tuple[pa.Table, float]:
    """Return users without a difference, and the share of all of them that is treated.

    Args:
        run: seed.
        n: users, the same number on each date.
        shares: share of the treatment on the first date and on the last.
        amounts: distributions of what an order is worth, each a column.
        growth: by how much orders rise from date to date.
    """
    random = np.random.default_rng([run, n])
    date = np.arange(n) % N_DATES
    share = np.linspace(*shares, N_DATES)[date]
    treated = random.random(n) < share
    orders = random.poisson(0.3 * (1 + growth) ** date)
    revenue = {kind: orders * AMOUNTS[kind](random, n) for kind in amounts}
    columns = {"bucket": BUCKETS[treated.astype(int)], "date": date, "orders": orders}
    return pa.table({**columns, **revenue}), float(share.mean())


def ramp() -> Iterator[Cell]:
    """A/A with a ramp, by side, and every look at a ramp while orders rise."""
    titles = [f"A/A, 3,000 users, 2 to 20 %, {amounts}" for amounts in RAMP_AMOUNTS]
    checks = [check for place, title in enumerate(titles) for check in sides(title, place)]
    yield Cell("ramp", find_ramped, checks)
    title = f"A/A, {N_DATES} looks, 10 to 70 %, +15 % a day"
    names = ("orders", "lognormal")
    checks = [Check(f"{title}, {name}", mean_of(at), 0.0, 0.05) for at, name in enumerate(names)]
    yield Cell("ramped looks", find_ramped_left, checks)


def find_ramped(run: int) -> list:
    """Return the side of each kind of revenue."""
    table, share = ramped(run, 3_000, (0.02, 0.2), RAMP_AMOUNTS)
    own = [f"{name}/user" for name in RAMP_AMOUNTS]
    settings = Settings(share=share, seed=run)
    return [side(found) for found in analyse(table, settings, amounts=own).findings]


def find_ramped_left(run: int) -> list:
    """Return whether 0 is outside an interval for every look at any look, by outcome."""
    table, share = ramped(run, 3_000, (0.1, 0.7), ["lognormal"], 0.15)
    settings = Settings(share=share, planned=3_000, seed=run)
    seen = analyse(table, settings, counts=["orders/user"], amounts=["lognormal/user"]).looks
    return [excludes_0(look.reading for look in seen[outcome::2]) for outcome in range(2)]


def returning() -> Iterator[Cell]:
    """A/A with users on several dates of a ramp, by side."""
    for known in (True, False):
        title = f"A/A, 1,500 users, 5 to 50 %, {'with' if known else 'without'} hashes"
        checks = [
            *sides(f"{title}, orders", 0, (0.01, 0.035)),
            *sides(f"{title}, revenue", 1, (0.01, 0.035)),
        ]
        yield Cell(f"returning, {known}", partial(find_moved, known=known), checks)


def find_moved(run: int, known: bool, n: int = 1_500, n_dates: int = 4) -> list:
    """Return the side of orders and of revenue."""
    random = np.random.default_rng([run, n])
    split = Experiment(f"ramp {run}")
    liking = random.gamma(1.0, 0.3, n)  # users differ, and what they do on two dates is alike
    users, date = np.nonzero(random.random((n, n_dates)) < 0.5)
    treated = split.positions(range(n))[users] < np.linspace(0.05, 0.5, n_dates)[date]
    orders = random.poisson(liking[users] * 1.3**date)
    revenue = orders * random.lognormal(3.0, 1.0, len(users))
    columns = {"bucket": BUCKETS[treated.astype(int)], "user_id": users, "date": date}
    table = pa.table({**columns, "orders": orders, "revenue": revenue})
    experiment = split if known else None
    # The sample-ratio check blocks a ramp, whose shares are no plan: p alone counts here.
    found = analyse(table, Settings(share=0.2, seed=run), **PER_USER, experiment=experiment)
    return [
        np.sign(own.reading.difference) * (own.reading.p < 0.05) for own in found.findings
    ]  # fmt: skip


# Several treatments, CUPED and plans --------------------------------------------------------------


def treatments() -> Iterator[Cell]:
    """A/A with three treatments, and how often the intervals of all hold the truth together."""
    title = "A/A, 3 treatments"
    checks = [
        Check(f"{title}, any significant", mean_of(0), 0.0, 0.06),
        Check(f"{title}, any significant, not adjusted", mean_of(1), 0.05, 1.0),
        Check(f"{title}, all intervals of clicks hold", mean_of(2), 0.94, 1.0),
    ]
    yield Cell("treatments", find_any, checks)


def find_any(run: int, n: int = 800) -> list:
    """Return whether anything differs, the same unadjusted, and whether all intervals hold."""
    random = np.random.default_rng([run, n, 11])
    impressions = 1 + random.poisson(8, n)
    orders = random.poisson(0.3, n)
    table = pa.table(
        {
            "bucket": np.array(LABELS)[random.permutation(np.arange(n) % len(LABELS))],
            "impressions": impressions,
            "clicks": random.binomial(impressions, random.beta(1.5, 12, n)),
            "orders": orders,
            "revenue": orders * random.lognormal(3, 1, n),
        }
    )
    own = {**PER_USER, "counts": ["clicks/impressions", "orders/user"]}
    found = analyse(table, Settings(seed=run), labels=LABELS, **own)
    clicks = [found.of("clicks", "impressions", name).reading for name in LABELS[1:]]
    return [
        any(own.verdict == "significant" for own in found.findings),
        any(own.reading.p < 0.05 for own in found.findings),
        all(own.low <= 0 <= own.high for own in clicks),
    ]


def cuped() -> Iterator[Cell]:
    """Variance reduction for several correlations."""
    for rho in (0.3, 0.6, 0.9):
        checks = [Check(f"CUPED, variance over 1 - ρ², ρ = {rho}", mean_of(0), 0.95, 1.05)]
        yield Cell(f"cuped, {rho}", partial(find_reduction, rho=rho), checks, 2 * ROUND)


def find_reduction(run: int, rho: float, n: int = 4_000) -> list:
    """Return the variance with CUPED over the plain one, and that over 1 - ρ²."""
    random = np.random.default_rng([run, n])
    before = random.normal(5.0, 1.0, n)
    now = rho * before + np.sqrt(1 - rho**2) * random.normal(0.0, 1.0, n)
    table = pa.table({"bucket": BUCKETS[np.arange(n) % 2], "now": now, "pre_now": before})
    plain, adjusted = (
        analyse(rows, amounts=["now/user"]).findings[0].reading.error
        for rows in (table.drop(["pre_now"]), table)
    )
    return [(adjusted / plain) ** 2 / (1 - np.corrcoef(now, before)[0, 1] ** 2)]


def plans() -> Iterator[Cell]:
    """How often the planned emails detect the planned lift."""
    base = {"emails": 1_000_000, "opens": 150_000, "clicks": 22_500, "orders": 300}
    for name, lift in (("clicks", 0.05), ("orders", 0.5)):
        emails = needed(base, name, lift)
        title = f"plan, {emails:,.0f} emails, {name} {lift:+.0%}: power"
        task = partial(find_planned, name=name, emails=emails, lift=lift)
        yield Cell(f"plan, {name}", task, [Check(title, mean_of(0), 0.77, 0.83)])
    past = buyers(4, 400_000, 0.5, ["lognormal"]).drop(["bucket"])
    for name, lift in (("clicks", 0.15), ("lognormal", 0.3)):
        emails = needed(past, name, lift, **per_email(["clicks"], ["lognormal"]))
        title = f"plan from a table, {emails:,.0f} emails, {name} {lift:+.0%}: power"
        task = partial(find_planned_users, name=name, n=int(emails), lift=lift)
        yield Cell(f"plan from a table, {name}", task, [Check(title, mean_of(0), 0.77, 0.83)])


def needed(data: Any, name: str, lift: float, **metrics: Any) -> float:
    """Return the emails (or users) needed to detect a lift of the first metric of an outcome."""
    return next(row.needed for row in plan(data, [lift], **metrics) if row.metric[0] == name)


def find_planned(run: int, name: str, emails: float, lift: float) -> list:
    """Return whether totals of that many emails detect the lift."""
    random, totals = np.random.default_rng([run, 4]), []
    for up in (1.0, 1 + lift):
        opens = random.binomial(int(emails // 2), 0.15)
        orders = min(random.poisson(opens * 0.002 * up), opens)
        clicks = random.binomial(opens, 0.15 * up)
        totals.append({"emails": emails // 2, "opens": opens, "clicks": clicks, "orders": orders})
    return [analyse_counts(*totals, Settings(seed=run)).of(name, "opens").reading.p < 0.05]


def find_planned_users(run: int, name: str, n: int, lift: float) -> list:
    """Return whether that many users detect the lift."""
    metrics = per_email(["clicks"], ["lognormal"])
    table = buyers(run, n, 0.5, ["lognormal"], lift)
    return [analyse(table, Settings(seed=run), **metrics).of(name, "emails").reading.p < 0.05]


# Runs ---------------------------------------------------------------------------------------------

PARTS = (unequal, looks, power, margin, ramp, returning, treatments, cuped, plans)


@functools.cache
def cells() -> list[Cell]:
    """Return the cells of all parts."""
    return [cell for part in PARTS for cell in part()]


def read(file: Path) -> dict[str, dict[int, list]]:
    """Return the rows of each cell, by the first seed of a round."""
    found: dict[str, dict[int, list]] = defaultdict(dict)
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            kept = json.loads(line)
        except json.JSONDecodeError:  # cut off when the program was stopped
            continue
        found[kept["cell"]][kept["first"]] = kept["rows"]
    return found


def add_tests(file: Path, runs: int) -> None:
    """Add what is missing of so many tests of each cell."""
    done = read(file)
    for first in range(0, runs, ROUND):
        for cell in cells():
            if first >= cell.most or first in done[cell.name]:
                continue
            rows = [[float(v) for v in cell.task(run)] for run in range(first, first + ROUND)]
            with file.open("a") as out:
                out.write(f"\n{json.dumps({'cell': cell.name, 'first': first, 'rows': rows})}")


def report(file: Path) -> bool:
    """Print every check with its limits; return whether one is outside."""
    found, outside = read(file), 0
    for cell in cells():
        rows = np.array(
            [row for first in sorted(found[cell.name]) for row in found[cell.name][first]]
        )
        for title, measure, low, high in cell.checks if len(rows) else ():
            value = measure(rows)
            if np.isnan(value):
                continue
            ok = low <= value <= high
            outside += not ok
            limits = f"({low:.3f} to {high:.3f}, {len(rows):,} tests)"
            print(f"{title:66} {value:.4f} {limits} {'' if ok else 'OUTSIDE'}")
    print(f"{outside} outside their limits")
    return outside > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="results, one round of one cell per line")
    parser.add_argument("--runs", type=int, default=2_000)
    given = parser.parse_args()
    add_tests(given.file, given.runs)
    sys.exit(report(given.file))


if __name__ == "__main__":
    main()
