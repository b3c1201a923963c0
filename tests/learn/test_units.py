"""Units: folds and samples depend on ids alone; counts against plain groupings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import trimtab as tt
from counted_tables import count
from dated_shop import DatedShop
from trimtab.learn.units import (
    FOR_CURVES,
    FOR_LEARNING,
    FOR_TREND,
    N_FOLDS,
    folds_of,
    hash_units,
)
from trimtab.tables.vocabulary import Vocabulary

Tables = dict[str, pa.Table]
PURPOSES = (FOR_LEARNING, FOR_CURVES, FOR_TREND)


@pytest.fixture(scope="module")
def tables() -> Tables:
    shop = DatedShop(n_users=120)
    users = np.arange(0, 120, 3)
    weights = pa.table({"user_id": users, "weight": (users % 4) / 2.0})
    return {"recs": shop.recs, "recent": shop.recent, "history": shop.history, "weights": weights}


# Folds and samples --------------------------------------------------------------------------------


def test_folds_have_a_quarter_each_and_change_with_the_seed():
    hashes = Vocabulary(np.arange(40_000)).hashes()
    folds = [folds_of(hashes, seed) for seed in (0, 1, 2)]
    for own in folds:
        assert set(own.tolist()) == set(range(N_FOLDS))
        assert np.abs(np.bincount(own) / 10_000 - 1).max() < 0.05
    for one, other in ((0, 1), (1, 2), (0, 2)):  # about 2,500 in each pair of folds
        assert np.abs(np.bincount(4 * folds[one] + folds[other]) / 2_500 - 1).max() < 0.1


def test_samples_are_even_and_independent_of_folds_and_windows():
    hashes = Vocabulary(np.arange(40_000)).hashes()
    drawn = [hash_units(hashes, np.full(40_000, window), 0, FOR_LEARNING) for window in (0, 1)]
    for own in drawn:
        assert own.min() >= 0
        assert own.max() < 1
        assert np.abs(np.histogram(own, 10, (0, 1))[0] / 4_000 - 1).max() < 0.1
        in_folds = np.bincount(folds_of(hashes, 0)[own < 0.25])
        assert np.abs(in_folds / 2_500 - 1).max() < 0.1
    assert abs(np.corrcoef(*drawn)[0, 1]) < 0.02
    for seed in range(4):  # a sample of a sample must thin it
        own = [hash_units(hashes, np.zeros(40_000), seed, purpose) for purpose in PURPOSES]
        assert np.abs(np.corrcoef(own) - np.eye(len(own))).max() < 0.02
        assert seed == 0 or (own[0] != drawn[0]).all()


def test_a_limit_is_kept_about(tables):
    counted = count(**tables)
    choice = counted.choose_windows()[0]
    n_units = int(counted.counts.learning.sum())
    entries = int(counted.counts.listed_by_fold.sum())
    assert choice.share == 1.0
    assert counted.limit(choice, entries, n_units).share == 1.0
    assert counted.limit(choice, entries, n_units // 2).share == pytest.approx(0.5, abs=0.01)
    assert counted.limit(choice, entries // 4).share == pytest.approx(0.25, abs=0.01)


# Counts -------------------------------------------------------------------------------------------


def test_counts_by_hand():
    """Three users; the third bought, but has no list. User 2 bought nothing that is listed."""
    recs = pa.table(
        {"user_id": [1, 1, 1, 2, 2], "item_id": [7, 8, 9, 7, 8], "score": [5.0, 3, 1, 4, 1]}
    )
    recent = pa.table({"user_id": [1, 1, 2, 3], "item_id": [8, 9, 5, 7]})
    counted = count(recs, recent, tt.BiasLearner(k=2))
    counts = counted.counts
    assert counted.plan.item_ids.tolist() == [5, 7, 8, 9]
    assert counts.support.tolist() == [1, 1, 1, 1]
    assert counts.listed.tolist() == [0, 2, 2, 1]
    assert counts.before.shown.tolist() == [0, 2, 2, 0]
    assert counts.lengths.tolist() == [1, 0, 1, 1]
    assert counts.learning.tolist() == [2]
    assert counts.numbers[:3].tolist() == [3, 4, 3]
    assert counts.bought_by_fold.sum(axis=0).tolist() == [1, 0, 1, 1]
    assert counts.listed_by_fold.sum(axis=0).tolist() == [0, 2, 2, 1]
    assert counts.shown_by_window.tolist() == [[0, 2, 2, 0]]
    assert sorted(counts.ends.tolist()) == [[4.0, 1.0], [5.0, 3.0]]
    assert counts.is_full.tolist() == [True, True]
    assert counts.largest.tolist() == [5.0, -1.0]
    assert counts.sales is None
    assert counts.weight_of_buyers(counted.plan) == 3.0
    # NDCG@2 of user 1: the second slot of two.
    value = counts.before.hit_values / counted.plan.quanta
    assert value[2] == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)), abs=1e-8)
    assert value[[0, 1, 3]].tolist() == [0, 0, 0]
