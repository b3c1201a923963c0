"""Small, unequal and empty buckets: error rates, and what is too few to test."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from trimtab.abtest import Settings, analyse, analyse_counts
from trimtab.abtest.judging import relative_sequence
from trimtab.abtest.readings import rates, welch_freedom
from trimtab.abtest.redistribution import Units, without_effect


def users(n_control, control, n_treatment, treatment, value=1, name="clicks"):
    """A table of users with one open each, some of whom have `value` of an outcome."""
    outcomes = [value] * control + [0] * (n_control - control)
    outcomes += [value] * treatment + [0] * (n_treatment - treatment)
    buckets = ["control"] * n_control + ["treatment"] * n_treatment
    return pa.table({"bucket": buckets, "opens": [1] * len(buckets), name: outcomes})


# Buckets in which nothing happened ---------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [users(45, 9, 5, 0), users(90, 18, 10, 0), users(180, 18, 20, 0, 25.0, "revenue")],
    ids=["50 users", "100 users", "revenue"],
)
def test_an_empty_small_bucket_is_too_few(table):
    found = analyse(table, Settings(share=0.1))
    for finding in found.findings[:2]:
        assert finding.verdict == "too few"
        assert np.isnan(finding.p_adjusted)
        assert finding.main.p > 0.1
        assert finding.main.low < 0 < finding.main.high


def test_totals_without_events_in_one_bucket():
    first, second = {"emails": 45, "clicks": 9}, {"emails": 5, "clicks": 0}
    found = analyse_counts(first, second, Settings(share=0.1)).of("clicks", "emails")
    assert found.verdict == "too few"
    assert found.main.low < 0 < found.main.high


def test_an_empty_large_bucket_is_tested():
    """0 of 200 against 20 of 200: Fisher's p is 1e-6."""
    found = analyse(users(200, 20, 200, 0)).of("clicks", "opens")
    assert (found.verdict, found.is_better) == ("significant", False)
    assert found.main.relative_low < -1 < found.main.relative_high < 0  # not -100 to -100 %


def test_none_against_all():
    found = analyse(users(200, 0, 200, 200)).of("clicks", "opens")
    assert found.verdict == "significant"
    assert found.main.low == pytest.approx(0.9, abs=0.01)


# Unequal buckets ---------------------------------------------------------------------------------


def spending(random, n, n_treated, lift=0.0):
    """Users, few of whom buy, with lognormal revenue; the first ones are treated."""
    treated = np.arange(n) < n_treated
    opens = 1.0 + random.poisson(0.8, n)
    orders = random.poisson(0.1 * opens)
    money = orders * random.lognormal(3.0, 1.0, n) * np.where(treated, 1 + lift, 1.0)
    return Units(money, opens, None, 0.0, treated)


def test_redistribution_agrees_with_all_redistributions():
    """Eight users, three of them treated: 56 ways, each with its statistic by `rates`."""
    values = np.array([0.0, 1.0, 0.0, 3.0, 7.0, 2.0, 9.0, 4.0])
    per = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 2.0, 1.0])
    seen = []
    for chosen in itertools.combinations(range(8), 3):
        treated = np.isin(np.arange(8), chosen)
        a, b = rates(*((values[side], per[side]) for side in (~treated, treated)))
        seen.append((b.rate - a.rate) / np.sqrt(a.variance + b.variance))
    treated = np.isin(np.arange(8), (4, 6, 7))
    found = without_effect(Units(values, per, None, 0.0, treated), 6.0, draws=20_000)
    own = seen[list(itertools.combinations(range(8), 3)).index((4, 6, 7))]
    assert found.seen == pytest.approx(own)
    above, same = np.sum(np.array(seen) > own + 1e-9), np.sum(np.abs(np.array(seen) - own) < 1e-9)
    assert found.p() == pytest.approx(2 * (above + same / 2) / 56, abs=0.01)


@pytest.mark.parametrize("n_treated", [20, 60, 180])
def test_skewed_revenue_in_unequal_buckets(n_treated):
    """Welch's test finds a loss in 10 to 20 % of such tests with 20 of 200 users treated."""
    random = np.random.default_rng(n_treated)
    runs = 300
    worse = better = 0
    for run in range(runs):
        found = without_effect(spending(random, 200, n_treated), 50.0, draws=300, seed=run)
        low, high = found.ends(0.05)
        assert (found.p() < 0.05) == (not low <= found.seen <= high)
        worse, better = worse + (found.seen < low), better + (found.seen > high)
    assert worse / runs <= 0.055
    assert better / runs <= 0.055
    assert 0.015 <= (worse + better) / runs <= 0.08


def test_large_buckets_are_redistributed_in_blocks():
    random = np.random.default_rng(3)
    units = spending(random, 12_000, 4_000, lift=1.0)
    found = without_effect(units, 5_000.0, draws=500)
    assert found.values.std() == pytest.approx(1.0, abs=0.15)
    assert found.p() < 1e-4  # less than draws can count


def test_unequal_buckets_are_redistributed_and_equal_ones_are_not():
    random = np.random.default_rng(4)
    table = {"opens": 1 + random.poisson(0.8, 400), "clicks": random.poisson(0.4, 400)}
    for n_treated, method in ((200, "Welch"), (100, "redistributed")):
        treated = np.arange(400) < n_treated
        bucket = np.where(treated, "treatment", "control")
        settings = Settings(share=n_treated / 400)
        found = analyse(pa.table({"bucket": bucket, **table}), settings).of("clicks", "opens")
        assert found.main.method == method
        assert (found.main.relative_low > 0 or found.main.relative_high < 0) == (found.p < 0.05)
        before = random.poisson(2.0, 400)
        known = analyse(pa.table({"bucket": bucket, "pre_clicks": before, **table}), settings)
        adjusted = known.of("clicks", "opens").main
        assert adjusted.method == "CUPED"
        assert adjusted.p == pytest.approx(found.main.p, abs=0.1)  # before tells nothing here


# Many looks --------------------------------------------------------------------------------------


def is_left(units, n, settings):
    """Whether the interval for every look, after n users, excludes no difference."""
    own = Units(*(part[:n] for part in units[:2]), None, 0.0, units.treated[:n])
    pairs = [(own.numerator[side], own.denominator[side]) for side in (~own.treated, own.treated)]
    both = rates(*pairs)
    by_chance = without_effect(own, welch_freedom(*both), draws=400)
    low, high = relative_sequence(*both, settings, n, by_chance)
    return low > 0 or high < 0


def test_many_looks_at_unequal_buckets():
    """Three times as many users as planned; by a t distribution, 6 of 60 intervals are left."""
    random = np.random.default_rng(6)
    runs, n = 60, 1_200
    settings = Settings(planned=n // 3)
    left = 0
    for _ in range(runs):
        units = spending(random, n, n // 10)
        shuffled = Units(*units[:4], random.permutation(units.treated))
        left += any(is_left(shuffled, look, settings) for look in range(200, n + 1, 200))
    assert left / runs <= 0.05


def test_going_on_past_the_plan_keeps_the_interval_for_every_look():
    table = users(1_000, 100, 1_000, 135)
    once, often = (analyse(table, Settings(planned=n)) for n in (None, 500))
    assert once.of("clicks", "opens").verdict == "significant"
    assert often.of("clicks", "opens").verdict == "inconclusive"
