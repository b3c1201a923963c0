"""Generated items and logs: shapes, determinism, and the stated drift."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from trimtab.datasets import generate_log
from trimtab.datasets.generated_log import (
    FADING,
    KINDS,
    NEW,
    SEASONAL,
    STEADY,
    TRENDING,
    WITHDRAWN,
    generate_items,
)
from trimtab.errors import SettingError

DAY = 86_400_000_000


def test_items_fill_every_category_and_trends_have_the_sign_of_their_kind() -> None:
    items = generate_items(n_items=300, drift=1.0)
    assert np.array_equal(np.unique(items.category), np.arange(17))
    assert np.array_equal(items.category[items.anchor], np.arange(17))
    assert (items.kind[items.anchor] == STEADY).all()
    assert items.weight.sum() == pytest.approx(1.0)
    for drift in (0.3, 1.0):
        items = generate_items(drift=drift)
        assert (items.trend[items.kind == STEADY] == 0).all()
        assert (items.trend[items.kind == TRENDING] >= 0.9 * drift).all()
        assert (items.trend[items.kind == FADING] <= -0.9 * drift).all()
        assert np.abs(items.trend[items.kind == SEASONAL]).max() <= 1.5 * drift


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


def test_users_depend_on_the_seed_but_not_on_how_many_there_are() -> None:
    few, many = (generate_log(n_users=n, n_items=50, days=30, seed=1) for n in (20, 400))
    assert few.equals(many.filter(pa.compute.less(many["user_id"], 20)))
    assert few.equals(generate_log(n_users=20, n_items=50, days=30, seed=1))
    assert not few.equals(generate_log(n_users=20, n_items=50, days=30, seed=2))


def test_log_drifts_and_ends_at_the_trend(strong_log: pa.Table) -> None:
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
    counts = np.bincount(strong_log["item_id"].to_numpy()[days >= 96], minlength=1_000)
    known = np.isfinite(items.trend) & (counts >= 5)
    change = np.log(counts[known] / items.weight[known])
    assert np.corrcoef(change, items.trend[known])[0, 1] > 0.8
    # A seasonal item's best tenth sells several times its worst; steady ones vary less.
    tenth, counts = (days // 10).astype(int), np.zeros((1_000, 10))
    np.add.at(counts, (strong_log["item_id"].to_numpy(), tenth), 1)
    shares, often = counts / counts[items.kind == STEADY].sum(axis=0), counts.sum(axis=1) >= 300
    swing = np.log(shares.max(axis=1) + 1e-9) - np.log(np.maximum(shares.min(axis=1), 1e-5))
    assert np.median(swing[often & (items.kind == SEASONAL)]) > 1.5
    assert np.median(swing[often & (items.kind == STEADY)]) < 1.2


def test_a_log_without_drift_does_not_change() -> None:
    log = generate_log(n_users=10_000, n_items=200, days=50, drift=0.0)
    early = days_of(log) < 25
    sold = log["item_id"].to_numpy()
    left, right = (np.bincount(sold[half], minlength=200) for half in (early, ~early))
    # Users come back for the same items, so counts spread somewhat wider than chance.
    expected = (left + right) / 2
    assert np.mean((left - right)[expected >= 5] ** 2 / (left + right)[expected >= 5]) < 2.0


def test_purchases_are_heavy_tailed_and_users_have_tastes(strong_log: pa.Table) -> None:
    users, sold = strong_log["user_id"].to_numpy(), strong_log["item_id"].to_numpy()
    per_user, per_item = np.bincount(users), np.sort(np.bincount(sold, minlength=1_000))[::-1]
    assert per_user.max() > 10 * per_user.mean()
    assert per_item[:100].sum() > 0.35 * per_item.sum()
    category = generate_items(n_items=1_000, drift=1.0).category[sold]
    order = np.argsort(users, kind="stable")
    together = (np.diff(category[order]) == 0)[np.diff(users[order]) == 0].mean()
    assert together > 1.3 * (np.diff(np.random.default_rng(0).permutation(category)) == 0).mean()


def test_bad_settings_are_refused() -> None:
    for name, values in {
        "drift": (2, -0.1, float("nan"), "much"), "n_users": (0, 10.5), "n_items": (0,),
        "purchases_per_user": (0, float("inf")), "seed": (-1, True),
        "days": (0,), "start": ("today",),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(SettingError, match=f"^{name}={value!r}: "):
                generate_log(**{name: value})
