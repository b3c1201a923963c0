"""The ordered multiset against a plain dictionary."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel, pack
from trimtab.kernels.ordered_multiset import (
    BLOCK,
    OrderedMultiset,
    add_weights,
    first_key_over,
    make_multiset,
    merge_neighbors,
    passed_weights,
    unpack_multiset,
)
from watch import entries_of


@kernel
def merge_packed(packed):
    merge_neighbors(unpack_multiset(packed))


@kernel
def first_key_over_packed(packed, budget):
    return first_key_over(unpack_multiset(packed), budget)


def merge(multiset: OrderedMultiset) -> None:
    merge_packed(pack(multiset))


def first_key_over_of(multiset: OrderedMultiset, budget: int) -> float:
    return first_key_over_packed(pack(multiset), budget)


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

    def passed(self, key: float, item: int) -> int:
        below = ((k, i) for k, i in self.weights if k < key or (k == key and item < i))
        return sum(self.weights[entry] for entry in below)


def both_add(multiset: OrderedMultiset, plain: Plain, keys, items, weights) -> None:
    columns = (np.array(keys, np.float64), np.array(items, np.int32), np.array(weights, np.int64))
    add_weights(multiset, *columns)
    plain.add(*columns)


def check_same(multiset: OrderedMultiset, plain: Plain, rng: np.random.Generator) -> None:
    assert entries_of(multiset) == plain.entries()
    assert multiset.counts.sum() == len(multiset.order)
    used = multiset.order[: multiset.counts[0]]
    free = multiset.free[: multiset.counts[1]]
    assert sorted([*used, *free]) == list(range(len(multiset.order)))
    known = [*list(plain.weights)[:50], (-1.0, 3), (1e9, 3)]
    keys = np.array([key for key, _ in known])
    items = np.array([item for _, item in known]) + rng.integers(-1, 2, len(known))
    passed = passed_weights(multiset, keys, items.astype(np.int32))
    expected = [plain.passed(k, i) for k, i in zip(keys.tolist(), items.tolist(), strict=True)]
    assert passed.tolist() == expected


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
        if rng.random() < 0.2:
            merge(multiset)
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


def test_merging_frees_blocks() -> None:
    """A multiset with few entries left in each block uses up all blocks; merging frees some."""
    rng = np.random.default_rng(2)
    multiset, plain = make_multiset(2_000), Plain()
    start, merged = 0.0, 0
    for _ in range(40):
        n = 1_000
        keys = start + np.arange(n) / 8
        start += n
        n_blocks = int(multiset.counts[0])
        both_add(multiset, plain, keys, np.zeros(n), np.ones(n))
        merged += int(multiset.counts[0]) < n_blocks + n // BLOCK
        gone = np.arange(n) % 100 != 0
        both_add(multiset, plain, keys[gone], np.zeros(gone.sum()), -np.ones(gone.sum()))
        check_same(multiset, plain, rng)
        assert len(plain.weights) <= 2_000
    assert merged > 0


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
