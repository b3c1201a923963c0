"""Random small problems, half of them full of ties, in both coded and readable form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.ascent import AscentSettings
from trimtab.coded import Lists, Sets
from trimtab.kernels.reference import Unit

METRICS = ("acc", "map", "ndcg")
MODES = ("never", "zero")


@dataclass(frozen=True)
class Small:
    lists: Lists
    bought: Sets
    n_items: int
    settings: AscentSettings
    weights: np.ndarray | None
    start: np.ndarray | None

    def units(self) -> tuple[Unit, ...]:
        units = []
        for u in range(self.lists.n_units):
            row = slice(self.lists.indptr[u], self.lists.indptr[u + 1])
            bought = self.bought.items[self.bought.indptr[u] : self.bought.indptr[u + 1]]
            listed = zip(self.lists.items[row].tolist(), self.lists.scores[row].tolist(), strict=True)
            weight = 1.0 if self.weights is None else float(self.weights[u])
            units.append(Unit(dict(listed), frozenset(bought.tolist()), weight))
        return tuple(units)


def to_csr(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return indptr, np.array([i for row in rows for i in row], np.int32)


def draw_small(seed: int, metric: str, unlisted: str) -> Small:
    """Up to 9 units, 8 items, k up to 5; short and empty lists; weights, penalties, caps, starts."""
    rng = np.random.default_rng([seed, METRICS.index(metric), MODES.index(unlisted)])
    n_units, n_items = rng.integers(1, 10), rng.integers(2, 9)
    ties = seed % 2 == 0
    lists, scores, bought = [], [], []
    for _ in range(n_units):
        size = rng.integers(0, n_items + 1)
        items = rng.permutation(n_items)[:size]
        raw = rng.integers(0, 5, size) / 4 if ties else rng.random(size)
        shift = 0.0 if unlisted == "zero" else rng.choice([0.0, -0.5])
        lists.append(items.tolist())
        scores.extend((raw + shift).tolist())
        some = rng.permutation(n_items)[: rng.integers(0, min(4, n_items) + 1)]
        bought.append(sorted(some.tolist()))
    indptr, items = to_csr(lists)
    settings = AscentSettings(
        k=int(rng.integers(1, 6)),
        metric=metric,
        unlisted=unlisted,
        penalty=float(rng.choice([0.0, 0.0, 0.3, 1.0])),
        max_bias=rng.choice([None, None, 0.5, 2.0]),
        exclude_unsold=bool(rng.integers(0, 2)),
        max_cycles=int(rng.integers(1, 4)),
    )
    weights = None if rng.random() < 0.5 else rng.choice([0.0, 0.5, 1.0, 2.0, 1 / 3], n_units)
    start = None
    if rng.random() < 0.4:
        start = np.round(rng.normal(size=n_items) / 2, 2 if ties else 12)
    return Small(
        Lists(indptr, items, np.array(scores)), Sets(*to_csr(bought)), int(n_items), settings,
        weights, start,
    )  # fmt: skip
