"""The backend of the ascent in rounds: partitions write their curves and make the moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, entries_of
from trimtab.bias.scaled_scores import to_scale
from trimtab.kernels.item_curves import BestMoves, Curves
from trimtab.learn.ascent.rounds import (
    Losses,
    MoveSearch,
    TriedMoves,
    add_tried_moves,
    choose_moves,
    curves_of_part,
    try_moves_on_part,
)
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.ascent.state import AscentState
from trimtab.learn.engine_ranking import rank_by_engine
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import Arrays
from trimtab.learn.units import learning_units
from trimtab.spark.spark_units import SparkUnits


@dataclass(frozen=True)
class SparkAscentBackend:
    """Learning units, in partitions."""

    units: SparkUnits

    def propose(self, setup: AscentSetup, search: MoveSearch) -> BestMoves:
        """The best bias of each item: partitions write curves, which are added up by item."""
        return BestMoves(*self.units.exchange(write_slices, choose_in_slice, setup, search))

    def try_moves(
        self, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
    ) -> TriedMoves:
        """Make moves in all partitions."""
        found = self.units.run(moves_in_partition, setup, offset, items, biases, add=_add)
        return _tried(found)


def learning_partition(partition: Partition, k: int, scale: str, n_items: int) -> Partition:
    """The learning units of a partition, sorted by k-th score.

    Args:
        partition: all units of a partition.
        k: slots.
        scale: that biases are added on.
        n_items: number of item codes.
    """
    lists = to_scale(partition.lists, scale, k).lists
    chosen = np.flatnonzero(learning_units(lists, partition.bought, partition.weights))
    engine = rank_by_engine(lists, partition.bought, k, "acc", n_items)
    by_score = chosen[np.argsort(engine.kth_score[chosen], kind="stable")]
    return partition._replace(lists=lists).take(by_score)


def _state_at(
    partition: Partition, setup: AscentSetup, offset: Floats, items: Codes
) -> AscentState:
    candidates: Flags = np.zeros(setup.n_items, bool)
    candidates[items] = True
    weights = partition.weights if setup.weighted else None
    in_order = np.arange(partition.n_units, dtype=np.float64)
    return AscentState(
        partition.lists, partition.bought, weights, in_order, setup, offset.copy(), candidates
    )


def write_slices(
    partition: Partition, n_slices: int, setup: AscentSetup, search: MoveSearch
) -> Iterator[tuple[int, Arrays]]:
    """This partition's part of the curves, items divided into slices."""
    state = _state_at(partition, setup, search.offset, search.items)
    curves = curves_of_part(state, search.items, search.limits)
    lengths = curves.n_up.astype(np.int64) + curves.n_down
    ends = np.concatenate([[0], np.cumsum(lengths)])
    own = np.flatnonzero((lengths > 0) | (curves.current != 0))
    for place in range(n_slices):
        chosen = own[own % n_slices == place]
        if len(chosen):
            _, entries = entries_of(ends, chosen)
            columns = (column[chosen] for column in curves[:4])
            yield place, [*columns, curves.at[entries], curves.delta[entries]]


def choose_in_slice(given: tuple[Any, ...], parts: list[Arrays]) -> Arrays:
    """The best moves of the items in a slice; all parts of their curves are here."""
    setup, search = given
    return list(choose_moves(setup, search, [Curves(*part) for part in parts]))


def moves_in_partition(
    partition: Partition, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
) -> Arrays:
    """The effect of moves on this partition's units, made one after the other."""
    return _arrays(try_moves_on_part(_state_at(partition, setup, offset, items), items, biases))


def _add(parts: list[Arrays]) -> Arrays:
    return _arrays(add_tried_moves([_tried(part) for part in parts]))


def _arrays(tried: TriedMoves) -> Arrays:
    return [tried.gains, np.int64(tried.value), *tried.losses]


def _tried(arrays: Arrays) -> TriedMoves:
    return TriedMoves(arrays[0], int(arrays[1]), Losses(*arrays[2:]))
