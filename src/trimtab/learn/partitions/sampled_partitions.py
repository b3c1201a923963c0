"""The sample of units that a Reranker learns from, taken from users in partitions."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Codes
from trimtab.learn.hierarchy.shared_inputs import SharedInputs
from trimtab.learn.partitions.hierarchy_backend import learning_weights
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_fit import PartitionedInputs
from trimtab.learn.partitions.partitioned_units import (
    Arrays,
    pack_units,
    unpack_units,
)
from trimtab.learn.rerank.sampled_units import (
    SampledUnits,
    describe_sample,
    in_sample,
    sort_items,
)
from trimtab.learn.units import learning_units


def sample_partitioned(
    inputs: PartitionedInputs, windows: Codes, shared: SharedInputs
) -> SampledUnits:
    """The units that `sample_units` takes from the same tables in memory, in their order.

    Args:
        inputs: the tables of the fit.
        windows: new numbers of the windows; -1: not to be learned from.
        shared: what all units of the fit share.
    """
    numbers = windows[: len(inputs.counts.learning)]
    n_units = int(inputs.counts.learning[numbers >= 0].sum())
    n_entries = int(shared.listed.sum())
    packed = inputs.units.gather(take_sample, windows, shared.seed, n_units, n_entries)
    found = unpack_units(packed)
    return describe_sample(
        sort_items(found.lists, np.arange(found.n_units)), found.bought,
        found.weights / inputs.typical_weight, found.users,
        windows[found.windows].astype(np.int64), shared,
    )  # fmt: skip


def take_sample(
    partition: Partition, windows: Codes, seed: int, n_units: int, n_entries: int
) -> Arrays:
    """The units of a partition that are in the sample.

    Args:
        partition: all units of a partition.
        windows: new numbers of the windows; -1: not to be learned from.
        seed: of the fit.
        n_units: learning units of all partitions.
        n_entries: of their lists.
    """
    weights = learning_weights(partition, windows)
    units = np.flatnonzero(learning_units(partition.lists, partition.bought, weights))
    chosen = units[in_sample(partition.units[units], seed, n_units, n_entries)]
    return pack_units(partition.take(chosen))
