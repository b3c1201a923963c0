"""Biases from counts: the same lists as the rivals give, and gamma from held-out windows."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from dated_shop import DatedShop
from trimtab.errors import DataError, GuardWarning, SettingError
from trimtab.experiments.rivals import popularity_ratio, recent_popularity
from trimtab.learn.counts.count_biases import GAMMAS


@pytest.fixture(scope="module")
def shop():
    return DatedShop()


@pytest.fixture(scope="module")
def biases(shop):
    return {
        method: tt.BiasLearner(method=method).fit(shop.recs, shop.recent, history=shop.history)
        for method in GAMMAS
    }


def once(events: pa.Table) -> pa.Table:
    """Each buyer of an item once."""
    return events.group_by(["user_id", "item_id"]).aggregate([])


@pytest.mark.parametrize("gamma", [0.1, 0.7])
def test_one_window_with_a_given_gamma_ranks_like_the_rivals(shop, gamma):
    recs, recent = shop.newest()
    rivals = {
        "ratio": popularity_ratio(shop.tonight, recs, once(recent), gamma),
        "recent": recent_popularity(shop.tonight, once(recent), gamma),
    }
    for method, expected in rivals.items():
        bias = tt.BiasLearner(method=method, gamma=gamma).fit(recs, recent)
        top = bias.apply(shop.tonight, depth="all")
        known = pc.is_in(top["item_id"], pa.array(bias.item_ids))
        assert pc.all(known).as_py()
        theirs = tt.BiasLearner(method="recent", gamma=0.0).fit(recs, recent).apply(expected)
        assert top["item_id"].equals(theirs["item_id"])


def test_gamma_is_the_best_on_held_out_windows(shop, biases):
    """Counts of each window, judged on the lists and purchases of the next by the rival itself."""
    labels = sorted(set(shop.recs["window"].to_pylist()))
    own = {
        label: tuple(
            table.filter(pc.equal(table["window"], label)).drop_columns("window")
            for table in (shop.recs, shop.recent)
        )
        for label in labels
    }
    totals = {}
    for gamma in GAMMAS["recent"]:
        values = []
        for older, newer in itertools.pairwise(labels):
            lists = recent_popularity(own[newer][0], once(own[older][1]), gamma)
            found = tt.evaluate(lists, own[newer][1])
            values.append(found["ndcg"] * found["n_users"])
        totals[gamma] = sum(values)
    best = max(totals, key=totals.__getitem__)
    summary = biases["recent"].summary
    share = summary.kept["recent"]
    assert 0 < share <= 1
    assert summary.coefficients["gamma"] == pytest.approx(share * best)


@pytest.mark.parametrize("method", ["ratio", "recent"])
def test_what_counts_gain_is_forecast(shop, biases, method):
    summary = biases[method].summary
    assert summary.method == method
    assert summary.n_windows == 3
    assert summary.forecast_windows == 2
    assert summary.forecast_low <= shop.lift(biases[method]) <= summary.forecast_high
    assert shop.lift(biases[method]) > 0


def test_the_order_of_rows_does_not_matter(shop, biases, bytes_of):
    rng = np.random.default_rng(0)
    tables = [
        table.take(rng.permutation(table.num_rows))
        for table in (shop.recs, shop.recent, shop.history)
    ]
    for method, bias in biases.items():
        again = tt.BiasLearner(method=method).fit(tables[0], tables[1], history=tables[2])
        assert bytes_of(again.table()) == bytes_of(bias.table())
        assert again.summary == bias.summary


def test_without_a_gain_all_biases_are_0(shop):
    rng = np.random.default_rng(1)
    anything = rng.choice(pc.unique(shop.recs["item_id"]).to_numpy(), shop.recent.num_rows)
    place = shop.recent.column_names.index("item_id")
    scrambled = shop.recent.set_column(place, "item_id", pa.array(anything))
    with pytest.warns(GuardWarning, match="no clear gain in NDCG@10 on held-out data"):
        bias = tt.BiasLearner(method="ratio").fit(shop.recs, scrambled, history=shop.history)
    assert not np.any(bias.bias)
    assert bias.summary.forecast is None


def test_a_saved_bias_of_counts_loads(biases, shop, tmp_path):
    biases["ratio"].save(tmp_path / "bias")
    loaded = tt.ItemBias.load(tmp_path / "bias")
    assert loaded.apply(shop.tonight).equals(biases["ratio"].apply(shop.tonight))
    assert loaded.summary == biases["ratio"].summary


def test_gamma_needs_several_windows(shop):
    recs, recent = shop.newest()
    with pytest.raises(SettingError, match=r"gamma=None: .* one window; pass gamma=0.2"):
        tt.BiasLearner(method="ratio").fit(recs, recent)


def test_the_difference_needs_history(shop):
    with pytest.raises(DataError, match="history is missing: method='difference' compares"):
        tt.BiasLearner(method="difference").fit(shop.recs, shop.recent)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ratio", "penalty": 2.0}, "penalty=2.0 is a setting of the ascent"),
        ({"method": "hierarchy", "gamma": 0.1}, "gamma=0.1 is a setting of methods that count"),
        ({"gamma": 0.1}, "gamma=0.1 is a setting of methods that count"),
        ({"method": "ratio", "scale": "log"}, "method='ratio' has its own scale"),
        ({"method": "ratio", "gamma": -1}, "gamma=-1"),
        ({"method": "count"}, "method='count'"),
    ],
)
def test_settings_of_other_methods_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        tt.BiasLearner(**settings)
