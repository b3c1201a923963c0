"""The exact median of one number per unit, without bringing all numbers to the driver."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Floats
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import Arrays, PartitionedUnits, join_arrays
from trimtab.metrics.ranking import rank_lists

_DIGIT = 16  # bits of a number that one step finds
_FEW = 100_000  # numbers that may come to the driver


def exact_median(units: PartitionedUnits, name: str, k: int, count: int) -> float:
    """The median of one number per unit, found 16 bits at a time.

    Args:
        units: all units.
        name: "full": k-th scores of lists with at least k items; "kth": k-th or last scores;
            "gap": best score less the k-th or last one.
        k: slots.
        count: number of units that have it; the median of none is nan.
    """
    if count == 0:
        return np.nan
    ranks = np.array([(count - 1) // 2, count // 2])
    prefixes = np.zeros(2, np.uint64)
    left = count
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        if shift < 64 - _DIGIT and left <= _FEW:
            keys = units.run(_with_prefix, name, k, prefixes, shift, add=join_arrays)
            found = [np.sort(some)[rank] for some, rank in zip(keys, ranks, strict=True)]
            return float(np.mean(_from_keys(np.array(found))))
        (counts,) = units.run(_digits, name, k, prefixes, shift)
        left = 0
        for place in range(2):
            below = np.concatenate([[0], np.cumsum(counts[place])])
            digit = int(np.searchsorted(below, ranks[place], side="right")) - 1
            ranks[place] -= below[digit]
            left = max(left, int(counts[place][digit]))
            prefixes[place] = (prefixes[place] << np.uint64(_DIGIT)) | np.uint64(digit)
    return float(np.mean(_from_keys(prefixes)))


def _with_prefix(partition: Partition, name: str, k: int, prefixes: Any, shift: int) -> Arrays:
    """The keys that begin with each of the prefixes."""
    keys = _to_keys(_numbers(partition, name, k))
    if shift == 64 - _DIGIT:  # no bits are known yet, and shifting by 64 bits is not defined
        return [keys for _ in prefixes]
    return [keys[keys >> np.uint64(shift + _DIGIT) == prefix] for prefix in prefixes]


def _digits(partition: Partition, name: str, k: int, prefixes: Any, shift: int) -> Arrays:
    """Counts of the next 16 bits after each of the prefixes."""
    counts = []
    for same in _with_prefix(partition, name, k, prefixes, shift):
        digits = (same >> np.uint64(shift)) & np.uint64(2**_DIGIT - 1)
        counts.append(np.bincount(digits.astype(np.int64), minlength=2**_DIGIT))
    return [np.array(counts)]


def _numbers(partition: Partition, name: str, k: int) -> Floats:
    top = rank_lists(partition.lists, k, np.zeros(int(partition.lists.items.max(initial=0)) + 1))
    lengths = np.diff(partition.lists.indptr)
    counts_here = lengths >= (k if name == "full" else 1)
    last = top.scores[top.indptr[1:][counts_here] - 1]
    if name != "gap":
        return last
    gaps: Floats = top.scores[top.indptr[:-1][counts_here]] - last
    return gaps


def _to_keys(values: Floats) -> Any:
    """Unsigned integers in the same order as the floats."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    negative = bits >> np.uint64(63) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def _from_keys(keys: Any) -> Floats:
    negative = keys >> np.uint64(63) == 0
    floats: Floats = np.where(negative, ~keys, keys & np.uint64((1 << 63) - 1)).view(np.float64)
    return floats
