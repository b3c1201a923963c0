"""Equivalence: only if the interval shown is within the margin, and seldom for a lift as large."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trimtab.abtest import Settings, analyse_users

MARGIN = 0.5


def spend(seed, lift, n=3_000, n_treated=150):
    """Users of whom a fourth buy, with lognormal revenue."""
    random = np.random.default_rng(seed)
    treated = random.permutation(n) < n_treated
    money = random.poisson(0.3, n) * random.lognormal(3.0, 1.0, n) * np.where(treated, 1 + lift, 1)
    return pa.table({"bucket": np.where(treated, "treatment", "control"), "revenue": money})


@pytest.mark.parametrize("lift", [0.5, -0.5])
def test_a_lift_as_large_as_the_margin_is_seldom_equivalent(lift):
    runs = 60
    settings = Settings(share=0.05, margin=MARGIN, draws=0)
    equivalent = 0
    for run in range(runs):
        own = analyse_users(spend(run, lift), settings, amounts=["revenue/user"]).findings[0]
        within = own.main.relative_low > -MARGIN and own.main.relative_high < MARGIN
        assert within or own.verdict != "equivalent"
        assert within == (own.equivalence < settings.alpha / 2)
        equivalent += own.verdict == "equivalent"
    assert equivalent <= 0.05 * runs


def test_no_difference_is_equivalent_if_there_are_enough_users():
    table = spend(1, 0.0, 20_000, 6_000)
    settings = Settings(share=0.3, margin=MARGIN, draws=0)
    own = analyse_users(table, settings, amounts=["revenue/user"]).findings[0]
    assert own.verdict == "equivalent"
    assert own.needed_for_margin < 20_000


def test_what_equivalence_needs_is_an_interval_within_the_margin():
    """1.96 standard errors to each end, and 1.28 more so that both are inside with power 80 %."""
    table = spend(1, 0.0)
    settings = Settings(share=0.05, margin=MARGIN, draws=0)
    own = analyse_users(table, settings, amounts=["revenue/user"]).findings[0]
    factor = (1.959964 + 1.281552) * own.main.error / (MARGIN * own.control.rate)
    assert own.needed_for_margin == pytest.approx(3_000 * factor**2, abs=1)
