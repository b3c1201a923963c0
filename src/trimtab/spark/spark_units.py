"""All units in partitions: runs a function on each partition and adds up the results.

Only Spark's data frame interface is used, so this also works through Spark Connect. A function's
arguments travel with it; its result is a few arrays. The driver receives sums
and samples of bounded size, never all users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from trimtab.arrays import Ints
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import (
    Add,
    Arrays,
    Counted,
    add_arrays,
    join_in_order,
)
from trimtab.spark.array_bytes import as_ids, from_bytes, ids_from_bytes, ids_to_bytes, to_bytes
from trimtab.spark.spark_frames import (
    Batches,
    keep_in_memory,
    log_seconds,
    map_arrow,
    use_own_cores,
)

CHUNKS = "part int, place int, data binary"
RESULT = "data binary"
_FEW = 8  # results that the driver adds up itself


@dataclass(frozen=True)
class SparkUnits:
    """Units in partitions.

    Args:
        frame: chunks of partitions: part, place, data.
        parts: numbers of users and units, by partition.
        held: releases what is kept in Spark's memory.
        ids: of the users, by partition: part, ids; None if they are not kept.
    """

    frame: DataFrame
    parts: dict[int, Counted]
    held: ExitStack
    ids: DataFrame | None = None

    @property
    def n_users(self) -> int:
        """Users in all partitions."""
        return sum(part.users for part in self.parts.values())

    @property
    def n_units(self) -> int:
        """Units in all partitions."""
        return sum(part.units for part in self.parts.values())

    def run(self, function: Callable[..., Arrays], *given: Any, add: Add | None = None) -> Arrays:
        """The results of a function on every partition, added up.

        Args:
            function: takes a partition and the given arguments; defined in a module.
            given: arguments, the same for all partitions.
            add: adds several results; by default, arrays element by element.
        """
        work = partial(_work, function=function, given=given, parts=self.parts)
        found = map_arrow(self.frame, work, RESULT)
        with log_seconds(function.__name__):
            return add_results(found, len(self.parts), add or add_arrays)

    def gather(self, function: Callable[..., Arrays], *given: Any) -> Arrays:
        """All arrays that a function returns on every partition, in any order.

        They come to the driver one partition at a time.
        """
        work = partial(_work, function=function, given=given, parts=self.parts, apart=True)
        found = map_arrow(self.frame, work, RESULT)
        with log_seconds(f"{function.__name__}, gathered"):
            rows = found.toLocalIterator(prefetchPartitions=True)
            return [array for row in rows for array in from_bytes(row["data"])]

    def bring_together(self) -> Partition:
        """All units on the driver, straight from Spark's memory."""
        with log_seconds("units brought together"):
            rows = self.frame.toLocalIterator(prefetchPartitions=True)
            return join_in_order([self._chunk(row["part"], row["data"]) for row in rows])

    def _chunk(self, part: int, data: Any) -> Partition:
        return Partition.join([data], self.parts[part].users_before, self.parts[part].units_before)

    def find_users(self, users: Ints) -> Any:
        """Ids of users, an array of integers or of Arrow strings.

        Args:
            users: codes over all partitions, ascending, each once.
        """
        assert self.ids is not None
        work = partial(_pick_ids, users=users, parts=self.parts)
        found = map_arrow(self.ids, work, CHUNKS).collect()
        ordered = sorted(found, key=lambda row: int(row["part"]))
        parts = [pa.array(ids_from_bytes(bytes(row["data"]))) for row in ordered]
        return as_ids(pa.chunked_array(parts))

    def derive(self, name: str, function: Callable[..., Partition], *given: Any) -> SparkUnits:
        """Units made from these by a function, partition by partition; kept in Spark."""
        changed = map_arrow(
            self.frame, partial(_change, function=function, given=given, parts=self.parts), CHUNKS
        )
        coded = {
            number: part._replace(users_before=0, units_before=0)
            for number, part in self.parts.items()
        }
        return SparkUnits(keep_in_memory(changed, self.held), coded, self.held)


def add_results(found: DataFrame, n_results: int, add: Add) -> Arrays:
    """Results of partitions, added up; if they are many, not by the driver alone.

    Args:
        found: rows with the bytes of arrays.
        n_results: number of rows.
        add: adds several results.
    """
    while n_results > _FEW:
        n_results = math.isqrt(n_results)
        found = map_arrow(found.repartition(n_results), partial(_fold, add=add), RESULT)
    return add([from_bytes(row["data"]) for row in found.collect()])


def _partitions(batches: Batches, parts: dict[int, Counted]) -> Iterator[tuple[int, Partition]]:
    """The partitions among a task's chunks; usually one."""
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


def _work(
    batches: Batches, function: Any, given: Any, parts: dict[int, Counted], apart: bool = False
) -> Batches:
    """The arrays that a function returns on each partition: together, or in a row each."""
    for _, partition in _partitions(batches, parts):
        found = function(partition, *given)
        for arrays in [[array] for array in found] if apart else [found]:
            yield _row(data=to_bytes(arrays))


def _change(batches: Batches, function: Any, given: Any, parts: dict[int, Counted]) -> Batches:
    for number, partition in _partitions(batches, parts):
        yield from chunk_rows(number, function(partition, *given).chunks())


def chunk_rows(number: int, chunks: Iterable[bytes]) -> Batches:
    """Chunks of a partition as rows."""
    for place, data in enumerate(chunks):
        yield _row(part=number, place=place, data=data)


def _pick_ids(batches: Batches, users: Ints, parts: dict[int, Counted]) -> Batches:
    """Ids of some users, partition by partition."""
    for batch in batches:
        for row in range(batch.num_rows):
            number = batch.column(0)[row].as_py()
            ids, counted = pa.array(ids_from_bytes(batch.column(1)[row].as_buffer())), parts[number]
            own = users - counted.users_before
            chosen = ids.take(pa.array(own[(own >= 0) & (own < counted.users)]))
            yield from chunk_rows(number, [ids_to_bytes(chosen)])


def _fold(batches: Batches, add: Add) -> Batches:
    """Results of several partitions, added up one by one."""
    total: Arrays | None = None
    for batch in batches:
        for data in batch.column(0):
            found = from_bytes(data.as_buffer())
            total = found if total is None else add([total, found])
    if total is not None:
        yield _row(data=to_bytes(total))
