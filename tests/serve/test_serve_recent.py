"""Recent items in requests: what they do, what is refused, and versions with and without."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from served_rerankers import make_reranker, order_of, publish_reranker, reranked
from services import applied, make_bias, request_of, running
from shops import AS_OF, TONIGHT
from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.serve import Settings
from trimtab.serve.app import Service
from trimtab.serve.ranking import SCORE_TOO_LARGE
from trimtab.serve.watcher import StoreWatcher
from trimtab.serve.wire import RerankRequest
from trimtab.store import Store

pytestmark = pytest.mark.xdist_group("serve-reranker")
PLAIN = make_bias([7, 8, 9], [0.0, 0.25, 0.0])  # k=1, so 1 in a score is 1 in the choice model
ASKED = request_of([7, 8], [1.0, 0.75])


def test_items_of_the_user_move_up_and_are_added(reranking):
    reranking.serve(make_reranker(PLAIN, terms=(0.5, 0, 0, 0), sources={"own": -0.125}))
    recent = [{"item_id": 8, "days_ago": 3}, {"item_id": 9, "timestamp": "2026-03-01T08:00:00Z"}]
    answer = reranking.server.rerank({**ASKED, "recent": recent})
    scores = [(8, 0.25), (9, 0.125), (7, 0.0)]
    assert [(item["item_id"], item["score"]) for item in answer["items"]] == scores
    assert answer["recent"] == {"used": 2, "unknown_items": 0, "later": 0}
    hidden = reranking.server.rerank({**ASKED, "recent": recent, "exclude": [9]})
    assert order_of(hidden) == [8, 7]
    without = reranking.server.rerank(ASKED)
    assert without["items"] == applied(PLAIN, ASKED)
    assert "recent" not in without


def test_a_listed_item_below_the_depth_is_added_if_the_user_bought_it(reranking):
    reranker = make_reranker(PLAIN, terms=(0.5, 0, 0, 0), sources={"own": -0.125})
    reranking.serve(reranker)
    for item in (8, 50):  # learned, and not learned
        asked = request_of([7, item], [1.0, 0.75], depth=1)
        asked["recent"] = [{"item_id": item, "days_ago": 2}]
        answer = reranking.server.rerank(asked)
        assert answer["items"] == reranked(reranker, asked)
        assert order_of(answer) == [item, 7]


def test_an_entry_counts_for_as_many_days_as_it_says(reranking):
    reranking.serve(make_reranker(PLAIN, terms=(0, 1.0, 0, 0)))
    for recent, times in (
        ([{"days_ago": 3, "count": 4}], 4),
        ([{"days_ago": 3, "count": 4}, {"days_ago": 5, "count": 2}], 6),
        ([{"days_ago": 3, "count": 4}, {"days_ago": 3.5, "count": 2}], 4),  # the same day
        ([{"days_ago": 3}, {"days_ago": 1e300}, {"days_ago": 0}], 3),
    ):
        entries = [{"item_id": 8, **entry} for entry in recent]
        answer = reranking.server.rerank({**ASKED, "recent": entries})
        assert score_of(answer, 8) == pytest.approx(-0.25 + np.log(times), rel=1e-12)
        assert score_of(answer, 7) == 0


def test_the_days_since_count_from_as_of(reranking):
    reranking.serve(make_reranker(PLAIN, terms=(0, 0, 1.0, 0)))
    entry = {"item_id": 8, "timestamp": "2026-03-10T00:00:00+02:00"}  # 2 hours before the 10th
    for as_of, days in (("2026-03-10T00:00:00Z", 1), ("2026-03-12T22:00:01Z", 4)):
        answer = reranking.server.rerank({**ASKED, "recent": [entry], "as_of": as_of})
        assert score_of(answer, 8) == pytest.approx(-0.25 + np.log(days), rel=1e-12)
    moment = datetime.now(UTC) - timedelta(hours=60)  # as_of is now
    entry = {"item_id": 8, "timestamp": moment.isoformat()}
    answer = reranking.server.rerank({**ASKED, "recent": [entry]})
    assert score_of(answer, 8) == pytest.approx(-0.25 + np.log(3), rel=1e-12)


def score_of(answer: dict[str, Any], item: int) -> float:
    return next(entry["score"] for entry in answer["items"] if entry["item_id"] == item)


USE = {"used": 0, "unknown_items": 0, "later": 0}


def test_versions_with_and_without_a_reranker_follow_each_other(reranking):
    reranker = make_reranker(PLAIN, terms=(0.5, 0, 0, 0), sources={"own": 0.0})
    server, asked = reranking.server, {**ASKED, "recent": [{"item_id": 9, "days_ago": 1}]}
    first = reranking.serve(PLAIN)
    plain = server.rerank(asked)
    known = {"unknown_items": 0}
    assert plain == {"version": first, "items": applied(PLAIN, asked), **known, "recent": USE}
    assert server.client.get("/version").json()["reranker"] is None
    second = reranking.serve(reranker)
    items = reranked(reranker, asked)
    assert items != plain["items"]
    used = {**USE, "used": 1}
    assert server.rerank(asked) == {"version": second, "items": items, **known, "recent": used}
    assert server.rerank(ASKED) == {"version": second, "items": plain["items"], **known}
    other = {"items": [*asked["items"], {"item_id": 5, "score": 0.1}], "recent": asked["recent"]}
    assert server.rerank(other)["unknown_items"] == 1
    assert server.client.get("/version").json()["reranker"] == {
        "kept": 0.9, "sources": ["own"], "learned_until": "2026-03-10T00:00:00+00:00",
        "has_zone": True,
    }  # fmt: skip
    reranking.store.rollback()
    assert server.reload()["version"] == first
    assert server.rerank(asked) == plain


def test_the_lists_of_a_refresh_are_those_of_the_service(shop):
    shop.job(method="reranker").run(AS_OF)
    version = Store(shop.store).current()
    assert version.reranker().summary.sources
    lists, events = pq.read_table(shop.lists / f"{TONIGHT}.parquet"), pq.read_table(shop.events)
    instant = datetime(AS_OF.year, AS_OF.month, AS_OF.day, tzinfo=UTC)
    events = events.filter(pc.less(events["timestamp"], instant))
    asked, expected = [], []
    for user in pc.unique(version.lists()["user_id"]).to_pylist()[:40]:
        own, bought, top = (
            table.filter(pc.equal(table["user_id"], user)).drop_columns("user_id")
            for table in (lists, events, version.lists())
        )
        times = [moment.isoformat() for moment in bought["timestamp"].to_pylist()]
        pairs = zip(bought["item_id"].to_pylist(), times, strict=True)
        recent = [{"item_id": item, "timestamp": text} for item, text in pairs]
        asked.append({"items": own.to_pylist(), "recent": recent, "as_of": instant.isoformat()})
        expected.append(top.select(["item_id", "score"]).to_pylist())
    with running(shop.store) as server:
        answer = server.client.post("/rerank/batch", json={"lists": asked}).json()
    assert [one["items"] for one in answer["lists"]] == expected


def test_lists_with_recent_items_are_counted(reranking):
    reranking.serve(make_reranker(PLAIN))
    names = ("lists", "recent_unknown_items", "recent_later_items")

    def count() -> np.ndarray:
        return np.array([reranking.server.count(f"trimtab_{name}_total") for name in names])

    before = count()
    later = {"item_id": 7, "timestamp": "2100-01-01T00:00:00Z"}
    unknown, known = {"item_id": 70, "days_ago": 0}, {"item_id": 7, "days_ago": 0}
    for recent in ([known, unknown, unknown, later], [unknown], [later], [], [known]):
        reranking.server.rerank({**ASKED, "recent": recent})
    reranking.server.rerank(ASKED)
    assert (count() - before).tolist() == [6, 3, 2]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"{}"), Path.unlink])
def test_a_version_with_a_damaged_folder_is_refused(store, damage: Callable[..., Any]):
    before = publish_reranker(store, make_reranker(PLAIN))
    watcher = StoreWatcher(store, Settings())
    watcher.load()
    number = publish_reranker(store, make_reranker(PLAIN, item_part=[1.0, 2.0, 3.0]))
    for name in ("reranker/*.parquet", "reranker/header.json", "bias/*.parquet"):
        (path,) = store.current().folder.glob(name)
        whole = path.read_bytes()
        damage(path)
        assert not watcher.check()
        assert (watcher.served().number, watcher.refused.version) == (before, number)
        assert str(path) in watcher.refused.reason
        path.write_bytes(whole)
    assert watcher.check()
    assert (watcher.served().number, watcher.refused) == (number, None)


EARLY = "2026-03-09T23:59:59Z"
BAD_ENTRIES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["days_ago and timestamp", "missing", "one of them"]),
    ({"days_ago": 1, "timestamp": EARLY}, ["days_ago and timestamp", "both given", "one of them"]),
    ({"days_ago": -0.5}, ["`$.recent[1].days_ago`", ">= 0"]),
    ({"days_ago": 1, "count": 0}, ["`$.recent[1].count`", ">= 1"]),
    ({"days_ago": 1, "count": -3}, ["`$.recent[1].count`", ">= 1"]),
    ({"timestamp": "yesterday"}, ["timestamp='yesterday'", "2026-03-01T10:00:00Z"]),
    ({"timestamp": "2026-02-30T00:00:00Z"}, ["2026-02-30", "must be a time"]),
    ({"timestamp": "9" * 5000}, ["timestamp='9999", "must be a time"]),
    ({"timestamp": "2026-03-01T10:00:00"}, ["no time zone", "add an offset"]),
]
BAD_INSTANTS: list[tuple[str, list[str]]] = [
    ("now", ["as_of='now'", "must be a "]),
    ("2" * 5000, ["as_of='2222", "must be a time"]),
    (EARLY, ["as_of", "2026-03-09", "2026-03-10 00:00:00", "move as_of"]),
    ("2026-03-12T00:00:00", ["as_of", "no time zone", "the same in both"]),
]


def refusal(reranking, asked: dict[str, Any]) -> str:
    """Return the sentence of a refused request, which is the same in a batch."""
    answer = reranking.server.client.post("/rerank", json=asked)
    assert answer.status_code == 422
    batch = {"lists": [{"items": []}, asked]}
    in_batch = reranking.server.client.post("/rerank/batch", json=batch)
    sentence = answer.json()["error"]
    place = sentence.replace("`$.", "`$.lists[1].")  # in what the decoder says
    expected = f"lists[1]: {sentence}" if place == sentence else place
    assert in_batch.json()["error"] == expected[:300] + "..." * (len(expected) > 300)
    assert len(sentence) < 290
    return sentence


def test_bad_values_are_refused_with_a_sentence(reranking):
    """By versions without a reranker too; these do not know which times are too early."""
    good = {"item_id": 7, "days_ago": 1}
    for model, n_entries, n_instants in ((make_reranker(PLAIN), 9, 4), (PLAIN, 8, 2)):
        reranking.serve(model)
        for entry, words in BAD_ENTRIES[:n_entries]:
            recent = [good, {"item_id": 8, **entry}]
            sentence = refusal(reranking, {**ASKED, "recent": recent})
            assert [word for word in ("recent[1]", *words) if word not in sentence] == []
        for as_of, words in BAD_INSTANTS[:n_instants]:
            sentence = refusal(reranking, {**ASKED, "as_of": as_of, "recent": [good]})
            assert [word for word in words if word not in sentence] == []
    for time in ("2026-03-01T10:00:00", "2026-03-01T10:00:00Z", "2026-03-01"):
        entry = {"item_id": 8, "timestamp": time}
        assert reranking.server.rerank({**ASKED, "as_of": time, "recent": [entry]})["items"]


def test_times_without_a_zone_are_for_versions_without_one(reranking):
    reranker = make_reranker(PLAIN, has_zone=False)
    reranking.serve(reranker)
    entry = {"item_id": 8, "timestamp": "2026-03-01T10:00:00"}
    asked = {**ASKED, "as_of": "2026-03-11T00:00:00", "recent": [entry]}
    assert reranking.server.rerank(asked)["items"] == reranked(reranker, asked)
    in_days = {**ASKED, "recent": [{"item_id": 8, "days_ago": 9}]}
    assert reranking.server.rerank(in_days)["items"] == reranked(reranker, in_days)
    for more, words in (
        ({"as_of": "2026-03-11T00:00:00Z"}, ["as_of", "has a time zone"]),
        ({"recent": [{**entry, "timestamp": "2026-03-01T10:00:00Z"}]}, ["leave off the offset"]),
    ):
        sentence = refusal(reranking, {**asked, **more})
        assert [word for word in words if word not in sentence] == []
    assert "as_of is missing" in refusal(reranking, {**ASKED, "recent": [entry]})


def test_control_is_ranked_without_recent_items(tmp_path):
    store = Store(tmp_path / "store")
    reranker = make_reranker(PLAIN, terms=(5.0, 0, 0, 0))
    publish_reranker(store, reranker)
    service = Service(store, Settings(salt="summer"))
    service.watcher.load()
    buckets = {Experiment("summer").bucket(user): user for user in range(50)}
    asked = {**ASKED, "recent": [{"item_id": 8, "days_ago": 1}]}
    for bucket, items, used in (
        (CONTROL, ASKED["items"], 0),
        (TREATMENT, reranked(reranker, asked), 1),
    ):
        request = msgspec.convert({**asked, "user_id": buckets[bucket]}, RerankRequest)
        answer = service.rank(service.watcher.served(), request)
        expected = {"items": items, "bucket": bucket, "recent": {**USE, "used": used}}
        assert msgspec.to_builtins(answer) == {**expected, "unknown_items": 0}


def test_scores_too_large_for_a_number_are_refused(reranking):
    reranking.serve(make_reranker(PLAIN))
    asked = request_of([7, 8], [1.7e308, -1.7e308], recent=[{"item_id": 8, "days_ago": 1}])
    answer = reranking.server.client.post("/rerank", json=asked)
    assert (answer.status_code, answer.json()["error"]) == (422, SCORE_TOO_LARGE)
