"""Spark data frames, or names of tables: columns picked and checked."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.checks import require_columns, require_rows
from trimtab.errors import DataError
from trimtab.tables.columns import TIMESTAMP, WINDOW
from trimtab.tables.times import DAY
from trimtab.tables.vocabulary import IdColumn, require_same_id_type

_LOG = logging.getLogger("trimtab.spark")
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBERS = (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)

_MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_LIMIT, _USUAL_ROWS = str(2**31 - 1), 10_000
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"

Batches = Iterator[pa.RecordBatch]


def read_spark_frame(
    frame: Any, name: str, *needed: str, ids: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> DataFrame:
    """The needed columns, ids as long or string; refuses a frame that lacks one.

    Args:
        frame: a data frame, or the name of a table.
        name: of the table, for errors.
        needed: columns it must have.
        ids: those of the columns that are ids.
        optional: columns to read if they exist.
    """
    given = _as_frame(frame, name)
    require_columns(name, given.columns, needed)
    columns = [*needed, *(column for column in optional if column in given.columns)]
    picked = given.select(*columns)
    for column in (column for column in columns if column in ids):
        kind = picked.schema[column].dataType
        if isinstance(kind, _WHOLE):
            picked = picked.withColumn(column, F.col(column).cast("long"))
        elif not isinstance(kind, T.StringType):
            raise DataError(
                f"column '{column}' of {name} has type {kind.simpleString()}: ids must be "
                f"integers or strings; cast the column"
            )
    return picked


def _as_frame(frame: Any, name: str) -> DataFrame:
    if isinstance(frame, str):
        session = SparkSession.getActiveSession()
        if session is None:
            raise DataError(f"{name}={frame!r} names a table, but no Spark session is active")
        return session.table(frame)
    # Frames of Spark Connect are of another class with the same methods.
    if not (isinstance(frame, DataFrame) or hasattr(frame, "mapInArrow")):
        raise DataError(
            f"{name} is a {type(frame).__name__}: pass a Spark data frame or the name of a table"
        )
    found: DataFrame = frame
    return found


def check_same_ids(column: str, frames: dict[str, DataFrame]) -> None:
    """Refuse integer ids in one frame and strings in another."""
    require_same_id_type([id_type(frame, name, column) for name, frame in frames.items()])


def id_type(frame: DataFrame, name: str, column: str) -> IdColumn:
    """An id column without rows that has the type of a frame's column."""
    is_whole = isinstance(frame.schema[column].dataType, T.LongType)
    return IdColumn(name, column, np.empty(0, np.int64) if is_whole else pa.chunked_array([[""]]))


def check_rows(
    frame: DataFrame, name: str, numbers: tuple[str, ...] = (), may_be_empty: bool = False
) -> int:
    """The number of rows; refuses missing values, numbers that are not finite, and no rows.

    Args:
        frame: as `read_spark_frame` gave it.
        name: what to call it in errors.
        numbers: columns that must hold finite numbers.
        may_be_empty: whether no rows are allowed.
    """
    for column in numbers:
        kind = frame.schema[column].dataType
        if not isinstance(kind, _NUMBERS):
            raise DataError(
                f"column '{column}' of {name} has type {kind.simpleString()}: it must be numeric; "
                f"cast the column"
            )
    counts = [F.count(F.lit(1)).alias("rows")]
    counts += [F.count_if(F.col(c).isNull()).alias(f"null {c}") for c in frame.columns]
    for column in numbers:
        value = F.col(column).cast("double")
        infinite = F.isnan(value) | (F.abs(value) == float("inf"))
        counts.append(F.count_if(infinite).alias(f"infinite {column}"))
    found = frame.agg(*counts).collect()[0]
    n_rows = int(found["rows"])
    if not may_be_empty:
        require_rows(name, n_rows)
    for column in frame.columns:
        if found[f"null {column}"]:
            raise DataError(
                f"column '{column}' of {name} is empty in {found[f'null {column}']} of "
                f"{n_rows} rows; drop those rows"
            )
    for column in numbers:
        if found[f"infinite {column}"]:
            raise DataError(
                f"column '{column}' of {name} has {found[f'infinite {column}']} numbers that are "
                f"not finite; correct or drop those rows"
            )
    return n_rows


def use_own_cores() -> None:
    """Limit this worker to as many threads as its task has cores."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        os.environ.setdefault("TRIMTAB_THREADS", str(max(1, context.cpus())))


def map_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """Run a function over each partition's Arrow batches."""
    with warnings.catch_warnings():
        # Spark checks pandas even if only Arrow is used, and warns of pandas 3.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return frame.mapInArrow(function, schema)


@contextmanager
def batches_of_many_rows(session: SparkSession) -> Iterator[None]:
    """Make Spark send rows to Python faster, for jobs whose rows are a few numbers or ids.

    From Spark 4.1 on, Arrow batches have at most 64 MB, and Spark measures a batch again after each
    row, which takes twice as long as everything else. Without a limit it does not; batches still
    have at most as many rows as the session allows.
    """
    conf = session.conf
    before = conf.get(_MOST_BYTES, None) or None
    n_rows = int(conf.get(_MOST_ROWS, None) or _USUAL_ROWS)
    if before == _NO_LIMIT or not 0 < n_rows <= 10 * _USUAL_ROWS:
        yield
        return
    try:
        conf.set(_MOST_BYTES, _NO_LIMIT)
    except PySparkException:  # where a platform does not let its settings be changed
        yield
        return
    try:
        yield
    finally:
        if before is None:
            conf.unset(_MOST_BYTES)
        else:
            conf.set(_MOST_BYTES, before)


@contextmanager
def log_seconds(name: str) -> Iterator[None]:
    """Log how long something took."""
    began = time.monotonic()
    yield
    _LOG.info("%s: %.1f s", name, time.monotonic() - began)


def keep_in_memory(frame: DataFrame, held: ExitStack) -> DataFrame:
    """A frame that is computed once, and released when the stack is closed."""
    held.callback(frame.persist().unpersist)
    return frame


def window_label(kind: T.DataType) -> Column:
    """Window labels by type: dates as text, timestamps as integers, others as they are.

    Labels sort like the windows, and a timestamp at midnight has the label of its date.
    """
    window = F.col(WINDOW)
    if isinstance(kind, T.DateType):
        return window.cast("string")
    if isinstance(kind, T.TimestampNTZType):
        return F.regexp_replace(window.cast("string"), " 00:00:00$", "")
    return F.unix_micros(window) if isinstance(kind, T.TimestampType) else window


def microseconds_of(frame: DataFrame, name: str) -> Column:
    """Timestamps as microseconds since 1970; those without a zone are taken as UTC."""
    kind = frame.schema[TIMESTAMP].dataType
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(TIMESTAMP)
    if isinstance(kind, T.TimestampNTZType):
        return F.expr(f"timestampdiff(MICROSECOND, {_EPOCH}, {TIMESTAMP})")
    if isinstance(kind, T.DateType):
        return F.unix_date(TIMESTAMP) * F.lit(DAY)
    raise DataError(
        f"column '{TIMESTAMP}' of {name} has type {kind.simpleString()}: it must be timestamps or "
        f"dates; cast the column"
    )
