"""Counts, bounds and weighted sums over all units, made before anything is learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.errors import DataError
from trimtab.learn.engine_ranking import rank_by_engine
from trimtab.learn.input_checks import check_overlap
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import Arrays, PartitionedUnits
from trimtab.learn.units import learning_units
from trimtab.models.list_ranking import count_lengths
from trimtab.tables.columns import ITEM, USER, WEIGHT, WINDOW
from trimtab.tables.lists import warn_if_short

_WEIGHT_QUANTA = 2.0**40  # in the largest weight, of at most 2**21 million units


class GlobalCounts(NamedTuple):
    """Counts over all units."""

    support: Ints  # by item: units that bought it
    listed: Ints  # lists that contain it
    lengths: Ints  # by length: number of lists
    learning: Ints  # by window: learning units; shorter without any in the newest windows
    sums: Ints  # see `Totals`: in quanta of weights of at most 1; then the units they are of
    n_buyers: int  # units that bought something
    n_filled: int  # lists of at least one
    n_purchases: int  # different ones
    n_purchases_with_list: int  # those of units with a list
    largest: float  # |score|
    heaviest: float  # weight of a unit
    longest: int  # list


def make_counts(found: Arrays) -> GlobalCounts:
    """What `count_partition_units` returned, added up, with names."""
    *by_code, numbers, limits = found
    largest, heaviest, longest = (float(limit) for limit in limits)
    bounds = (largest, heaviest, int(longest))
    return GlobalCounts._make([*by_code, *(int(number) for number in numbers), *bounds])


def check_counts(counts: GlobalCounts, has_windows: bool, k: int) -> None:
    """Make the checks that a fit in memory makes on the same counts."""
    name = f"({USER}, {WINDOW})" if has_windows else USER
    check_overlap(name, counts.n_purchases_with_list, counts.n_purchases)
    check_overlap(ITEM, int(counts.support[counts.listed > 0].sum()), counts.n_purchases)
    warn_if_short(counts.longest, k)


def count_partition_units(partition: Partition, k: int, metric: str, n_items: int) -> Arrays:
    """Counts of a partition's units; the last array has bounds."""
    lists, bought = partition.lists, partition.bought
    engine = rank_by_engine(lists, bought, k, metric, n_items)
    lengths, sizes = np.diff(lists.indptr), np.diff(bought.indptr)
    learning = np.flatnonzero(learning_units(lists, bought, partition.weights))
    counts = [
        np.count_nonzero(sizes), np.count_nonzero(lengths), len(bought.items),
        int(sizes[lengths > 0].sum()),
    ]  # fmt: skip
    bounds = (
        np.abs(lists.scores).max(initial=0.0), partition.weights.max(initial=0.0),
        lengths.max(initial=0),
    )  # fmt: skip
    return [
        np.bincount(bought.items, minlength=n_items), np.bincount(lists.items, minlength=n_items),
        count_lengths(lists), np.bincount(partition.windows[learning]),
        _try_sums(partition, engine.value),
        np.array(counts, np.int64), np.array(bounds),
    ]  # fmt: skip


def _try_sums(partition: Partition, value: Floats) -> Ints:
    """Weighted sums as if the heaviest unit of all had a weight of 1; none if that is not so."""
    if partition.weights.max(initial=0.0) > 1:
        return np.zeros(4, np.int64)
    return np.append(_sum_quanta(partition, value, 1.0), partition.n_units)


def add_counts(parts: list[Arrays]) -> Arrays:
    """The counts of several partitions."""
    *sums, bounds = (list(column) for column in zip(*parts, strict=True))
    return [*(_add(column) for column in sums), np.max(bounds, axis=0)]


def _add(parts: list[Ints]) -> Ints:
    """The sum of counts; shorter arrays, of partitions with shorter lists, end in zeros."""
    total = np.zeros(max(map(len, parts)), np.int64)
    for part in parts:
        total[: len(part)] += part
    return total


class Totals(NamedTuple):
    """Weighted sums over units that bought something, and the weight of all units."""

    before: float  # of the metric, by the engine's ranking
    buyers_weight: float
    weight: float  # of all units


def sum_totals(units: PartitionedUnits, k: int, metric: str, counts: GlobalCounts) -> Totals:
    """Fixed-point sums, the same for any partitions."""
    *sums, n_units = counts.sums
    if counts.heaviest != 1 or n_units != units.n_units:
        (sums,) = units.run(_totals, k, metric, len(counts.support), counts.heaviest)
    scale = counts.heaviest / _WEIGHT_QUANTA
    totals = Totals(*(float(total * scale) for total in sums))
    if totals.buyers_weight == 0:
        raise DataError(
            f"column '{WEIGHT}' of weights is 0 for every user who bought something: give at "
            f"least one of them a weight above 0"
        )
    return totals


def _totals(partition: Partition, k: int, metric: str, n_items: int, heaviest: float) -> Arrays:
    engine = rank_by_engine(partition.lists, partition.bought, k, metric, n_items)
    return [_sum_quanta(partition, engine.value, heaviest)]


def _sum_quanta(partition: Partition, value: Floats, heaviest: float) -> Ints:
    """The sums of `Totals`, in quanta of the heaviest weight."""
    quanta = partition.weights * (_WEIGHT_QUANTA / heaviest) if heaviest > 0 else partition.weights
    buys = partition.buys
    before = np.rint(value[buys] * quanta[buys]).astype(np.int64).sum()
    weights = np.rint(quanta).astype(np.int64)
    return np.array([before, weights[buys].sum(), weights.sum()])
