"""The value at a place of the sorted values, against NumPy."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from trimtab.kernels.short_sorts import nth_smallest


@numba.njit
def at_every_place(values, found):
    for place in range(len(values)):
        found[place] = nth_smallest(values, place)


@pytest.mark.parametrize("n", [1, 2, 3, 50, 400])
@pytest.mark.parametrize("distinct", [1, 2, 7, 10**6])
def test_nth_smallest(n, distinct):
    random = np.random.default_rng(n + distinct)
    for case in range(20):
        values = random.integers(0, distinct, n).astype(float)
        if case == 0:
            values = np.sort(values)
        if case == 1:
            values[:: max(1, n // 3)] = [-np.inf, np.inf][distinct % 2]
        before, found = values.copy(), np.empty(n)
        at_every_place(values, found)
        assert np.array_equal(found, np.sort(before))
        assert np.array_equal(values, before)
