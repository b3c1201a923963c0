"""Exact medians of one number per unit, without bringing all numbers to one place.

A number is found 16 bits at a time, from the highest: one pass over the units counts how many of
those that begin with the bits found so far go on with each of the next 16. When few are left, they
are brought to one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Floats, Ints, Lists
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import Arrays, PartitionedUnits, join_arrays
from trimtab.metrics.ranking import rank_lists

_DIGIT = 16  # bits of a number that one pass finds
_FEW = 500_000  # numbers that may come to one place: 4 MB
_FIRST_SHIFT = 64 - _DIGIT


def exact_medians(
    units: PartitionedUnits, names: Sequence[str], k: int, count: int, first: Ints
) -> list[float]:
    """The medians of several numbers per unit, in common passes.

    Args:
        units: all units.
        names: "kth": k-th or last scores; "gap": best score less the k-th or last one.
        k: slots.
        count: number of units that have them; the median of none is nan.
        first: by name: what `first_digits` counts, summed over all units.
    """
    if count == 0:
        return [np.nan] * len(names)
    searches = [_Search.of(count) for _ in names]
    for search, counts in zip(searches, first, strict=True):
        search.go_on([counts, counts])
    for shift in range(_FIRST_SHIFT - _DIGIT, -1, -_DIGIT):
        given = tuple(names), k, [search.prefixes for search in searches], shift
        if max(search.left for search in searches) <= _FEW:
            keys = units.run(_with_prefixes, *given, add=join_arrays)
            both = zip(searches, keys, strict=True)
            return [search.end(np.sort(own), shift + _DIGIT) for search, own in both]
        (found,) = units.run(_digits, *given)
        for search, own in zip(searches, found, strict=True):
            search.go_on(own)
    return [float(np.mean(_from_keys(search.prefixes))) for search in searches]


@dataclass
class _Search:
    """What is known of the two numbers in the middle, which are one if the count is odd."""

    ranks: Ints  # among the numbers with the same prefix
    prefixes: Any  # their first bits
    left: int  # numbers with one of the prefixes

    @staticmethod
    def of(count: int) -> _Search:
        return _Search(np.array([(count - 1) // 2, count // 2]), np.zeros(2, np.uint64), count)

    def go_on(self, counts: Any) -> None:
        """Find the next bits, by the counts for each prefix."""
        self.left = 0
        for place in range(2):
            below = np.concatenate([[0], np.cumsum(counts[place])])
            digit = int(np.searchsorted(below, self.ranks[place], side="right")) - 1
            self.ranks[place] -= below[digit]
            self.left = max(self.left, int(counts[place][digit]))
            self.prefixes[place] = (self.prefixes[place] << np.uint64(_DIGIT)) | np.uint64(digit)

    def end(self, keys: Any, shift: int) -> float:
        """The median, from all numbers with one of the prefixes, ascending."""
        starts = np.searchsorted(keys >> np.uint64(shift), self.prefixes)
        return float(np.mean(_from_keys(keys[starts + self.ranks])))


def first_digits(values: Floats) -> Ints:
    """How many numbers begin with each 16 bits."""
    digits = _to_keys(values) >> np.uint64(_FIRST_SHIFT)
    return np.bincount(digits.astype(np.int64), minlength=2**_DIGIT)


def _with_prefixes(
    partition: Partition, names: tuple[str, ...], k: int, prefixes: list[Any], shift: int
) -> Arrays:
    """The keys of each name that begin with one of its prefixes."""
    found = []
    for values, own in zip(_numbers(partition, names, k), prefixes, strict=True):
        keys = _to_keys(values)
        found.append(keys[np.isin(keys >> np.uint64(shift + _DIGIT), own)])
    return found


def _digits(
    partition: Partition, names: tuple[str, ...], k: int, prefixes: list[Any], shift: int
) -> Arrays:
    """Counts of the next 16 bits, by [name, prefix, bits]."""
    counts = []
    for keys, own in zip(
        _with_prefixes(partition, names, k, prefixes, shift), prefixes, strict=True
    ):
        digits = ((keys >> np.uint64(shift)) & np.uint64(2**_DIGIT - 1)).astype(np.int64)
        above = keys >> np.uint64(shift + _DIGIT)
        counts.append([np.bincount(digits[above == p], minlength=2**_DIGIT) for p in own])
    return [np.array(counts)]


def _numbers(partition: Partition, names: tuple[str, ...], k: int) -> list[Floats]:
    lists = partition.lists
    top = rank_lists(lists, k, np.zeros(int(lists.items.max(initial=0)) + 1))
    return [number_of(name, top, np.diff(lists.indptr)) for name in names]


def number_of(name: str, top: Lists, lengths: Ints) -> Floats:
    """One number per unit that has it.

    Args:
        name: as for `exact_medians`.
        top: the engine's top k, best first.
        lengths: of the lists.
    """
    counts_here = lengths > 0
    last: Floats = top.scores[top.indptr[1:][counts_here] - 1]
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
