"""The lists and purchases that other tests learn from: their order, and the stated drift."""

from __future__ import annotations

import numpy as np
import pytest

from drift import DriftData, generate_drift
from trimtab.datasets.generated_log import FADING, NEW, STEADY, TRENDING, WITHDRAWN


@pytest.fixture(scope="module")
def calm() -> DriftData:
    return generate_drift(n_users=60_000, n_items=1_000, drift=0.0)


@pytest.fixture(scope="module")
def strong() -> DriftData:
    return generate_drift(n_users=60_000, n_items=1_000, drift=1.0)


def bought(data: DriftData, window: str) -> np.ndarray:
    return np.bincount(getattr(data, window).items, minlength=data.n_items)


def difference(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Chi-square over its degrees of freedom of two counts, and its standard deviation."""
    seen = (left + right) >= 10
    expected = (left + right) * (left.sum() / (left.sum() + right.sum()))
    variance = (left + right) * (left.sum() * right.sum()) / (left.sum() + right.sum()) ** 2
    terms = (left - expected)[seen] ** 2 / variance[seen]
    return float(terms.mean()), float(np.sqrt(2.0 / seen.sum()))


def test_lists_are_in_order_and_sets_ascend_without_repeats(strong: DriftData) -> None:
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
    for window in (strong.history, strong.recent, strong.test):
        inner = np.ones(len(window.items), bool)
        inner[window.indptr[:-1][np.diff(window.indptr) > 0]] = False
        assert (np.diff(window.items)[inner[1:]] > 0).all()


def test_users_drawn_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch, bytes_of) -> None:
    runs = []
    for block in (20_000, 700):
        monkeypatch.setattr("drift._BLOCK", block)
        data = generate_drift(n_users=2_000, seed=3)
        runs.append((bytes_of(data.recs()), bytes_of(data.recent_events())))
    assert runs[0] == runs[1]


def test_no_drift_changes_nothing(calm: DriftData) -> None:
    assert (calm.items.kind == STEADY).all()
    assert (calm.trend == 0).all()
    history, recent, test = (bought(calm, name) for name in ("history", "recent", "test"))
    for left, right in ((history, recent), (recent, test)):
        mean, deviation = difference(left, right)
        assert abs(mean - 1.0) < 5 * deviation


def test_strong_drift_lasts_from_recent_to_test(strong: DriftData) -> None:
    history, recent, test = (bought(strong, name) for name in ("history", "recent", "test"))
    for now in (recent, test):
        ratio = {kind: now[strong.items.kind == kind].sum() for kind in (STEADY, TRENDING, FADING)}
        for kind in ratio:
            ratio[kind] /= history[strong.items.kind == kind].sum()
        assert ratio[TRENDING] > 3 * ratio[STEADY]
        assert ratio[FADING] < ratio[STEADY] / 3
    assert difference(history, recent)[0] > 20
    mean, deviation = difference(recent, test)
    assert abs(mean - 1.0) < 5 * deviation


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


def test_withdrawn_items_are_only_listed_and_new_items_only_bought(strong: DriftData) -> None:
    past, recent, test = (bought(strong, name) for name in ("history", "recent", "test"))
    withdrawn, new = strong.items.kind == WITHDRAWN, strong.items.kind == NEW
    assert (strong.trend[withdrawn] == -np.inf).all()
    assert past[withdrawn].sum() > 1_000
    assert (recent + test)[withdrawn].sum() == 0
    assert withdrawn[strong.lists.items].sum() > 1_000
    assert (strong.trend[new] == np.inf).all()
    assert past[new].sum() == 0
    assert recent[new].sum() > 500
    assert not new[strong.lists.items].any()
