"""Folded biases: an index returns the same top items as ranking all items with the bias."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import make_bias

pytestmark = pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")
K = 10
ONE_LESS = 2.0**20  # the multiplier for libraries that rank by 1 - product


class Case(NamedTuple):
    """Vectors with biases; rows are the items 0, 1, 2, ..."""

    bias: tt.ItemBias
    users: np.ndarray
    items: np.ndarray


# The truth: float64 products of the float32 vectors, all items ranked by the one total order ------


class Truth(NamedTuple):
    """True scores by user and item, -inf for excluded ones, and the items by rank."""

    scores: np.ndarray
    top: np.ndarray


def truth_of(case, k=K):
    scores = case.users.astype(np.float64) @ case.items.astype(np.float64).T
    by_row = np.zeros(len(case.items))
    by_row[case.bias.item_ids] = case.bias.bias
    scores = scores + by_row if case.bias.scale == "additive" else scores * np.exp(by_row)
    scores[:, case.bias.item_ids[case.bias.excluded]] = -np.inf
    last = np.partition(scores, -k, axis=1)[:, -k]
    users, items = np.nonzero(scores >= last[:, None])
    order = np.lexsort((items, -scores[users, items], users))  # score descending, then id ascending
    first = np.searchsorted(users, np.arange(len(scores)))
    return Truth(scores, items[order][first[:, None] + np.arange(k)])


def assert_same(found, truth):
    """Check that each rank has the same item, or one with a score within 1e-6 of it."""
    scores, wanted = (part[: len(found)] for part in truth)
    assert found.shape == wanted.shape
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all(), "an item twice"
    due = np.take_along_axis(scores, wanted, axis=1)
    served = np.take_along_axis(scores, found, axis=1)
    assert np.isfinite(served).all(), "an excluded item"
    apart = np.abs(served - due)
    wrong = (apart > 0) & ~(apart < 1e-6 * np.abs(due))
    assert not wrong.any(), f"{wrong.sum()} places, by up to {(apart / np.abs(due))[wrong].max()}"


# Libraries: item ids by user and rank -----------------------------------------------------------


def with_faiss(folded, users, k=K):
    import faiss

    index = faiss.IndexFlatIP(folded.vectors.shape[1])
    index.add(folded.vectors)
    return folded.ids(index.search(folded.queries(users), k)[1])


def with_usearch(folded, users, k=K):
    from usearch.index import MetricKind, search

    found = search(folded.vectors, folded.queries(users), k, MetricKind.IP, exact=True)
    return folded.ids(found.keys)


def with_usearch_index(folded, users, k=K, **settings):
    from usearch.index import Index

    index = Index(ndim=folded.vectors.shape[1], metric="ip", dtype="f32", **settings)
    index.add(np.arange(len(folded)), folded.vectors, threads=1)  # the same graph every time
    found = index.search(folded.queries(users), k, exact=not settings)
    return folded.ids(found.keys, found.counts)


def with_hnswlib(folded, users, k=K, ef=None):
    import hnswlib

    kind = hnswlib.BFIndex if ef is None else hnswlib.Index
    index = kind(space="ip", dim=folded.vectors.shape[1])
    index.init_index(len(folded), **({} if ef is None else {"ef_construction": ef, "M": 32}))
    if ef is not None:
        index.set_ef(ef)
        index.set_num_threads(1)  # the same graph every time
    index.add_items(folded.vectors, np.arange(len(folded)))
    return folded.ids(index.knn_query(folded.queries(users), k)[0])


def with_implicit(folded, users, k=K):
    from implicit.cpu.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    model = AlternatingLeastSquares(factors=folded.vectors.shape[1])
    model.item_factors, model.user_factors = folded.vectors, folded.queries(users)
    nothing = csr_matrix((len(users), len(folded)))
    return folded.ids(model.recommend(np.arange(len(users)), nothing, k, False)[0])


EXACT = {
    "faiss": (with_faiss, 1.0),
    "usearch": (with_usearch, ONE_LESS),
    "usearch index": (with_usearch_index, ONE_LESS),
    "hnswlib": (with_hnswlib, ONE_LESS),
    "implicit": (with_implicit, 1.0),
}


# Hard cases ------------------------------------------------------------------------------------


def made_case(
    size=1.0, spread=0.5, excluded=(), scale="additive", sign=None, n_items=400, unknown=0
):
    """Random vectors whose products are about `size`; biases of `spread` times that."""
    draw = np.random.default_rng(7)
    users = draw.normal(size=(300, 16)).astype("f4")
    items = (draw.normal(size=(n_items, 16)) * size / 4).astype("f4")
    biases = draw.normal(size=n_items) * spread * (size if scale == "additive" else 1.0)
    if sign is not None:
        users, items = np.abs(users), np.abs(items) * np.float32(sign)
    by_id = dict(enumerate(biases[: n_items - unknown].tolist()))
    return Case(make_bias(by_id, excluded=excluded, scale=scale), users, items)


HARD = {
    "tiny scores": {"size": 1e-4},
    "large scores": {"size": 1e4},
    "no biases": {"spread": 0.0},
    "items without a learned bias": {"unknown": 50, "excluded": range(0, 350, 7)},
    "biases much larger than scores": {"spread": 30.0},
    "scores below 0": {"sign": -1.0},
    "all excluded but 12": {"excluded": range(388)},
    "all excluded but 12, scores far below 0": {"excluded": range(388), "sign": -1.0, "size": 1e6},
    "multiplying": {"scale": "log", "sign": 1.0},
    "multiplying, tiny scores": {"scale": "log", "sign": 1.0, "size": 1e-4},
    "multiplying, all excluded but 12": {"scale": "log", "sign": 1.0, "excluded": range(388)},
}


def test_every_library_serves_the_biased_ranking_of_all_items():
    """Where biases or exclusions change what the engine itself would serve."""
    for name, given in HARD.items():
        case = made_case(**given)
        engine = case._replace(bias=make_bias({0: 0.0}))
        assert (truth_of(engine).top != truth_of(case).top).any() == (name != "no biases")
        for search, multiplier in EXACT.values():
            folded = case.bias.fold_into(case.items, multiplier=multiplier)
            assert_same(search(folded, case.users), truth_of(case))


def test_slots_without_an_item_are_missing():
    for scale in ("additive", "log"):
        case = made_case(scale=scale, sign=1.0, excluded=range(3, 400))
        folded = case.bias.fold_into(case.items, multiplier=ONE_LESS)
        for library in ("faiss", "usearch index"):
            found = EXACT[library][0](folded, case.users)
            assert (found[:, 3:] == -1).all()
            assert_same(found[:, :3], truth_of(case, 3))


def share_found(found, truth):
    pairs = zip(found, truth.top, strict=True)
    return np.mean([len(np.intersect1d(*pair)) / K for pair in pairs])


def test_graphs_find_nearly_all_and_tiny_products_need_the_multiplier():
    """1 - 0.0001 has no digits left for scores that differ by a thousandth of themselves."""
    settings = {"connectivity": 32, "expansion_add": 200, "expansion_search": 200}
    for size in (1.0, 1e-4):
        case = made_case(size=size, n_items=2_000)
        folded, truth = case.bias.fold_into(case.items, multiplier=ONE_LESS), truth_of(case)
        assert share_found(with_hnswlib(folded, case.users, ef=200), truth) > 0.95
        assert share_found(with_usearch_index(folded, case.users, **settings), truth) > 0.95
    plain = case.bias.fold_into(case.items)
    assert share_found(with_hnswlib(plain, case.users, ef=200), truth) < 0.8
    case = made_case(size=1e-4, n_items=4_000)
    for search in (with_usearch, with_hnswlib):
        with pytest.raises(AssertionError, match="places, by up to"):
            assert_same(search(case.bias.fold_into(case.items), case.users), truth_of(case))


# By hand ----------------------------------------------------------------------------------------

VECTORS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
USERS = np.array([[0.5, 0.25]])


def test_an_additive_bias_is_the_last_coordinate_and_a_log_bias_scales_the_vector():
    folded = make_bias({0: 0.5, 2: -0.25}).fold_into(VECTORS)
    assert folded.vectors.tolist() == [[1, 2, 0.5], [3, 4, 0], [5, 6, -0.25]]
    assert folded.queries(USERS).tolist() == [[0.5, 0.25, 1.0]]
    assert folded.queries(USERS).dtype == folded.vectors.dtype == np.float32
    assert folded.item_ids.tolist() == [0, 1, 2]
    assert repr(folded) == "Folded(3 rows of 3 dimensions, additive)"
    folded = make_bias({0: math.log(2), 2: -math.log(4)}, scale="log").fold_into(VECTORS)
    assert folded.vectors.tolist() == [[2, 4], [3, 4], [1.25, 1.5]]
    assert folded.queries(USERS).tolist() == USERS.tolist()


def test_excluded_items_are_left_out():
    bias = make_bias({0: 0.5, 1: 9.0, 2: 0.0}, excluded=[1])
    folded = bias.fold_into(VECTORS, multiplier=4)
    assert folded.vectors.tolist() == [[4, 8, 2], [20, 24, 0]]
    assert folded.item_ids.tolist() == [0, 2]
    nothing = replace(bias, excluded=np.ones(3, bool)).fold_into(VECTORS)
    assert nothing.vectors.shape == (0, 3)
    assert nothing.queries(USERS).shape == (1, 3)


IDS = ["b", "007", "é"]
TEXTS = (
    list, tuple, np.array, pd.Series, pd.Index, pd.Categorical, pl.Series, pa.array,
    lambda ids: np.array(ids, object), lambda ids: pa.chunked_array([ids]),
)  # fmt: skip
INTEGERS = list, np.array, lambda ids: np.array(ids, np.uint64), pd.Series, pl.Series, pa.array


def test_ids_can_be_any_list_of_strings_or_integers():
    for make in TEXTS:
        folded = make_bias({"007": 0.5, "x": 1.0}).fold_into(VECTORS, make(IDS))
        assert folded.vectors[:, -1].tolist() == [0, 0.5, 0]
        assert folded.item_ids.to_pylist() == IDS
        assert folded.ids(np.array([[1, 0], [2, -1]])).tolist() == [["007", "b"], ["é", None]]
    for make in INTEGERS:
        folded = make_bias({7: 0.5, 1: 1.0}).fold_into(VECTORS, make([9, 7, 8]))
        assert folded.vectors[:, -1].tolist() == [0, 0.5, 0]
        assert folded.item_ids.tolist() == [9, 7, 8]


def test_rows_found_become_ids():
    folded = make_bias({5: 0.5, 6: 0.0, 7: 0.0}, excluded=[6]).fold_into(VECTORS, [7, 6, 5])
    assert folded.ids(np.array([[1, 0, -1]])).tolist() == [[5, 7, -1]]
    assert folded.ids(np.array([1, 2**64 - 1], np.uint64)).tolist() == [5, -1]
    assert folded.ids([[0, 1], [1, 0]], counts=[1, 2]).tolist() == [[7, -1], [5, 7]]
    assert folded.ids(1) == 5


def test_nothing_given_or_returned_changes():
    for kind in ("f8", "f4", "i8"):
        vectors, users = VECTORS.astype(kind), (USERS * 4).astype(kind)
        copies = vectors.copy(), users.copy()
        folded = make_bias({0: 0.5, 1: 0.1}, excluded=[1]).fold_into(vectors)
        folded.queries(users)[:] = 7
        assert (vectors == copies[0]).all()
        assert (users == copies[1]).all()
        assert not np.shares_memory(vectors, folded.vectors)
        with pytest.raises(ValueError, match="read-only"):
            folded.vectors[0, 0] = 1
        with pytest.raises(FrozenInstanceError):
            folded.vectors = vectors


def test_any_memory_layout_and_a_loaded_bias_give_the_same_vectors(tmp_path):
    case = made_case(n_items=70_000, excluded=range(5))
    expected = case.bias.fold_into(case.items).vectors
    case.bias.save(tmp_path)
    for bias, items in (
        (case.bias, np.asfortranarray(case.items)),
        (case.bias, case.items.astype("f8")),
        (tt.ItemBias.load(tmp_path), case.items),
    ):
        assert (bias.fold_into(items).vectors == expected).all()
    assert expected.flags.c_contiguous
    assert (expected[:, :-1] == case.items[5:]).all()
    assert (expected[:, -1] == case.bias.bias[5:].astype("f4")).all()


# Scores below 0 on the log scale ----------------------------------------------------------------

MIXED = np.array([[1.0, -0.5], [0.5, 2.0]])
LOGS = {0: 0.5, 1: -0.5}  # made for the top 2, so every user needs two scores of at least 0


def test_users_need_enough_scores_of_at_least_0_of_items_that_can_be_shown():
    folded = make_bias(LOGS, scale="log").fold_into(MIXED)
    fine = np.array([[1.0, 0.5], [1.0, 2.0]])
    assert folded.queries(fine).tolist() == fine.tolist()
    with pytest.raises(tt.DataError, match=r"user_vectors row 1 .* 1 items .* 2: .*'additive'"):
        folded.queries(np.array([[1.0, 0.0], [1.0, 4.0]]))
    folded = make_bias(LOGS, scale="log").fold_into(np.abs(MIXED), multiplier=2)
    below = np.array([[1.0, -4.0]])
    with pytest.raises(tt.DataError, match=r"user_vectors row 0 .* 0 items .* needs 2: "):
        folded.queries(below)
    assert folded.queries(below, check=False).tolist() == below.tolist()
    assert folded.queries(below[:0]).shape == (0, 2)
    folded = make_bias(LOGS, excluded=[0], scale="log").fold_into(MIXED)
    folded.queries(np.array([[1.0, 4.0]]))
    with pytest.raises(tt.DataError, match=r"row 0 .* 0 items .* needs 1: "):
        folded.queries(below)


def top_lists(users, items, n):
    scores = users @ items.T
    top = np.argpartition(-scores, n, axis=1)[:, :n]
    columns = np.repeat(np.arange(len(users)), n), top.ravel(), np.take_along_axis(scores, top, 1)
    return pa.table(dict(zip(("user_id", "item_id", "score"), map(np.ravel, columns), strict=True)))


def test_log_biases_serve_users_with_enough_scores_above_zero():
    """Vectors of both signs, as of any factorization: the ranking of `apply`, in an index."""
    draw = np.random.default_rng(3)
    users, items = (draw.normal(size=(n, 8)).astype("f4") for n in (200, 300))
    biases = dict(enumerate(draw.normal(size=300).tolist()))
    bias = make_bias(biases, excluded=range(0, 300, 7), scale="log")
    scores = users.astype("f8") @ items.astype("f8").T
    assert (scores < 0).mean() > 0.4
    assert ((scores >= 0).sum(axis=1) > 2 * K).all()
    recs = top_lists(users.astype("f8"), items.astype("f8"), 299)
    ranked = bias.apply(recs, K)["item_id"].to_numpy().reshape(-1, K)
    assert (with_faiss(bias.fold_into(items), users) == ranked).all()


def test_the_check_looks_at_all_blocks():
    users, items = np.ones((1_200, 2)), np.full((20_000, 2), -1.0)
    items[3], items[17_000] = (1.0, 1.0), (1.0, 0.0)
    folded = make_bias({0: 0.1}, scale="log").fold_into(items)
    folded.queries(users)
    users[1_100] = -0.5, 1.0
    with pytest.raises(tt.DataError, match=r"row 1100 .* 1 items .* needs 2: "):
        folded.queries(users)


# What is refused --------------------------------------------------------------------------------

DEPTHS = [  # scale, k, items, least depth
    ("log", 10, 9_000, 500), ("log", 30, 9_000, 600), ("log", 2, 300, 300),
    ("additive", 10, 1_500, 500), ("additive", 10, 9_002, 2_251),
]  # fmt: skip
TOO_SHORT = [
    ("log", 50, 2_000, r"lists of 50, .* 2000 items.* 500; .*n=1000.*allow"),
    ("additive", 1_000, 9_000, r"at least 2250; learn with scale='log', .*n=1000\)"),
    ("additive", 400, 1_500, r"at least 500; learn on .*n=1000\)"),
]


def test_lists_must_be_deep_or_have_all_items():
    for scale, k, n_items, least in DEPTHS:
        bias = make_bias({0: 0.5}, depth=least, scale=scale)
        bias = replace(bias, summary=replace(bias.summary, k=k))
        bias.fold_into(np.ones((n_items, 2)))
        with pytest.raises(tt.SettingError, match=f"at least {least};"):
            replace(bias, depth=least - 1).fold_into(np.ones((n_items, 2)))
    for scale, depth, n_items, words in TOO_SHORT:
        bias, vectors = make_bias({0: 0.5}, depth=depth, scale=scale), np.ones((n_items, 2))
        with pytest.raises(tt.SettingError, match=words):
            bias.fold_into(vectors)
        accepted = bias.fold_into(vectors, allow_shallow=True).vectors
        assert (accepted == replace(bias, depth=None).fold_into(vectors).vectors).all()
    with pytest.raises(tt.SettingError, match="allow_shallow='yes'"):
        bias.fold_into(vectors, allow_shallow="yes")


REFUSED = {
    "one dimension": ([1.0, 2.0], {}, r"item_vectors.*\(2,\)"),
    "ragged": ([[1.0], [2.0, 3.0]], {}, "item_vectors"),
    "no rows": (np.empty((0, 2)), {}, r"item_vectors.*\(0, 2\)"),
    "text": ([["a"]], {}, "item_vectors.*<U1"),
    "complex": (VECTORS * 1j, {}, "item_vectors.*complex128"),
    "nan": (VECTORS * [1, np.nan], {}, "item_vectors.* nan in row 0"),
    "infinite": (VECTORS * [1, np.inf], {}, "item_vectors.* inf in row 0"),
    "beyond float32": (VECTORS * 1e39, {}, "item_vectors.* 1e.39 in row 0.* inf "),
    "beyond rows": (VECTORS[:2], {}, "item_ids=None.* 0 to 1.*item_id 2"),
    "too few ids": (VECTORS, {"item_ids": [1, 2]}, "item_ids.* 2 .*item_vectors.* 3 rows"),
    "repeated ids": (VECTORS, {"item_ids": [1, 2, 1]}, "item_ids has 1 "),
    "strings": (VECTORS, {"item_ids": IDS}, "strings in item_ids.*integers in the bias"),
    "fractions": (VECTORS, {"item_ids": [1.0, 2.0, 0.5]}, "item_ids.*double"),
    "no id": (VECTORS, {"item_ids": [1, None, 2]}, "item_ids.* 1 of 3"),
    "mixed ids": (VECTORS, {"item_ids": [1, "b", 2]}, "item_ids .*cannot be read"),
    "ids in rows": (VECTORS, {"item_ids": np.ones((3, 1), int)}, "item_ids .*cannot be read"),
    "a frame": (VECTORS, {"item_ids": pd.DataFrame({"a": [1, 2, 3]})}, "item_ids.*item_id"),
    "a factor": (VECTORS, {"multiplier": 3.0}, "multiplier=3.0"),
    "a sign": (VECTORS, {"multiplier": -2.0}, "multiplier=-2.0"),
    "no number": (VECTORS, {"multiplier": "2"}, "multiplier='2'"),
}
BAD_BIASES = [
    (make_bias({"a": 0.5}), r"item_ids=None.*item_id a; pass the id"),
    (make_bias({0: 800.0}, scale="log"), r"item_id 0 has a log bias of 800, beyond"),
    (make_bias({0: -90.0}, scale="log"), r"item_id 0 has a log bias of -90, beyond"),
    (make_bias({0: 1e39}), r"the bias table has 1e\+39 in row 0"),
]


def test_what_cannot_be_folded_is_refused_by_name():
    for vectors, settings, message in REFUSED.values():
        with pytest.raises(tt.TrimtabError, match=message):
            make_bias({0: 0.5, 2: 0.25}).fold_into(vectors, **settings)
    for bias, message in BAD_BIASES:
        with pytest.raises(tt.DataError, match=message):
            bias.fold_into(VECTORS)
    with pytest.warns(tt.TrimtabWarning, match="item_ids has no item") as seen:
        make_bias({7: 0.5}).fold_into(VECTORS, [1, 2, 3])
    assert seen[0].filename == __file__


def test_queries_and_rows_of_another_index_are_refused():
    folded = make_bias({0: 0.5, 1: 0.0}, excluded=[1]).fold_into(VECTORS)
    for users, message in (
        (np.ones((1, 3)), r"user_vectors.* 3 columns.*item_vectors.* 2"),
        ([[1.0, 2.0], [np.nan, 1.0]], r"user_vectors has nan in row 1"),
        ([1.0, 2.0], r"user_vectors.*\(2,\)"),
    ):
        with pytest.raises(tt.DataError, match=message):
            folded.queries(users)
    for rows, message in (([[0, 2]], "rows has 2 "), ([0.5], r"rows.*float64")):
        with pytest.raises(tt.DataError, match=message):
            folded.ids(rows)
