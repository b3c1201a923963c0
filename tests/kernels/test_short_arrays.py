"""Sorts inside kernels, against NumPy."""

from __future__ import annotations

import itertools

import numba
import numpy as np

from trimtab.kernels.short_arrays import STACK, nth_smallest, sort_curve


@numba.njit
def at_every_place(values, found):
    for place in range(len(values)):
        found[place] = nth_smallest(values, place)


def test_nth_smallest():
    for distinct in [1, 2, 7, 10**6]:
        for n in [1, 2, 3, 50, 400]:
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


@numba.njit
def sort_all(values, deltas, stack):
    sort_curve(values, deltas, len(values), stack)


def test_sort_of_pairs():
    sizes, kinds = (0, 1, 2, 25, 26, 400), (1, 2, 7, 10**6)
    for n, distinct, case in itertools.product(sizes, kinds, range(20)):
        random = np.random.default_rng([n, distinct, case])
        values = random.integers(0, distinct, n) / 7
        if case == 0:
            values = np.sort(values)
        if case == 1:
            values = np.sort(values)[::-1].copy()
        before, deltas = values.copy(), np.arange(n)
        sort_all(values, deltas, np.empty(STACK, np.int64))
        assert np.array_equal(values, np.sort(before))
        assert np.array_equal(before[deltas], values)
        assert np.array_equal(np.sort(deltas), np.arange(n))
