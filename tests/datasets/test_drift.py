"""The lists and purchases that other tests learn from: their order, and the stated drift."""

from __future__ import annotations

import numpy as np

from drift import DriftData, generate_drift
from trimtab.datasets.generated_log import FADING, NEW, STEADY, TRENDING, WITHDRAWN


def bought(data: DriftData) -> list[np.ndarray]:
    windows = (data.history, data.recent, data.test)
    return [np.bincount(window.items, minlength=data.n_items) for window in windows]


def difference(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Chi-square over its degrees of freedom of two counts, and its standard deviation."""
    seen = (left + right) >= 10
    expected = (left + right) * (left.sum() / (left.sum() + right.sum()))
    variance = (left + right) * (left.sum() * right.sum()) / (left.sum() + right.sum()) ** 2
    terms = (left - expected)[seen] ** 2 / variance[seen]
    return float(terms.mean()), float(np.sqrt(2.0 / seen.sum()))


def test_no_drift_changes_nothing(monkeypatch, bytes_of) -> None:
    calm = generate_drift(n_users=20_000, n_items=1_000, drift=0.0)
    assert (calm.items.kind == STEADY).all()
    assert (calm.trend == 0).all()
    history, recent, test = bought(calm)
    for left, right in ((history, recent), (recent, test)):
        mean, deviation = difference(left, right)
        assert abs(mean - 1.0) < 5 * deviation
    runs = set()
    for block in (20_000, 700):  # users drawn in blocks are the same
        monkeypatch.setattr("drift._BLOCK", block)
        data = generate_drift(n_users=2_000, seed=3)
        runs.add((bytes_of(data.recs()), bytes_of(data.recent_events())))
    assert len(runs) == 1


def test_strong_drift_lasts_from_recent_to_test() -> None:
    strong = generate_drift(n_users=20_000, n_items=1_000, drift=1.0)
    kinds = strong.items.kind
    history, recent, test = bought(strong)
    for now in (recent, test):
        ratio = {
            kind: now[kinds == kind].sum() / history[kinds == kind].sum()
            for kind in (STEADY, TRENDING, FADING)
        }
        assert ratio[TRENDING] > 3 * ratio[STEADY]
        assert ratio[FADING] < ratio[STEADY] / 3
    mean, deviation = difference(recent, test)
    assert abs(mean - 1.0) < 5 * deviation < difference(history, recent)[0]
    withdrawn, new = kinds == WITHDRAWN, kinds == NEW
    assert (strong.trend[withdrawn] == -np.inf).all()
    assert (strong.trend[new] == np.inf).all()
    assert history[withdrawn].sum() > 0 == (recent + test)[withdrawn].sum()
    assert recent[new].sum() > 0 == history[new].sum()
    listed = strong.lists.items.reshape(-1, 50)
    assert withdrawn[listed].any()
    assert not new[listed].any()
    assert (np.diff(np.sort(listed, axis=1), axis=1) > 0).all()  # each item once
    scores = strong.lists.scores.reshape(-1, 50)
    steps, codes = np.diff(scores, axis=1), np.diff(listed, axis=1)
    assert scores.min() > 0
    assert ((steps < 0) | ((steps == 0) & (codes > 0))).all()


def test_log_changes_are_those_of_sales_to_listers() -> None:
    n_items = 300
    data = generate_drift(150_000, n_items, 50, purchases_per_user=1.0, drift=1.0)
    items, scores = data.lists.items, data.lists.scores
    listed = np.repeat(np.arange(data.n_users), 50) * n_items + items
    sold, expected = [], []
    for window, change in ((data.history, 0.0), (data.test, data.log_changes())):
        pairs = np.repeat(np.arange(data.n_users), np.diff(window.indptr)) * n_items + window.items
        sold.append(np.bincount(items[np.isin(listed, pairs)], minlength=n_items))
        expected.append(np.bincount(items, scores * np.exp(change), n_items))
    often = np.minimum(*sold) >= 100
    seen, stated = (np.log(now[often] / before[often]) for before, now in (sold, expected))
    errors = np.sqrt(1 / sold[0][often] + 1 / sold[1][often])
    assert often.sum() > 50
    assert abs(np.mean(((seen - stated) / errors) ** 2) - 1.0) < 0.3
