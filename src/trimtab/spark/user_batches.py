"""Runs local functions on Arrow tables that hold all rows of the users in them.

Rows of several tables meet by tags: each row says which table it comes from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from trimtab.errors import TrimtabWarning
from trimtab.spark.spark_frames import (
    Batches,
    map_arrow,
    read_spark_frame,
    use_own_cores,
    window_label,
)
from trimtab.tables.columns import ITEM, USER, WINDOW

_BATCH_ROWS = 2**19  # that a worker takes at once, besides those of the last user
_TAG, _VALUE = "tag", "value"


def map_users(
    frame: DataFrame,
    function: Callable[[pa.Table], pa.Table | None],
    schema: str,
    in_order: bool = True,
) -> DataFrame:
    """Run a function on Arrow tables that hold all rows of the users in them.

    Args:
        frame: has a column user_id.
        function: takes a table, sorted by user, and returns a table or None.
        schema: of the returned tables.
        in_order: whether partitions must follow the order of users; that takes one more pass over
            the frame.
    """
    placed = frame.repartitionByRange(F.col(USER)) if in_order else frame.repartition(F.col(USER))
    placed = placed.sortWithinPartitions(USER)
    return map_arrow(placed, partial(_run_on_users, function=function), schema)


def _run_on_users(batches: Batches, function: Callable[[pa.Table], pa.Table | None]) -> Batches:
    use_own_cores()
    for rows in _whole_users(batches):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # it would be about these users only
            found = function(rows)
        if found is not None:
            yield from found.to_batches()


def _whole_users(batches: Batches) -> Iterator[pa.Table]:
    """Rows sorted by user, as tables of bounded size that never split a user."""
    held: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        held.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _BATCH_ROWS:
            table = pa.Table.from_batches(held)
            unfinished = pc.sum(pc.equal(table[USER], table[USER][-1])).as_py()
            n_rows = unfinished
            if unfinished < table.num_rows:
                yield table.slice(0, table.num_rows - unfinished)
            held = table.slice(table.num_rows - unfinished).to_batches()
    if n_rows:
        yield pa.Table.from_batches(held)


def read_units(
    frame: Any, name: str, *numbers: str, optional: tuple[str, ...] = ()
) -> tuple[DataFrame, dict[str, T.DataType]]:
    """Rows with ids as long or string, and the original types of the ids."""
    given = read_spark_frame(frame, name, USER, ITEM, *numbers, optional=(WINDOW, *optional))
    kinds = {field.name: field.dataType for field in given.schema.fields}
    if WINDOW in kinds:
        given = given.withColumn(WINDOW, window_label(kinds[WINDOW]))
    ids = (USER, ITEM, WINDOW)
    return read_spark_frame(given, name, *given.columns, ids=ids), kinds


def tag_rows(frame: DataFrame, tag: int, value: str | None = None) -> DataFrame:
    """Rows of one table, marked with the number of the table."""
    number = F.lit(None) if value is None else F.col(value)
    ids = [column for column in (USER, WINDOW, ITEM) if column in frame.columns]
    return frame.select(*ids, number.cast("double").alias(_VALUE), F.lit(tag).alias(_TAG))


def rows_with_tag(rows: pa.Table, tag: int, value: str | None = None) -> pa.Table:
    """The rows of one table, with the name of its value column restored."""
    found = rows.filter(pc.equal(rows[_TAG], tag)).drop_columns([_TAG])
    if value is None:
        return found.drop_columns([_VALUE])
    return found.rename_columns([value if c == _VALUE else c for c in found.column_names])
