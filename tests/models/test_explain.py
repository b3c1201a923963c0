"""Why items stand where they do: the parts add up to the score that an item is ranked by."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from made_lists import in_window
from repeat_shop import NOW

SHY = 5  # has no events in these tests
PARTS = ("score", "item", "bought_before", "times_bought", "time_since", "bought_lately", "own")


@pytest.fixture(scope="module")
def given(repeat_shop):
    known = repeat_shop.known.filter(pc.not_equal(repeat_shop.known["user_id"], SHY))
    return {"recs": repeat_shop.tonight, "history": known, "as_of": NOW}


def rows_of(table: pa.Table, user: int) -> list[dict]:
    return table.filter(pc.equal(table["user_id"], user)).to_pylist()


def test_the_parts_add_up_to_the_score(learned, given):
    assert learned.summary.sources == ("own",)
    top, added = learned.apply(k=5, **given), 0
    for user in (0, 1, SHY, 42, 199):
        found = learned.explain(user, **given).to_pylist()
        assert [row["rank"] for row in found] == list(range(1, len(found) + 1))
        rows = rows_of(top, user)
        assert [row["item_id"] for row in found[:5]] == [row["item_id"] for row in rows]
        listed = sorted(row["engine_rank"] for row in found if row["engine_rank"])
        assert listed == [*range(1, len(rows_of(given["recs"], user)) + 1)]
        parts = ("score", "bias") if user == SHY else PARTS
        for row, applied in zip(found, rows, strict=False):
            assert tuple(row)[3:] == parts
            if user != SHY:
                assert sum(row[name] for name in PARTS) == pytest.approx(applied["score"])
        best = next(row for row in found if row["engine_rank"] == 1)
        for row in found[:5]:
            if row["engine_rank"] is None:  # an added item shows why it is ahead
                added += sum(row[name] - best[name] for name in PARTS[2:6]) > 0
    assert added > 0
    below = learned.explain(3, **given, depth=2).to_pylist()
    assert min(row["engine_rank"] for row in below if row["score"] is None) > 2
    assert {row[name] for row in below if row["score"] is None for name in PARTS} == {None}


def test_of_lists_in_several_windows_the_last_is_explained(learned, given):
    """The item stands last in the first window, and first in the second."""
    own = given["recs"].filter(pc.equal(given["recs"]["user_id"], SHY))
    turned = own.set_column(2, "score", [own["score"].to_pylist()[::-1]])
    both = {**given, "recs": pa.concat_tables([in_window(turned, "a"), in_window(own, "b")])}
    rows = [row for row in learned.apply(k=20, **both).to_pylist() if row["window"] == "b"]
    found = learned.explain(SHY, **both)["item_id"].to_pylist()
    assert found == [row["item_id"] for row in rows]
    twice = pa.concat_tables([own, own])
    assert len(learned.explain(SHY, twice, duplicates="max")) == len(own)


def test_what_is_not_there_is_refused_in_one_sentence(learned, given):
    for user, words in (
        (999, "not in column 'user_id' of recs"), ("mug", "is not an id like those of recs"),
    ):  # fmt: skip
        with pytest.raises(tt.DataError, match=words):
            learned.explain(user, **given)


def test_a_coefficient_that_was_not_learned_says_so(learned):
    """What is 0 within a small error was learned to be 0."""
    rows = learned.coefficients().to_pylist()
    assert all(row["error"] >= 0 for row in rows)
    assert [row["kind"] for row in rows].count("personal") == 6
    made = {"time_since": (0.0, 6.2), "bought_lately": (0.0, 0.1), "bought_before": (4.0, 6.2)}
    changed = tuple(
        own._replace(value=made[own.name][0], error=made[own.name][1]) if own.name in made else own
        for own in learned.learned
    )
    rows = replace(learned, learned=changed).coefficients().to_pylist()
    meanings = {row["name"]: row["meaning"] for row in rows}
    assert meanings["time_since"].endswith("last purchase: not learned")
    assert meanings["bought_lately"].endswith(": 1.00 x as likely")
    assert meanings["bought_before"].endswith(": 55 x as likely")
