"""With recent items the service ranks as `Reranker.apply` does, to the bit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab as tt
from dated_shop import DatedShop
from served_rerankers import LEARNED_UNTIL, events_of, make_reranker, order_of, reranked
from services import make_bias, request_of
from trimtab.checks import SCALES
from trimtab.serve.ranking import Lookup, Ranker
from trimtab.serve.wire import RerankRequest

pytestmark = pytest.mark.xdist_group("serve-reranker")
N_REQUESTS = 340  # for each of the three scales
NEVER_SOLD = 10**6


@pytest.fixture(scope="module")
def shop() -> DatedShop:
    return DatedShop(n_users=800)


class Requests:
    """Random requests: tonight's lists of a shop, and what the users bought before."""

    def __init__(self, shop: DatedShop, kind: type, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.id_of = (lambda item: f"{item:07}") if kind is str else int
        self.lists = by_user(shop.tonight, "item_id", "score")
        self.events = by_user(shop.log, "item_id", "timestamp")
        self.users = sorted(self.lists)

    def make(self) -> dict[str, Any]:
        rng, user = self.rng, self.users[self.rng.integers(len(self.users))]
        listed = dict(self.lists[user][: rng.integers(1, 31)])
        listed |= {int(item): 0.01 for item in NEVER_SOLD + rng.integers(9, size=rng.integers(3))}
        scores = np.array([*listed.values()]) * 10.0 ** rng.integers(-6, 6)
        scores = np.round(scores, 2) if rng.random() < 0.2 else scores  # ties
        ids = [*map(self.id_of, listed)]
        asked = request_of(ids, scores.tolist(), k=int(rng.integers(1, 50)))
        everything = [*ids, *map(self.id_of, range(300))]
        for name, least in (("exclude", 0), ("allowed", 1)):
            if rng.random() < 0.25:
                asked[name] = rng.choice(everything, rng.integers(least, 100)).tolist()
        if rng.random() < 0.3:
            asked["depth"] = int(rng.integers(1, 40))
        if rng.random() < 0.75:
            asked |= self.make_recent(user, [*listed])
        return asked

    def make_recent(self, user: int, listed: list[int]) -> dict[str, Any]:
        rng = self.rng
        as_of = LEARNED_UNTIL + timedelta(seconds=int(rng.integers(5 * 86_400)))
        given = rng.random() < 0.7
        instant = as_of if given else datetime.now(UTC)
        bought = [*self.events[user]]
        rng.shuffle(bought)
        bought = bought[: rng.integers(0, 40)]
        bought += [(item, instant - timedelta(hours=60)) for item in rng.choice(listed, 2).tolist()]
        bought += [(NEVER_SOLD + 50, instant - timedelta(hours=36))] * int(rng.integers(3))
        bought += [(listed[0], instant + timedelta(days=2))] * int(rng.integers(2))
        if not given:  # the service reads its clock later: a time of day that is not near a limit
            bought = [(item, at_noon(moment, instant)) for item, moment in bought]
        recent = [self.make_entry(item, moment, instant) for item, moment in bought]
        return {"recent": recent, "as_of": as_of.isoformat()} if given else {"recent": recent}

    def make_entry(self, item: int, moment: datetime, instant: datetime) -> dict[str, Any]:
        entry: dict[str, Any] = {"item_id": self.id_of(item)}
        if moment < instant and self.rng.random() < 0.5:
            days = (instant - moment) // timedelta(days=1)
            return {**entry, "days_ago": days + (0.5 if self.rng.random() < 0.2 else 0)}
        return {**entry, "timestamp": moment.isoformat()}


def at_noon(moment: datetime, instant: datetime) -> datetime:
    """Return a time half a day from the limits of the days before an instant."""
    return instant - timedelta((instant - moment) // timedelta(days=1), hours=12)


def by_user(table: pa.Table, *columns: str) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for user, *values in zip(
        *(table[name].to_pylist() for name in ("user_id", *columns)), strict=True
    ):
        found.setdefault(user, []).append(tuple(values))
    return found


def with_text_ids(reranker: tt.Reranker) -> tt.Reranker:
    ids = pa.array([f"{item:07}" for item in reranker.bias.item_ids], pa.large_string())
    return replace(reranker, bias=replace(reranker.bias, item_ids=ids))


@pytest.mark.parametrize(("scale", "kind"), [("additive", int), ("log", str), ("list", int)])
def test_requests_over_http_are_ranked_like_apply(reranking, shop, scale, kind):
    learner = tt.RerankLearner(scale=scale)
    reranker = learner.fit(shop.recs, shop.recent, history=shop.history)
    assert reranker.learned
    assert "own" in reranker.summary.sources
    reranker = with_text_ids(reranker) if kind is str else reranker
    number = reranking.serve(reranker)
    requests = Requests(shop, kind, seed=SCALES.index(scale))
    asked = [requests.make() for _ in range(N_REQUESTS)]
    parts = [asked[first : first + 85] for first in range(0, N_REQUESTS, 85)]
    answers = [answer for part in parts for answer in reranking.batch(part)]
    expected = [reranked(reranker, one) for one in asked]
    assert [answer["items"] for answer in answers] == expected
    assert [answer.get("recent") for answer in answers] == [use_of(reranker, one) for one in asked]
    pairs = list(zip(asked, answers, strict=True))
    for one, answer in pairs[:50]:
        assert reranking.server.rerank(one) == {"version": number, **answer}
    assert sum(not set(order_of(answer)) <= set(order_of(one)) for one, answer in pairs) > 30
    uses = [answer["recent"] for answer in answers if "recent" in answer]
    assert all(sum(use[name] for use in uses) > 20 for name in ("used", "unknown_items", "later"))


def use_of(reranker: tt.Reranker, asked: dict[str, Any]) -> dict[str, int] | None:
    """Return what the service should say of the recent items of a request."""
    if "recent" not in asked:
        return None
    ids = order_of(asked)
    recs = pa.table({"user_id": [1] * len(ids), "item_id": ids, "score": [1.0] * len(ids)})
    options = events_of(reranker, asked, recs["item_id"].type)
    later, _, unknown = reranker.rank(recs, **options).left_out
    used = len(asked["recent"]) - later - unknown
    return {"used": used, "unknown_items": unknown, "later": later}


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
