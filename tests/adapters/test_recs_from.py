"""Special cases of `recs_from`: invalid scores, ids, ties, and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import trimtab as tt
from trimtab import DataError, SettingError, TrimtabError
from trimtab.adapters.numbered_lists import (
    from_best_k,
)

LOWEST = float(np.finfo(np.float32).min)
RANDOM = np.random.default_rng(8)
MATRIX = sparse.csr_matrix(np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]))
pytestmark = pytest.mark.filterwarnings("ignore:Method expects CSR input")  # implicit, of its own


def rows(recs) -> list[tuple]:
    return list(zip(*(recs[c].to_pylist() for c in ("user_id", "item_id", "score")), strict=True))


def codes(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


# Invalid scores.


def test_invalid_scores_are_left_out():
    for mark in (np.nan, -np.inf, np.inf, LOWEST, -np.finfo(np.float64).max):
        table = pa.table({"user_id": [1, 1, 2], "item_id": [5, 6, 5], "score": [mark, -0.5, mark]})
        assert rows(tt.recs_from(table)) == [(1, 6, -0.5)]
        matrix = sparse.csr_matrix(([mark, -0.5, mark], ([1, 1, 2], [5, 6, 5])), (3, 7))
        assert rows(tt.recs_from(matrix)) == [(1, 6, -0.5)]
    table = pl.DataFrame({"user_id": ["a", "a"], "item_id": [5, 6], "score": [None, 2]})
    assert tt.recs_from(table).rows() == [("a", 6, 2.0)]
    users = np.array([[1.0, 1.0], [np.nan, 1.0]])
    items = np.array([[1.0, 2.0], [np.inf, 1.0], [-1.0, -1.0]])
    assert rows(tt.recs_from((users, items))) == [(0, 0, 3.0), (0, 2, -2.0)]


def test_padding_and_hidden_items_of_a_library_are_left_out():
    from implicit.als import AlternatingLeastSquares

    class Padding(type(AlternatingLeastSquares(factors=2))):
        def recommend(self, userid, user_items, N=10, filter_already_liked_items=True, **_):  # noqa: N803
            assert user_items.shape == (len(userid), 3)
            one = [2, 0, 1, -1, -1][:N], [0.5, -0.5, LOWEST, LOWEST, 0.1][:N]
            return tuple(np.tile(np.array(part), (len(userid), 1)) for part in one)

    recs = tt.recs_from(Padding(factors=2), data=MATRIX)
    assert rows(recs) == [(u, i, s) for u in (0, 1) for i, s in ((2, 0.5), (0, -0.5))]


# Order.


def test_ties_and_users_are_in_the_order_of_ids_whatever_their_numbers():
    alike = np.ones((1, 2)), np.ones((4, 2))
    assert tt.recs_from(alike, n=2, item_ids=[9, 3, 7, 1])["item_id"].to_pylist() == [1, 3]
    matrix = sparse.csr_matrix(np.ones((1, 4)))
    recs = tt.recs_from(matrix, n=3, item_ids=["b", "a", "C", "d"])
    assert recs["item_id"].to_pylist() == ["C", "a", "b"]
    matrix = sparse.csr_matrix(np.array([[1.0], [2.0], [3.0]]))
    ordered = [(10, 0, 2.0), (20, 0, 3.0), (30, 0, 1.0)]
    assert rows(tt.recs_from(matrix, user_ids=[30, 10, 20])) == ordered


def test_a_library_that_orders_ties_its_own_way_is_asked_for_more():
    asked = []

    def query(numbers, k):
        """Everybody's first 6 items tie, and the largest number comes first."""
        asked.append((len(numbers), k))
        best = np.array([6, 5, 4, 3, 2, 1, 0, 7])[:k]
        scores = np.array([9.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 1.0])[:k]
        units = np.repeat(np.arange(len(numbers)), k)
        return units, np.tile(best, len(numbers)), np.tile(scores, len(numbers))

    lists = from_best_k(query, 2, 8).lists(np.array([0, 1]), 3, codes(8))
    assert lists.items.tolist() == [6, 0, 1] * 2
    assert lists.indptr.tolist() == [0, 3, 6]
    assert asked == [(2, 4), (2, 8)]


def test_repeats_keep_the_best_score_of_a_table_and_the_sum_of_a_matrix_which_is_not_modified():
    table = pd.DataFrame({"user_id": [1, 1, 1], "item_id": [5, 5, 6], "score": [1.0, 3.0, 2.0]})
    assert tt.recs_from(table).values.tolist() == [[1, 5, 3.0], [1, 6, 2.0]]
    stored = sparse.csr_matrix(([0.0, -1.0], ([0, 0], [2, 1])), (1, 4))  # a stored 0 counts
    assert rows(tt.recs_from(stored)) == [(0, 2, 0.0), (0, 1, -1.0)]
    matrix = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 3])))
    assert rows(tt.recs_from(matrix)) == [(0, 0, 4.0), (0, 1, 3.0)]
    assert matrix.data.tolist() == [1.0, 2.0, 4.0]


# Blocks.


def test_factors_of_many_items_and_users():
    users, items = RANDOM.normal(size=(150, 5)), RANDOM.normal(size=(1300, 5))
    known = sparse.random(150, 1300, 0.2, "csr", random_state=3)
    scores = np.where(known.toarray() > 0, -np.inf, users @ items.T)
    for n in (1, 7, 1500):
        recs = tt.recs_from((users, items), n=n, data=known, exclude_known=True).to_pandas()
        for user in (0, 63, 64, 149):
            allowed = np.isfinite(scores[user]).sum()
            expected = np.argsort(-scores[user], kind="stable")[: min(n, allowed)]
            mine = recs[recs.user_id == user]
            assert mine.item_id.tolist() == expected.tolist()
            np.testing.assert_allclose(mine.score, scores[user, expected], rtol=1e-12)


def test_no_users_or_items_at_all():
    for model in (
        sparse.csr_matrix((0, 3)),
        sparse.csr_matrix((3, 0)),
        (np.ones((2, 3)), np.empty((0, 3))),
    ):
        assert len(tt.recs_from(model)) == 0
    with pytest.warns(tt.TrimtabWarning, match="^2 of 2 users get no list"):
        assert len(tt.recs_from(sparse.csr_matrix((0, 3)), users=[4, 5])) == 0


# Ids.


def test_events_become_a_matrix_with_its_ids():
    events = pd.DataFrame({"user_id": ["b", "a", "b", "b"], "item_id": [7, 3, 3, 7], "price": 1.0})
    bought = tt.user_items(events)
    assert isinstance(bought.matrix, sparse.csr_matrix)  # implicit takes nothing else
    assert bought.matrix.toarray().tolist() == [[1, 0], [1, 2]]
    assert bought.user_ids.to_pylist() == ["a", "b"]
    assert bought.item_ids.tolist() == [3, 7]


def test_given_ids_override_those_of_the_data():
    bought = tt.user_items(pa.table({"user_id": [4, 5], "item_id": [7, 8]}))
    factors = np.eye(2), np.eye(2)
    first = [(4, 7, 1.0), (4, 8, 0.0)]
    assert rows(tt.recs_from(factors, data=bought))[:2] == first
    assert rows(tt.recs_from(factors, data=bought, user_ids=["x", "y"]))[0] == ("x", 7, 1.0)
    unknown = rows(tt.recs_from(factors, data=bought, exclude_known=True))
    assert unknown == [(4, 8, 0.0), (5, 7, 0.0)]


TABLE = {"user_id": [1], "item_id": [1], "score": [1.0]}


def test_wrong_arguments_and_models_are_refused():
    for options, message in (
        ({"user_ids": [1]}, "user_ids has 1 .* 2"),
        ({"item_ids": [1, 2, 1]}, "item_ids has 1 "),
        ({"item_ids": [1.5, 2, 3]}, "'item_id' of item_ids.*double"),
        ({"user_ids": ["a", None]}, "'user_id' of user_ids"),
        ({"exclude_known": True}, "data=None: exclude_known=True"),
        ({"data": MATRIX[:1]}, "data has 1 .* 3 .* 2 and 3"),
        ({"data": [[1]]}, "data is a list.*scipy.sparse"),
        ({"exclude_known": 1}, "exclude_known=1"),
        ({"item_features": MATRIX}, "item_features=a csr_matrix.*score matrix"),
    ):
        with pytest.raises(TrimtabError, match=message):
            tt.recs_from(MATRIX, **options)
    for name in ("data", "user_ids", "item_ids"):
        with pytest.raises(SettingError, match=f"{name}=a list.* table"):
            tt.recs_from(pa.table(TABLE), **{name: [1]})
    for model, message in (
        (None, "model is a NoneType"),
        ("als", "model is a str"),
        (np.eye(3), "model is a ndarray"),
        ((np.eye(3), np.ones(3)), "model is a tuple"),
        ((np.eye(3), np.ones((3, 2))), "user_factors has 3 .*item_factors has 2"),
        ((np.eye(2), np.array([["a", "b"]])), "item_factors.*<U1"),
        (sparse.coo_array(np.ones(3)), "score matrix has 1 "),
        (sparse.csr_matrix(np.ones((2, 2), complex)), "score matrix.*complex128"),
        (pa.table(TABLE).drop("item_id"), "'item_id' in the table"),
        (pa.table({**TABLE, "score": ["a"]}), "'score' of the table.*string"),
        (pa.table({**TABLE, "window": [1]}), "the table.*'window'"),
    ):
        with pytest.raises(DataError, match=message):
            tt.recs_from(model)


# Models that need something.


def test_models_of_implicit_say_what_they_need():
    from implicit.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import CosineRecommender

    for model in (AlternatingLeastSquares(factors=2), CosineRecommender()):
        with pytest.raises(TrimtabError, match=r"(Alternating|Cosine|LightFM).*fit"):
            tt.recs_from(model, data=MATRIX)
    model = CosineRecommender()
    model.fit(MATRIX, show_progress=False)
    with pytest.raises(DataError, match=r"data=None.*implicit"):
        tt.recs_from(model)
    with pytest.raises(SettingError, match=r"user_features=a csr_matrix.*implicit"):
        tt.recs_from(model, data=MATRIX, user_features=MATRIX)
    model = AlternatingLeastSquares(factors=2, random_state=0)  # factors need no data
    model.fit(MATRIX, show_progress=False)
    assert rows(tt.recs_from(model)) == rows(tt.recs_from(model, data=MATRIX))
    assert len(tt.recs_from(model, data=MATRIX, exclude_known=True)) == 3


def test_models_of_lightfm_say_what_they_need():
    from lightfm import LightFM
    from lightfm.data import Dataset

    with pytest.raises(TrimtabError, match=r"(Alternating|Cosine|LightFM).*fit"):
        tt.recs_from(LightFM())
    with pytest.raises(DataError, match=r"Dataset .*LightFM"):
        tt.recs_from(Dataset())
    model = LightFM(no_components=2, random_state=0).fit(MATRIX.tocoo())
    with pytest.raises(DataError, match=r"item_features.*csr_matrix.*\(2, 2\)"):
        tt.recs_from(model, item_features=sparse.csr_matrix(np.eye(2)))
    assert len(tt.recs_from(model)) == 6
