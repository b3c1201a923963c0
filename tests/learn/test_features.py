"""Trend features: formulas against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.learn.features import OF_WINDOW, make_features


def test_features_by_hand():
    columns = {
        "bought": [6, 2, 0, 2], "listed": [40, 40, 20, 0], "long": [50, 30, 20, 0],
        "again": [10, 0, 10, 0], "9_windows": [9, 0, 1, 0],
        "3_windows": [3, 0, 0, 0],
        "since": [0, 10, 2, 100],
    }  # fmt: skip
    known = {name: np.array(own, float) for name, own in columns.items()}
    table = make_features(OF_WINDOW, known)
    rate = 8 / 100  # purchases per listed item
    expected = {
        "bought_per_listed": [
            (6 + 10 * rate) / 50 / rate, (2 + 10 * rate) / 50 / rate, 10 * rate / 30 / rate,
            (2 + 10 * rate) / 10 / rate,
        ],
        "recent_sales": [7, 3, 1, 3],
        "rise": [(6 + 10.5) / (5 + 10.5), (2 + 6.5) / (3 + 6.5), 4.5 / 6.5, 2.5 / 0.5],
        "long_run_sales": [51, 31, 21, 1],
        "rise_of_9_windows": [(9 + 10.5) / (5 + 10.5), 6.5 / 9.5, (1 + 4.5) / (2 + 4.5), 1.0],
        "rise_of_3_windows": [3.5 / (2.7 + 0.5), 1.0, 0.5 / (0.3 + 0.5), 1.0],
        "unsold": [1, 11, 3, 101],
        "repeat_rate": [11 / 55 / 0.2, 1 / 35 / 0.2, 11 / 25 / 0.2, 1.0],
    }  # fmt: skip
    for name, values in expected.items():
        assert np.exp(table[name]) == pytest.approx(values), name
    assert table["share_difference"] == pytest.approx([100.0, -100.0, -200.0, 200.0])
    window = {name: known[name] for name in ("bought", "listed")}
    assert list(make_features(OF_WINDOW, window)) == ["bought_per_listed", "recent_sales"]
