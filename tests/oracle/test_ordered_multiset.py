"""The ordered multiset against a plain dictionary."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import bare_kernel
from trimtab.kernels.ordered_multiset import (
    BLOCK,
    OrderedMultiset,
    add_weights,
    first_key_over,
    make_multiset,
    skip_below,
)
from watch import entries_of


@bare_kernel
def first_key_over_of(multiset, budget):
    return first_key_over(multiset, budget)


@bare_kernel
def sums_between(multiset, keys, sums):
    """Sums of the weights below each key, from the one before."""
    position = np.int64(0)
    entry = np.int64(0)
    for x in range(len(keys)):
        sums[x], position, entry = skip_below(multiset, position, entry, keys[x])


class Plain:
    """The same multiset as a dictionary."""

    def __init__(self) -> None:
        self.weights: dict[tuple[float, int], int] = {}

    def add(self, keys: np.ndarray, items: np.ndarray, weights: np.ndarray) -> None:
        for key, item, weight in zip(keys.tolist(), items.tolist(), weights.tolist(), strict=True):
            total = self.weights.pop((key, item), 0) + weight
            if total != 0:
                self.weights[key, item] = total

    def entries(self) -> list[tuple[float, int, int]]:
        ordered = sorted(self.weights, key=lambda entry: (entry[0], -entry[1]))
        return [(key, item, self.weights[key, item]) for key, item in ordered]

    def below(self, key: float) -> int:
        return sum(weight for (k, _), weight in self.weights.items() if k < key)


def both_add(multiset: OrderedMultiset, plain: Plain, keys, items, weights) -> None:
    columns = (np.array(keys, np.float64), np.array(items, np.int64), np.array(weights, np.int64))
    add_weights(multiset, *columns)
    plain.add(*columns)


def check_same(multiset: OrderedMultiset, plain: Plain, rng: np.random.Generator) -> None:
    assert entries_of(multiset) == plain.entries()
    n_blocks = int(multiset.n_blocks[0])
    assert sorted(multiset.order[:n_blocks]) == list(range(n_blocks))
    assert multiset.order[0] == 0
    known = [key for key, _ in list(plain.weights)[:50]]
    keys = np.sort([*known, *np.nextafter(known, np.inf), -1.0, 1e9])
    keys = keys[np.sort(rng.permutation(len(keys))[: rng.integers(1, len(keys) + 1)])]
    sums = np.empty(len(keys), np.int64)
    sums_between(multiset, keys, sums)
    assert np.cumsum(sums).tolist() == [plain.below(key) for key in keys.tolist()]


def test_random_adds_and_removes() -> None:
    rng = np.random.default_rng(0)
    multiset, plain = make_multiset(3_000), Plain()
    for _ in range(60):
        n = 400
        keys, items = rng.integers(0, 40, n) / 4, rng.integers(0, 60, n)
        both_add(multiset, plain, keys, items, rng.integers(1, 4, n))
        if len(plain.weights) > 1_500:
            gone = [entry for entry in plain.weights if rng.random() < 0.8]
            taken = [-plain.weights[entry] for entry in gone]
            both_add(multiset, plain, [k for k, _ in gone], [i for _, i in gone], taken)
        check_same(multiset, plain, rng)


def test_everything_removed() -> None:
    rng = np.random.default_rng(1)
    multiset, plain = make_multiset(2_000), Plain()
    for _ in range(3):
        keys = rng.permutation(2_000) / 8
        both_add(multiset, plain, keys, np.ones(2_000), np.full(2_000, 5))
        both_add(multiset, plain, rng.permutation(keys), np.ones(2_000), np.full(2_000, -5))
        assert entries_of(multiset) == []
        check_same(multiset, plain, rng)


def test_spreading_frees_blocks() -> None:
    """A multiset with few entries left in each block uses up all blocks; spreading frees some."""
    rng = np.random.default_rng(2)
    multiset, plain = make_multiset(2_000), Plain()
    start, spread = 0.0, 0
    for _ in range(40):
        n = 1_000
        keys = start + np.arange(n) / 8
        start += n
        n_blocks = int(multiset.n_blocks[0])
        both_add(multiset, plain, keys, np.zeros(n), np.ones(n))
        spread += int(multiset.n_blocks[0]) < n_blocks + n // BLOCK
        gone = np.arange(n) % 100 != 0
        both_add(multiset, plain, keys[gone], np.zeros(gone.sum()), -np.ones(gone.sum()))
        check_same(multiset, plain, rng)
        assert len(plain.weights) <= 2_000
    assert spread > 0


def test_first_key_over_a_budget() -> None:
    rng = np.random.default_rng(3)
    multiset, plain = make_multiset(2_000), Plain()
    n = 1_200
    both_add(multiset, plain, rng.integers(0, 300, n), np.arange(n) % 7, rng.integers(1, 9, n))
    sums = np.cumsum([weight for _, _, weight in plain.entries()])
    keys = [key for key, _, _ in plain.entries()]
    for budget in [-1, 0, *rng.integers(0, sums[-1], 200).tolist(), sums[-1] - 1]:
        assert (
            first_key_over_of(multiset, int(budget))
            == keys[int(np.searchsorted(sums, budget, "right"))]
        )
    assert first_key_over_of(multiset, int(sums[-1])) == np.inf
