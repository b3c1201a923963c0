"""ItemBias: examples checked by hand, and immutability."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import SUMMARY, make_bias
from trimtab.models import Summary


def table(rows, *names):
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


def recs_of(*rows):
    return table(rows, "user_id", "item_id", "score")


def rows_of(top):
    return [tuple(row.values()) for row in top.to_pylist()]


# apply, by hand --------------------------------------------------------------------------------


def test_scores_are_added_to_and_ranked_from_one():
    recs = recs_of((1, 7, 0.5), (1, 8, 0.25), (1, 9, 1.0), (2, 9, 0.75))
    top = make_bias({7: 0.25, 8: 1.0, 9: -0.5}).apply(recs, k=3)
    assert top.column_names == ["user_id", "item_id", "score", "rank"]
    assert rows_of(top) == [(1, 8, 1.25, 1), (1, 7, 0.75, 2), (1, 9, 0.5, 3), (2, 9, 0.25, 1)]


def test_scores_too_large_for_a_number_are_refused():
    recs = recs_of((1, 7, 1.7e308), (1, 8, 1.0))
    with pytest.raises(tt.DataError, match="too large for a number; divide the scores"):
        make_bias({7: 3.0, 8: 0.0}, scale="log").apply(recs, k=2)
    top = make_bias({7: -3.0, 8: 0.0}, scale="log").apply(recs, k=2)
    assert rows_of(top)[0][:2] == (1, 7)


def test_only_k_are_shown():
    recs = recs_of((1, 7, 0.5), (1, 8, 0.25), (1, 9, 1.0), (2, 9, 0.75))
    assert rows_of(make_bias({8: 1.0}).apply(recs, k=1)) == [(1, 8, 1.25, 1), (2, 9, 0.75, 1)]


def test_equal_integers_come_by_value_and_strings_by_code_point():
    recs = recs_of((1, 10, 0.5), (1, 9, 0.25), (1, -1, 0.5))
    assert make_bias({9: 0.25}).apply(recs, k=3)["item_id"].to_pylist() == [-1, 9, 10]
    names = ["10", "9", "\U0001f600", "\uff5e", "Z", "a"]
    recs = recs_of(*((1, name, 0.5) for name in reversed(names)))
    shown = make_bias({"9": 0.0}).apply(recs, k=6)["item_id"].to_pylist()
    assert shown == ["10", "9", "Z", "a", "\uff5e", "\U0001f600"]


def test_users_come_in_ascending_order():
    recs = recs_of(("b", 1, 0.5), ("a", 1, 0.5), ("B", 1, 0.5))
    assert make_bias({1: 0.0}).apply(recs, k=1)["user_id"].to_pylist() == ["B", "a", "b"]


def test_an_excluded_item_is_never_shown():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.1), (2, 7, 0.9))
    for unlisted in ("never", "zero"):
        top = make_bias({7: 5.0, 8: 0.0}, excluded=[7], unlisted=unlisted).apply(recs, k=2)
        assert rows_of(top) == [(1, 8, 0.1, 1)]


def test_no_items_left_gives_an_empty_frame_of_the_same_type():
    recs = pd.DataFrame({"user_id": ["u"], "item_id": ["x"], "score": [1.0]})
    top = make_bias({"x": 0.0}, excluded=["x"]).apply(recs, k=1)
    assert isinstance(top, pd.DataFrame)
    assert top.columns.tolist() == ["user_id", "item_id", "score", "rank"]
    assert len(top) == 0


def test_raised_items_reach_users_who_do_not_list_them():
    recs = recs_of((1, 7, 0.5), (2, 8, 0.25))
    bias = {7: 0.0, 8: 0.25, 9: 0.375, 10: -0.5, 11: 0.0}
    with pytest.warns(tt.TrimtabWarning, match="k=3"):
        top = make_bias(bias, unlisted="zero").apply(recs, k=3)
    assert rows_of(top) == [
        (1, 7, 0.5, 1), (1, 9, 0.375, 2), (1, 8, 0.25, 3),
        (2, 8, 0.5, 1), (2, 9, 0.375, 2),
    ]  # fmt: skip
    never = make_bias(bias).apply(recs, k=1)
    assert rows_of(never) == [(1, 7, 0.5, 1), (2, 8, 0.5, 1)]


def test_raised_items_do_not_reach_users_without_a_list():
    recs = table([(1, 7, 0.5, 1), (2, 7, 0.5, 2)], "user_id", "item_id", "score", "window")
    top = make_bias({9: 1.0}, unlisted="zero").apply(recs, k=1)
    assert rows_of(top) == [(1, 1, 9, 1.0, 1), (2, 2, 9, 1.0, 1)]


def test_a_raised_item_and_a_listed_one_with_equal_scores_rank_by_id():
    recs = recs_of((1, 5, 0.5), (1, 9, 0.5))
    shown = make_bias({4: 0.5, 7: 0.5, 10: 0.5}, unlisted="zero").apply(recs, k=2)
    assert shown["item_id"].to_pylist() == [4, 5]


def test_pairs_can_be_excluded():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.1), (2, 7, 0.9))
    bias = make_bias({7: 0.0, 9: 0.5}, unlisted="zero")
    pairs = table([(1, 7), (2, 9), (3, 7), (1, 999)], "user_id", "item_id")
    top = bias.apply(recs, k=2, exclude=pairs)
    assert rows_of(top) == [(1, 9, 0.5, 1), (1, 8, 0.1, 2), (2, 7, 0.9, 1)]


def test_excluded_pairs_apply_to_every_window_of_the_user():
    recs = table(
        [(1, 7, 0.9, "a"), (1, 8, 0.1, "a"), (1, 7, 0.9, "b"), (2, 7, 0.9, "b")],
        "user_id", "item_id", "score", "window",
    )  # fmt: skip
    top = make_bias({7: 0.0}).apply(recs, k=1, exclude=table([(1, 7)], "user_id", "item_id"))
    assert rows_of(top) == [(1, "a", 8, 0.1, 1), (2, "b", 7, 0.9, 1)]


def test_an_empty_table_of_excluded_pairs_is_fine():
    recs = recs_of((1, 7, 0.9))
    nothing = pd.DataFrame({"user_id": [], "item_id": []})
    assert rows_of(make_bias({7: 0.0}).apply(recs, k=1, exclude=nothing)) == [(1, 7, 0.9, 1)]


def test_only_allowed_items_are_shown():
    recs = recs_of((1, 7, 0.9), (1, 8, 0.1), (2, 7, 0.9))
    bias = make_bias({7: 0.0, 9: 0.5, 10: 0.7}, unlisted="zero")
    top = bias.apply(recs, k=2, allowed=pa.table({"item_id": [8, 9, 12345]}))
    assert rows_of(top) == [(1, 9, 0.5, 1), (1, 8, 0.1, 2), (2, 9, 0.5, 1)]


def test_allowed_does_not_bring_back_an_excluded_item():
    top = make_bias({7: 0.0}, excluded=[7]).apply(
        recs_of((1, 7, 0.9), (1, 8, 0.1)), k=2, allowed=pa.table({"item_id": [7, 8]})
    )
    assert rows_of(top) == [(1, 8, 0.1, 1)]


def test_unknown_items_have_a_bias_of_zero_and_are_counted():
    recs = recs_of((1, 7, 0.5), (1, 99, 0.9), (1, 98, 0.8), (2, 99, 0.5))
    bias = make_bias({7: 0.375, 5: 0.0})
    assert rows_of(bias.apply(recs, k=3))[:3] == [
        (1, 99, 0.9, 1),
        (1, 7, 0.875, 2),
        (1, 98, 0.8, 3),
    ]
    assert bias.count_unknown(recs) == 2
    assert bias.count_unknown(recs_of((1, 7, 0.5))) == 0


def test_repeated_rows_can_be_merged():
    recs = recs_of((1, 7, 0.25), (1, 8, 0.4), (1, 7, 0.75), (2, 7, 0.5))
    for how, score in (("max", 0.75), ("mean", 0.5), ("sum", 1.0)):
        top = make_bias({7: 0.25}).apply(recs, k=2, duplicates=how)
        assert rows_of(top) == [(1, 7, score + 0.25, 1), (1, 8, 0.4, 2), (2, 7, 0.75, 1)]


def test_merging_does_not_depend_on_the_order_of_rows(bytes_of):
    scores = [0.1, 0.2, 0.3, 1e16, 0.7]
    tops = set()
    for shift in range(5):
        rows = [(1, 7, score) for score in scores[shift:] + scores[:shift]]
        top = make_bias({7: 0.0}).apply(recs_of(*rows), k=1, duplicates="sum")
        tops.add(bytes_of(top))
    assert len(tops) == 1


def test_on_the_log_scale_a_bias_multiplies():
    recs = recs_of((1, 7, 0.5), (1, 8, 0.8))
    top = make_bias({7: math.log(2), 8: 0.0}, scale="log").apply(recs, k=2)
    assert top["item_id"].to_pylist() == [7, 8]
    assert top["score"].to_pylist() == pytest.approx([1.0, 0.8], rel=1e-15)


@pytest.mark.parametrize(
    ("scale", "unlisted"),
    [("additive", "never"), ("additive", "zero"), ("log", "never"), ("list", "never")],
)
@pytest.mark.parametrize("explore", [0, 1])
@pytest.mark.parametrize("in_order", [True, False])
def test_the_lists_are_not_changed(scale, unlisted, explore, in_order):
    users = np.repeat([1, 2], 3) if in_order else np.tile([1, 2], 3)
    items, scores = np.array([7, 8, 9, 9, 8, 7]), np.array([0.5, 0.25, 1.0, 0.75, 2.0, 0.125])
    recs = pa.table({"user_id": users, "item_id": items, "score": scores})
    copies = users.copy(), items.copy(), scores.copy()
    learned = make_bias({6: 3.0, 7: 0.25, 8: 1.0}, scale=scale, unlisted=unlisted)
    assert len(learned.apply(recs, k=2, explore=explore)) == 4
    for array, before in zip((users, items, scores), copies, strict=True):
        assert array.tolist() == before.tolist()


def test_a_k_longer_than_the_lists_warns_at_the_callers_line():
    with pytest.warns(tt.TrimtabWarning, match="k=5.* 2 items") as seen:
        top = make_bias({7: 0.5}).apply(recs_of((1, 7, 0.5), (1, 8, 0.8)), k=5)
    assert seen[0].filename == __file__
    assert top["item_id"].to_pylist() == [7, 8]


# What was learned ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(data):
    return tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())


def test_the_table_has_one_row_per_item(learned):
    shown = learned.table()
    names = [
        "item_id",
        "bias",
        "excluded",
        "gain",
        "support",
        "low",
        "high",
        "trend",
        "category",
        "own",
        "fresh",
    ]
    kinds = ["int64", "f8", "bool", "f8", "int64", "f8", "f8", "f8", "f8", "f8", "bool"]
    assert shown.schema == pa.schema(dict(zip(names, kinds, strict=True)))
    assert len(shown) == len(learned) == learned.summary.n_items
    assert shown["item_id"].to_pylist() == sorted(set(shown["item_id"].to_pylist()))
    assert sum(shown["excluded"].to_pylist()) == learned.summary.n_excluded > 0
    assert np.isfinite(shown["bias"].to_numpy()).all()


def test_it_is_immutable(learned):
    for field in fields(learned):
        with pytest.raises(FrozenInstanceError):
            setattr(learned, field.name, None)
    for name in ("item_ids", "bias", "excluded", "gain", "support"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(learned, name)[0] = 1
    for name in ("settings", "window"):
        with pytest.raises(TypeError):
            getattr(learned, name)["k"] = 3
    with pytest.raises(FrozenInstanceError):
        learned.summary.after = 1.0
    with pytest.raises(TypeError):
        learned.summary["after"] = 1.0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_it_can_be_copied_and_sent_to_other_processes(duplicate, learned, bytes_of):
    other = duplicate(learned)
    assert bytes_of(other.table()) == bytes_of(learned.table())
    assert (other.summary, other.settings, other.window) == (
        learned.summary, learned.settings, learned.window,
    )  # fmt: skip
    assert not other.bias.flags.writeable


def test_repr():
    shown = repr(make_bias({7: 0.25, 8: 0.0, 9: 0.0}, excluded=[9]))
    assert shown == "ItemBias(3 items, 1 with a bias, 1 excluded; ndcg@2 0.2500 -> 0.5000)"


def test_the_summary_reads_as_attributes_and_as_keys():
    assert SUMMARY["after"] == SUMMARY.after == 0.5
    assert set(SUMMARY) == {field.name for field in fields(SUMMARY)}
    assert len(SUMMARY) == len(dict(SUMMARY))
    assert SUMMARY.lift == 1.0
    assert math.isnan(Summary(**{**SUMMARY, "before": 0.0}).lift)
