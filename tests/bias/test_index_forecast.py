"""The forecast of an index: what brute force finds, and what it refuses or warns of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trimtab as tt
from made_biases import make_bias
from trimtab.bias.export import index_forecast
from trimtab.metrics.bootstrap import lift_intervals
from trimtab.metrics.evaluation import evaluate_units

N_USERS, N_ITEMS, K = 60, 90, 2
ITEM_IDS = np.random.default_rng(1).permutation(N_ITEMS) + 100  # rows are not in order of ids
USER_IDS = np.random.default_rng(2).permutation(N_USERS) + 7


def made(scale="additive", depth=None, ties=False):
    """Return biases, user vectors, item vectors and purchases; some excluded, some unknown."""
    draw = np.random.default_rng(0)
    users, items = (draw.normal(size=(n, 6)).astype("f4") for n in (N_USERS, N_ITEMS))
    if ties:
        users, items = np.round(users), np.round(items)
    ids = ITEM_IDS[:-10].tolist()
    sizes = draw.normal(size=len(ids))
    biases = dict(zip(ids, (np.round(sizes) if ties else sizes).tolist(), strict=True))
    bias = make_bias(biases, excluded=ids[:9], scale=scale, depth=depth)
    bought = pa.table(
        {
            "user_id": draw.choice([*USER_IDS[:40], 1_000], 150),
            "item_id": draw.choice([*ITEM_IDS[:60], 5_000], 150),
        }
    )
    return bias, users, items, bought


def ranked(bias, users, items, hidden, folded):
    """Return the top k by brute force: all pairs, sorted by score and id."""
    scores = users.astype("f8") @ items.astype("f8").T
    own = dict(zip(bias.item_ids.tolist(), bias.bias.tolist(), strict=True))
    out = set(bias.item_ids[bias.excluded].tolist())
    rows, scale = [], bias.scale
    for user, line in zip(USER_IDS.tolist(), scores.tolist(), strict=True):
        keys = []
        for item, score in zip(ITEM_IDS.tolist(), line, strict=True):
            if (user, item) in hidden or (folded and item in out):
                continue
            moved = own.get(item, 0.0) if folded else 0.0
            keys.append(
                (-(score + moved if scale == "additive" else score * math.exp(moved)), item)
            )
        best = sorted(keys)[:K]
        rows += [(user, item, rank) for rank, (_, item) in enumerate(best, 1)]
    return pd.DataFrame(rows, columns=["user_id", "item_id", "rank"])


@pytest.mark.parametrize("metric", ["acc", "map", "ndcg"])
@pytest.mark.parametrize("kind", ["additive", "ties", "log", "hidden"])
def test_the_forecast_is_what_brute_force_finds(kind, metric, monkeypatch):
    monkeypatch.setattr(index_forecast, "_USERS_PER_BLOCK", 7)
    bias, users, items, bought = made("log" if kind == "log" else "additive", ties=kind == "ties")
    bias = replace(bias, summary=replace(bias.summary, metric=metric))
    hidden, exclude = set(), None
    if kind == "hidden":
        pairs = ranked(bias, users, items, set(), True)[::3]
        hidden = set(zip(pairs["user_id"].tolist(), pairs["item_id"].tolist(), strict=True))
        exclude = pd.concat([pairs, pd.DataFrame({"user_id": [1, 8], "item_id": [100, 1]})])
    found = bias.forecast_index(
        items, users, bought, item_ids=ITEM_IDS, user_ids=USER_IDS, exclude=exclude
    )
    known = bought.to_pandas().query("user_id != 1000")
    before, after = (
        getattr(evaluate_units(ranked(bias, users, items, hidden, f), known, K).buyers(), metric)
        for f in (False, True)
    )
    assert before.mean() > 0
    assert found.before == pytest.approx(before.mean(), abs=1e-12)
    assert found.after == pytest.approx(after.mean(), abs=1e-12)
    assert found.lift == pytest.approx(after.sum() / before.sum() - 1)
    assert (found.n_users, found.n_skipped) == (known["user_id"].nunique(), 1)
    assert (found.metric, found.k, found.beyond, found.held_out) == (metric, K, None, None)


def test_biases_of_zero_change_nothing():
    bias, users, items, bought = made()
    nothing = replace(bias, bias=np.zeros(len(bias)), excluded=np.zeros(len(bias), bool), depth=5)
    found = nothing.forecast_index(items, users, bought, item_ids=ITEM_IDS, user_ids=USER_IDS)
    assert found.before == found.after
    assert (found.lift, found.low, found.high, found.beyond) == (0.0, 0.0, 0.0, 0.0)


def test_the_interval_is_close_to_that_of_a_bootstrap():
    draw = np.random.default_rng(5)
    before = draw.uniform(size=2_000)
    after = before + draw.normal(0.02, 0.2, 2_000)
    (drawn,) = lift_intervals(after[:, None], before[:, None], 4_000, 0, level=0.9)
    found = index_forecast._lift_and_interval(before, after)
    assert found["lift"] == pytest.approx(drawn.lift)
    wider = index_forecast._WIDER_FOR_DAYS
    for bound in ("low", "high"):
        width = (found[bound] - found["lift"]) / wider
        assert width == pytest.approx(getattr(drawn, bound) - drawn.lift, rel=0.1)


def test_the_share_from_beyond_the_depth():
    """Two users see items 0, 1, 2, 3 in this order; a bias lifts the last one to the top."""
    bias = make_bias({3: 10.0}, depth=2)
    bought = pa.table({"user_id": [0, 1], "item_id": [3, 0]})
    items, users = np.array([[4.0], [3.0], [2.0], [1.0]]), np.ones((2, 1))
    found = bias.forecast_index(items, users, bought)
    assert found.beyond == 0.5  # the top 2 is 3 and 0
    assert (found.before, found.n_users) == (0.5, 2)
    assert found.after == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert replace(bias, depth=4).forecast_index(items, users, bought).beyond == 0.0
    assert repr(found).startswith("IndexForecast(ndcg@2 0.5000 -> 0.8155, +63.1%; 90 % interval ")


def at(*days):
    return pa.array([pd.Timestamp(f"2026-03-0{day}", tz="UTC") for day in days])


def test_purchases_that_were_learned_from_warn():
    bias = make_bias({0: 0.5, 1: 0.0})
    learned = replace(
        bias, window={"rows": 2, "first": "2026-03-01", "last": "2026-03-03 00:00+00:00"}
    )
    bought = {"user_id": [0, 1], "item_id": [0, 1]}
    vectors = np.eye(2)
    later = pa.table({**bought, "timestamp": at(4, 5)})
    assert learned.forecast_index(vectors, vectors, later).held_out is True
    with pytest.warns(tt.TrimtabWarning, match="too high; pass only later purchases"):
        found = learned.forecast_index(
            vectors, vectors, pa.table({**bought, "timestamp": at(3, 5)})
        )
    assert found.held_out is False
    local = pa.table({**bought, "timestamp": pa.array(["2026-03-04", "2026-03-05"])})
    for unknown in (pa.table(bought), local):
        assert learned.forecast_index(vectors, vectors, unknown).held_out is None
    assert bias.forecast_index(vectors, vectors, later).held_out is None


def test_nothing_to_compare_with_is_nan():
    bias = make_bias({0: 0.5})
    bought = pa.table({"user_id": [0], "item_id": [9]})
    found = bias.forecast_index(np.eye(3), np.eye(3), bought)
    assert (found.before, found.after) == (0.0, 0.0)
    assert math.isnan(found.lift)
    assert math.isnan(found.low)


def test_what_cannot_be_forecast_is_refused_by_name():
    bias, users, items, bought = made()
    with pytest.raises(tt.DataError, match="no user_id of purchases is in user_ids"):
        bias.forecast_index(
            items, users, bought.slice(0, 1), item_ids=ITEM_IDS, user_ids=range(900, 960)
        )
    with pytest.raises(tt.DataError, match="user_ids has 1 ids but user_vectors has 60 rows"):
        bias.forecast_index(items, users, bought, item_ids=ITEM_IDS, user_ids=[7])
    with pytest.raises(tt.DataError, match="item_ids=None"):
        bias.forecast_index(items, users, bought)
    with pytest.raises(tt.DataError, match="5 columns"):
        bias.forecast_index(items, users[:, :5], bought, item_ids=ITEM_IDS, user_ids=USER_IDS)
    with pytest.raises(tt.SettingError, match="scale='list'"):
        replace(bias, scale="list").forecast_index(
            items, users, bought, item_ids=ITEM_IDS, user_ids=USER_IDS
        )
