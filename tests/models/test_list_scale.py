"""Biases on the scale of each list: the definition, and what it promises."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab as tt
from drift import generate_drift
from made_biases import SUMMARY, make_bias, recs_of, shown
from trimtab.errors import StoreError
from trimtab.models import saved
from trimtab.models.list_ranking import to_scale, to_scores


def bias_of(biases, k=2, **options):
    """Biases on the scale of each list, learned for k slots."""
    return replace(make_bias(biases, scale="list", **options), summary=replace(SUMMARY, k=k))


def order(top):
    return top.select(["user_id", "item_id", "rank"])


# By hand -----------------------------------------------------------------------------------------


def test_a_bias_of_1_is_worth_the_gap_from_the_best_to_the_kth_score_of_the_learner():
    recs = recs_of([(1, 10.0), (2, 8.0), (3, 6.0), (4, 0.0)])
    top = bias_of({3: 1.5, 4: 2.0}, k=3).apply(recs, 4)
    assert shown(top) == [(3, 12.0), (1, 10.0), (2, 8.0), (4, 8.0)]
    for learned, score in ((2, 2.0), (3, 4.0), (4, 10.0)):
        for k in (1, 2, 3, 4):
            top = bias_of({4: 1.0}, k=learned).apply(recs, k)
            assert dict(shown(top)).get(4, score) == score
    # Only items within the depth count.
    recs, bias = recs_of([(1, 5.0), (2, 5.0), (3, 3.0), (4, -95.0)]), bias_of({2: 1.0})
    assert shown(bias.apply(recs, 4, depth=3)) == [(2, 7.0), (1, 5.0), (3, 3.0), (4, -95.0)]
    assert shown(bias.apply(recs, 1, depth="all")) == [(2, 105.0)]


def test_lists_with_huge_and_tiny_scores():
    top = bias_of({3: 0.75}, k=3).apply(recs_of([(1, 1.7e308), (2, 0.0), (3, -1.7e308)]), 3)
    assert shown(top) == [(1, 1.7e308), (3, pytest.approx(0.85e308)), (2, 0.0)]
    tiny = recs_of([(1, 5e-324), (2, 0.0), (3, -1.0)])
    assert [item for item, _ in shown(bias_of({2: 2.0}).apply(tiny, 3))] == [2, 1, 3]


def test_exploring_draws_on_the_scale_of_the_list():
    small = {1: 3.0, 2: 2.0, 3: 1.9, 4: 1.8}
    large = {item: 1e6 * score + 5e6 for item, score in small.items()}
    bias = bias_of(dict.fromkeys(small, 0.0), fresh=(3, 4), error=0.5)
    one, other = (
        bias.apply(recs_of(*[own.items()] * 50), 2, explore=1, seed=3) for own in (small, large)
    )
    assert order(one).equals(order(other))
    assert {item for item, _ in shown(one)[1::2]} == {3, 4}
    assert one["score"].to_pylist() == pytest.approx([small[item] for item, _ in shown(one)])


# What it promises --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(1e-6, 1e6),
    st.floats(-1e3, 1e3),
    st.integers(1, 12),
    st.none() | st.integers(1, 10),
)
def test_the_scale_of_a_users_scores_changes_no_ranking(seed, factor, shift, k, depth):
    rng = np.random.default_rng(seed)
    pairs = list(enumerate(rng.permutation(np.arange(12)) / 16))
    other = [(item, factor * (score + shift)) for item, score in pairs]
    bias = bias_of(dict(enumerate(rng.normal(size=12))), k=k)
    top = bias.apply(recs_of(pairs, other), 12, depth=depth or "all")
    first, second = (top.slice(12 * user, 12)["item_id"].to_pylist() for user in (0, 1))
    assert first == second


def test_powers_of_two_change_no_key_for_any_threads(many, monkeypatch):
    larger, found = many.lists._replace(scores=many.lists.scores * 2.0**20), set()
    for threads in ("1", "3"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        for lists in (many.lists, larger):
            keys, units = to_scale(lists, "list", 5)
            assert keys.scores.max() == 0.0
            np.testing.assert_allclose(to_scores(keys, units), lists.scores, rtol=1e-12)
            found.add(keys.scores.tobytes())
    assert len(found) == 1


def test_an_older_trimtab_refuses_what_it_would_take_for_logs(tmp_path, monkeypatch):
    for scale, version in (("additive", 2), ("log", 2), ("list", 3)):
        bias = replace(make_bias({1: 0.5}, scale=scale, depth=4), summary=replace(SUMMARY, k=3))
        bias.save(tmp_path)
        assert json.loads((tmp_path / "header.json").read_text())["version"] == version
        loaded, recs = tt.ItemBias.load(tmp_path), recs_of([(1, 3.0), (2, 2.0), (3, 1.0)])
        assert (loaded.scale, loaded.summary.k, loaded.depth) == (scale, 3, 4)
        assert loaded.apply(recs, 3).equals(bias.apply(recs, 3))
    monkeypatch.setattr(saved, "_BIAS", saved._BIAS._replace(newest=2))
    with pytest.raises(StoreError, match=r"version 3.* 2; upgrade"):
        tt.ItemBias.load(tmp_path)


def test_what_has_no_place_on_the_scale_of_a_list(tmp_path):
    bias = bias_of({0: 0.5})
    advice = "every list has its own scale; learn with scale='log' or scale='additive'"
    with pytest.raises(tt.SettingError, match=f"cannot be written as boosts.*{advice}"):
        bias.export(tmp_path / "boosts.csv")
    with pytest.raises(tt.SettingError, match=f"cannot be folded into vectors.*{advice}"):
        bias.fold_into(np.eye(2))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tt.SettingError, match=r"unlisted='zero' .*scale='list'.* own scale"):
        tt.BiasLearner(scale="list", unlisted="zero")
    with pytest.raises(tt.SettingError, match="scale='list'"):
        tt.BiasLearner.paper(scale="list")


# Learning ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drifted():
    return generate_drift(n_users=3_000, n_items=400, n_listed=30, drift=0.8, seed=3)


def with_scores(recs, change):
    """Lists with other scores, by user."""
    users, scores = recs["user_id"].to_numpy(), recs["score"].to_numpy()
    return recs.set_column(2, "score", pa.array(change(scores, users, users.max() + 1)))


@pytest.mark.parametrize("method", ["hierarchy", "ascent"])
def test_learning_on_any_scales_gives_the_same_biases(method, drifted, bytes_of):
    learner, rng = tt.BiasLearner(method=method, scale="list"), np.random.default_rng(1)
    recs, recent, later = drifted.recs(), drifted.recent_events(), drifted.test_events()
    bias = learner.fit(recs, recent)
    assert (bias.scale, bias.summary.unit, bias.summary.k, bias.depth) == ("list", 1.0, 10, 30)
    mixed = with_scores(
        recs, lambda scores, users, n: scores * 2.0 ** rng.integers(-20, 20, n)[users]
    )
    assert bytes_of(learner.fit(mixed, recent).table()) == bytes_of(bias.table())
    top = bias.apply(recs)
    assert order(bias.apply(mixed)).equals(order(top))
    assert bias.summary.before == pytest.approx(tt.evaluate(recs, recent)["ndcg"])
    assert bias.summary.after == pytest.approx(tt.evaluate(top, recent)["ndcg"])
    gain = tt.evaluate(top, later)["ndcg"] / tt.evaluate(recs, later)["ndcg"] - 1
    assert gain > 0.05


def test_the_default_finds_that_lists_have_their_own_scales(drifted):
    rng, later = np.random.default_rng(0), drifted.test_events()
    recs = with_scores(
        drifted.recs(), lambda scores, users, n: scores + rng.uniform(0, 3, n)[users]
    )
    logs, chosen = (
        tt.BiasLearner(scale=scale).fit(recs, drifted.recent_events()) for scale in ("log", "auto")
    )
    assert chosen.scale in ("additive", "list")
    lifts = [tt.evaluate(bias.apply(recs), later)["ndcg"] for bias in (logs, chosen)]
    assert lifts[1] > lifts[0]
