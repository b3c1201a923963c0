"""The generators: shapes, determinism, and the stated drift."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import (
    KINDS,
    DriftData,
    DriftSettings,
    generate_drift,
    generate_items,
    generate_log,
)
from trimtab.datasets.random_tables import alias_slots
from trimtab.errors import SettingError

STEADY, TRENDING, FADING, SEASONAL, NEW, WITHDRAWN = range(len(KINDS))
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def calm() -> DriftData:
    return generate_drift(n_users=60_000, n_items=1_000, drift=0.0)


@pytest.fixture(scope="module")
def strong() -> DriftData:
    return generate_drift(n_users=60_000, n_items=1_000, drift=1.0)


def bought(data: DriftData, window: str) -> np.ndarray:
    return np.bincount(getattr(data, window).items, minlength=data.n_items)


def same(left: DriftData, right: DriftData) -> bool:
    pairs = [
        (a, b)
        for name in ("lists", "history", "recent", "test")
        for a, b in zip(getattr(left, name), getattr(right, name), strict=True)
    ]
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


def difference(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Chi-square over its degrees of freedom of two counts, and its standard deviation."""
    seen = (left + right) >= 10
    expected = (left + right) * (left.sum() / (left.sum() + right.sum()))
    variance = (left + right) * (left.sum() * right.sum()) / (left.sum() + right.sum()) ** 2
    terms = (left - expected)[seen] ** 2 / variance[seen]
    return float(terms.mean()), float(np.sqrt(2.0 / seen.sum()))


# --- shapes ---------------------------------------------------------------------------------------


def test_arrays_have_the_coded_types(strong: DriftData) -> None:
    assert strong.lists.n_units == strong.recent.n_units == strong.test.n_units == 60_000
    assert strong.lists.indptr.dtype == np.int64
    assert strong.lists.items.dtype == np.int32
    assert strong.lists.scores.dtype == np.float64
    for window in (strong.history, strong.recent, strong.test):
        assert window.indptr.dtype == np.int64
        assert window.items.dtype == np.int32
        assert window.indptr[0] == 0
        assert window.indptr[-1] == len(window.items)
    assert len(strong.kind) == len(strong.trend) == len(strong.category) == strong.n_items == 1_000
    assert strong.category.dtype == np.int32


def test_lists_are_distinct_items_in_order_of_positive_scores(strong: DriftData) -> None:
    items = strong.lists.items.reshape(strong.n_users, 50)
    scores = strong.lists.scores.reshape(strong.n_users, 50)
    assert np.array_equal(np.diff(strong.lists.indptr), np.full(strong.n_users, 50))
    assert items.min() >= 0
    assert items.max() < strong.n_items
    assert np.diff(np.sort(items, axis=1), axis=1).min() > 0
    assert scores.min() > 0
    steps, codes = np.diff(scores, axis=1), np.diff(items, axis=1)
    assert ((steps < 0) | ((steps == 0) & (codes > 0))).all()
    assert (steps == 0).mean() < 1e-4


def test_sets_are_ascending_without_repeats(strong: DriftData) -> None:
    for window in (strong.history, strong.recent, strong.test):
        inner = np.ones(len(window.items), bool)
        inner[window.indptr[:-1][np.diff(window.indptr) > 0]] = False
        assert (np.diff(window.items)[inner[1:]] > 0).all()


def test_tables_carry_ids(strong: DriftData) -> None:
    recs, recent = strong.recs(), strong.recent_events()
    assert recs.schema.names == ["user_id", "item_id", "score"]
    assert recs.schema.types == [pa.int64(), pa.int64(), pa.float64()]
    assert recs.num_rows == len(strong.lists.items)
    assert recent.schema.names == strong.test_events().schema.names == ["user_id", "item_id"]
    assert recent["item_id"].to_numpy().tolist() == strong.recent.items.tolist()
    per_user = np.bincount(recent["user_id"].to_numpy(), minlength=strong.n_users)
    assert np.array_equal(per_user, np.diff(strong.recent.indptr))
    assert strong.history_events().num_rows == len(strong.history.items)
    assert strong.catalogue().schema.names == ["item_id", "category"]
    truth = strong.items.truth()
    assert truth.schema.names == ["item_id", "kind", "trend", "long_run", "now"]
    assert set(truth["kind"].to_pylist()) == set(KINDS)


# --- determinism ----------------------------------------------------------------------------------


def test_same_bytes_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("TRIMTAB_THREADS", threads)
        runs.append((generate_drift(n_users=9_000, seed=3), generate_log(n_users=5_000, seed=3)))
    for data, log in runs[1:]:
        assert same(data, runs[0][0])
        assert log.equals(runs[0][1])


def test_another_seed_gives_other_data() -> None:
    first, second = generate_drift(n_users=500, seed=1), generate_drift(n_users=500, seed=2)
    assert not same(first, second)
    assert not np.array_equal(first.kind, second.kind)
    logs = [generate_log(n_users=100, seed=seed) for seed in (1, 2)]
    assert not logs[0].equals(logs[1])


def test_users_do_not_depend_on_how_many_there_are() -> None:
    few, many = generate_drift(n_users=50), generate_drift(n_users=5_000)
    assert np.array_equal(few.lists.items, many.lists.items[: 50 * 50])
    assert np.array_equal(few.test.items, many.test.items[: few.test.indptr[-1]])


# --- drift ----------------------------------------------------------------------------------------


def test_no_drift_changes_nothing(calm: DriftData) -> None:
    assert (calm.kind == STEADY).all()
    assert (calm.trend == 0).all()
    assert np.array_equal(calm.items.long_run, calm.items.now)
    history, recent, test = (bought(calm, name) for name in ("history", "recent", "test"))
    for left, right in ((history, recent), (recent, test)):
        mean, deviation = difference(left, right)
        assert abs(mean - 1.0) < 5 * deviation


def test_strong_drift_lasts_from_recent_to_test(strong: DriftData) -> None:
    history, recent, test = (bought(strong, name) for name in ("history", "recent", "test"))
    for now in (recent, test):
        ratio = {kind: now[strong.kind == kind].sum() for kind in (STEADY, TRENDING, FADING)}
        for kind in ratio:
            ratio[kind] /= history[strong.kind == kind].sum()
        assert ratio[TRENDING] > 3 * ratio[STEADY]
        assert ratio[FADING] < ratio[STEADY] / 3
    assert difference(history, recent)[0] > 20
    mean, deviation = difference(recent, test)
    assert abs(mean - 1.0) < 5 * deviation


def test_trend_is_the_change_that_happened(strong: DriftData) -> None:
    history, recent = bought(strong, "history"), bought(strong, "recent")
    known = np.isfinite(strong.trend) & (history >= 50)
    change = np.log((recent[known] + 0.5) / history[known])
    assert np.corrcoef(change, strong.trend[known])[0, 1] > 0.95
    slope = np.polyfit(strong.trend[known], change, 1)[0]
    assert 0.8 < slope < 1.1


def test_log_changes_are_those_of_sales_to_listers() -> None:
    data = generate_drift(n_users=150_000, n_items=300, purchases_per_user=1.0, drift=1.0)
    items, scores = data.lists.items, data.lists.scores
    rows = np.repeat(np.arange(data.n_users), np.diff(data.lists.indptr)) * 300 + items
    sold = [
        np.bincount(items[np.isin(rows, users * 300 + window.items)], minlength=300)
        for window in (data.history, data.test)
        for users in [np.repeat(np.arange(data.n_users), np.diff(window.indptr))]
    ]
    expected = [
        np.bincount(items, weights, minlength=300)
        for weights in (scores, scores * np.exp(data.log_changes()))
    ]
    often = np.minimum(*sold) >= 100
    seen, stated = (np.log(now[often] / before[often]) for before, now in (sold, expected))
    errors = np.sqrt(1 / sold[0][often] + 1 / sold[1][often])
    assert often.sum() > 50
    assert np.mean(((seen - stated) / errors) ** 2) == pytest.approx(1.0, abs=0.3)


def test_effective_trend_leaves_out_what_the_category_does(strong: DriftData) -> None:
    trend, effective = strong.trend, strong.effective_trend
    assert np.array_equal(np.isneginf(effective), strong.kind == WITHDRAWN)
    assert np.isnan(effective[strong.kind == NEW]).all()
    known = np.isfinite(trend)
    assert 0.9 < np.corrcoef(trend[known], effective[known])[0, 1] < 0.999
    calm = generate_drift(n_users=200, drift=0.0)
    assert np.abs(calm.log_changes()).max() < 1e-9


def test_withdrawn_items_are_listed_but_no_longer_bought(strong: DriftData) -> None:
    withdrawn = strong.kind == WITHDRAWN
    assert withdrawn.any()
    assert (strong.trend[withdrawn] == -np.inf).all()
    assert bought(strong, "history")[withdrawn].sum() > 1_000
    assert bought(strong, "recent")[withdrawn].sum() == 0
    assert bought(strong, "test")[withdrawn].sum() == 0
    assert withdrawn[strong.lists.items].sum() > 1_000


def test_new_items_are_bought_but_not_listed(strong: DriftData) -> None:
    new = strong.kind == NEW
    assert new.any()
    assert (strong.trend[new] == np.inf).all()
    assert bought(strong, "history")[new].sum() == 0
    assert bought(strong, "recent")[new].sum() > 500
    assert not new[strong.lists.items].any()


@pytest.mark.parametrize("drift", [0.5, 1.0])
def test_biases_from_the_true_trend_help(drift: float) -> None:
    data = generate_drift(n_users=20_000, drift=drift)
    change = np.exp(np.minimum(data.trend, 30.0))
    raw = hit_share(data, data.lists.scores)
    steered = hit_share(data, data.lists.scores * change[data.lists.items])
    assert steered > raw * (1.0 + 0.08 * drift)


def test_without_drift_recent_popularity_does_not_help(calm: DriftData) -> None:
    ratio = (bought(calm, "recent") + 1.0) / (bought(calm, "history") + 1.0)
    raw = hit_share(calm, calm.lists.scores)
    steered = hit_share(calm, calm.lists.scores * ratio[calm.lists.items])
    assert steered < raw * 1.005


def hit_share(data: DriftData, scores: np.ndarray, k: int = 10) -> float:
    """Share of the test purchases that are in the top k by these scores."""
    order = np.argsort(-scores.reshape(data.n_users, -1), axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(data.lists.items.reshape(data.n_users, -1), order, axis=1)
    users = np.repeat(np.arange(data.n_users), np.diff(data.test.indptr))
    return float((top[users] == data.test.items[:, None]).any(axis=1).mean())


# --- realism --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [2_000, 50_000])
def test_purchases_are_often_listed(n_items: int) -> None:
    data = generate_drift(n_users=10_000, n_items=n_items)
    listed = hit_share(data, data.lists.scores, k=50)
    assert 0.05 < listed < 0.30
    assert hit_share(data, data.lists.scores, k=10) > 0.3 * listed


def test_popularity_and_activity_are_heavy_tailed(calm: DriftData) -> None:
    sold = np.sort(bought(calm, "recent"))[::-1]
    assert sold[:100].sum() > 0.35 * sold.sum()
    assert sold[500:].sum() > 0.10 * sold.sum()
    per_user = np.diff(calm.recent.indptr)
    assert per_user.mean() == pytest.approx(3.0, rel=0.05)
    assert 0.1 < (per_user == 0).mean() < 0.4
    assert per_user.max() > 10 * per_user.mean()


def test_users_have_favourite_categories(calm: DriftData) -> None:
    """Two purchases of one user share a category far more often than those of two users."""
    category = calm.category[calm.test.items]
    users = np.repeat(np.arange(calm.n_users), np.diff(calm.test.indptr))
    shuffled = np.random.default_rng(0).permutation(category)
    inside = users[1:] == users[:-1]
    together = (category[1:] == category[:-1])[inside].mean()
    apart = (shuffled[1:] == shuffled[:-1])[inside].mean()
    assert together > 1.3 * apart


def test_active_users_stay_active(calm: DriftData) -> None:
    recent, test = np.diff(calm.recent.indptr), np.diff(calm.test.indptr)
    assert np.corrcoef(recent, test)[0, 1] > 0.5


# --- items ----------------------------------------------------------------------------------------


def test_items_fill_every_category_and_keep_an_anchor() -> None:
    items = generate_items(n_items=300, drift=1.0, n_categories=40)
    assert np.array_equal(np.unique(items.category), np.arange(40))
    assert np.array_equal(items.category[items.anchor], np.arange(40))
    assert (items.kind[items.anchor] == STEADY).all()
    assert items.weight.sum() == pytest.approx(1.0)


def test_trends_have_the_sign_of_their_kind_and_grow_with_drift() -> None:
    for drift in (0.3, 1.0):
        items = generate_items(drift=drift)
        assert (items.trend[items.kind == STEADY] == 0).all()
        assert (items.trend[items.kind == TRENDING] >= 0.9 * drift).all()
        assert (items.trend[items.kind == FADING] <= -0.9 * drift).all()
        assert np.abs(items.trend[items.kind == SEASONAL]).max() <= 1.5 * drift


def test_drift_uses_the_items_of_the_same_settings() -> None:
    data, items = generate_drift(n_users=10, n_items=500), generate_items(n_items=500)
    assert np.array_equal(data.kind, items.kind)
    assert np.array_equal(data.trend, items.trend)
    assert data.settings == DriftSettings(n_users=10, n_items=500)


# --- drawing --------------------------------------------------------------------------------------


def test_alias_slots_hold_the_weights() -> None:
    weights = np.random.default_rng(0).pareto(1.0, 500) * (np.arange(500) % 7 > 0)
    pointers = np.array([0, 10, 12, 500], np.int64)
    slots = alias_slots(weights, pointers)
    for low, high in pairwise(pointers):
        stay = slots[low:high, 0] / 2.0**31
        drawn = np.bincount(slots[low:high, 1], stay, 500)
        drawn += np.bincount(slots[low:high, 2], 1.0 - stay, 500)
        expected = np.zeros(500)
        expected[low:high] = weights[low:high] / weights[low:high].sum()
        assert np.allclose(drawn / (high - low), expected, atol=1e-8)
    # A coin has 31 bits: a threshold of 0 is never met, and no other slot leads to weight 0.
    assert (slots[weights == 0, 0] == 0).all()
    assert (weights[slots[:, 2]] > 0).all()


def test_equal_scores_rank_by_item() -> None:
    from trimtab.kernels.simulated_shoppers import _fill_ranks

    items, ranks = np.array([9, 4, 7, 1, 8], np.int32), np.zeros(5, np.int64)
    _fill_ranks(items, np.array([0.5, 0.5, 2.0, 0.5, 0.1]), ranks)
    assert ranks.tolist() == [3, 2, 0, 1, 4]


# --- small and extreme ----------------------------------------------------------------------------


@pytest.mark.parametrize("drift", [0.0, 1.0])
@pytest.mark.parametrize(("n_items", "n_categories"), [(1, None), (7, 7), (60, 1), (60, 9)])
def test_lists_can_hold_the_whole_catalogue(
    n_items: int, n_categories: int | None, drift: float
) -> None:
    data = generate_drift(
        20, n_items, n_items, purchases_per_user=50.0, drift=drift, n_categories=n_categories
    )
    items = data.lists.items.reshape(20, n_items)
    assert np.array_equal(np.sort(items, axis=1), np.tile(np.arange(n_items), (20, 1)))
    assert (data.lists.scores > 0).all()
    assert (np.diff(data.recent.indptr) <= n_items).all()


def test_one_user_with_few_purchases() -> None:
    data = generate_drift(n_users=1, n_items=10, n_listed=1, purchases_per_user=1e-9)
    assert data.recent.n_units == 1
    assert data.recent_events().num_rows == 0


# --- log ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strong_log() -> pa.Table:
    return generate_log(n_users=10_000, n_items=1_000, days=100, drift=1.0)


def days_of(log: pa.Table) -> np.ndarray:
    start = datetime(2026, 1, 5, tzinfo=UTC)
    stamps = log["timestamp"].cast(pa.int64()).to_numpy()
    return (stamps - int(start.timestamp()) * 1_000_000) / DAY


def test_log_columns_and_times(strong_log: pa.Table) -> None:
    assert strong_log.schema.names == ["user_id", "item_id", "timestamp"]
    stamp = pa.timestamp("us", tz="UTC")
    assert strong_log.schema.types == [pa.int64(), pa.int64(), stamp]
    days = days_of(strong_log)
    assert days.min() >= 0
    assert days.max() < 100
    assert (np.diff(days) >= 0).all()
    assert strong_log.num_rows == pytest.approx(200_000, rel=0.05)
    assert np.bincount(days.astype(int), minlength=100).min() > 0
    moved = generate_log(n_users=10, days=3, start=date(2020, 2, 28))
    assert moved["timestamp"][0].as_py() >= datetime(2020, 2, 28, tzinfo=UTC)
    assert moved["timestamp"][-1].as_py() < datetime(2020, 3, 2, tzinfo=UTC)


def test_log_drifts(strong_log: pa.Table) -> None:
    items = generate_items(n_items=1_000, drift=1.0)
    kind, days = items.kind[strong_log["item_id"].to_numpy()], days_of(strong_log)
    share = {
        (code, part): (kind[(days >= low) & (days < high)] == code).mean()
        for part, (low, high) in {"first": (0, 10), "last": (95, 100)}.items()
        for code in range(len(KINDS))
    }
    assert share[TRENDING, "last"] > 2 * share[TRENDING, "first"]
    assert share[FADING, "last"] < share[FADING, "first"] / 2
    assert share[NEW, "first"] == 0
    assert share[NEW, "last"] > 0.005
    assert share[WITHDRAWN, "first"] > 0.02
    assert share[WITHDRAWN, "last"] < share[WITHDRAWN, "first"] / 3


def test_log_ends_at_the_trend(strong_log: pa.Table) -> None:
    items = generate_items(n_items=1_000, drift=1.0)
    sold = strong_log["item_id"].to_numpy()[days_of(strong_log) >= 96]
    counts = np.bincount(sold, minlength=1_000)
    known = np.isfinite(items.trend) & (counts >= 5)
    change = np.log(counts[known] / items.weight[known])
    assert np.corrcoef(change, items.trend[known])[0, 1] > 0.8


def test_seasonal_items_oscillate(strong_log: pa.Table) -> None:
    """A seasonal item's best tenth sells several times its worst; steady ones vary less."""
    items = generate_items(n_items=1_000, drift=1.0)
    tenth = (days_of(strong_log) // 10).astype(int)
    counts = np.zeros((1_000, 10))
    np.add.at(counts, (strong_log["item_id"].to_numpy(), tenth), 1)
    steady = counts[items.kind == STEADY].sum(axis=0)
    often = counts.sum(axis=1) >= 300
    shares = counts / steady
    swing = np.log(shares.max(axis=1) + 1e-9) - np.log(np.maximum(shares.min(axis=1), 1e-5))
    assert np.median(swing[often & (items.kind == SEASONAL)]) > 1.5
    assert np.median(swing[often & (items.kind == STEADY)]) < 1.2


def test_a_log_without_drift_does_not_change() -> None:
    log = generate_log(n_users=10_000, n_items=200, days=50, drift=0.0)
    early = days_of(log) < 25
    sold = log["item_id"].to_numpy()
    left, right = (np.bincount(sold[half], minlength=200) for half in (early, ~early))
    # Users come back for the same items, so counts spread somewhat wider than chance.
    assert difference(left, right)[0] < 2.0


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drift": 2}, "drift=2"),
        ({"drift": -0.1}, "drift=-0.1"),
        ({"drift": float("nan")}, "drift=nan"),
        ({"drift": "much"}, "drift='much'"),
        ({"n_users": 0}, "n_users=0"),
        ({"n_users": 10.5}, "n_users=10.5"),
        ({"n_items": 0}, "n_items=0"),
        ({"n_listed": 0}, "n_listed=0"),
        ({"n_listed": 3_000}, "n_listed=3000"),
        ({"n_categories": 0}, "n_categories=0"),
        ({"purchases_per_user": 0}, "purchases_per_user=0"),
        ({"purchases_per_user": float("inf")}, "purchases_per_user=inf"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": True}, "seed=True"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}: "):
        generate_drift(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"days": 0}, "days=0"),
        ({"drift": 1.5}, "drift=1.5"),
        ({"start": "today"}, "start='today'"),
    ],
)
def test_bad_log_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}: "):
        generate_log(**settings)


def test_import_does_not_load_the_compiler() -> None:
    code = "import sys, trimtab.datasets; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
