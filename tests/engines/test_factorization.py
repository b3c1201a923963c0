"""The randomized SVD against the exact one."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from trimtab.datasets import generate_log
from trimtab.engines import Factorization
from trimtab.engines.factorization import item_factors
from trimtab.errors import SettingError


def test_within_one_percent_of_the_exact_error():
    for seed in range(5):
        matrix = sparse.random_array((150, 90), density=0.1, rng=seed, format="csr")
        dense = matrix.toarray()
        singular = np.linalg.svd(dense, compute_uv=False)
        for n_factors in (3, 10, 30):
            factors = item_factors(matrix, n_factors)
            error = np.linalg.norm(dense - dense @ factors @ factors.T)
            assert error <= 1.01 * np.linalg.norm(singular[n_factors:])


def test_factors_are_orthonormal_always_the_same_and_no_more_than_the_matrix_has():
    matrix = sparse.random_array((80, 50), density=0.2, rng=1, format="csr")
    factors = item_factors(matrix, 6)
    np.testing.assert_allclose(factors.T @ factors, np.eye(6), atol=1e-10)
    np.testing.assert_array_equal(factors, item_factors(matrix, 6))
    assert item_factors(sparse.csr_array(np.ones((3, 5))), 64).shape == (5, 3)


def test_scores_are_entries_of_the_approximation_and_a_window_shapes_items_alone():
    log = generate_log(n_users=60, n_items=40, days=30, purchases_per_user=15, seed=2)
    as_of = log["timestamp"][-1].as_py() + timedelta(hours=1)
    recs = Factorization(n_factors=5).fit(log, as_of).recommend(n=40)
    users, items = (
        np.unique(log[c].to_numpy(), return_inverse=True) for c in ("user_id", "item_id")
    )
    matrix = np.zeros((len(users[0]), len(items[0])))
    np.add.at(matrix, (users[1], items[1]), 1)
    matrix = np.log1p(matrix)
    factors = item_factors(sparse.csr_array(matrix), 5)
    approximation = matrix @ factors @ factors.T
    row = np.searchsorted(users[0], recs["user_id"].to_numpy())
    column = np.searchsorted(items[0], recs["item_id"].to_numpy())
    np.testing.assert_allclose(recs["score"].to_numpy(), approximation[row, column], atol=1e-4)
    assert recs.num_rows == pytest.approx((approximation > 0).sum(), abs=3)
    recs = Factorization(n_factors=5, window_days=5).fit(log, as_of).recommend()
    assert len(set(recs["user_id"].to_pylist())) > 50


def test_too_few_factors_are_refused():
    with pytest.raises(SettingError, match="n_factors=0"):
        Factorization(n_factors=0)


def test_a_frame_of_one_purchase():
    log = generate_log(n_users=5, n_items=5, days=5).slice(0, 1)
    recs = Factorization().fit(log, log["timestamp"][0].as_py().replace(year=2027)).recommend()
    assert recs["item_id"] == pa.chunked_array(log["item_id"])
