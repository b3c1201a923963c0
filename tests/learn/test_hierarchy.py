"""The robust default: what it learns, what it forecasts and when it changes nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trimtab as tt
from changed_tables import as_dates, with_column
from drift import generate_drift
from trimtab.learn import bias_fit

DEFAULT = tt.BiasLearner()


@pytest.fixture(scope="module")
def drifted():
    return generate_drift(n_users=6_000, n_items=800, n_listed=40, drift=0.6, seed=0)


@pytest.fixture(scope="module")
def learned(drifted):
    return fit(drifted, history=drifted.history_events(), items=drifted.catalogue())


def lift(bias: tt.ItemBias, data, metric: str = "ndcg") -> float:
    recs, later = data.recs(), data.test_events()
    after = tt.evaluate(bias.apply(recs, k=10), later)[metric]
    return after / tt.evaluate(recs, later)[metric] - 1


def fit(data, learner=DEFAULT, **tables) -> tt.ItemBias:
    return learner.fit(data.recs(), data.recent_events(), **tables)


def quiet() -> warnings.catch_warnings:
    return warnings.catch_warnings(action="ignore", category=tt.GuardWarning)


@pytest.mark.parametrize("metric", ["acc", "map", "ndcg"])
def test_every_metric_rises_on_later_days(metric, drifted):
    bias = fit(drifted, tt.BiasLearner(metric=metric), history=drifted.history_events())
    observed = lift(bias, drifted, metric)
    assert observed > 0.05
    assert bias.summary.forecast == pytest.approx(observed, abs=0.05)
    assert bias.summary.forecast_low < bias.summary.forecast < bias.summary.forecast_high


def test_the_summary_agrees_with_ranking_and_evaluating(drifted, learned):
    recs, recent = drifted.recs(), drifted.recent_events()
    assert learned.summary.method == "hierarchy"
    assert learned.summary.before == pytest.approx(tt.evaluate(recs, recent)["ndcg"])
    after = tt.evaluate(learned.apply(recs, k=10), recent)["ndcg"]
    assert learned.summary.after == pytest.approx(after)
    total = learned.summary.objective_after - learned.summary.objective_before
    assert learned.gain.sum() == pytest.approx(total)
    assert len(learned.summary.coefficients) == 6
    top = learned.apply(recs, k=10)["item_id"].to_numpy()
    most = np.sort(np.bincount(top))[-10:].sum() / len(top)
    assert learned.summary.concentration_after == pytest.approx(most)


def test_parts_add_up_and_intervals_contain_the_bias(learned):
    table = learned.table().to_pandas()
    parts = table["trend"] + table["category"] + table["own"]
    assert parts.to_numpy() == pytest.approx(table["bias"].to_numpy())
    assert (table["low"] < table["bias"]).all()
    assert (table["bias"] < table["high"]).all()
    # More buyers give a narrower interval.
    widths = table["high"] - table["low"]
    many = table["support"] > table["support"].quantile(0.9)
    assert widths[many].mean() < 0.7 * widths[table["support"] <= 1].mean()


@pytest.mark.parametrize("seed", range(3))
def test_intervals_cover_the_truth(seed):
    data = generate_drift(seed=seed)
    bias = fit(data, history=data.history_events())
    listed = np.bincount(data.lists.items, minlength=data.n_items)
    known = np.isfinite(data.trend) & (listed >= 10)
    truth, weight = data.trend[known], listed[known]
    table = bias.table().to_pandas().set_index("item_id").loc[np.flatnonzero(known)]
    # Only differences matter to a ranking: compare relative to the mean of listed items.
    truth = truth - np.average(truth, weights=weight)
    truth = truth + np.average(table["bias"], weights=weight)
    covered = ((table["low"] <= truth) & (truth <= table["high"])).mean()
    assert 0.85 <= covered <= 0.97


@pytest.mark.parametrize("n_users", [2_000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_without_drift_it_changes_almost_nothing(n_users, seed):
    data = generate_drift(n_users=n_users, drift=0, seed=seed)
    with quiet():
        bias = fit(data, history=data.history_events())
    assert -0.005 <= lift(bias, data) <= 0.005


def test_no_gain_on_held_out_data_warns_and_sets_all_biases_to_zero():
    data = generate_drift(n_users=300, n_items=200, n_listed=20, drift=0, seed=2)
    with pytest.warns(tt.GuardWarning, match="no clear gain in NDCG@10 on held-out data") as seen:
        bias = fit(data)
    assert seen[0].filename == __file__
    assert bias.summary.forecast is bias.summary.forecast_low is bias.summary.forecast_high is None
    assert not bias.bias.any()
    assert bias.apply(data.recs()).equals(bias.apply(data.recs(), k=10))
    assert set(bias.summary.kept.values()) == {0.0}


def test_nothing_is_learned_from_lists_without_a_hit():
    recs = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 8], "score": [0.9, 0.8, 0.5]})
    recent = pa.table({"user_id": [1, 2], "item_id": [9, 7]})
    with pytest.warns(tt.GuardWarning, match=r"too little to tell: 0 users .* at least 10"):
        bias = tt.BiasLearner(k=2).fit(recs, recent)
    assert bias.bias.tolist() == [0.0, 0.0, 0.0]
    assert bias.summary.forecast is None


# The same answer -------------------------------------------------------------------------------


def test_threads_give_the_same_bytes_and_another_seed_other_folds(
    drifted, learned, bytes_of, monkeypatch
):
    tables = {"history": drifted.history_events(), "items": drifted.catalogue()}
    other = fit(drifted, tt.BiasLearner(seed=1), **tables)
    monkeypatch.setenv("TRIMTAB_THREADS", "3")
    again = fit(drifted, **tables)
    assert bytes_of(again.table()) == bytes_of(learned.table())
    assert again.summary == learned.summary
    assert other.bias.tolist() != learned.bias.tolist()
    assert np.corrcoef(other.bias, learned.bias)[0, 1] > 0.95


@pytest.mark.parametrize("shift", [0.0, -1.0], ids=["log", "additive"])
def test_scores_times_1024_give_the_same_ranking_to_the_byte(shift, drifted, bytes_of):
    recs = drifted.recs()
    scores = pc.add(recs["score"], shift)  # mostly below 0 for the additive scale
    small = recs.set_column(2, "score", scores)
    large = recs.set_column(2, "score", pc.multiply(scores, 1024.0))
    one, other = (DEFAULT.fit(r, drifted.recent_events()) for r in (small, large))
    assert one.scale == other.scale == ("additive" if shift else "log")
    top, top_of_large = one.apply(small), other.apply(large)
    columns = ["user_id", "item_id", "rank"]
    assert bytes_of(top.select(columns)) == bytes_of(top_of_large.select(columns))
    scores = [own["score"].to_numpy() for own in (top, top_of_large)]
    assert (scores[0] * 1024.0).tobytes() == scores[1].tobytes()
    assert lift(one, drifted) > (0.05 if not shift else -1)


# Optional inputs ----------------------------------------------------------------------------


def count_sales(data) -> pa.Table:
    counts = data.history_events().group_by("item_id").aggregate([([], "count_all")])
    return counts.rename_columns({"count_all": "count"})


def test_each_optional_input_adds_its_features(drifted, bytes_of):
    events = drifted.history_events()
    items = events.select(["item_id"])
    found = []
    for history, n_features in ((None, 2), (count_sales(drifted), 5), (items, 5), (events, 6)):
        found.append(fit(drifted, history=history))
        assert len(found[-1].summary.coefficients) == n_features
        assert found[-1].summary.kept["category"] == 0
        assert lift(found[-1], drifted) > 0.05
    assert bytes_of(found[1].table()) == bytes_of(found[2].table())


def timed(events: pa.Table, first: str, days: int, seed: int) -> pa.Table:
    draws = np.random.default_rng(seed).uniform(0, days, events.num_rows)
    times = pd.Timestamp(first) + pd.to_timedelta(draws, unit="D")
    return events.append_column("timestamp", pa.array(times.as_unit("us")))


def test_events_of_the_window_in_the_history_change_nothing(drifted, bytes_of):
    recent = timed(drifted.recent_events(), "2026-03-01", 3, 0)
    past = timed(drifted.history_events(), "2025-12-01", 90, 1)
    clean = DEFAULT.fit(drifted.recs(), recent, history=past)
    leaky = DEFAULT.fit(drifted.recs(), recent, history=pa.concat_tables([past, recent]))
    assert len(clean.summary.coefficients) == 9
    assert bytes_of(clean.table()) == bytes_of(leaky.table())
    zoned = with_column(past, "timestamp", pc.assume_timezone(past["timestamp"], "UTC"))
    for history in (zoned, zoned.drop_columns("user_id")):
        with pytest.raises(tt.DataError, match=r"'timestamp' .*history .*recent"):
            DEFAULT.fit(drifted.recs(), recent, history=history)


INVALID = {
    "'count' of history .*-2": {"history": {"item_id": [1], "count": [-2]}},
    "'item_id' .*history": {"history": {"user_id": [1]}},
    "'item_id' of items .*1": {"items": {"item_id": [1, 1], "category": ["a", "b"]}},
    "'category' .*items": {"items": {"item_id": [1]}},
    "'category' of items .*list": {"items": {"item_id": [1], "category": [["a", "b"]]}},
}


def test_invalid_history_and_items(drifted):
    for message, tables in INVALID.items():
        with pytest.raises(tt.DataError, match=message):
            fit(drifted, **{name: pa.table(columns) for name, columns in tables.items()})


def test_earlier_windows_are_used_to_learn_and_to_validate(drifted):
    recs = stacked({"2026-03-01": drifted.recs(), "2026-03-04": drifted.recs()})
    recent = stacked({"2026-03-01": drifted.test_events(), "2026-03-04": drifted.recent_events()})
    bias = DEFAULT.fit(recs, recent)
    alone = fit(drifted)
    assert bias.summary.n_users > 1.5 * alone.summary.n_users
    # Learned on one window and validated on the other.
    assert bias.summary.forecast > 0.05
    assert bias.summary.forecast != alone.summary.forecast
    both = np.isin(bias.item_ids, alone.item_ids)
    assert np.corrcoef(bias.bias[both], alone.bias)[0, 1] > 0.8


def test_users_of_weight_zero_do_not_count(drifted, bytes_of):
    recs, recent = drifted.recs(), drifted.recent_events()
    half = pc.less(recent["user_id"], 3000)
    weights = pa.table({"user_id": np.arange(3000, 6000), "weight": np.zeros(3000)})
    some = DEFAULT.fit(recs, recent, weights=weights)
    fewer = DEFAULT.fit(recs, recent.filter(half))
    known = ~some.fresh & ~fewer.fresh
    assert some.bias[known] == pytest.approx(fewer.bias[known], abs=1e-9)


# Unusual items and scores -----------------------------------------------------------------


def test_fresh_items_take_the_bias_of_their_category(drifted, learned):
    new = pa.table(
        {"item_id": [900, 901], "category": [drifted.catalogue()["category"][0].as_py(), None]}
    )
    catalogue = pa.concat_tables([drifted.catalogue(), new.cast(drifted.catalogue().schema)])
    bias = fit(drifted, history=drifted.history_events(), items=catalogue)
    table = bias.table().to_pandas().set_index("item_id")
    assert table.loc[[900, 901], "fresh"].all()
    assert table.loc[900, "bias"] == table.loc[900, "category"] != 0
    assert table.loc[901, "bias"] == 0
    mates = drifted.category == drifted.category[0]
    near = table.loc[np.flatnonzero(mates)]
    assert near["bias"].min() <= table.loc[900, "bias"] <= near["bias"].max()


def test_zero_and_negative_scores_keep_their_order(drifted):
    recs = drifted.recs().to_pandas()
    last = recs.groupby("user_id").cumcount() >= 38
    recs.loc[last, "score"] = np.where(recs.loc[last, "item_id"] % 2, 0.0, -0.5)
    bias = DEFAULT.fit(recs, drifted.recent_events())
    assert bias.scale == "log"
    recs = recs[recs["user_id"] < 500]
    top = bias.apply(recs, k=40)
    raw = recs.set_index(["user_id", "item_id"])["score"]
    scores = raw.loc[pd.MultiIndex.from_frame(top[["user_id", "item_id"]])].to_numpy()
    biases = pd.Series(bias.bias, index=np.asarray(bias.item_ids))[top["item_id"]].to_numpy()
    expected = scores * np.exp(np.sign(scores) * biases)
    assert top["score"].to_numpy() == pytest.approx(expected, rel=1e-9)
    # Positive scores stay above zero and negative ones below it, for every user.
    signs = np.sign(scores).reshape(-1, 40)
    assert (np.diff(signs, axis=1) <= 0).all()


def test_lists_that_become_too_similar_are_flagged():
    random = np.random.default_rng(0)
    n_users, n_items = 3000, 400
    recs = pd.DataFrame(
        {
            "user_id": np.repeat(np.arange(n_users), 20),
            "item_id": np.concatenate([random.permutation(n_items)[:20] for _ in range(n_users)]),
            "score": random.uniform(0.4, 0.6, n_users * 20),
        }
    )
    trendy = recs[recs["item_id"] < 40].groupby("user_id").head(1)[["user_id", "item_id"]]
    learner = tt.BiasLearner(k=2)
    with pytest.warns(tt.GuardWarning, match=r"most shown items .*similar"):
        bias = learner.fit(recs, trendy)
    assert bias.summary.concentration_after > bias.summary.concentration_before + 0.1


# Unusual data ---------------------------------------------------------------


def stacked(tables: dict[str, pa.Table]) -> pa.Table:
    return pa.concat_tables(
        [t.append_column("window", pa.array([label] * t.num_rows)) for label, t in tables.items()]
    )


def test_windows_without_purchases_or_lists_change_nothing(drifted):
    recs, recent = drifted.recs(), timed(drifted.recent_events(), "2026-03-04", 3, 0)
    past = timed(drifted.history_events(), "2025-12-01", 90, 1)
    alone = DEFAULT.fit(recs, recent, history=past)
    for label in ("2026-03-01", "2026-03-07"):
        more_lists = stacked({"2026-03-04": recs, label: recs})
        bias = DEFAULT.fit(more_lists, stacked({"2026-03-04": recent}), history=past)
        assert bias.bias == pytest.approx(alone.bias, abs=0.3)
        assert np.corrcoef(bias.bias, alone.bias)[0, 1] > 0.99
        strangers = timed(pa.table({"user_id": [1], "item_id": [3]}), label, 1, 0)
        more_sales = stacked({"2026-03-04": recent, label: strangers})
        with quiet():  # the newest window has one day
            bias = DEFAULT.fit(stacked({"2026-03-04": recs}), more_sales, history=past)
        assert np.corrcoef(bias.bias, alone.bias)[0, 1] > 0.99


def test_the_scale_of_weights_does_not_matter(drifted, learned):
    tables = {"history": drifted.history_events(), "items": drifted.catalogue()}
    for weight in (1e-12, 1e9, 1e300):
        weights = pa.table({"user_id": np.arange(6000), "weight": np.full(6000, weight)})
        bias = fit(drifted, weights=weights, **tables)
        assert bias.bias == pytest.approx(learned.bias, abs=1e-6)
        assert bias.summary.forecast == pytest.approx(learned.summary.forecast)


def test_an_engine_that_never_hits_can_still_be_helped():
    users = np.arange(400)
    columns = np.repeat(users, 2), np.tile([1, 2], 400), np.tile([0.9, 0.8], 400)
    recs = pa.table(dict(zip(("user_id", "item_id", "score"), columns, strict=True)))
    recent = pa.table({"user_id": users, "item_id": np.full(400, 2)})
    bias = tt.BiasLearner(k=1).fit(recs, recent)
    assert (bias.summary.before, bias.summary.after) == (0.0, 1.0)
    assert bias.summary.forecast is None


def test_one_item_that_many_users_want_is_found():
    random = np.random.default_rng(1)
    n_users, n_items = 2000, 300
    items = np.argsort(random.random((n_users, n_items)), axis=1)[:, :100]
    items[:, 0] = np.where((items == 7).any(axis=1), items[:, 0], 7)
    chosen = np.where(random.random(n_users) < 0.3, 7, items[:, 50])
    recs = pa.table(
        {"user_id": np.repeat(np.arange(n_users), 100), "item_id": items.ravel(),
         "score": random.uniform(0.5, 0.6, items.size)}
    )  # fmt: skip
    recent = pa.table({"user_id": np.arange(n_users), "item_id": chosen})
    with quiet():  # lists do become similar
        bias = DEFAULT.fit(recs, recent)
    assert int(bias.item_ids[np.argmax(bias.bias)]) == 7
    assert np.isfinite(bias.bias).all()
    assert bias.summary.after > bias.summary.before + 0.1


def test_counts_and_dates_in_the_window_are_left_out(drifted, bytes_of):
    recent = timed(drifted.recent_events(), "2026-03-01", 3, 0)
    counts = count_sales(drifted)
    dated = with_column(counts, "timestamp", pd.Timestamp("2026-02-01"))
    late = pa.table(
        {"item_id": [5], "count": [10**6], "timestamp": [pd.Timestamp("2026-03-01 23:00")]}
    )
    clean = DEFAULT.fit(drifted.recs(), recent, history=dated)
    leaky = pa.concat_tables([dated, late.cast(dated.schema)])
    again = DEFAULT.fit(drifted.recs(), recent, history=leaky)
    assert bytes_of(again.table()) == bytes_of(clean.table())
    # A date counts as midnight, before the first purchase of the day.
    past = timed(drifted.history_events(), "2025-12-01", 90, 1)
    days = as_dates(past)
    first = pa.table({"user_id": [1], "item_id": [5], "timestamp": [pd.Timestamp("2026-03-01")]})
    later = pa.concat_tables([days, first.cast(days.schema)])
    one, other = (DEFAULT.fit(drifted.recs(), recent, history=h) for h in (days, later))
    assert bytes_of(one.table()) == bytes_of(other.table())


def test_categories_of_any_simple_type(drifted, learned):
    codes = pa.array(drifted.category % 100)
    text = codes.cast(pa.string())
    for column in (
        text, text.cast(pa.string_view()), text.dictionary_encode(), codes.cast(pa.int16()),
        pa.nulls(len(codes)),
    ):  # fmt: skip
        items = pa.table({"item_id": np.arange(len(codes)), "category": column})
        assert np.corrcoef(fit(drifted, items=items).bias, learned.bias)[0, 1] > 0.8


def test_scores_of_any_magnitude_keep_their_order():
    scores = [1e300, 1.0, 1e-300, 5e-324, 0.0, -1e-300, -1.0, -1e300]
    recs = pa.table({"user_id": [1] * 8, "item_id": np.arange(8), "score": scores})
    data = generate_drift(n_users=400, n_items=120, n_listed=20, drift=1.0, seed=3)
    with quiet():
        bias = tt.BiasLearner(k=5).fit(data.recs(), data.recent_events())
    flat = replace(bias, bias=np.zeros(len(bias)))
    assert bias.scale == "log"
    top = flat.apply(recs, k=8)
    assert top["item_id"].to_pylist() == list(range(8))
    assert top["score"].to_numpy() == pytest.approx(scores, rel=1e-12)


def test_a_trend_that_does_not_converge_changes_nothing(monkeypatch, drifted):
    monkeypatch.setattr("trimtab.learn.choice_model._NEWTON_STEPS", 1)
    with pytest.warns(tt.GuardWarning, match="converge"):
        bias = fit(drifted)
    assert not bias.summary.converged
    assert not bias.bias.any()
    assert bias.summary.forecast is None


def test_a_scale_that_does_not_converge_is_not_chosen(monkeypatch):
    """Neither of the other two scales is clearly better than the other."""
    fit_really = bias_fit.fit_trend

    def fit_on(sample, scale, step):
        trend = fit_really(sample, scale, step)
        coefficients = trend.whole.coefficients._replace(converged=scale.name != "log")
        return trend._replace(whole=trend.whole._replace(coefficients=coefficients))

    data = generate_drift(n_users=1_000, n_items=120, n_listed=20, drift=1.0, seed=3)
    assert fit(data).scale == "log"
    monkeypatch.setattr(bias_fit, "fit_trend", fit_on)
    assert fit(data).scale == "additive"
