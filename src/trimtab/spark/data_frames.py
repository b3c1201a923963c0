"""Spark data frames, or names of tables, as columns that are checked."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.checks import require_columns, require_rows
from trimtab.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBERS = (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)

Batches = Iterator["pa.RecordBatch"]


def read_frame(
    frame: Any, name: str, *needed: str, ids: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> DataFrame:
    """The columns that matter, ids as long or string; refuses a frame that lacks one.

    Args:
        frame: a data frame, or the name of a table.
        name: what to call it in errors.
        needed: columns it must have.
        ids: which of the columns hold ids.
        optional: columns to take along if they are there.
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
                f"column '{column}' of {name} holds {kind.simpleString()}: ids must be integers or "
                f"strings; cast the column"
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
    kinds = {
        name: "integers" if isinstance(frame.schema[column].dataType, T.LongType) else "strings"
        for name, frame in frames.items()
    }
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise DataError(
                f"column '{column}' holds {kinds[first]} in {first} but {kind} in {name}; cast one "
                f"of them so that both are the same"
            )


def check_rows(
    frame: DataFrame, name: str, numbers: tuple[str, ...] = (), may_be_empty: bool = False
) -> int:
    """Refuse missing values, numbers that are not finite, and no rows; returns how many there are.

    Args:
        frame: as `read_frame` gave it.
        name: what to call it in errors.
        numbers: columns that must hold finite numbers.
        may_be_empty: whether no rows are allowed.
    """
    for column in numbers:
        kind = frame.schema[column].dataType
        if not isinstance(kind, _NUMBERS):
            raise DataError(
                f"column '{column}' of {name} holds {kind.simpleString()}: it must be numbers; "
                f"cast the column"
            )
    counts = [F.count(F.lit(1)).alias("rows")]
    counts += [F.count_if(F.col(c).isNull()).alias(f"null {c}") for c in frame.columns]
    for column in numbers:
        value = F.col(column).cast("double")
        endless = F.isnan(value) | (F.abs(value) == float("inf"))
        counts.append(F.count_if(endless).alias(f"endless {column}"))
    found = frame.agg(*counts).collect()[0]
    n_rows = int(found["rows"])
    if not may_be_empty:
        require_rows(name, n_rows)
    for column in frame.columns:
        if found[f"null {column}"]:
            raise DataError(
                f"column '{column}' of {name} lacks a value in {found[f'null {column}']} of "
                f"{n_rows} rows; drop those rows"
            )
    for column in numbers:
        if found[f"endless {column}"]:
            raise DataError(
                f"column '{column}' of {name} has {found[f'endless {column}']} numbers that are "
                f"not finite; mend or drop such rows"
            )
    return n_rows


def use_own_cores() -> None:
    """Have this worker run as many threads as its task has cores; others run beside it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        os.environ.setdefault("TRIMTAB_THREADS", str(max(1, context.cpus())))


def map_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """Run a function over each partition's Arrow batches."""
    with warnings.catch_warnings():
        # Spark checks pandas even where only Arrow passes through, and warns of its version 3.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return frame.mapInArrow(function, schema)
