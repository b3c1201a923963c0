"""What a hit is worth, by metric and place."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats


def discounts(metric: str, k: int) -> Floats:
    """What a hit at each place counts before normalisation."""
    places = np.arange(1, k + 1, dtype=np.float64)
    if metric == "acc":
        return np.full(k, 1.0 / k)
    if metric == "map":
        return 1.0 / places
    return 1.0 / np.log2(1.0 + places)


def hit_value_table(metric: str, k: int) -> Floats:
    """Worth of a hit by [min(k, relevant items), place]; place k is past the end."""
    base = discounts(metric, k)
    table = np.zeros((k + 1, k + 1))
    for need in range(1, k + 1):
        ideal = {"acc": 1.0, "map": float(need), "ndcg": float(base[:need].sum())}[metric]
        table[need, :k] = base / ideal
    return table
