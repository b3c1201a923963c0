"""All units in partitions: functions run over each of them, and what they give is added up.

Only the data frame interface of Spark is used, so that this also runs through Spark Connect. What a
function needs travels with it; what it gives is a few arrays. Nothing of the size of the users
comes back to the driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from trimtab.spark.array_bytes import Arrays, from_bytes, to_bytes
from trimtab.spark.checkpoint import Checkpoint
from trimtab.spark.data_frames import Batches, map_arrow, use_own_cores
from trimtab.spark.partition import Partition

CHUNKS = "part int, place int, data binary"
_RESULT = "data binary"
_SLICED = "slice int, data binary"
_FEW = 8  # results that the driver adds up by itself
_SLICES = 4  # for each partition, so that none gets much more than another

Add = Callable[[list[Arrays]], Arrays]


class Counted(NamedTuple):
    """Users and units of one partition; and those before it, if codes do not yet count them."""

    users: int
    units: int
    users_before: int
    units_before: int


@dataclass(frozen=True)
class PartitionedUnits:
    """Units in partitions.

    Args:
        frame: chunks of shares: part, place, data.
        parts: what is known of each partition, by its number.
        ledger: remembers results, to go on from after a restart.
    """

    frame: DataFrame
    parts: dict[int, Counted]
    checkpoint: Checkpoint

    @property
    def n_users(self) -> int:
        """Users in all partitions."""
        return sum(part.users for part in self.parts.values())

    @property
    def n_units(self) -> int:
        """Units in all partitions."""
        return sum(part.units for part in self.parts.values())

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """What a function gives for every share, added up.

        Args:
            function: takes a share and what is given; a function of a module.
            given: the same for all shares.
            add: adds several results; sums of arrays place by place when left out.
        """
        add = add or add_arrays
        return self.checkpoint.recall(function.__name__, lambda: self._run(function, given, add))

    def _run(self, function: Callable[..., Arrays], given: tuple[Any, ...], add: Add) -> Arrays:
        found = map_arrow(
            self.frame, partial(_work, function=function, given=given, parts=self.parts), _RESULT
        )
        n_results = len(self.parts)
        while n_results > _FEW:
            n_results = math.isqrt(n_results)
            found = map_arrow(found.repartition(n_results), partial(_fold, add=add), _RESULT)
        rows = found.collect()
        return add([from_bytes(row["data"]) for row in rows])

    def exchange(
        self, write: Callable[..., Iterator[tuple[int, Arrays]]],
        choose: Callable[..., Arrays], *given: Any,
    ) -> Arrays:  # fmt: skip
        """What partitions write, brought together slice by slice, and what is chosen from it.

        Args:
            write: takes a share, how many slices there are, and what is given; gives (slice,
                arrays).
            choose: takes all arrays of some slices, and what is given; what it gives is joined.
            given: the same everywhere.
        """
        return self.checkpoint.recall(write.__name__, lambda: self._exchange(write, choose, given))

    def _exchange(self, write: Any, choose: Any, given: tuple[Any, ...]) -> Arrays:
        n_slices = _SLICES * len(self.parts)
        written = map_arrow(
            self.frame,
            partial(_write, function=write, given=(n_slices, *given), parts=self.parts),
            _SLICED,
        )
        together = written.repartition(len(self.parts), F.col("slice"))
        chosen = map_arrow(together, partial(_choose, function=choose, given=given), _RESULT)
        return join_arrays([from_bytes(row["data"]) for row in chosen.collect()])

    def change(self, function: Callable[..., Partition], *given: Any) -> DataFrame:
        """Chunks of the shares that a function makes of these."""
        return map_arrow(
            self.frame, partial(_change, function=function, given=given, parts=self.parts), CHUNKS
        )


def add_arrays(parts: list[Arrays]) -> Arrays:
    """Sums, place by place."""
    return [sum(column[1:], start=column[0]) for column in zip(*parts, strict=True)]


def join_arrays(parts: list[Arrays]) -> Arrays:
    """Arrays one behind the other; for those whose order does not matter."""
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _shares(batches: Batches, parts: dict[int, Counted]) -> Iterator[tuple[int, Partition]]:
    """The shares among a task's chunks; usually one."""
    use_own_cores()
    chunks: dict[int, dict[int, Any]] = {}
    for batch in batches:
        part, place, data = batch.column(0), batch.column(1), batch.column(2)
        for row in range(batch.num_rows):
            chunks.setdefault(part[row].as_py(), {})[place[row].as_py()] = data[row].as_buffer()
    for number in sorted(chunks):
        counted = parts[number]
        ordered = [chunks[number][place] for place in sorted(chunks[number])]
        yield number, Partition.join(ordered, counted.users_before, counted.units_before)


def _row(**values: Any) -> pa.RecordBatch:
    arrays = {
        name: pa.array([value], pa.binary() if isinstance(value, bytes) else pa.int32())
        for name, value in values.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def _work(batches: Batches, function: Any, given: Any, parts: dict[int, Counted]) -> Batches:
    for _, partition in _shares(batches, parts):
        yield _row(data=to_bytes(function(partition, *given)))


def _write(batches: Batches, function: Any, given: Any, parts: dict[int, Counted]) -> Batches:
    for _, partition in _shares(batches, parts):
        for place, arrays in function(partition, *given):
            yield _row(slice=place, data=to_bytes(arrays))


def _change(batches: Batches, function: Any, given: Any, parts: dict[int, Counted]) -> Batches:
    for number, partition in _shares(batches, parts):
        yield from chunk_rows(number, function(partition, *given).chunks())


def chunk_rows(number: int, chunks: Iterable[bytes]) -> Batches:
    """Chunks of a share as rows."""
    for place, data in enumerate(chunks):
        yield _row(part=number, place=place, data=data)


def _results(batches: Batches) -> Iterator[Arrays]:
    for batch in batches:
        column = batch.column(batch.num_columns - 1)
        for row in range(batch.num_rows):
            yield from_bytes(column[row].as_buffer())


def _fold(batches: Batches, add: Add) -> Batches:
    """Results of several partitions, added up one by one."""
    total: Arrays | None = None
    for found in _results(batches):
        total = found if total is None else add([total, found])
    if total is not None:
        yield _row(data=to_bytes(total))


def _choose(batches: Batches, function: Any, given: tuple[Any, ...]) -> Batches:
    """What is chosen from all that was written for some slices."""
    use_own_cores()
    written = list(_results(batches))
    if written:
        yield _row(data=to_bytes(function(given, written)))
