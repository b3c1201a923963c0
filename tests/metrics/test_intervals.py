"""Intervals of lifts: paired, the same for the same seed, and as wide as theory predicts."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.metrics import intervals
from trimtab.metrics.intervals import lift_intervals


def test_a_constant_lift_has_no_width_and_one_over_0_is_not_known():
    base = np.random.default_rng(0).random((200, 2))
    for found in lift_intervals(base * [1.5, 0.9], base, n_draws=200, seed=0):
        assert found.low == pytest.approx(found.lift)
        assert found.high == pytest.approx(found.lift)
    assert np.isnan(lift_intervals(np.ones((5, 1)), np.zeros((5, 1)), n_draws=50, seed=0)[0]).all()


def test_the_same_seed_gives_the_same_interval_in_any_portions(monkeypatch):
    random = np.random.default_rng(1)
    base, values = random.random((40, 3)), random.random((40, 3))
    whole = lift_intervals(values, base, 300, seed=4)
    monkeypatch.setattr(intervals, "_NUMBERS_PER_BLOCK", 400)  # ten draws at a time
    assert lift_intervals(values, base, 300, seed=4) == whole
    assert lift_intervals(values, base, 300, seed=5) != whole


def test_as_wide_as_theory_says():
    random = np.random.default_rng(2)
    base = 1 + 0.1 * random.standard_normal((2000, 1))
    values = base + 0.3 + 0.5 * random.standard_normal((2000, 1))
    for level, width in (({}, 1.645), ({"level": 0.95}, 1.96)):
        found = lift_intervals(values, base, n_draws=2000, seed=0, **level)[0]
        spread = np.std(values - (1 + found.lift) * base) / base.mean() / np.sqrt(2000)
        assert found.high - found.low == pytest.approx(2 * width * spread, rel=0.1)


def test_about_as_many_intervals_hold_the_truth_as_the_level_says():
    random = np.random.default_rng(3)
    held = {0.9: 0, 0.95: 0}
    for seed in range(300):
        base = random.gamma(2.0, 1.0, (300, 1))
        values = base * (1.1 + 0.4 * random.standard_normal((300, 1)))
        for level in held:
            found = lift_intervals(values, base, n_draws=400, seed=seed, level=level)[0]
            held[level] += found.low <= 0.1 <= found.high
    assert 0.86 <= held[0.9] / 300 <= 0.94
    assert 0.91 <= held[0.95] / 300 <= 0.98
