"""Units in partitions, all in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trimtab.learn.inputs import FitInputs
from trimtab.learn.partitions.partition import Partition, join_partitions
from trimtab.learn.partitions.partitioned_units import Add, Arrays, add_arrays, all_arrays


class MemoryUnits(NamedTuple):
    """Partitions as they are; the simplest `PartitionedUnits`."""

    parts: list[Partition]

    @property
    def n_units(self) -> int:
        return sum(part.n_units for part in self.parts)

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        return (add or add_arrays)([function(part, *given) for part in self.parts])

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        return self.run(function, *given, add=all_arrays)

    def bring_together(self) -> Partition:
        return join_partitions(self.parts)

    def derive(self, name: str, function: Callable[..., Partition], *given: Any) -> MemoryUnits:
        return MemoryUnits([function(part, *given) for part in self.parts])


def cut_units(inputs: FitInputs, n_parts: int) -> MemoryUnits:
    """The units of a local fit in partitions; a user is in one of them only."""
    n_units, users = len(inputs.units), inputs.units.user_codes.astype(np.int64)
    weights = np.ones(n_units) if inputs.weights is None else inputs.weights
    own = np.arange(n_units, dtype=np.int64)
    whole = Partition(
        inputs.lists, inputs.bought, weights, users, inputs.windows, own, np.empty(0, bool)
    )
    part_of = users * n_parts // (int(users.max()) + 1)
    return MemoryUnits([whole.take(np.flatnonzero(part_of == part)) for part in range(n_parts)])
