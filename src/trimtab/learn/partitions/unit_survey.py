"""One pass over all units: everything that is counted before anything is learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Ints
from trimtab.learn.hierarchy.hierarchy_result import TopKCounts, count_ranked
from trimtab.learn.hierarchy.shared_inputs import N_FOLDS, count_folds, count_shown
from trimtab.learn.partitions.exact_median import first_digits, number_of
from trimtab.learn.partitions.global_counts import (
    GlobalCounts,
    add_counts,
    count_partition_units,
    make_counts,
)
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import Arrays, PartitionedUnits, add_arrays
from trimtab.learn.quanta import quanta_for
from trimtab.learn.settings import LearnerSettings
from trimtab.metrics.ranking import rank_lists

MEDIANS = ("kth", "gap")  # see `exact_medians`
_N_SUMS = 6


class Survey(NamedTuple):
    """Counts over all units, also of windows that are not learned from."""

    counts: GlobalCounts
    bought: Ints  # by [(window, fold), item], and the next two: see `SharedInputs`
    listed: Ints
    shown: Ints  # by [window, item]
    digits: Ints  # by median: see `exact_medians`
    before: TopKCounts  # what the engine's own top k show
    quanta: float  # of its hit values

    def of_windows(self, windows: Codes) -> tuple[Ints, Ints, Ints]:
        """What was bought, listed and shown in the windows to learn from.

        Args:
            windows: new numbers of the windows; -1: not to be learned from.
        """
        chosen = np.flatnonzero(windows >= 0)
        if len(chosen) == 0:  # one window, in which nothing is to be learned
            bought, listed = (np.zeros_like(part[:N_FOLDS]) for part in (self.bought, self.listed))
            return bought, listed, np.zeros_like(self.shown[:1])
        rows = (chosen[:, None] * N_FOLDS + np.arange(N_FOLDS)).ravel()
        return self.bought[rows], self.listed[rows], self.shown[chosen]


def survey_units(
    units: PartitionedUnits, settings: LearnerSettings, n_items: int, n_windows: int
) -> Survey:
    """Counts over all units, with the engine's scores."""
    quanta = quanta_for(units.n_units)  # what it is in the end, unless users have great weights
    given = settings.k, settings.metric, settings.seed, n_items, n_windows, quanta
    found = units.run(survey_partition, *given, add=_add)
    bought, listed, shown, digits, *before = found[-_N_SUMS:]
    counts = make_counts(found[:-_N_SUMS])
    return Survey(counts, bought, listed, shown, digits, TopKCounts(*before), quanta)


def survey_partition(
    partition: Partition, k: int, metric: str, seed: int, n_items: int, n_windows: int,
    quanta: float,
) -> Arrays:  # fmt: skip
    """Counts of a partition's units; see `Survey`."""
    lists, bought, weights = partition.lists, partition.bought, partition.weights
    users, windows = partition.users, partition.windows
    top = rank_lists(lists, k, np.zeros(n_items))
    lengths = np.diff(lists.indptr)
    return [
        *count_partition_units(partition, k, metric, n_items),
        *count_folds(lists, bought, weights, users, windows, seed, n_windows, n_items),
        count_shown(lists, bought, weights, windows, k, n_windows, n_items, top),
        np.stack([first_digits(number_of(name, top, lengths)) for name in MEDIANS]),
        *count_ranked(top, bought, weights, k, metric, n_items, quanta),
    ]


def _add(parts: list[Arrays]) -> Arrays:
    counts = add_counts([part[:-_N_SUMS] for part in parts])
    return counts + add_arrays([part[-_N_SUMS:] for part in parts])
