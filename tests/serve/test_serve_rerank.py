"""The service ranks as `ItemBias.apply` does: the same items and exactly the same scores."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from served_rerankers import order_of
from services import applied, make_bias, request_of
from trimtab.checks import SCALES, UNLISTED
from trimtab.serve.ranking import SCORE_TOO_LARGE, Lookup, Ranker
from trimtab.serve.wire import RerankRequest

pytestmark = pytest.mark.xdist_group("serve-reranker")
WORDS = [
    "", " ", "A", "Z", "a", "aa", "b", "z", "é", "ß", "Ω", "中", "日本", "\U0001f600", "\uffff",
]  # fmt: skip


def ranked(bias, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Rank with the service's function, without a server."""
    ranker, request = Ranker(bias, Lookup(bias.item_ids)), msgspec.convert(asked, RerankRequest)
    return msgspec.to_builtins(ranker.rank(request, ranker.check(request))[0])


@st.composite
def cases(draw) -> tuple[Any, dict[str, Any]]:
    """Tables and requests with few different numbers, so there are many ties."""
    known = WORDS if draw(st.booleans()) else [-(2**63), -7, -1, 0, 1, 2, 3, 5, 8, 13, 2**63 - 1]
    unlisted = draw(st.sampled_from(UNLISTED))
    of_table = sorted(draw(st.sets(st.sampled_from(known), min_size=1)))
    numbers = st.sampled_from([-1.5, -0.25, 0.0, 0.1, 0.25, 0.5, 1e-300, 3.0])
    bias = make_bias(
        of_table, [draw(numbers) for _ in of_table], [draw(st.booleans()) for _ in of_table],
        draw(st.sampled_from(SCALES)), unlisted, draw(st.none() | st.integers(1, 14)),
    )  # fmt: skip
    ids = draw(st.lists(st.sampled_from(known), unique=True))
    scores = numbers.map(abs) if unlisted == "zero" else numbers
    asked = request_of(ids, [draw(scores) for _ in ids], k=draw(st.integers(1, 14)))
    if draw(st.booleans()):
        asked["exclude"] = draw(st.lists(st.sampled_from(known)))
    if draw(st.booleans()):
        asked["allowed"] = draw(st.lists(st.sampled_from(known), min_size=1))
    if draw(st.booleans()):
        numbers = st.nothing() if unlisted == "zero" else st.integers(1, 14)
        asked["depth"] = draw(st.just("all") | numbers)
    return bias, asked


@given(cases())
@settings(max_examples=250, deadline=None)
def test_any_list_is_ranked_like_apply(case):
    bias, asked = case
    assert ranked(bias, asked) == applied(bias, asked)


def test_items_that_the_version_does_not_know_are_counted(ab_testing):
    """In answers and in /metrics, whatever the bucket; they keep the engine's score."""
    before = ab_testing.count("trimtab_unknown_items_total")
    asked = request_of(["a", "x", "y"], [1.0, 2.0, 3.0])
    answers = [ab_testing.rerank({**asked, "user_id": user}) for user in range(8)]
    assert {answer["bucket"] for answer in answers} == {"control", "treatment"}
    assert {answer["unknown_items"] for answer in answers} == {2}
    assert {"item_id": "y", "score": 3.0} in answers[0]["items"]
    empty = ab_testing.rerank({"items": [], "user_id": 1})
    assert empty["unknown_items"] == 0
    assert ab_testing.count("trimtab_unknown_items_total") == before + 16


def test_long_lists_are_ranked_like_apply(reranking):
    rng = np.random.default_rng(6)
    bias = make_bias(range(20_000), rng.normal(size=20_000), unlisted="zero")
    reranking.serve(bias)
    asked = request_of(range(0, 20_000, 2), rng.random(10_000).tolist(), k=10_000)
    assert reranking.server.rerank(asked)["items"] == applied(bias, asked)


def test_items_below_the_depth_stay_behind(reranking):
    reranking.serve(make_bias([1, 2, 3], [0.0, 0.5, 9.0], depth=2))
    asked = request_of([1, 2, 3], [3.0, 2.75, 1.0])
    assert reranking.server.client.get("/version").json()["depth"] == 2
    assert order_of(reranking.server.rerank(asked)) == [2, 1, 3]
    assert order_of(reranking.server.rerank({**asked, "depth": 1})) == [1, 2, 3]
    assert order_of(reranking.server.rerank({**asked, "depth": "all"})) == [3, 2, 1]
    lists = [asked, {**asked, "depth": 3}]
    answer = reranking.server.client.post("/rerank/batch", json={"lists": lists}).json()
    assert [order_of(part) for part in answer["lists"]] == [[2, 1, 3], [3, 2, 1]]


def test_the_best_unlisted_items_enter(reranking):
    reranking.serve(make_bias([1, 2, 3, 4, 5], [0.3, 0.7, 0.7, -1, 0.9], unlisted="zero"))
    asked = request_of([1, 9], [0.5, 0.6], k=3, exclude=[5])
    expected = [{"item_id": 1, "score": 0.8}, {"item_id": 2, "score": 0.7}]
    assert reranking.server.rerank(asked)["items"] == [*expected, {"item_id": 3, "score": 0.7}]
    asked["allowed"] = [3, 1]
    assert [item["item_id"] for item in reranking.server.rerank(asked)["items"]] == [1, 3]


def test_an_empty_list_stays_empty(reranking):
    number = reranking.serve(make_bias([1, 2], [0.3, 0.7], unlisted="zero"))
    nothing = {"version": number, "items": [], "unknown_items": 0}
    assert reranking.server.rerank({"items": []}) == nothing
    empty = reranking.server.client.post("/rerank/batch", json={"lists": []}).json()
    assert empty == {"version": number, "lists": []}


def test_slots_beyond_the_list_stay_empty(reranking):
    reranking.serve(make_bias([1, 2], [0.25, 0.5]))
    assert reranking.server.rerank(request_of([2, 7], [1, 1], k=10_000))["items"] == [
        {"item_id": 2, "score": 1.5}, {"item_id": 7, "score": 1.0},
    ]  # fmt: skip


@pytest.mark.parametrize(("scale", "score"), [("additive", sys.float_info.max), ("log", 1.7e308)])
def test_scores_too_large_for_a_number_are_refused(reranking, scale, score):
    bias = 1e300 if scale == "additive" else 3.0
    reranking.serve(make_bias([1, 2], [bias, 0.0], scale=scale))
    answer = reranking.server.client.post("/rerank", json=request_of([1, 2], [score, 1.0]))
    assert (answer.status_code, answer.json()["error"]) == (422, SCORE_TOO_LARGE)
