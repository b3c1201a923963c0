"""All units in partitions, wherever these are: functions run on each, results are added up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.learn.partitions.partition import Partition, join_partitions

Arrays = list[Any]
Add = Callable[[list[Arrays]], Arrays]


class Counted(NamedTuple):
    """Numbers of users and units in one partition, and in earlier ones if codes ignore them."""

    users: int
    units: int
    users_before: int
    units_before: int


class PartitionedUnits(Protocol):
    """Units in partitions."""

    @property
    def n_units(self) -> int:
        """Units in all partitions."""
        ...

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """The results of a function on every partition, added up.

        Args:
            function: takes a partition and the given arguments; defined in a module.
            given: arguments, the same for all partitions.
            add: adds several results; by default, arrays element by element.
        """
        ...

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        """All arrays that a function returns on every partition, in one place, in any order."""
        ...


class SomeUnits(PartitionedUnits, Protocol):
    """Units made from all units of a fit; there may be few."""

    def bring_together(self) -> Partition:
        """All of them in one place; for few of them."""
        ...


class AllUnits(PartitionedUnits, Protocol):
    """All units of a fit in partitions, from which others can be made."""

    def derive(self, name: str, function: Callable[..., Partition], *given: Any) -> SomeUnits:
        """Units made from these by a function, partition by partition; kept.

        Args:
            name: of the new partitions.
            function: takes a partition and the given arguments; defined in a module.
            given: arguments, the same for all partitions.
        """
        ...


@dataclass(frozen=True)
class FewUnits:
    """Units that fit into memory, as one partition."""

    whole: Partition

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.whole.n_units

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """The result of a function on all units."""
        return function(self.whole, *given)

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        """The arrays that a function returns on all units."""
        return function(self.whole, *given)

    def bring_together(self) -> Partition:
        """All units."""
        return self.whole


def count_parts(counted: dict[int, tuple[int, int]]) -> dict[int, Counted]:
    """Numbers of users and units in each partition, and in the partitions before it."""
    parts, users_before, units_before = {}, 0, 0
    for number, (users, units) in sorted(counted.items()):
        parts[number] = Counted(users, units, users_before, units_before)
        users_before, units_before = users_before + users, units_before + units
    return parts


def add_arrays(parts: list[Arrays]) -> Arrays:
    """Sums, element by element."""
    return [sum(column[1:], start=column[0]) for column in zip(*parts, strict=True)]


def join_arrays(parts: list[Arrays]) -> Arrays:
    """Arrays joined end to end, for results whose order does not matter."""
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def pack_units(partition: Partition) -> Arrays:
    """Units as arrays of bytes, to bring some of them to one place."""
    return [np.frombuffer(chunk, np.uint8) for chunk in partition.chunks()]


def all_arrays(parts: list[Arrays]) -> Arrays:
    """The arrays of all parts."""
    return [array for part in parts for array in part]


def unpack_units(packed: Arrays) -> Partition:
    """The units that were packed, of all partitions, in their order."""
    return join_in_order([Partition.join([array], 0, 0) for array in packed])


def join_in_order(parts: list[Partition]) -> Partition:
    """Parts of all units as one, in the order of units."""
    filled = [part for part in parts if part.n_units] or parts[:1]
    return join_partitions(sorted(filled, key=lambda part: int(part.units[:1].sum())))
