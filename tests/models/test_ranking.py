"""What `apply` shows, by its definition: on any scale, to any depth, of whatever may be shown."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab as tt
from made_biases import SUMMARY, make_bias, recs_of

N_ITEMS = 8
SCALES = ("additive", "zero", "log", "list")  # zero: additive, with unlisted items at 0
Pairs = dict[int, float]


def change(scores: Pairs, bias: Pairs, scale: str, k: int) -> dict[int, tuple[tuple, float]]:
    """What items are ranked by, and their scores, each with its bias."""
    if scale == "list":
        ranked = sorted(scores.values(), reverse=True)
        best = ranked[0]
        gap = best - ranked[min(k, len(ranked)) - 1] or best - ranked[-1] or 1.0
        keys = {item: (score - best) / gap + bias[item] for item, score in scores.items()}
        return {item: ((key,), best + key * gap) for item, key in keys.items()}
    if scale == "log":  # below 0 a bias divides; scores of 0 are ranked by their biases
        signs = {item: float(np.sign(score)) for item, score in scores.items()}
        return {
            i: (
                (signs[i], signs[i] * math.log(abs(s) or 1.0) + bias[i]),
                s * math.exp(signs[i] * bias[i]),
            )
            for i, s in scores.items()
        }
    found = {item: score + bias[item] for item, score in scores.items()}
    if scale == "zero":
        found |= {item: b for item, b in bias.items() if b > 0 and item not in scores}
    return {item: ((score,), score) for item, score in found.items()}


def plain_top(scores: Pairs, bias: Pairs, scale: str, learned_for: int, depth, may_be_shown):
    """One list: the best of it with biases, then the rest in the engine's order."""
    ranked = sorted(scores, key=lambda item: (-scores[item], item))
    changed = change({item: scores[item] for item in ranked[:depth]}, bias, scale, learned_for)
    shown = sorted(filter(may_be_shown, sorted(changed)), key=lambda i: changed[i][0], reverse=True)
    best = [(item, changed[item][1]) for item in shown]
    lowest = min((score for _, score in best), default=np.inf)
    rest = filter(may_be_shown, ranked[len(ranked[:depth]) :])
    return best + [(item, min(scores[item], lowest)) for item in rest]


ITEMS = st.integers(0, N_ITEMS - 1)
NUMBERS = st.sampled_from([-3.0, -0.25, 0.0, 0.1, 0.25, 0.5, 1.0, 7.0])  # few: there are many ties
BIASES = st.sampled_from([-1.1, -0.5, 0.0, 0.0, 0.3, 2.0])


@settings(deadline=None, max_examples=400)
@given(
    lists=st.lists(st.dictionaries(ITEMS, NUMBERS, min_size=1), min_size=1, max_size=4),
    biases=st.dictionaries(ITEMS, BIASES, min_size=1),
    scale=st.sampled_from(SCALES),
    learned_for=st.integers(1, N_ITEMS + 1),
    k=st.integers(1, N_ITEMS + 1),
    depth=st.none() | st.integers(1, N_ITEMS),
    excluded=st.sets(ITEMS, max_size=3),
    allowed=st.none() | st.sets(ITEMS, min_size=1),
    hidden=st.sets(st.tuples(st.integers(1, 5), ITEMS), max_size=12),
)
def test_any_lists_equal_the_definition(
    lists, biases, scale, learned_for, k, depth, excluded, allowed, hidden
):
    if scale == "zero":
        depth, lists = None, [{i: abs(s) for i, s in own.items()} for own in lists]
    made = {"scale": "additive", "unlisted": "zero"} if scale == "zero" else {"scale": scale}
    bias = make_bias(biases, excluded=excluded, **made)
    bias = replace(bias, summary=replace(SUMMARY, k=learned_for))
    pairs = np.array(sorted(hidden), np.int64).reshape(-1, 2)
    options = {"exclude": pa.table({"user_id": pairs[:, 0], "item_id": pairs[:, 1]})}
    if allowed is not None:
        options["allowed"] = pa.table({"item_id": sorted(allowed)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)  # k is longer than the lists
        top = bias.apply(
            recs_of(*(own.items() for own in lists)), k, depth=depth or "all", **options
        )
    by_item = {item: biases.get(item, 0.0) for item in range(N_ITEMS)}
    expected = []
    for user, own in enumerate(lists, 1):

        def may_be_shown(item: int, user: int = user) -> bool:
            out = item in biases and item in excluded
            return not out and (user, item) not in hidden and (allowed is None or item in allowed)

        found = plain_top(own, by_item, scale, learned_for, depth, may_be_shown)[:k]
        expected += [(user, *pair, rank) for rank, pair in enumerate(found, 1)]
    rows = [tuple(row.values()) for row in top.to_pylist()]
    assert [(u, i, r) for u, i, _, r in rows] == [(u, i, r) for u, i, _, r in expected]
    tolerance = {} if scale == "log" else {"rel": 0, "abs": 0}
    assert [row[2] for row in rows] == pytest.approx([row[2] for row in expected], **tolerance)
