"""How a reranker ranks: by its formula, the same however the tables come, and within its limits."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import shuffled
from made_biases import recs_of
from made_rerankers import COEFFICIENTS, UNTIL, events_of, make_reranker
from repeat_shop import NOW
from trimtab import threads
from trimtab.kernels import reference
from trimtab.models.widening import TERMS

ZEROS = dict.fromkeys(range(10), 0.0)


def items_of(top: pa.Table) -> dict[object, list[object]]:
    """The items of each user, best first."""
    found: dict[object, list[object]] = {}
    for row in top.to_pylist():
        found.setdefault(row["user_id"], []).append(row["item_id"])
    return found


# The formula --------------------------------------------------------------------------------


def test_a_list_by_hand():
    """Item 3 bought two and ten days ago; 5 trends; both are added with the score of the last."""
    reranker = make_reranker(ZEROS, item_part={1: 0.5, 5: 2.0}, trending=[5, 0])
    top = reranker.apply(
        recs_of([(0, 1.0), (1, 0.5)]), k=4, history=events_of((1, 3, 2), (1, 3, 10)), as_of=UNTIL
    )
    last = np.log(0.5)
    lately = np.log(1 + np.exp(-2 / 30) + np.exp(-10 / 30))
    own = 1.0 + 0.5 * np.log(2) - 0.25 * np.log(2) + 0.125 * lately - 0.375
    expected = {5: last + 2.0 + 0.25, 3: last + own, 0: 0.0, 1: last + 0.5}
    ranked = sorted(expected, key=lambda item: -expected[item])
    assert top["item_id"].to_pylist() == ranked
    assert top["score"].to_pylist() == pytest.approx([expected[item] for item in ranked])
    assert top["rank"].to_pylist() == [1, 2, 3, 4]


def test_lists_follow_the_formula():
    """Random lists and events, against the plain version of the whole formula."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        part, if_bought = ({item: float(random.normal()) for item in ZEROS} for _ in range(2))
        trending = random.permutation(10)[: random.integers(0, 4)].tolist()
        reranker = make_reranker(ZEROS, item_part=part, bought_part=if_bought, trending=trending)
        lists = [
            [(int(item), float(random.random()) + 0.1) for item in random.permutation(10)[:n]]
            for n in random.integers(1, 6, 4)
        ]
        events = [
            (u, int(random.integers(0, 10)), float(random.integers(1, 60))) for u in (1, 3, 4) * 4
        ]
        top = reranker.apply(recs_of(*lists), k=5, history=events_of(*events), as_of=UNTIL)
        for user in (1, 3, 4):
            bought = reference.sum_purchases([(i, int(d) - 1) for u, i, d in events if u == user])
            scores = expected_scores(dict(lists[user - 1]), bought, part, if_bought, trending)
            ranked = sorted(scores, key=lambda item: (-scores[item], item))[:5]
            own = top.filter(pc.equal(top["user_id"], user))
            assert own["item_id"].to_pylist() == ranked
            assert own["score"].to_pylist() == pytest.approx([scores[item] for item in ranked])


def expected_scores(listed, bought, part, if_bought, trending) -> dict[int, float]:
    best = max(listed.values())
    logs = {item: np.log(score / best) for item, score in listed.items()}
    found = {}
    for entry in reference.wider_list(logs, bought, ZEROS, trending, 30):
        score = COEFFICIENTS["score"] * entry.score + part[entry.item]
        score += sum(COEFFICIENTS[n] * x for n, x in zip(TERMS, entry.terms, strict=True))
        score += entry.terms[0] * if_bought[entry.item]
        if entry.sources:
            score += COEFFICIENTS["own" if "own" in entry.sources else "trending"]
        found[entry.item] = score
    return found


# Users without events -----------------------------------------------------------------------


def test_users_without_events_are_ranked_by_the_biases(repeat_shop, learned, bytes_of):
    shy = pc.less(repeat_shop.known["user_id"], 150)
    known = repeat_shop.known.filter(pc.invert(shy))
    top = learned.apply(repeat_shop.tonight, history=known, as_of=NOW)
    by_bias = learned.bias.apply(repeat_shop.tonight)
    ours, theirs = (t.filter(pc.less(t["user_id"], 150)) for t in (top, by_bias))
    assert ours.num_rows > 1_000
    assert bytes_of(ours) == bytes_of(theirs)
    others, by_bias = (t.filter(pc.greater_equal(t["user_id"], 150)) for t in (top, by_bias))
    assert others["item_id"].to_pylist() != by_bias["item_id"].to_pylist()


def test_no_history_is_the_bias(bytes_of):
    for scale, depth in itertools.product(("additive", "log", "list"), (None, 3)):
        random = np.random.default_rng(1)
        biases = {item: float(random.normal()) for item in range(10)}
        reranker = make_reranker(biases, trending=[1, 2], scale=scale, depth=4, excluded=(6,))
        lists = [(random.permutation(10)[:5].tolist(), random.random(5) + 0.5) for _ in range(30)]
        recs = recs_of(*(zip(*own, strict=True) for own in lists))
        settings = {
            "k": 5, "depth": "all" if depth is None else depth,
            "exclude": pa.table({"user_id": [1, 2], "item_id": [3, 4]}),
            "allowed": pa.table({"item_id": range(9)}),
        }  # fmt: skip
        expected = bytes_of(reranker.bias.apply(recs, **settings))
        for history in (None, events_of(), events_of((99, 1, 3)), events_of((1, 99, 3))):
            assert bytes_of(reranker.apply(recs, history=history, **settings)) == expected
        # So it is without coefficients, for users with events too.
        plain = make_reranker(
            biases, trending=[1, 2], scale=scale, depth=4, excluded=(6,), learned=False
        )
        top = plain.apply(recs, history=events_of((1, 2, 3)), **settings)
        assert bytes_of(top) == expected
        assert plain.coefficients().num_rows == 0


# The same however the tables come -----------------------------------------------------------


def test_one_user_at_a_time_is_the_same_as_all(repeat_shop, learned, bytes_of):
    settings = {"history": repeat_shop.known, "as_of": NOW}
    whole = learned.apply(repeat_shop.tonight, **settings)
    users = np.unique(repeat_shop.tonight["user_id"].to_numpy())[:25]
    own_events = {
        u: repeat_shop.known.filter(pc.equal(repeat_shop.known["user_id"], u)) for u in users
    }
    for user in users:
        own = repeat_shop.tonight.filter(pc.equal(repeat_shop.tonight["user_id"], user))
        expected = bytes_of(whole.filter(pc.equal(whole["user_id"], user)))
        assert bytes_of(learned.apply(own, **settings)) == expected
        alone = learned.apply(own, history=own_events[user], as_of=NOW)
        assert bytes_of(alone) == expected


def test_order_of_rows_threads_and_blocks_change_nothing(
    repeat_shop, learned, bytes_of, monkeypatch
):
    expected = bytes_of(learned.apply(repeat_shop.tonight, history=repeat_shop.known, as_of=NOW))
    again = learned.apply(
        shuffled(repeat_shop.tonight), history=shuffled(repeat_shop.known), as_of=NOW
    )
    assert bytes_of(again) == expected
    monkeypatch.setattr(threads, "LEAST_SPLIT", 1)
    monkeypatch.setattr("trimtab.models.reranker._BLOCK", 7)
    for n_threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", n_threads)
        again = learned.apply(repeat_shop.tonight, history=repeat_shop.known, as_of=NOW)
        assert bytes_of(again) == expected


def test_windows_are_ranked_separately():
    reranker = make_reranker(ZEROS, trending=[5])
    recs = recs_of([(0, 1.0), (1, 0.5)], [(2, 1.0), (3, 0.5)])
    both = pa.concat_tables(
        [recs.append_column("window", pa.array([name] * 4)) for name in ("a", "b")]
    )
    settings = {"k": 3, "history": events_of((1, 4, 3)), "as_of": UNTIL}
    top, alone = reranker.apply(both, **settings), reranker.apply(recs, **settings)
    for window in ("a", "b"):
        own = top.filter(pc.equal(top["window"], window)).drop_columns("window")
        assert own.sort_by([("user_id", "ascending"), ("rank", "ascending")]).equals(alone)


def test_any_frame_in_and_the_same_kind_out(repeat_shop, learned):
    narrow = repeat_shop.tonight["user_id"].cast("int32")
    tables = {
        "recs": repeat_shop.tonight.set_column(0, "user_id", narrow), "history": repeat_shop.known,
        "exclude": repeat_shop.tonight.slice(0, 3).select(["user_id", "item_id"]),
        "allowed": pa.table({"item_id": range(100)}),
    }  # fmt: skip
    expected = learned.apply(**tables, as_of=NOW)
    for frame, convert, back in (
        (pd.DataFrame, pa.Table.to_pandas, pl.DataFrame),
        (pl.LazyFrame, lambda table: pl.from_arrow(table).lazy(), pl.LazyFrame.collect),
        (pa.Table, lambda table: table, pl.from_arrow),
    ):
        given = {name: convert(table) for name, table in tables.items()}
        top = learned.apply(**given, as_of=NOW)
        assert isinstance(top, frame)
        assert back(top).equals(pl.from_arrow(expected))
        for name, table in tables.items():  # unchanged
            assert back(given[name]).equals(pl.from_arrow(table))


def test_text_ids_stay_text():
    reranker = make_reranker(dict.fromkeys("abcd", 0.0), trending=["d"])
    recs = pa.table({"user_id": ["u1", "u1"], "item_id": ["a", "b"], "score": [1.0, 0.5]})
    history = events_of(("u1", "c", 3))
    top = reranker.apply(recs, k=4, history=history, as_of=UNTIL)
    assert sorted(top["item_id"].to_pylist()) == ["a", "b", "c", "d"]
    assert top["user_id"].type == pa.string()


# What may be added --------------------------------------------------------------------------


RECS = recs_of([(0, 1.0), (1, 0.9)], [(0, 1.0), (2, 0.9)], [(8, 1.0)])
whole_lists = pytest.mark.filterwarnings("ignore:k=10, but the longest list")
EVENTS = events_of((1, 3, 1), (1, 2, 2), (1, 12, 1), (2, 4, 5), (3, 5, 1))


# Item 12 is new: on a list of tonight, bought by another user, unknown to the biases.
NEW = pa.concat_tables([RECS, pa.table({"user_id": [2], "item_id": [12], "score": [0.1]})])
EXCLUDE = {"exclude": pa.table({"user_id": [1, 1, 2], "item_id": [3, 0, 5]})}
ALLOWED = {"allowed": pa.table({"item_id": [0, 1, 2, 3, 6, 7]})}
OWN = {1: {2, 3}, 2: {4}, 3: set()}
SOME = {"trending": [5, 1]}
ADDED = {  # the reranker, the lists, options of apply, what each user's list has besides
    "trending and own": (SOME, RECS, {}, {1: {3, 2, 5}, 2: {4, 5, 1}, 3: {5, 1}}),
    "listed only": (
        {"trending": [5, 1, 8], "widen": "listed"}, RECS, {}, {1: {2, 8}, 2: {1, 8}, 3: {1}},
    ),
    "new": ({"sources": ("own",)}, NEW, {}, {1: {3, 2, 12}, 2: {4}, 3: {5}}),
    "new, listed only": ({"widen": "listed"}, NEW, {}, {1: {2, 12}, 2: set(), 3: set()}),
    "no source": (SOME | {"sources": ()}, RECS, {}, {1: set(), 2: set(), 3: set()}),
    "trending only": (
        SOME | {"sources": ("trending",)}, RECS, {}, {1: {5}, 2: {5, 1}, 3: {5, 1}},
    ),
    # Not even what trends; listed items that the user has stay.
    "no repeats": (
        {"trending": [5, 3, 4], "sources": ("trending",), "repeats": False}, RECS, {},
        {1: {5, 4}, 2: {5, 3}, 3: {3, 4}},
    ),
    "excluded": (
        {"trending": [5, 6, 7], "excluded": (7,)}, RECS, EXCLUDE,
        {1: {2, 5, 6}, 2: {4, 6}, 3: {5, 6}},
    ),
    "excluded and allowed": (
        {"trending": [5, 6, 7], "excluded": (7,)}, RECS, EXCLUDE | ALLOWED,
        {1: {2, 6}, 2: {6}, 3: {6}},
    ),
}  # fmt: skip


@whole_lists
def test_what_is_added_to_lists():
    for name, (made, recs, options, expected) in ADDED.items():
        reranker = make_reranker(ZEROS, **made)
        top = reranker.apply(recs, k=10, history=EVENTS, as_of=UNTIL, **options)
        listed = items_of(recs)
        found = {user: set(items) - set(listed[user]) for user, items in items_of(top).items()}
        assert found == expected, name
        hidden = {1: {0}} if "exclude" in options else {}
        may_be_shown = {0, 1, 2, 3, 6, 7} if "allowed" in options else set(range(20))
        kept = {u: set(own) & may_be_shown - hidden.get(u, set()) for u, own in listed.items()}
        assert all(kept[user] <= set(items) for user, items in items_of(top).items()), name


def test_what_may_not_be_shown_takes_no_room_among_the_added():
    """Thirty items of the user's own are added: the first thirty that may be shown."""
    reranker = make_reranker(dict.fromkeys(range(50), 0.0), excluded=(3,))
    history = events_of(*((1, item, item + 1) for item in range(1, 45)))
    top = reranker.apply(
        recs_of([(0, 1.0)]), k=3, history=history, as_of=UNTIL,
        allowed=pa.table({"item_id": [0, 3, 41, 43]}),
    )  # fmt: skip
    assert set(items_of(top)[1]) == {0, 41, 43}


def test_lists_never_get_shorter(repeat_shop, learned):
    for k in (1, 5, 20):
        top = learned.apply(repeat_shop.tonight, k=k, history=repeat_shop.known, as_of=NOW)
        lengths = top.group_by("user_id").aggregate([("rank", "max")])["rank_max"]
        assert set(lengths.to_pylist()) == {k}
    short = repeat_shop.tonight.filter(
        pc.equal(pc.bit_wise_and(repeat_shop.tonight["item_id"], 7), 0)
    )
    before = short.group_by("user_id").aggregate([("item_id", "count")])
    with pytest.warns(tt.TrimtabWarning, match="k=30, but the longest list has"):
        top = learned.apply(short, k=30, history=repeat_shop.known, as_of=NOW)
    after = top.group_by("user_id").aggregate([("item_id", "count")])
    both = before.join(after, "user_id", right_suffix="_after")
    assert both.num_rows == before.num_rows == after.num_rows
    assert pc.all(pc.greater_equal(both["item_id_count_after"], both["item_id_count"])).as_py()


def test_scores_never_rise_and_no_item_is_shown_twice(repeat_shop, learned):
    top = learned.apply(repeat_shop.tonight, k=15, history=repeat_shop.known, as_of=NOW, depth=8)
    for user, items in items_of(top).items():
        assert len(items) == len(set(items)), user
    users, scores = top["user_id"].to_numpy(), top["score"].to_numpy()
    assert not ((users[1:] == users[:-1]) & (scores[1:] > scores[:-1])).any()


def test_scores_too_large_for_a_number_are_refused():
    reranker = make_reranker(ZEROS, scale="additive")
    recs = recs_of([(0, 1.7e308), (1, -1.7e308)])
    with pytest.raises(tt.DataError, match="too large for a number; divide the scores"):
        reranker.apply(recs, k=2, history=events_of((1, 1, 3)), as_of=UNTIL)


def test_every_place_can_be_explained():
    for widen in ("any", "listed"):
        """Added items too, that are on other lists only, learned or not."""
        reranker = make_reranker(ZEROS, item_part={1: 0.3}, trending=[5, 8], widen=widen)
        recs = pa.concat_tables([RECS, pa.table({"user_id": [2], "item_id": [12], "score": [0.1]})])
        settings = {"history": EVENTS, "as_of": UNTIL}
        rows = [
            row for row in reranker.apply(recs, k=4, **settings).to_pylist() if row["user_id"] == 1
        ]
        assert {8, 12} & {row["item_id"] for row in rows}
        for found, row in zip(
            reranker.explain(1, recs, **settings).to_pylist(), rows, strict=False
        ):
            (item, rank, _), parts = list(found.values())[:3], list(found.values())[3:]
            assert (item, rank) == (row["item_id"], row["rank"])
            assert sum(parts) == pytest.approx(row["score"])


# Depth --------------------------------------------------------------------------------------


def test_only_the_best_of_each_list_are_ranked():
    """Item 9 is best by its item part, but below the depth: it follows in the engine's order."""
    reranker = make_reranker(ZEROS, item_part={9: 50.0}, depth=2, sources=("own",))
    recs = recs_of([(0, 1.0), (1, 0.9), (8, 0.8), (9, 0.7)])
    history = events_of((1, 1, 3))
    with pytest.warns(tt.TrimtabWarning, match="only the best 2 of each list were re-ranked"):
        top = reranker.apply(recs, k=4, history=history, as_of=UNTIL)
    assert top["item_id"].to_pylist() == [1, 0, 8, 9]
    for depth, expected in (("all", [9, 1, 0, 8]), (4, [9, 1, 0, 8]), (3, [1, 0, 8, 9])):
        top = reranker.apply(recs, k=4, history=history, as_of=UNTIL, depth=depth)
        assert top["item_id"].to_pylist() == expected
    with pytest.raises(tt.SettingError, match="depth='deep'"):
        reranker.apply(recs, depth="deep")


def test_an_item_below_the_depth_can_be_added_once():
    reranker = make_reranker(ZEROS, item_part={9: 50.0}, trending=[8])
    recs = recs_of([(0, 1.0), (1, 0.9), (8, 0.8), (9, 0.7), (7, 0.6)])
    top = reranker.apply(
        recs, k=5, history=events_of((1, 9, 3)), as_of=UNTIL, depth=2,
        exclude=pa.table({"user_id": [1], "item_id": [8]}),
    )  # fmt: skip
    assert top["item_id"].to_pylist() == [9, 0, 1, 7]


def test_a_list_whose_items_are_all_excluded_is_filled_from_what_is_added():
    reranker = make_reranker(ZEROS, trending=[5])
    top = reranker.apply(
        recs_of([(0, 1.0)], [(1, 1.0)]), k=1, history=events_of((1, 3, 3)), as_of=UNTIL,
        allowed=pa.table({"item_id": [5]}),
    )  # fmt: skip
    assert items_of(top) == {1: [5]}  # user 2 has no events: nothing is added, nothing is left


# Instants -----------------------------------------------------------------------------------


def test_the_longer_ago_the_fewer_points():
    """`as_of` moves on: the same purchase is older, and its item falls."""
    reranker = make_reranker(ZEROS, sources=("own",))
    recs, history = recs_of([(0, 1.0), (1, 0.35)]), events_of((1, 1, 1))
    for days, expected in ((0, [1, 0]), (3, [0, 1])):
        top = reranker.apply(recs, k=2, history=history, as_of=UNTIL + timedelta(days))
        assert top["item_id"].to_pylist() == expected


# The object ---------------------------------------------------------------------------------


def test_it_can_be_copied_and_sent_to_other_processes(repeat_shop, learned, bytes_of):
    given = {"recs": repeat_shop.tonight, "history": repeat_shop.known, "as_of": NOW}
    for other in (copy.deepcopy(learned), pickle.loads(pickle.dumps(learned))):
        assert bytes_of(other.apply(**given)) == bytes_of(learned.apply(**given))
        for name in ("summary", "settings", "learned"):
            assert getattr(other, name) == getattr(learned, name)


def test_it_cannot_be_changed(learned):
    for field in fields(learned):
        with pytest.raises(FrozenInstanceError):
            setattr(learned, field.name, None)
    for name in ("item_part", "bought_part", "trending"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(learned, name)[0] = 1
    with pytest.raises(TypeError):
        learned.settings["k"] = 3
