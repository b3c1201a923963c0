"""Why items stand where they do: the parts add up to the score that an item is ranked by."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import trimtab as tt


@pytest.fixture(scope="module")
def shop():
    """Users 0 to 199 list ten items; each buys two favourites again and again, listed or not."""
    recs = pa.table(
        {
            "user_id": [user for user in range(200) for _ in range(10)],
            "item_id": [(user + place) % 30 for user in range(200) for place in range(10)],
            "score": [1.0 / (place + 1) for _ in range(200) for place in range(10)],
        }
    )
    events = [
        (user, (user + favourite) % 30, day)
        for user in range(160)
        for favourite in (7, 15)
        for day in range(user % 3, 40, 5 + user % 4)
    ]
    users, items, days = zip(*events, strict=True)
    start = 1_780_000_000_000_000
    times = pa.array([start + day * 86_400_000_000 for day in days], pa.int64())
    history = pa.table(
        {"user_id": users, "item_id": items, "timestamp": times.cast(pa.timestamp("us"))}
    )
    in_window = pa.compute.greater_equal(pa.array(days), 37)
    recent, before = history.filter(in_window), history.filter(pa.compute.invert(in_window))
    # Said of the biases, though most users are ranked by what they bought.
    with pytest.warns(tt.GuardWarning, match="the 10 most shown items would take"):
        reranker = tt.RerankLearner(k=5).fit(recs, recent, history=before)
    return reranker, recs, history


PARTS = ("score", "item", "bought_before", "times_bought", "time_since", "bought_lately", "own")


def test_the_parts_add_up_to_the_score(shop):
    reranker, recs, history = shop
    assert reranker.summary.sources == ("own",)
    top = reranker.apply(recs, 5, history=history).to_pylist()
    for user in (0, 1, 42, 199):
        found = reranker.explain(user, recs, history=history).to_pylist()
        assert [row["rank"] for row in found] == list(range(1, len(found) + 1))
        rows = [row for row in top if row["user_id"] == user]
        assert [row["item_id"] for row in found[:5]] == [row["item_id"] for row in rows]
        assert sorted(row["engine_rank"] for row in found if row["engine_rank"]) == [*range(1, 11)]
        for row, applied in zip(found, rows, strict=False):
            if user < 160:
                assert tuple(row)[3:] == PARTS
                assert sum(row[name] for name in PARTS) == pytest.approx(applied["score"])
            else:  # a user without events
                assert tuple(row)[3:] == ("score", "bias")
    (below,) = (
        row
        for row in reranker.explain(3, recs, history=history, depth=2).to_pylist()
        if row["item_id"] == 7  # fifth on the list
    )
    assert below["engine_rank"] == 5
    assert [below[name] for name in PARTS] == [None] * len(PARTS)


def test_an_added_item_shows_why_it_is_ahead(shop):
    reranker, recs, history = shop
    found = {row["item_id"]: row for row in reranker.explain(3, recs, history=history).to_pylist()}
    favourite, best = found[18], found[3]  # the user's second one, never listed; the engine's best
    assert (favourite["engine_rank"], best["engine_rank"]) == (None, 1)
    assert favourite["rank"] < best["rank"]
    assert sum(favourite[name] - best[name] for name in PARTS[2:6]) > 0


def test_of_lists_in_several_windows_the_last_is_explained(shop):
    """The item stands last in the first window, and first in the second."""
    reranker, recs, history = shop
    own = recs.filter(pa.compute.equal(recs["user_id"], 199))
    turned = own.set_column(2, "score", [own["score"].to_pylist()[::-1]])
    windows = [pa.array(["a"] * own.num_rows), pa.array(["b"] * own.num_rows)]
    both = pa.concat_tables(
        [t.append_column("window", w) for t, w in zip((turned, own), windows, strict=True)]
    )
    rows = reranker.apply(both, 10, history=history).to_pylist()
    found = reranker.explain(199, both, history=history)
    assert found["item_id"].to_pylist() == [r["item_id"] for r in rows if r["window"] == "b"]
    assert found["engine_rank"][found["item_id"].to_pylist().index(19)].as_py() == 1
    twice = pa.concat_tables([own, own])
    assert len(reranker.explain(199, twice, duplicates="max")) == 10


def test_what_is_not_there_is_refused_in_one_sentence(shop):
    reranker, recs, history = shop
    for user, words in (
        (999, "not in column 'user_id' of recs"), ("mug", "is not an id like those of recs"),
    ):  # fmt: skip
        with pytest.raises(tt.DataError, match=words):
            reranker.explain(user, recs, history=history)


def test_a_coefficient_that_was_not_learned_says_so(shop):
    """What is 0 within a small error was learned to be 0."""
    reranker = shop[0]
    rows = reranker.coefficients().to_pylist()
    assert all(row["error"] >= 0 for row in rows)
    assert [row["kind"] for row in rows].count("personal") == 6
    made = {"time_since": (0.0, 6.2), "bought_lately": (0.0, 0.1), "bought_before": (4.0, 6.2)}
    learned = tuple(
        own._replace(value=made[own.name][0], error=made[own.name][1]) if own.name in made else own
        for own in reranker.learned
    )
    rows = replace(reranker, learned=learned).coefficients().to_pylist()
    meanings = {row["name"]: row["meaning"] for row in rows}
    assert meanings["time_since"].endswith("last purchase: not learned")
    assert meanings["bought_lately"].endswith(": 1.00 x as likely")
    assert meanings["bought_before"].endswith(": 55 x as likely")
