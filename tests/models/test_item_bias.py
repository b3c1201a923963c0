"""ItemBias: examples checked by hand, and immutability."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import changed_tables
import trimtab as tt
from made_biases import SUMMARY, make_bias
from made_rerankers import make_reranker
from trimtab.models import Summary


def recs_of(*rows):
    return changed_tables.rows_of(rows, "user_id", "item_id", "score", "window")


def pairs_of(*rows):
    return changed_tables.rows_of(rows, "user_id", "item_id")


def rows_of(top):
    return [tuple(row.values()) for row in top.to_pylist()]


# apply, by hand --------------------------------------------------------------------------------

TWO = recs_of((1, 7, 0.5), (1, 8, 0.25), (1, 9, 1.0), (2, 9, 0.75))
ZERO = {"unlisted": "zero"}
BY_HAND = {  # biases and how they were learned, lists, k, options, rows; more in test_ranking.py
    "not a number too large": (
        {7: -3.0, 8: 0.0}, {"scale": "log"}, recs_of((1, 7, 2.0**1023)), 1, {},
        [(1, 7, pytest.approx(2.0**1023 * math.exp(-3)), 1)],
    ),
    "users without a list": (
        {9: 1.0}, ZERO, recs_of((1, 7, 0.5, 1), (2, 7, 0.5, 2)), 1, {},
        [(1, 1, 9, 1.0, 1), (2, 2, 9, 1.0, 1)],
    ),
    "excluded pairs hold in every window": (
        {7: 0.0}, {}, recs_of((1, 7, 0.9, "a"), (1, 8, 0.1, "a"), (1, 7, 0.9, "b"), (2, 7, 9, "b")),
        1, {"exclude": pairs_of((1, 7))}, [(1, "a", 8, 0.1, 1), (2, "b", 7, 9, 1)],
    ),
    "no excluded pairs": (
        {7: 0.0}, {}, recs_of((1, 7, 0.9)), 1,
        {"exclude": pd.DataFrame({"user_id": [], "item_id": []})}, [(1, 7, 0.9, 1)],
    ),
    "numbers come by value": (
        {9: 0.25}, {}, recs_of((1, 10, 0.5), (1, 9, 0.25), (1, -1, 0.5)), 3, {},
        [(1, -1, 0.5, 1), (1, 9, 0.5, 2), (1, 10, 0.5, 3)],
    ),
    "users come in order": (
        {1: 0.0}, {}, recs_of(("b", 1, 0.5), ("a", 1, 0.5), ("B", 1, 0.5)), 1, {},
        [("B", 1, 0.5, 1), ("a", 1, 0.5, 1), ("b", 1, 0.5, 1)],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:k=2, but the longest list has 1")
def test_lists_by_hand():
    for name, (biases, learned, recs, k, options, expected) in BY_HAND.items():
        top = make_bias(biases, **learned).apply(recs, k, **options)
        assert rows_of(top) == expected, name
        assert top.column_names[-3:] == ["item_id", "score", "rank"]


def test_strings_come_by_code_point():
    names = ["10", "9", "\U0001f600", "\uff5e", "Z", "a"]
    recs = recs_of(*((1, name, 0.5) for name in reversed(names)))
    shown = make_bias({"9": 0.0}).apply(recs, k=6)["item_id"].to_pylist()
    assert shown == ["10", "9", "Z", "a", "\uff5e", "\U0001f600"]


def test_scores_too_large_for_a_number_are_refused():
    with pytest.raises(tt.DataError, match="too large for a number; divide the scores"):
        make_bias({7: 3.0, 8: 0.0}, scale="log").apply(recs_of((1, 7, 1.7e308), (1, 8, 1.0)), k=2)


def test_no_items_left_gives_an_empty_frame_of_the_same_type():
    recs = pd.DataFrame({"user_id": ["u"], "item_id": ["x"], "score": [1.0]})
    top = make_bias({"x": 0.0}, excluded=["x"]).apply(recs, k=1)
    assert isinstance(top, pd.DataFrame)
    assert top.columns.tolist() == ["user_id", "item_id", "score", "rank"]
    assert len(top) == 0


def test_unknown_items_have_a_bias_of_zero_and_are_counted():
    recs = recs_of((1, 7, 0.5), (1, 99, 0.9), (1, 98, 0.8), (2, 99, 0.5))
    bias = make_bias({7: 0.375, 5: 0.0})
    rows = rows_of(bias.apply(recs, k=3))
    assert rows[:3] == [(1, 99, 0.9, 1), (1, 7, 0.875, 2), (1, 98, 0.8, 3)]
    assert bias.count_unknown(recs) == 2
    assert bias.count_unknown(recs_of((1, 7, 0.5))) == 0


def test_repeated_rows_can_be_merged_in_any_order(bytes_of):
    recs = recs_of((1, 7, 0.25), (1, 8, 0.4), (1, 7, 0.75), (2, 7, 0.5))
    for how, score in (("max", 0.75), ("mean", 0.5), ("sum", 1.0)):
        top = make_bias({7: 0.25}).apply(recs, k=2, duplicates=how)
        assert rows_of(top) == [(1, 7, score + 0.25, 1), (1, 8, 0.4, 2), (2, 7, 0.75, 1)]
    tops, scores = set(), [0.1, 0.2, 0.3, 1e16, 0.7]
    for shift in range(5):
        rows = [(1, 7, score) for score in scores[shift:] + scores[:shift]]
        tops.add(bytes_of(make_bias({7: 0.0}).apply(recs_of(*rows), k=1, duplicates="sum")))
    assert len(tops) == 1


SCALES = (("additive", "never"), ("additive", "zero"), ("log", "never"), ("list", "never"))


def test_the_lists_are_not_changed():
    for (scale, unlisted), explore, in_order in itertools.product(SCALES, (0, 1), (True, False)):
        users = np.repeat([1, 2], 3) if in_order else np.tile([1, 2], 3)
        items, scores = np.array([7, 8, 9, 9, 8, 7]), np.array([0.5, 0.25, 1.0, 0.75, 2.0, 0.125])
        recs = pa.table({"user_id": users, "item_id": items, "score": scores})
        before = [array.tolist() for array in (users, items, scores)]
        learned = make_bias({6: 3.0, 7: 0.25, 8: 1.0}, scale=scale, unlisted=unlisted)
        assert len(learned.apply(recs, k=2, explore=explore)) == 4
        assert [array.tolist() for array in (users, items, scores)] == before


def test_a_k_longer_than_the_lists_warns_at_the_callers_line():
    with pytest.warns(tt.TrimtabWarning, match="k=5.* 2 items") as seen:
        top = make_bias({7: 0.5}).apply(recs_of((1, 7, 0.5), (1, 8, 0.8)), k=5)
    assert seen[0].filename == __file__
    assert top["item_id"].to_pylist() == [7, 8]


def test_options_of_the_other_model_are_refused():
    reranker = make_reranker({7: 0.5, 8: 0.0})
    bias = reranker.bias
    for model, options, message in (
        (bias, {"history": TWO}, "history: only a Reranker ranks by events"),
        (bias, {"as_of": "2026-03-01"}, "as_of: only a Reranker ranks by events"),
        (reranker, {"explore": 1}, "explore=1: only an ItemBias reserves slots; leave it out"),
    ):
        for run in (model.apply, model.rank):
            with pytest.raises(tt.SettingError, match=message):
                run(TWO, 1, **options)
    nothing = {"history": None, "as_of": None, "explore": 0, "seed": 3}
    assert bias.apply(TWO, 1, **nothing).equals(reranker.apply(TWO, 1))


# What was learned ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(data):
    return tt.BiasLearner.paper(k=5).fit(data.recs(), data.recent_events())


def test_the_table_has_one_row_per_item(learned):
    shown = learned.table()
    names = ["item_id", "bias", "excluded", "gain", "support", "low", "high", "trend", "category",
             "own", "fresh"]  # fmt: skip
    kinds = ["int64", "f8", "bool", "f8", "int64", "f8", "f8", "f8", "f8", "f8", "bool"]
    assert shown.schema == pa.schema(dict(zip(names, kinds, strict=True)))
    assert len(shown) == len(learned) == learned.summary.n_items
    assert shown["item_id"].to_pylist() == sorted(set(shown["item_id"].to_pylist()))
    assert sum(shown["excluded"].to_pylist()) == learned.summary.n_excluded > 0
    assert np.isfinite(shown["bias"].to_numpy()).all()


def test_it_is_immutable_and_can_be_copied_and_sent_to_other_processes(learned, bytes_of):
    for other in (learned, copy.deepcopy(learned), pickle.loads(pickle.dumps(learned))):
        assert bytes_of(other.table()) == bytes_of(learned.table())
        for name in ("summary", "settings", "window"):
            assert getattr(other, name) == getattr(learned, name)
        for field in fields(other):
            with pytest.raises(FrozenInstanceError):
                setattr(other, field.name, None)
        for name in ("item_ids", "bias", "excluded", "gain", "support"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(other, name)[0] = 1
        for mapping in (other.settings, other.window, other.summary):
            with pytest.raises(TypeError):
                mapping["k"] = 3
        with pytest.raises(FrozenInstanceError):
            other.summary.after = 1.0


def test_what_is_printed_and_the_summary_as_attributes_and_as_keys():
    shown = repr(make_bias({7: 0.25, 8: 0.0, 9: 0.0}, excluded=[9]))
    assert shown == "ItemBias(3 items, 1 with a bias, 1 excluded; ndcg@2 0.2500 -> 0.5000)"
    assert SUMMARY["after"] == SUMMARY.after == 0.5
    assert set(SUMMARY) == {field.name for field in fields(SUMMARY)}
    assert len(SUMMARY) == len(dict(SUMMARY))
    assert SUMMARY.lift == 1.0
    assert math.isnan(Summary(**{**SUMMARY, "before": 0.0}).lift)
