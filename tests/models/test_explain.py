"""Why an item stands where it does: the parts add up to the score that it is ranked by."""

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


def test_the_parts_add_up_to_the_score(shop):
    reranker, recs, history = shop
    top = reranker.apply(recs, 5, history=history)
    rows = [row for row in top.to_pylist() if row["user_id"] in (0, 1, 42, 199)]
    for row in rows:
        found = reranker.explain(row["user_id"], row["item_id"], recs, history=history)
        assert found.rank == row["rank"]
        if row["user_id"] < 160:
            assert found.score == pytest.approx(row["score"])
        else:  # a user without events
            assert {part.name for part in found.parts} <= {"score", "bias"}
    assert len(rows) == 20
    below = reranker.explain(3, 7, recs, history=history, depth=2)  # fifth on the list
    assert (below.engine_rank, below.parts) == (5, ())
    assert 18 in [other.item for other in below.passed_by]


def test_an_item_that_fell_names_what_passed_it_and_why(shop):
    reranker, recs, history = shop
    assert reranker.summary.sources == ("own",)
    favourite = reranker.explain(3, 18, recs, history=history)  # the second one, never listed
    assert favourite.engine_rank is None
    assert "added because the user bought it" in str(favourite)
    found = reranker.explain(3, 3, recs, history=history)
    top = reranker.apply(recs, 5, history=history).to_pylist()
    ahead = [row["item_id"] for row in top if row["user_id"] == 3][: found.rank - 1]
    assert found.rank > found.engine_rank == 1
    assert [other.item for other in found.passed_by] == ahead
    added = next(other for other in found.passed_by if other.item == 18)
    assert added.engine_rank is None
    assert added.part.name in ("bought_before", "times_bought", "days_since", "bought_lately")
    assert added.part.value > 0
    assert f"passed by item_id 18 (not listed, now {added.rank}): +" in str(found)
    first = reranker.explain(3, ahead[0], recs, history=history)
    assert first.passed_by == ()


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
    found = reranker.explain(199, 19, both, history=history)
    assert found.engine_rank == 1
    assert [found.rank] == [
        row["rank"] for row in rows if (row["window"], row["item_id"]) == ("b", 19)
    ]
    twice = pa.concat_tables([own, own])
    assert reranker.explain(199, 19, twice, duplicates="max").engine_rank == 1


def test_what_is_not_there_is_refused_in_one_sentence(shop):
    reranker, recs, history = shop
    for user, item, words in (
        (999, 1, "not in column 'user_id' of recs"),
        (3, 25, "neither on the list of user 3 nor added to it"),
        (3, "mug", "is not an id like those of recs"),
    ):
        with pytest.raises(tt.DataError, match=words):
            reranker.explain(user, item, recs, history=history)


def test_a_coefficient_that_was_not_learned_says_so(shop):
    """What is 0 within a small error was learned to be 0."""
    reranker = shop[0]
    rows = reranker.coefficients().to_pylist()
    assert all(row["error"] >= 0 for row in rows)
    assert [row["kind"] for row in rows].count("personal") == 4
    made = {"days_since": (0.0, 6.2), "bought_lately": (0.0, 0.1), "bought_before": (4.0, 6.2)}
    learned = tuple(
        own._replace(value=made[own.name][0], error=made[own.name][1]) if own.name in made else own
        for own in reranker.learned
    )
    rows = replace(reranker, learned=learned).coefficients().to_pylist()
    meanings = {row["name"]: row["meaning"] for row in rows}
    assert meanings["days_since"].endswith("last purchase: not learned")
    assert meanings["bought_lately"].endswith(": 1.00 x as likely")
    assert meanings["bought_before"].endswith(": 55 x as likely")
