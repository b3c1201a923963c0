"""Ordered weights against a plain dictionary."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import bare_kernel
from trimtab.kernels.ordered_weights import (
    BLOCK,
    OrderedWeights,
    add_weight,
    first_key_over,
    make_weights,
    skip_below,
)
from watch import entries_of


@bare_kernel
def add_weights(weights, keys, added):
    for e in range(len(keys)):
        add_weight(weights, keys[e], added[e])


@bare_kernel
def first_key_over_of(weights, budget):
    return first_key_over(weights, budget)


@bare_kernel
def sums_between(weights, keys, sums):
    """Sums of the weights below each key, from the one before."""
    block = np.int64(0)
    entry = np.int64(0)
    for x in range(len(keys)):
        sums[x], block, entry = skip_below(weights, block, entry, keys[x])


def add_to_both(weights: OrderedWeights, plain: dict[float, int], keys, added) -> None:
    keys, added = np.array(keys, np.float64), np.array(added, np.int64)
    add_weights(weights, keys, added)
    for key, weight in zip(keys.tolist(), added.tolist(), strict=True):
        total = plain.pop(key, 0) + weight
        if total != 0:
            plain[key] = total


def check_same(weights: OrderedWeights, plain: dict[float, int], rng: np.random.Generator) -> None:
    assert entries_of(weights) == sorted(plain.items())
    known = list(plain)[:50]
    keys = np.sort([*known, *np.nextafter(known, np.inf), -1.0, 1e9])
    keys = keys[np.sort(rng.permutation(len(keys))[: rng.integers(1, len(keys) + 1)])]
    sums = np.empty(len(keys), np.int64)
    sums_between(weights, keys, sums)
    below = [sum(weight for k, weight in plain.items() if k < key) for key in keys.tolist()]
    assert np.cumsum(sums).tolist() == below


def test_random_adds_and_removes() -> None:
    rng = np.random.default_rng(0)
    weights, plain = make_weights(3_000), {}
    for _ in range(60):
        add_to_both(weights, plain, rng.integers(0, 2_400, 400) / 4, rng.integers(1, 4, 400))
        if len(plain) > 1_500:
            gone = [key for key in plain if rng.random() < 0.8]
            add_to_both(weights, plain, gone, [-plain[key] for key in gone])
        check_same(weights, plain, rng)
    gone = rng.permutation(list(plain)).tolist()
    add_to_both(weights, plain, gone, [-plain[key] for key in gone])
    assert entries_of(weights) == []


def test_spreading_frees_blocks() -> None:
    """Few entries left in each block use up all blocks; spreading frees some."""
    rng = np.random.default_rng(2)
    weights, plain = make_weights(2_000), {}
    spread, n = 0, 1_000
    for turn in range(40):
        keys = turn * n + np.arange(n) / 8
        n_blocks = int(weights.n_blocks[0])
        add_to_both(weights, plain, keys, np.ones(n))
        spread += int(weights.n_blocks[0]) < n_blocks + n // BLOCK
        gone = keys[np.arange(n) % 100 != 0]
        add_to_both(weights, plain, gone, -np.ones(len(gone)))
        check_same(weights, plain, rng)
        assert len(plain) <= 2_000
    assert spread > 0


def test_first_key_over_a_budget() -> None:
    rng = np.random.default_rng(3)
    weights, plain = make_weights(2_000), {}
    add_to_both(weights, plain, rng.integers(0, 900, 1_200), rng.integers(1, 9, 1_200))
    keys, sums = sorted(plain), np.cumsum([plain[key] for key in sorted(plain)])
    for budget in [-1, 0, *rng.integers(0, sums[-1], 200).tolist(), sums[-1] - 1]:
        expected = keys[int(np.searchsorted(sums, budget, "right"))]
        assert first_key_over_of(weights, int(budget)) == expected
    assert first_key_over_of(weights, int(sums[-1])) == np.inf
