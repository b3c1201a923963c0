"""What all units together say before learning begins: counts, bounds, and exact medians."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.bias.scales import to_scale
from trimtab.errors import DataError
from trimtab.learn.ascent.state import rank_by_engine
from trimtab.learn.units import learning_units
from trimtab.metrics.ranking import rank_lists
from trimtab.spark.array_bytes import Arrays
from trimtab.spark.partition import Partition
from trimtab.spark.partitioned_units import PartitionedUnits, join_arrays
from trimtab.tables.columns import WEIGHT

_DIGIT = 16  # bits of a number settled at a time
_FEW = 100_000  # numbers that may come to the driver
_WEIGHT_QUANTA = 2.0**40  # in the largest weight, of at most 2**21 million units


class GlobalCounts(NamedTuple):
    """Counts over all units."""

    support: Ints  # by item: units that bought it
    exposure: Ints  # raw top k's that have it
    listed: Ints  # lists that have it
    reached: Ints  # units that can learn and list it or bought it
    n_judged: int  # units that bought something
    n_full: int  # lists of at least k items
    n_filled: int  # lists of at least one
    n_sales: int  # purchases, each once
    n_sales_of_listed: int  # those by units with a list
    largest: float  # |score|
    heaviest: float  # weight of a unit
    lowest: float  # score, as given
    longest: int  # list


def count_globally(
    units: PartitionedUnits, k: int, metric: str, n_items: int, scale: str
) -> GlobalCounts:
    """Count over all units, with scores on a scale."""
    found = units.run(_count_partition, k, metric, n_items, scale, add=_add_counts)
    numbers = (int(number) for number in found[4])
    largest, heaviest, depth, longest = (float(bound) for bound in found[5])
    bounds = (largest, heaviest, -depth, int(longest))
    return GlobalCounts._make([*found[:4], *numbers, *bounds])


def _count_partition(partition: Partition, k: int, metric: str, n_items: int, scale: str) -> Arrays:
    lists, bought = to_scale(partition.lists, scale).lists, partition.bought
    raw = rank_by_engine(lists, bought, k, metric, n_items)
    lengths, sizes = np.diff(lists.indptr), np.diff(bought.indptr)
    learning = np.flatnonzero(learning_units(lists, bought, partition.weights))
    in_lists = np.bincount(lists.take(learning).items, minlength=n_items)
    in_sales = np.bincount(bought.take(learning).items, minlength=n_items)
    counts = [
        np.count_nonzero(sizes), np.count_nonzero(lengths >= k), np.count_nonzero(lengths),
        len(bought.items), int(sizes[lengths > 0].sum()),
    ]  # fmt: skip
    bounds = (
        np.abs(lists.scores).max(initial=0.0), partition.weights.max(initial=0.0),
        (-partition.lists.scores).max(initial=-np.inf), lengths.max(initial=0),
    )  # fmt: skip
    return [
        np.bincount(bought.items, minlength=n_items), raw.exposure,
        np.bincount(lists.items, minlength=n_items), in_lists + in_sales,
        np.array(counts, np.int64), np.array(bounds),
    ]  # fmt: skip


def _add_counts(parts: list[Arrays]) -> Arrays:
    *sums, bounds = (list(column) for column in zip(*parts, strict=True))
    return [*(np.sum(column, axis=0) for column in sums), np.max(bounds, axis=0)]


class Totals(NamedTuple):
    """Weighted sums over units that bought something; and all weight there is."""

    before: float  # of the metric, as the engine ranks
    judged_weight: float
    weight: float


def sum_totals(units: PartitionedUnits, k: int, metric: str, counts: GlobalCounts) -> Totals:
    """Sums in fixed point, the same for any partitions."""
    found = units.run(_totals, k, metric, len(counts.support), counts.heaviest)
    scale = counts.heaviest / _WEIGHT_QUANTA
    totals = Totals(*(float(total * scale) for total in found[0]))
    if totals.judged_weight == 0:
        raise DataError(
            f"column '{WEIGHT}' of weights is 0 for every user who bought something: give at "
            f"least one a weight above 0"
        )
    return totals


def _totals(partition: Partition, k: int, metric: str, n_items: int, heaviest: float) -> Arrays:
    raw = rank_by_engine(partition.lists, partition.bought, k, metric, n_items)
    quanta = partition.weights * (_WEIGHT_QUANTA / heaviest) if heaviest > 0 else partition.weights
    judged = partition.judged
    before = np.rint(raw.value[judged] * quanta[judged]).astype(np.int64).sum()
    heavy = np.rint(quanta).astype(np.int64)
    return [np.array([before, heavy[judged].sum(), heavy.sum()])]


def unit_of_scores(units: PartitionedUnits, k: int, counts: GlobalCounts) -> float:
    """As `setup.median_score`: |median k-th score|, or the nearest thing to it above 0."""
    for name, count in (("full", counts.n_full), ("kth", counts.n_filled)):
        middle = exact_median(units, name, k, count)
        if count and middle != 0:
            return abs(middle)
    return counts.largest or 1.0


def exact_median(units: PartitionedUnits, name: str, k: int, count: int) -> float:
    """The median of one number per unit, found digit by digit.

    Args:
        units: all units.
        name: "full": k-th scores of lists that long; "kth": k-th or last scores; "gap": how far
            those are below the best.
        k: places.
        count: how many units have the number; nan for none.
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
    """Keys that begin with each of the prefixes."""
    keys = _to_keys(_numbers(partition, name, k))
    if shift == 64 - _DIGIT:  # nothing is settled yet, and shifting by all 64 bits is not defined
        return [keys for _ in prefixes]
    return [keys[keys >> np.uint64(shift + _DIGIT) == prefix] for prefix in prefixes]


def _digits(partition: Partition, name: str, k: int, prefixes: Any, shift: int) -> Arrays:
    """How often each next digit comes after each of the prefixes."""
    counts = []
    for same in _with_prefix(partition, name, k, prefixes, shift):
        digits = (same >> np.uint64(shift)) & np.uint64(2**_DIGIT - 1)
        counts.append(np.bincount(digits.astype(np.int64), minlength=2**_DIGIT))
    return [np.array(counts)]


def _numbers(partition: Partition, name: str, k: int) -> Floats:
    top = rank_lists(partition.lists, k, np.zeros(int(partition.lists.items.max(initial=0)) + 1))
    lengths = np.diff(partition.lists.indptr)
    wanted = lengths >= (k if name == "full" else 1)
    last = top.scores[top.indptr[1:][wanted] - 1]
    if name != "gap":
        return last
    gaps: Floats = top.scores[top.indptr[:-1][wanted]] - last
    return gaps


def _to_keys(values: Floats) -> Any:
    """Whole numbers in the order of the floats."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    negative = bits >> np.uint64(63) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def _from_keys(keys: Any) -> Floats:
    negative = keys >> np.uint64(63) == 0
    floats: Floats = np.where(negative, ~keys, keys & np.uint64((1 << 63) - 1)).view(np.float64)
    return floats
