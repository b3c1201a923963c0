"""With recent items the service ranks as `Reranker.apply` does, to the bit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab as tt
from served_rerankers import LEARNED_UNTIL, make_reranker, reranked
from services import make_bias, request_of
from trimtab.checks import SCALES
from trimtab.serve.ranking import Lookup, Ranker
from trimtab.serve.wire import RerankRequest

pytestmark = pytest.mark.xdist_group("serve-reranker")
WORDS = ["", "A", "a", "aa", "é", "中", "\U0001f600", "\uffff", "z"]
NUMBERS = [-(2**63), -7, 0, 1, 2, 3, 5, 8, 2**63 - 1]


@st.composite
def cases(draw) -> tuple[tt.Reranker, dict[str, Any]]:
    """Rerankers and requests with few different numbers, so there are many ties."""
    known = draw(st.sampled_from([WORDS, NUMBERS]))
    of_table = sorted(draw(st.sets(st.sampled_from(known), min_size=1)))
    n, numbers = len(of_table), st.sampled_from([-1.5, -0.25, 0.0, 0.1, 0.25, 0.5, 1e-300, 3.0])
    bias = make_bias(
        of_table, draw(st.lists(numbers, min_size=n, max_size=n)),
        draw(st.lists(st.booleans(), min_size=n, max_size=n)), draw(st.sampled_from(SCALES)),
        depth=draw(st.none() | st.integers(1, 9)),
    )  # fmt: skip
    sources = draw(st.sets(st.sampled_from(["trending", "own"])))
    reranker = make_reranker(
        bias, draw(st.lists(numbers, min_size=n, max_size=n)),
        draw(st.permutations(range(n))), draw(st.sampled_from([(), (1.0, 0.5, -0.25, 0.25)])),
        {name: draw(numbers) for name in ("trending", "own") if name in sources},
        widen=draw(st.sampled_from(["any", "listed"])), may_repeat=draw(st.booleans()),
        has_zone=draw(st.booleans()),
    )  # fmt: skip
    return reranker, draw(requests(known, numbers, reranker.has_zone))


@st.composite
def requests(draw, known: list[Any], numbers: st.SearchStrategy, has_zone: bool) -> dict[str, Any]:
    ids, some = (
        draw(st.lists(st.sampled_from(known), unique=True)),
        st.lists(st.sampled_from(known)),
    )
    asked = request_of(ids, [draw(numbers) for _ in ids], k=draw(st.integers(1, 14)))
    asked |= {"exclude": draw(some)} if draw(st.booleans()) else {}
    asked |= {"allowed": draw(some) or known[:2]} if draw(st.booleans()) else {}
    asked |= {"depth": draw(st.just("all") | st.integers(1, 9))} if draw(st.booleans()) else {}
    as_of = LEARNED_UNTIL if has_zone else LEARNED_UNTIL.replace(tzinfo=None)
    asked["as_of"] = as_of.isoformat()
    asked["recent"] = []
    for item in draw(some):
        hours = draw(st.sampled_from([-1, 0, 1, 23, 24, 25, 72]))
        moment = as_of - timedelta(hours=hours)
        when = (
            {"timestamp": moment.isoformat()} if draw(st.booleans()) else {"days_ago": abs(hours)}
        )
        asked["recent"].append({"item_id": item, **when})
    return asked


@given(cases())
@settings(max_examples=250, deadline=None)
def test_any_list_is_ranked_like_apply(case):
    reranker, asked = case
    ranker = Ranker(reranker.bias, Lookup(reranker.bias.item_ids), reranker)
    request = msgspec.convert(asked, RerankRequest)
    items, _ = ranker.rank(request, ranker.check(request))
    assert msgspec.to_builtins(items) == reranked(reranker, asked)
