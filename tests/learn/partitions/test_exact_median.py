"""Medians over partitions: those of NumPy, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from memory_units import MemoryUnits
from trimtab.arrays import Lists, Sets
from trimtab.learn.partitions import exact_median as medians
from trimtab.learn.partitions.partition import Partition


def units_of(scores: np.ndarray, n_parts: int) -> MemoryUnits:
    """One list of two items per unit."""
    parts = []
    for own in np.array_split(scores, n_parts):
        n = len(own)
        items = np.tile(np.arange(2, dtype=np.int32), n)
        lists = Lists(np.arange(n + 1) * 2, items, own.ravel())
        none = Sets(np.zeros(n + 1, np.int64), np.empty(0, np.int32))
        codes = np.arange(n)
        parts.append(Partition(lists, none, np.ones(n), codes, codes, codes, np.empty(0, bool)))
    return MemoryUnits(parts)


@pytest.mark.parametrize("few", [0, 10, 10**6])
@pytest.mark.parametrize("n", [1, 2, 101, 300])
def test_medians_are_exact(few, n, monkeypatch):
    monkeypatch.setattr(medians, "_FEW", few)
    random = np.random.default_rng(n)
    scores = np.exp(random.normal(size=(n, 2))) * random.choice([-1.0, 1.0, 0.0], (n, 1))
    scores[: n // 3] = scores[0]  # many are equal
    kth, gap = scores.min(axis=1), scores.max(axis=1) - scores.min(axis=1)
    first = np.stack([medians.first_digits(values) for values in (kth, gap)])
    found = medians.exact_medians(units_of(scores, 3), ("kth", "gap"), 2, n, first)
    assert found == [np.median(kth), np.median(gap)]


def test_median_of_none_is_nan():
    none = np.zeros((1, 2**16), np.int64)
    assert np.isnan(medians.exact_medians(units_of(np.ones((0, 2)), 1), ("kth",), 3, 0, none))
