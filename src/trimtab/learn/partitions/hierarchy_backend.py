"""The backend of the hierarchy on partitions, which make the sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.hierarchy.choice_model import Effects, fit_effects
from trimtab.learn.hierarchy.levels import size_of_level
from trimtab.learn.hierarchy.line_search import HitLists, gather_hits
from trimtab.learn.hierarchy.shared_inputs import (
    SharedInputs,
    UnitCounts,
    add_unit_counts,
    count_hit_units,
)
from trimtab.learn.hierarchy.unit_data import Fit, UnitData
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import (
    Arrays,
    PartitionedUnits,
    add_arrays,
    pack_units,
    unpack_units,
)
from trimtab.learn.scales import Scale
from trimtab.models.scaled_scores import to_scale


@dataclass
class PartitionedBackend:
    """Units with hits, in partitions.

    Args:
        units: with the engine's scores as they are; each pass puts them on the scale.
        shared: the inputs that all parts share, with the scale.
    """

    units: PartitionedUnits
    shared: SharedInputs
    _sampled: UnitData | None = None

    def on_scale(self, scale: Scale) -> PartitionedBackend:
        """The units on another scale than that of the engine's scores."""
        shared = replace(self.shared, scale=scale.name, score_unit=scale.unit)
        return PartitionedBackend(self.units, shared, self._all_samples().on_scale(scale))

    def sample(self, purpose: str) -> UnitData:
        """A sample of the units, brought to one place: "trend" or "curves"."""
        return self._all_samples().sample(purpose)

    def _all_samples(self) -> UnitData:
        """The units of all samples, which come in one pass."""
        if self._sampled is None:
            packed = self.units.gather(sample_units, self.shared)
            self._sampled = unit_data(unpack_units(packed), self.shared)
        return self._sampled

    def total(self, method: str, *given: Any) -> Ints:
        """The result of a method of `UnitData`, summed over all partitions."""
        (sums,) = self.units.run(ask_unit_data, self.shared, method, given)
        found: Ints = sums
        return found

    def effects(self, level: str, fits: list[Fit], kept: dict[str, float]) -> list[Effects]:
        """Effects of all fits at once, which needs fewer passes over the partitions."""
        n_groups, precision = size_of_level(self.shared, level)

        def sums(moving: list[int], effects: Floats) -> Floats:
            some = [fits[place] for place in moving]
            return self.total("effect_sums", level, some, kept, effects) / self.shared.effect_quanta

        return fit_effects(sums, len(fits), n_groups, precision)


def with_hits(partition: Partition, typical: float, windows: Codes) -> Partition:
    """The units of a partition that bought at least one listed item.

    Args:
        partition: all units of a partition.
        typical: the weight that counts as 1.
        windows: new numbers of the windows; -1: not to be learned from.
    """
    weights = learning_weights(partition, windows) / typical
    data = gather_hits(partition.lists, partition.bought, weights)
    chosen = data.source
    return Partition(
        data.lists, partition.bought.take(chosen), data.weights, partition.users[chosen],
        windows[partition.windows[chosen]], partition.units[chosen],
        data.hits.astype(bool, copy=False),
    )  # fmt: skip


def _hit_lists(partition: Partition) -> HitLists:
    sizes = np.diff(partition.bought.indptr)
    return HitLists(partition.lists, partition.hits, sizes, partition.weights, partition.units)


def unit_data(partition: Partition, shared: SharedInputs) -> UnitData:
    """Units with hits, whose scores are on the scale."""
    return UnitData(_hit_lists(partition), partition.users, partition.windows, shared)


def ask_unit_data(
    partition: Partition, shared: SharedInputs, method: str, given: tuple[Any, ...]
) -> Arrays:
    """The result of a method of `UnitData` on a partition."""
    lists = to_scale(partition.lists, shared.scale, shared.k).lists
    return [getattr(unit_data(partition._replace(lists=lists), shared), method)(*given)]


def sample_units(partition: Partition, shared: SharedInputs) -> Arrays:
    """The units of a partition that are in a sample."""
    data = unit_data(partition, shared)
    chosen = [data.in_sample(purpose) for purpose in ("trend", "curves")]
    return pack_units(partition.take(np.unique(np.concatenate(chosen))))


def count_partition(partition: Partition, k: int, metric: str, quanta: float) -> Arrays:
    """Counts of a partition's units with hits, and the number of their entries."""
    counts = count_hit_units(_hit_lists(partition), k, metric, quanta)
    return [*_to_arrays(counts), np.array([len(partition.lists.items)])]


def count_hits(
    units: PartitionedUnits, k: int, metric: str, quanta: float
) -> tuple[UnitCounts, int]:
    """Counts of all units with hits, and the number of their entries."""
    *counts, entries = units.run(count_partition, k, metric, quanta, add=_add_counts)
    return _from_arrays(counts), int(entries[0])


def _add_counts(parts: list[Arrays]) -> Arrays:
    counts = add_unit_counts([_from_arrays(part[:-1]) for part in parts])
    return [*_to_arrays(counts), *add_arrays([part[-1:] for part in parts])]


def _to_arrays(counts: UnitCounts) -> Arrays:
    return [np.array(counts[:3], np.int64), np.array(counts[3:], np.float64)]


def _from_arrays(arrays: Arrays) -> UnitCounts:
    return UnitCounts(*(int(n) for n in arrays[0]), *(float(bound) for bound in arrays[1]))


def learning_weights(partition: Partition, windows: Codes) -> Floats:
    """The weights of a partition's units; 0 in windows that are not to be learned from."""
    return np.where(windows[partition.windows] < 0, 0.0, partition.weights)
