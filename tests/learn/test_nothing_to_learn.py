"""Where there is nothing to learn, nothing is switched on, and no number is given."""

from __future__ import annotations

import warnings

import pytest

import trimtab as tt
from random_shop import draw_shop

SHOPS = 24


def fit(learner, n_windows: int, seed: int):
    """What is learned, and what the guard says."""
    recs, recent, history = draw_shop(seed, n_windows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tt.TrimtabWarning)
        return learner.fit(recs, recent, history=history), [str(w.message) for w in caught]


@pytest.mark.parametrize("n_windows", [3, 6])
@pytest.mark.parametrize(("learner", "most"), [(tt.BiasLearner(), 1), (tt.RerankLearner(), 3)])
def test_random_purchases_teach_nothing(n_windows, learner, most):
    """One in twenty intervals of 90 % lies above 0 by chance."""
    switched_on = 0
    for seed in range(SHOPS):
        model, told = fit(learner, n_windows, seed)
        switched_on += model.changes_lists
        assert (model.summary.forecast is None) == (not model.changes_lists)
        assert any("no clear gain in NDCG@10" in m for m in told) == (not model.changes_lists)
    assert switched_on <= most
