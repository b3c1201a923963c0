"""The value of a hit, by metric and slot.

A hit in slot p (from 1) of a unit with R relevant items adds v_p to the unit's metric:

    ACC@k    v_p = 1 / k
    AP@k     v_p = (hits in slots 1..p) / p / min(k, R)
    NDCG@k   v_p = 1 / log2(1 + p) / (sum of 1 / log2(1 + q) over q = 1..min(k, R))
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats


def discounts(metric: str, k: int) -> Floats:
    """The value of a hit by slot before normalisation; for MAP, of a single hit."""
    ranks = np.arange(1, k + 1, dtype=np.float64)
    by_metric = {
        "acc": np.full(k, 1.0 / k), "map": 1.0 / ranks, "ndcg": 1.0 / np.log2(1.0 + ranks),
    }  # fmt: skip
    return by_metric[metric]


def ideal_value(metric: str, k: int, max_hits: int) -> float:
    """The normaliser of a unit that can have so many hits."""
    best = float(discounts(metric, k)[:max_hits].sum())
    return {"acc": 1.0, "map": float(max_hits), "ndcg": best}[metric]


def counts_hits_above(metric: str) -> bool:
    """Whether the value of a hit is multiplied by the number of hits down to its slot."""
    return metric == "map"


def first_counted_slot(metric: str, k: int) -> int:
    """The first slot, from 0, where passing another item changes the metric: the last for ACC."""
    return k - 1 if metric == "acc" else 0


def hit_value_table(metric: str, k: int) -> Floats:
    """v_p by [min(k, R), slot from 0]; 0 in slot k. For MAP, times the hits down to the slot."""
    base = discounts(metric, k)
    table = np.zeros((k + 1, k + 1))
    for max_hits in range(1, k + 1):
        table[max_hits, :k] = base / ideal_value(metric, k, max_hits)
    return table
