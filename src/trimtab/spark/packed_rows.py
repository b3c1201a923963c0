"""Rows on their way to the partition of their user, packed by the hundred thousand.

Spark shuffles rows one by one, which takes longer than everything that is done with them. So each
task packs its rows first, by ranges of user ids: a pack is one row of Spark's, and holds an Arrow
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, reduce

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.spark.spark_frames import Batches, batches_of_many_rows, map_arrow
from trimtab.tables.columns import USER
from trimtab.tables.user_ranges import UserRanges, ranges_from, starts_of_sample
from trimtab.tables.vocabulary import id_column

_PACKS = "part int, kind int, data binary"
_PACK_ROWS = 2**19
_N_SAMPLED = 100_000  # users, to choose ranges by
_MOST_PARTS = 2**16 - 1
_TYPES: dict[type[T.DataType], pa.DataType] = {
    T.LongType: pa.int64(),
    T.StringType: pa.large_string(),
    T.IntegerType: pa.int32(),
    T.DoubleType: pa.float64(),
}


def choose_ranges(frame: DataFrame, n_rows: int, n_parts: int) -> UserRanges:
    """Ranges of user ids with about as many rows of a frame each.

    Args:
        frame: has a column user_id, of integers or strings.
        n_rows: rows of the frame, at least 1.
        n_parts: ranges to make; there are fewer if the frame has fewer users.
    """
    users = frame.select(USER)
    if n_rows > _N_SAMPLED:
        users = users.sample(fraction=_N_SAMPLED / n_rows, seed=0)
    sampled = users.toArrow().column(USER).combine_chunks()
    starts = starts_of_sample(sampled, min(n_parts, _MOST_PARTS)) if len(sampled) else []
    column = pa.chunked_array([pa.array(sorted(set(starts)), sampled.type)])
    return ranges_from(id_column("recs", USER, column))


@contextmanager
def pack_rows(frames: Mapping[int, DataFrame], ranges: UserRanges) -> Iterator[DataFrame]:
    """The rows of several frames, packed; the packs of a range are in one partition.

    They are made at once and kept until the end of the context: single rows and whole packs need
    other settings of Spark.

    Args:
        frames: by kind, a number; each has a column user_id.
        ranges: of user ids.
    """
    packed = [
        map_arrow(frame, partial(_pack, kind=kind, ranges=ranges, schema=schema_of(frame)), _PACKS)
        for kind, frame in frames.items()
    ]
    together = reduce(lambda some, more: some.union(more), packed)
    if hasattr(together, "repartitionById"):  # from Spark 4.1 on
        placed = together.repartitionById(ranges.n_parts, F.col("part"))
    else:  # some partitions may have two ranges
        placed = together.repartition(ranges.n_parts, "part")
    packs = placed.persist(StorageLevel.DISK_ONLY)  # as Spark keeps rows on their way
    try:
        with batches_of_many_rows(together.sparkSession):
            packs.count()
        yield packs
    finally:
        packs.unpersist()


def unpack_rows(
    batches: Batches, schemas: Mapping[int, pa.Schema]
) -> Iterator[tuple[int, dict[int, pa.Table]]]:
    """The ranges of a partition, usually one, in order; their rows by kind.

    Args:
        batches: of packs.
        schemas: of the tables of all kinds.
    """
    packs: dict[int, dict[int, list[pa.Table]]] = {}
    for batch in batches:
        for part, kind, data in zip(*batch.columns, strict=True):
            rows = pa.ipc.open_stream(data.as_buffer()).read_all()
            packs.setdefault(part.as_py(), {}).setdefault(kind.as_py(), []).append(rows)
    for part in sorted(packs):
        own = packs.pop(part)
        yield (
            part,
            {
                kind: pa.concat_tables(
                    [schema.empty_table(), *(rows.cast(schema) for rows in own.pop(kind, []))]
                )
                for kind, schema in schemas.items()
            },
        )


def schema_of(frame: DataFrame) -> pa.Schema:
    """The Arrow types of a frame with ids, whole numbers and doubles."""
    return pa.schema([(f.name, _TYPES[type(f.dataType)]) for f in frame.schema.fields])


def _pack(batches: Batches, kind: int, ranges: UserRanges, schema: pa.Schema) -> Batches:
    held: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        held.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _PACK_ROWS:
            yield from _packs(held, kind, ranges, schema)
            held, n_rows = [], 0
    if n_rows:
        yield from _packs(held, kind, ranges, schema)


def _packs(
    held: list[pa.RecordBatch], kind: int, ranges: UserRanges, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(held).cast(schema).combine_chunks()
    ids = id_column("recs", USER, table[USER])
    for place, field in enumerate(schema):
        table = table.set_column(place, field.name, _smaller(table[field.name]))
    (rows,) = table.combine_chunks().to_batches()
    for part, own in ranges.split(rows, ids):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, own.schema) as writer:
            writer.write_batch(own)
        yield pa.RecordBatch.from_pydict(
            {
                "part": pa.array([part], pa.int32()),
                "kind": pa.array([kind], pa.int32()),
                "data": pa.array([out.getvalue().to_pybytes()], pa.binary()),
            }
        )


def _smaller(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in fewer bytes if possible; text repeats, and most whole numbers are small."""
    if pa.types.is_large_string(column.type):
        return column.dictionary_encode()
    if pa.types.is_int64(column.type):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int32())
    return column
