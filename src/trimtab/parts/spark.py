"""Users on Spark: functions run on every partition of the users, over Arrow.

Spark shuffles rows one by one, which takes longer than everything that is done with them. So each
task packs its rows first, by ranges of user ids: a pack is one row of Spark's, and holds an Arrow
table. Only Spark's data frame interface is used, so this also works through Spark Connect.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from trimtab import errors
from trimtab.checks import require_columns
from trimtab.errors import DataError, TrimtabError, TrimtabWarning
from trimtab.parts.packing import pack, unpack
from trimtab.tables.columns import USER
from trimtab.tables.vocabulary import UserRanges, id_column, require_same_id_type

_ROWS = "part int, place int, data binary, problem string"
_ROW_TYPES = pa.schema({"part": "i4", "place": "i4", "data": "binary", "problem": "string"})
_PACK_ROWS = 2**19
_PIECE = 2**25  # bytes of a value in one row
_N_SAMPLED = 100_000  # users, to choose ranges by
_ROWS_PER_PART = 10_000_000
_MOST_PARTS = 2**16 - 1
_MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_LIMIT, _USUAL_ROWS = str(2**31 - 1), 10_000

Batches = Iterator[pa.RecordBatch]


class SparkTable:
    """The columns of a data frame that are read.

    Attributes:
        frame: the data frame.
        names: its columns.
    """

    def __init__(
        self, name: str, given: Any, needed: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        """Return the needed columns, and the optional ones that exist.

        Args:
            name: name of the table, for errors.
            given: a data frame, or the name of a table.
            needed: columns that must exist.
            optional: columns to read where they exist.
        """
        if isinstance(given, str):
            session = SparkSession.getActiveSession()
            if session is None:
                raise DataError(f"{name}={given!r} names a table, but no Spark session is active")
            given = session.table(given)
        # Frames of Spark Connect are of another class with the same methods.
        elif not hasattr(given, "mapInArrow"):
            raise DataError(
                f"{name} is a {type(given).__name__}: pass a Spark data frame or the name of a "
                f"table"
            )
        require_columns(name, given.columns, needed)
        picked = [*needed, *(c for c in optional if c in given.columns)]
        self.frame: DataFrame = given.select(*picked)
        self.names: list[str] = self.frame.columns

    def has_rows(self) -> bool:
        """Return whether there are any rows."""
        return len(self.frame.take(1)) > 0

    def read(self, most: int | None = None) -> pa.Table:
        """Return the rows, or some of them, on the driver, with timestamps in UTC."""
        table = (self.frame if most is None else self.frame.limit(most)).toArrow()
        fields = (
            field.with_type(pa.timestamp("us", "UTC")) if getattr(field.type, "tz", None) else field
            for field in table.schema
        )
        return table.cast(pa.schema(fields))


@contextmanager
def open_spark(
    tables: Mapping[str, SparkTable], n_parts: int | None = None
) -> Iterator[SparkParts]:
    """Yield the rows of tables by user; what Spark keeps of them is released afterwards.

    Args:
        tables: by name; each has a column user_id. The first one decides on the ranges of users.
        n_parts: number of parts; by default few enough users in each for memory.
    """
    schemas = {name: table.read(0).schema for name, table in tables.items()}
    require_same_id_type(
        [id_column(name, USER, schema.empty_table()[USER]) for name, schema in schemas.items()]
    )
    first = next(iter(tables))
    ranges = _choose_ranges(first, tables[first].frame, n_parts)
    packed = [
        map_arrow(
            table.frame, partial(_pack, place=place, ranges=ranges, schema=schemas[name]), _ROWS
        )
        for place, (name, table) in enumerate(tables.items())
    ]
    together = reduce(lambda some, more: some.union(more), packed)
    in_order = hasattr(together, "repartitionById")  # from Spark 4.1 on
    if in_order:
        placed = together.repartitionById(ranges.n_parts, F.col("part"))
    else:  # some partitions may have two ranges
        placed = together.repartition(ranges.n_parts, "part")
    with ExitStack() as held:
        packs = placed.persist(StorageLevel.DISK_ONLY)  # as Spark keeps rows on their way
        held.callback(packs.unpersist)
        with _batches_of_many_rows(together.sparkSession):
            packs.count()
        read = partial(_read_tables, schemas=schemas)
        yield SparkParts(packs, read, ranges.n_parts, held, in_order, schemas)


@dataclass(frozen=True)
class SparkParts:
    """Values by partition, as rows: part, place, data.

    Args:
        frame: the rows.
        read: makes the value of a part from its rows, by place.
        n_parts: number of parts.
        held: releases what Spark keeps.
        in_order: whether Spark's partitions are in the order of users, one part in each.
        schemas: of the tables that the parts are made from.
    """

    frame: DataFrame
    read: Callable[[dict[int, list[Any]]], Any]
    n_parts: int
    held: ExitStack
    in_order: bool
    schemas: Mapping[str, pa.Schema]

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on every part, one at a time."""
        rows = self._run(function, given).toLocalIterator(prefetchPartitions=True)
        by_part = groupby(rows, itemgetter(0) if self.in_order else lambda row: None)
        for _, group in by_part:
            for _, own in sorted(_gather(group).items()):
                yield _read_value(own)

    def keep(self, function: Callable[..., Any], *given: Any) -> SparkParts:
        """Return parts whose values are the results of a function, kept in Spark."""
        made = self._run(function, given).persist()
        self.held.callback(made.unpersist)
        return replace(self, frame=made, read=_read_value)

    def to_frame(self, function: Callable[..., Any], schema: str, *given: Any) -> DataFrame:
        """Return the tables that a function makes of every part as one frame."""
        work = partial(_work_tables, read=self.read, function=function, given=given)
        return map_arrow(self.frame, work, schema)

    def _run(self, function: Callable[..., Any], given: tuple[Any, ...]) -> DataFrame:
        return map_arrow(
            self.frame, partial(_work, read=self.read, function=function, given=given), _ROWS
        )


def map_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """Run a function over each partition's Arrow batches."""
    with warnings.catch_warnings():
        # Spark checks pandas even if only Arrow is used, and warns of pandas 3.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return frame.mapInArrow(function, schema)


def _choose_ranges(name: str, frame: DataFrame, n_parts: int | None) -> UserRanges:
    """Return ranges of user ids with about as many rows of a frame each."""
    n_rows = frame.count()
    if n_parts is None:
        # Not every kind of session knows how many tasks run at a time.
        context = getattr(frame.sparkSession, "_sc", None)
        at_a_time = max(1, context.defaultParallelism if context is not None else 8)
        n_parts = at_a_time * max(1, -(-n_rows // (_ROWS_PER_PART * at_a_time)))
    users = frame.select(USER)
    if n_rows > _N_SAMPLED:
        users = users.sample(fraction=_N_SAMPLED / n_rows, seed=0)
    sampled = users.where(F.col(USER).isNotNull()).toArrow()
    return UserRanges.of_sample(id_column(name, USER, sampled[USER]), min(n_parts, _MOST_PARTS))


def _pack(batches: Batches, place: int, ranges: UserRanges, schema: pa.Schema) -> Batches:
    """Pack the rows of a partition, many at a time."""
    held: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        held.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _PACK_ROWS:
            yield from _packs(held, place, ranges, schema)
            held, n_rows = [], 0
    if n_rows:
        yield from _packs(held, place, ranges, schema)


def _packs(
    held: list[pa.RecordBatch], place: int, ranges: UserRanges, schema: pa.Schema
) -> Batches:
    table = pa.Table.from_batches(held).cast(schema).combine_chunks()
    try:
        ids = id_column("recs", USER, table[USER])
    except TrimtabError as error:
        yield _row(0, place, b"", error)
        return
    (rows,) = table.to_batches()
    for part, own in ranges.split(rows, ids):
        yield _row(part, place, pack(pa.Table.from_batches([own])))


def _row(part: int, place: int, data: bytes, error: TrimtabError | None = None) -> pa.RecordBatch:
    problem = None if error is None else f"{type(error).__name__}: {error}"
    row = {"part": part, "place": place, "data": data, "problem": problem}
    return pa.RecordBatch.from_pylist([row], _ROW_TYPES)


def _gather(rows: Iterator[Any]) -> dict[int, dict[int, list[Any]]]:
    """Return the data of rows by part and place; raise the error that a row tells of."""
    parts: dict[int, dict[int, list[Any]]] = {}
    for part, place, data, problem in rows:
        if problem:
            kind, _, text = problem.partition(": ")
            raise getattr(errors, kind, DataError)(text)
        parts.setdefault(part, {}).setdefault(place, []).append(data)
    return parts


def _read_tables(rows: dict[int, list[Any]], schemas: dict[str, pa.Schema]) -> dict[str, pa.Table]:
    """Return the tables of a part."""
    return {
        name: pa.concat_tables([schema.empty_table(), *map(unpack, rows.get(place, []))])
        for place, (name, schema) in enumerate(schemas.items())
    }


def _read_value(rows: dict[int, list[Any]]) -> Any:
    """Return the value of a part, put together from its pieces."""
    return unpack(b"".join(bytes(rows[place][0]) for place in sorted(rows)))


def _parts_of(batches: Batches, read: Callable[[dict[int, list[Any]]], Any]) -> Iterator[Any]:
    """Yield the number and the value of the parts in a partition of Spark's, usually one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:  # as many threads as the task has cores
        os.environ.setdefault("TRIMTAB_THREADS", str(max(1, context.cpus())))
    parts = _gather(
        (part.as_py(), place.as_py(), data.as_buffer(), problem.as_py())
        for batch in batches
        for part, place, data, problem in zip(*batch.columns, strict=True)
    )
    for number in sorted(parts):
        yield number, read(parts.pop(number))


def _work(batches: Batches, read: Any, function: Any, given: Any) -> Batches:
    """Run a function on the parts of a partition; what it returns, or the error, as rows."""
    number = 0
    try:
        for number, value in _parts_of(batches, read):
            data = pack(function(value, *given))
            for place, start in enumerate(range(0, len(data), _PIECE)):
                yield _row(number, place, data[start : start + _PIECE])
    except TrimtabError as error:
        yield _row(number, 0, b"", error)


def _work_tables(batches: Batches, read: Any, function: Any, given: Any) -> Batches:
    for _, value in _parts_of(batches, read):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # it would be about these users only
            found = function(value, *given)
        if found is not None:
            yield from found.to_batches()


@contextmanager
def _batches_of_many_rows(session: SparkSession) -> Iterator[None]:
    """Make Spark send rows to Python faster, for jobs whose rows are a few numbers or ids.

    From Spark 4.1 on, Arrow batches have at most 64 MB, and Spark measures a batch again after each
    row, which takes twice as long as everything else. Without a limit it does not; batches still
    have at most as many rows as the session allows.
    """
    conf = session.conf
    before = conf.get(_MOST_BYTES, None)
    n_rows = int(conf.get(_MOST_ROWS, None) or _USUAL_ROWS)
    with ExitStack() as restored:
        if 0 < n_rows <= 10 * _USUAL_ROWS:
            with suppress(PySparkException):  # where a platform keeps its settings
                conf.set(_MOST_BYTES, _NO_LIMIT)
                undo = (conf.set, _MOST_BYTES, before) if before else (conf.unset, _MOST_BYTES)
                restored.callback(*undo)
        yield
