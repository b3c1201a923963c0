"""Treatment shares that change from date to date: the verdict, and the interim looks."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from trimtab.abtest import Settings, analyse_users
from trimtab.report.verdict.verdict_words import disagreement

REVENUE = {"amounts": ["revenue/user"]}
BUCKETS = np.array(["control", "treatment"])


def ramp(seed, n, shares, growth=0.0, sigma=1.0):
    """Users without a difference, a larger share of them treated from date to date."""
    random = np.random.default_rng(seed)
    date = np.arange(n) % len(shares)
    treated = random.random(n) < np.array(shares)[date]
    orders = random.poisson(0.5 * (1 + growth) ** date)
    return pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "date": date, "orders": orders,
            "revenue": orders * random.lognormal(3.0, sigma, n),
        }
    )  # fmt: skip


def all_splits(values, per, n_treated):
    """Difference and squared error of every choice of treated users."""
    found = []
    for chosen in itertools.combinations(range(len(values)), n_treated):
        treated = np.isin(np.arange(len(values)), chosen)
        sides = [(values[side], per[side]) for side in (~treated, treated)]
        if min(below.sum() for _, below in sides) == 0:
            continue
        (a, b) = (y.sum() / d.sum() for y, d in sides)
        squares = [
            ((y - rate * d) / d.mean()).var(ddof=1) / len(y)
            for (y, d), rate in zip(sides, (a, b), strict=True)
        ]
        found.append((b - a, sum(squares)))
    return np.array(found)


def test_every_redistribution_within_the_dates():
    """10 % of the users are treated on one date, 85 % on the other; some have no visit."""
    values = np.random.default_rng(3).lognormal(0.0, 2.0, (2, 20))
    per = np.array([[1.0, 2.0, 1.0, 3.0] * 5, [2.0, 1.0, 0.0, 1.0] * 5])
    values[per == 0] = 0
    splits = [all_splits(*day) for day in zip(values, per, (2, 17), strict=True)]
    weights = per.sum(axis=1) / per.sum()
    gaps, squares = (
        weights[0] ** power * splits[0][:, None, power - 1]
        + weights[1] ** power * splits[1][None, :, power - 1]
        for power in (1, 2)
    )
    every = gaps / np.sqrt(squares)
    # The first split of each date: its first users are the treated ones.
    seen = every[0, 0]
    expected = 2 * min(np.mean(every >= seen), np.mean(every <= seen))
    treated = [np.arange(20) < n for n in (2, 17)]
    table = pa.table(
        {
            "bucket": BUCKETS[np.concatenate(treated).astype(int)], "date": np.repeat([0, 1], 20),
            "revenue": values.ravel(), "visits": per.ravel(),
        }
    )  # fmt: skip
    main = analyse_users(table, amounts=["revenue/visits"]).findings[0].main
    assert main.method == "by date"
    assert main.difference == pytest.approx(gaps[0, 0])
    assert main.error == pytest.approx(np.sqrt(squares[0, 0]))
    assert main.p == pytest.approx(expected, abs=0.03)


def test_skewed_revenue_in_a_ramp_is_seldom_different():
    """Welch's test finds a loss in a fifth of these."""
    runs = 60
    sides = np.zeros(runs)
    for run in range(runs):
        table = ramp(run, 600, (0.02, 0.1, 0.2), sigma=2.0)
        own = analyse_users(table, Settings(share=0.107, draws=0), **REVENUE).findings[0]
        sides[run] = np.sign(own.main.difference) * (own.main.p < 0.05)
    assert 1 <= (sides != 0).sum() <= 0.08 * runs


def test_users_are_compared_with_those_who_joined_on_the_same_date():
    """Newcomers buy once, others do not, and more newcomers are treated: there is no effect."""
    rows = []
    for user in range(400):
        joined = user % 2
        treated = user % 20 < (2, 15)[joined]
        rows += [(user, BUCKETS[int(treated)], date, int(date == joined))
                 for date in range(joined, 2)]  # fmt: skip
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("user_id", "bucket", "date", "orders"), columns, strict=True)))
    found = analyse_users(table, counts=["orders/user"])
    own = found.findings[0]
    assert own.main.method == "by date"
    assert own.main.difference == 0
    assert {round(dated.reading.difference, 9) for dated in found.dates} == {0.0}


def test_looks_are_compared_as_the_verdict_is():
    """Orders rise while the share rises: all dates together, the treatment would be far ahead."""
    shares = np.linspace(0.1, 0.7, 6)
    settings = Settings(share=0.4, planned=600, draws=0)
    for run in range(15):
        table = ramp(run, 600, shares, growth=0.4)
        found = analyse_users(table, settings, counts=["orders/user"])
        (own,) = found.findings
        assert found.looks[-1].reading == own.main
        assert found.looks[-1].sequence == own.sequence
        spans = [look.sequence for look in found.looks if look.sequence]
        assert spans
        assert all(low <= 0 or np.isnan(low) for low, _ in spans)
        assert all(high >= 0 or np.isnan(high) for _, high in spans)


def test_tests_that_mix_dates_are_not_asked_to_agree():
    found = analyse_users(
        ramp(1, 900, (0.1, 0.4, 0.8), growth=1.0), Settings(share=0.43), **REVENUE
    )
    own = found.findings[0]
    by_method = {reading.method.split()[0]: reading for reading in own.readings}
    assert by_method["Welch"].p < 0.001
    assert {name: by_method[name].p > 0.05 for name in ("by", "capped", "bootstrap")} == {
        "by": True, "capped": True, "bootstrap": True,
    }  # fmt: skip
    assert own.verdict == "inconclusive"
    assert disagreement(own, 0.05) == ""
