"""Where there is nothing to learn, nothing is switched on, and no number is given."""

from __future__ import annotations

import warnings

import numpy as np
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
def test_random_purchases_teach_no_biases(n_windows):
    """One in twenty intervals of 90 % lies above 0 by chance."""
    switched_on = 0
    for seed in range(SHOPS):
        bias, told = fit(tt.BiasLearner(), n_windows, seed)
        is_on = bool(np.any(bias.bias))
        switched_on += is_on
        assert (bias.summary.forecast is None) == (not is_on)
        assert any("no clear gain in NDCG@10" in message for message in told) == (not is_on)
    assert switched_on <= 1


@pytest.mark.parametrize("n_windows", [3, 6])
def test_random_purchases_teach_no_reranker(n_windows):
    switched_on = 0
    for seed in range(SHOPS):
        reranker, told = fit(tt.RerankLearner(), n_windows, seed)
        switched_on += reranker.changes_lists
        assert (reranker.summary.forecast is None) == (not reranker.changes_lists)
        assert any("no clear gain in NDCG@10" in m for m in told) == (not reranker.changes_lists)
    assert switched_on <= 3
