"""Error rates, power and coverage over many generated tests with fixed seeds.

benchmarks/abtest_runs.py counts the same through the whole analysis, 2,000 times each.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest

from trimtab.abtest import Settings, baseline_of, baseline_of_counts, plan
from trimtab.abtest.counts import exact_power, exact_test, pooled_z
from trimtab.abtest.readings import ratio, welch
from trimtab.abtest.repeated_looks import radius
from trimtab.abtest.sample_size import detectable_lift
from trimtab.errors import DataError, SettingError

RUNS = 2_000
LOOKS = 14


def differences(random, n):
    """Runs of two equal buckets: users' clicks and opens."""
    opens = 1 + random.poisson(0.8, (2, n))
    clicks = random.binomial(opens, random.beta(1.5, 6.0, (2, n)))
    return [(clicks[side].astype(float), opens[side].astype(float)) for side in (0, 1)]


@functools.cache
def is_found(first, second):
    """Whether the exact test finds two counts of equal exposure different."""
    return exact_test((first, 1_000), (second, 1_000)).pvalue < 0.05


def test_one_look_has_the_stated_error_rate():
    random = np.random.default_rng(1)
    found = sum(
        welch(*(ratio(*arm) for arm in differences(random, 400)), 0.05, "").p < 0.05
        for _ in range(RUNS)
    )
    assert 0.04 <= found / RUNS <= 0.06


def test_the_exact_test_has_a_lower_error_rate():
    random = np.random.default_rng(2)
    orders = random.poisson(15.0, (RUNS, 2))
    found = sum(is_found(int(a), int(b)) for a, b in orders)
    assert 0 < found / RUNS <= 0.06


def test_a_sequence_allows_many_looks():
    random = np.random.default_rng(3)
    n = 100
    careful = naive = 0
    for _ in range(RUNS):
        first, second = differences(random, n * LOOKS)
        seen = [False, False]
        for look in range(1, LOOKS + 1):
            a, b = (ratio(y[: n * look], d[: n * look]) for y, d in (first, second))
            error = np.sqrt(a.variance + b.variance)
            gap = abs(b.rate - a.rate)
            seen[0] |= gap > radius(error, look / LOOKS, 0.05)
            seen[1] |= gap > 1.96 * error
        careful, naive = careful + seen[0], naive + seen[1]
    assert careful / RUNS <= 0.05
    assert naive / RUNS > 0.15  # intervals for one look fail with many looks


def test_a_sequence_is_tightest_at_the_planned_sample():
    """Widths in standard errors, for the same look and different plans."""
    widths = [radius(1.0, fraction, 0.05) for fraction in (0.05, 0.5, 1.0, 2.0, 20.0)]
    assert min(widths) == widths[2] == pytest.approx(3.03, abs=0.01)


BASE = {"emails": 1_000_000, "opens": 150_000, "clicks": 22_500, "orders": 300}


@pytest.mark.parametrize(("name", "lift"), [("clicks", 0.05), ("orders", 0.5)])
def test_a_plan_gives_the_chosen_power(name, lift):
    (known,) = [b for b in baseline_of_counts(BASE) if b.metric[:2] == (name, "opens")]
    (row,) = plan([known], [lift])
    random = np.random.default_rng(4)
    half = int(row.emails // 2)
    found = 0
    for _ in range(RUNS):
        opens = random.binomial(half, 0.15, 2)
        rates = np.array([1.0, 1 + lift])
        if name == "clicks":
            arms = zip(random.binomial(opens, 0.15 * rates), opens, strict=True)
            found += pooled_z(*arms, 0.05).p < 0.05
        else:
            arms = zip(random.poisson(opens * 0.002 * rates), opens, strict=True)
            found += exact_test(*arms).pvalue < 0.05
    assert 0.77 <= found / RUNS <= 0.83


def test_power_of_the_exact_test():
    """Compared with 2,000 pairs of Poisson numbers."""
    random = np.random.default_rng(5)
    pairs = np.stack([random.poisson(30, RUNS), random.poisson(55, RUNS)], axis=1)
    found = np.mean([is_found(int(a), int(b)) for a, b in pairs])
    assert exact_power(30, 55, 0.5, 0.05) == pytest.approx(found, abs=0.03)


def test_plans_by_hand_and_inverted():
    (known, *_) = baseline_of_counts(BASE)
    (row,) = plan([known], [0.05])
    # 2.8016² · (p·q + p'·q') / (p'-p)² opens per bucket, p = 0.15, p' = 0.1575.
    opens = 2.80158**2 * (0.15 * 0.85 + 0.1575 * 0.8425) / 0.0075**2
    assert row.emails == pytest.approx(2 * opens / 0.15, rel=1e-4)
    assert detectable_lift(known, row.emails, Settings()) == pytest.approx(0.05, rel=1e-3)
    assert np.isnan(detectable_lift(known, 10, Settings()))
    few, many = (plan([known], [0.05], Settings(share=s))[0].emails for s in (0.5, 0.1))
    assert many > 2.5 * few  # a small treatment group needs more emails


def test_plan_from_a_table():
    random = np.random.default_rng(6)
    opens = 1 + random.poisson(0.8, 50_000)
    clicks = random.binomial(opens, random.beta(1.5, 6.0, 50_000))
    table = pa.table({"opens": opens, "clicks": clicks})
    known = baseline_of(table)
    assert [b.metric.title for b in known] == [
        "Clicks per open", "Clicks per email", "Opens per email",
    ]  # fmt: skip
    alone = table.append_column("bucket", pa.array(["control"] * 50_000))
    treated = table.append_column("bucket", pa.array(["treatment"] * 50_000))
    assert baseline_of(pa.concat_tables([alone, treated.slice(0, 9)])) == known
    with pytest.raises(DataError, match=r"'bucket' .*'control'"):
        baseline_of(treated)
    constant = baseline_of(pa.table({"opens": [1, 1], "clicks": [0, 0]}))
    with pytest.raises(DataError, match="no metric varies"):
        plan(constant)
    some = baseline_of_counts({"emails": 1_000, "opens": 900, "clicks": 850, "orders": 0})
    rows = {row.metric.title: row.emails for row in plan(some, [0.05])}
    assert np.isnan(rows["Orders per open"])
    assert rows["Clicks per open"] > 0
    found = detectable_lift(some[0], 400_000, Settings())
    assert plan(some[:1], [found])[0].emails == pytest.approx(400_000, rel=1e-3)
    with pytest.raises(SettingError, match="lift=0: "):
        plan(known, [0.0])
    with pytest.raises(SettingError, match=r"lift=10: .*0\.1 or 10%"):
        plan(known, [10])
