"""Slots for items with little data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import trimtab as tt
from made_biases import make_bias

N_USERS = 2000
# Eight items on everybody's list, the last two hardly known; 9 is on it but not in the bias table.
LISTS = pd.DataFrame(
    {
        "user_id": np.repeat(np.arange(N_USERS), 9),
        "item_id": np.tile(np.arange(1, 10), N_USERS),
        "score": np.tile(np.linspace(9.0, 1.0, 9), N_USERS),
    }
)
BIAS = make_bias(dict.fromkeys(range(1, 9), 0.0), fresh=(7, 8), error=2.0)


def shown(explore: int, **options) -> pd.DataFrame:
    return BIAS.apply(LISTS, k=4, explore=explore, **options)


def test_the_last_slots_go_to_fresh_items():
    for explore in (0, 1, 2, 3):
        top = shown(explore)
        by_rank = top.groupby("rank")["item_id"].agg(set)
        for rank in range(1, 5 - explore):
            assert by_rank[rank] == {rank}
        for rank in range(5 - explore, 5):
            assert by_rank[rank] <= {7, 8, 9}
        assert (top.groupby("user_id")["item_id"].nunique() == 4).all()
        # Scores are with the bias, not with the draw.
        assert (top["score"] == 10.0 - top["item_id"]).all()


def test_the_draws_follow_the_uncertainty():
    # 7 is one point ahead of 8 and two ahead of 9, each drawn with a spread of 2.
    counts = shown(1).query("rank == 4")["item_id"].value_counts(normalize=True)
    draws = np.random.default_rng(1).normal([3.0, 2.0, 1.0], 2.0, (200_000, 3)).argmax(axis=1)
    expected = np.bincount(draws) / len(draws)
    assert counts[[7, 8, 9]].to_numpy() == pytest.approx(expected, abs=0.035)
    sure = make_bias(dict.fromkeys(range(1, 10), 0.0), fresh=(7, 8, 9), error=1e-9)
    assert set(sure.apply(LISTS, k=4, explore=1).query("rank == 4")["item_id"]) == {7}


def test_draws_are_seeded_and_the_order_of_rows_does_not_matter():
    top = shown(2, seed=5)
    assert top.equals(shown(2, seed=5))
    assert not top.equals(shown(2, seed=6))
    mixed = LISTS.sample(frac=1, random_state=3)
    assert top.equals(BIAS.apply(mixed, k=4, explore=2, seed=5))


def test_what_must_not_be_shown_is_not_explored():
    pairs = pd.DataFrame({"user_id": np.arange(N_USERS), "item_id": 7})
    top = shown(3, exclude=pairs, allowed=pd.DataFrame({"item_id": [1, 2, 3, 4, 7, 8]}))
    assert set(top["item_id"]) == {1, 2, 3, 8}
    assert top.query("rank == 2")["item_id"].eq(8).all()


def test_slots_without_fresh_items_are_filled_as_usual():
    known = make_bias(dict.fromkeys(range(1, 10), 0.0))
    assert known.apply(LISTS, k=4, explore=2).equals(known.apply(LISTS, k=4))
    short = LISTS[LISTS["item_id"] >= 7]
    assert (BIAS.apply(short, k=3, explore=3).groupby("user_id").size() == 3).all()
    with pytest.warns(tt.TrimtabWarning, match="k="):
        assert len(BIAS.apply(LISTS, k=10**9, explore=1)) == len(LISTS)
    for name, value in (("explore", 5), ("explore", -1), ("explore", 1.5), ("seed", -1)):
        with pytest.raises(tt.SettingError, match=f"{name}={value}{'.*k=4' * (value == 5)}"):
            BIAS.apply(LISTS, k=4, **{"explore": 1, name: value})


def test_log_biases_draw_on_the_log_scale():
    bias = make_bias({1: 0.5, 2: 0.0, 3: 0.0}, scale="log", fresh=(3,), error=0.1)
    lists = pd.DataFrame({"user_id": [1] * 3, "item_id": [1, 2, 3], "score": [1.0, 1.0, 0.5]})
    top = bias.apply(lists, k=2, explore=1)
    assert top["item_id"].tolist() == [1, 3]
    assert top["score"].tolist() == pytest.approx([np.exp(0.5), 0.5])
