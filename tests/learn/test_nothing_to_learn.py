"""Where lists and purchases are random, nothing is switched on, and no number is given."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from made_lists import best_lists, in_window, stamps

SHOPS = 24
N_USERS, N_ITEMS, N_LISTED, DAYS, W = 500, 100, 20, 40, 3
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def draw_shop(seed: int, n_windows: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Lists and purchases by window, and everything bought before the newest window."""
    random, n_events = np.random.default_rng(seed), 6 * N_USERS
    days = np.sort(random.uniform(0, DAYS, n_events))
    log = pa.table(
        {
            "user_id": random.integers(0, N_USERS, n_events),
            "item_id": random.integers(0, N_ITEMS, n_events),
            "timestamp": stamps(START + days * 86_400),
        }
    )
    recs, recent = [], []
    for back in range(n_windows, 0, -1):
        first = DAYS - W * back
        window = log.filter(pa.array((days >= first) & (days < first + W)))
        recs.append(
            in_window(
                best_lists(np.arange(N_USERS), random.random((N_USERS, N_ITEMS)), N_LISTED), -back
            )
        )
        recent.append(in_window(window, -back))
    before = log.filter(pa.array(days < DAYS - W))
    return pa.concat_tables(recs), pa.concat_tables(recent), before


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
