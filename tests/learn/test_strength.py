"""Strength: the engine's own lists at 0, what was learned at 1, and a forecast in between."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from dated_shop import DatedShop
from repeat_shop import NOW, RepeatShop
from trimtab.errors import SettingError


@pytest.fixture(scope="module")
def shop():
    return DatedShop()


@pytest.fixture(scope="module")
def bias(shop):
    return tt.BiasLearner().fit(shop.recs, shop.recent, history=shop.history)


@pytest.fixture(scope="module")
def habits():
    return RepeatShop(repeats=0.5, drift=1.0, n_users=300)


@pytest.fixture(scope="module")
def reranker(habits):
    return tt.RerankLearner().fit(habits.recs, habits.recent, history=habits.history)


def engine_top(lists: pa.Table, k: int = 10) -> list[tuple]:
    """The engine's own top k, by plain sorting."""
    rows = lists.to_pandas().sort_values(
        ["user_id", "score", "item_id"], ascending=[True, False, True]
    )
    top = rows.groupby("user_id").head(k)
    return list(zip(top["user_id"].tolist(), top["item_id"].tolist(), strict=True))


def pairs(top: pa.Table) -> list[tuple]:
    return list(zip(top["user_id"].to_pylist(), top["item_id"].to_pylist(), strict=True))


def test_a_bias_at_half_strength_is_half_the_bias(shop, bias):
    half = bias.with_strength(0.5)
    assert np.array_equal(half.bias, 0.5 * bias.bias)
    assert np.array_equal(half.table()["own"], half.bias - half.trend - half.category)
    assert half.summary.strength == 0.5
    assert half.with_strength(0.5).summary.strength == 0.25
    assert np.isnan(half.summary.after)
    assert bias.with_strength(1) is bias
    assert pairs(bias.with_strength(0).apply(shop.tonight)) == engine_top(shop.tonight)


def test_the_forecast_of_a_strength_comes_true(shop, bias):
    by_strength = bias.summary.forecast_by_strength
    assert list(by_strength) == ["0.25", "0.5", "0.75", "1"]
    assert by_strength["1"][0] == bias.summary.forecast
    for strength in (0.25, 0.5, 0.75):
        part = bias.with_strength(strength)
        assert part.summary.forecast == by_strength[f"{strength:g}"][0]
        assert part.summary.forecast_low < shop.lift(part) < part.summary.forecast_high
        assert 0 < part.summary.forecast < bias.summary.forecast


def test_between_measured_strengths_the_forecast_is_on_a_line(bias):
    lower, upper = (bias.summary.forecast_by_strength[name][0] for name in ("0.25", "0.5"))
    assert bias.with_strength(0.4).summary.forecast == pytest.approx(0.4 * lower + 0.6 * upper)
    first = bias.with_strength(0.1).summary
    assert first.forecast == pytest.approx(0.4 * lower)
    assert bias.with_strength(0).summary.forecast == 0


def test_a_reranker_at_0_shows_the_engines_lists(habits, reranker):
    none = reranker.with_strength(0)
    top = none.apply(habits.tonight, history=habits.known, as_of=NOW)
    assert pairs(top) == engine_top(habits.tonight)
    assert reranker.with_strength(1) is reranker


def test_a_reranker_comes_nearer_to_what_was_learned(habits, reranker):
    whole = set(pairs(reranker.apply(habits.tonight, history=habits.known, as_of=NOW)))
    engine = set(engine_top(habits.tonight))
    shared, lifts = [], []
    for strength in (0.25, 0.5, 0.75):
        part = reranker.with_strength(strength)
        top = part.apply(habits.tonight, history=habits.known, as_of=NOW)
        shared.append(len(whole & set(pairs(top))))
        lifts.append(habits.lift(top))
        assert part.summary.forecast_low < lifts[-1] < part.summary.forecast_high
    assert len(whole & engine) < shared[0] < shared[1] < shared[2] < len(whole)
    assert 0 < lifts[0] < lifts[1] < lifts[2]


def test_users_without_events_are_ranked_by_the_biases_at_that_strength(habits, reranker):
    half, user = reranker.with_strength(0.5), habits.tonight["user_id"][0]
    known = habits.known.filter(pc.not_equal(habits.known["user_id"], user))
    top = half.apply(habits.tonight, history=known, as_of=NOW)
    by_bias = reranker.bias.with_strength(0.5).apply(habits.tonight)
    own = [table.filter(pc.equal(table["user_id"], user)) for table in (top, by_bias)]
    assert own[0].equals(own[1])


def test_a_strength_is_saved(habits, reranker, bias, tmp_path):
    half = reranker.with_strength(0.5)
    half.save(tmp_path / "reranker")
    loaded = tt.Reranker.load(tmp_path / "reranker")
    assert loaded.summary == half.summary
    options = {"history": habits.known, "as_of": NOW}
    assert loaded.apply(habits.tonight, **options).equals(half.apply(habits.tonight, **options))
    bias.save(tmp_path / "bias")
    assert tt.ItemBias.load(tmp_path / "bias").summary == bias.summary


def test_other_strengths_are_refused(bias, reranker):
    for strength in (-0.1, 1.1, float("nan"), "half", None, True):
        for learned in (bias, reranker):
            with pytest.raises(SettingError, match="strength"):
                learned.with_strength(strength)
