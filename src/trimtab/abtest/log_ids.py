"""Logs and their ids, joined as they are written: 7 as a number is '7' as text, but not '007'."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes
from trimtab.errors import DataError
from trimtab.tables.columns import USER
from trimtab.tables.frames import Table, read_frame
from trimtab.tables.vocabulary import IdColumn, Vocabulary

EMAIL_ID, SESSION = "email_id", "session_id"
_IDS = (EMAIL_ID, USER, SESSION)
_MOST_EXACT = 2**53  # floats above it do not stand for one whole number each


def read_log(
    frame: Any, name: str, *needed: str, optional: tuple[str, ...] = (), may_be_empty: bool = True
) -> Table:
    """Return a log; ids that a reader turned into floats, like 7.0, are whole numbers again."""
    table = read_frame(frame, name, *needed, optional=optional, may_be_empty=may_be_empty)
    columns = table.columns
    for own in (own for own in _IDS if table.has(own)):
        column = columns[own]
        if len(column) == 0:
            column = pa.chunked_array([pa.array([], pa.int64())])
        elif pa.types.is_floating(column.type):
            column = _whole(column, name, table.own_name(own))
        columns = columns.set_column(columns.column_names.index(own), own, column)
    return dataclasses.replace(table, columns=columns)


def _whole(column: pa.ChunkedArray, table: str, name: str) -> pa.ChunkedArray:
    values = np.asarray(column.cast(pa.float64()).drop_null())
    wrong = ~((np.floor(values) == values) & (np.abs(values) < _MOST_EXACT))
    if wrong.any():
        raise DataError(
            f"column '{name}' of {table} has {values[wrong][0]:g}: ids must be whole numbers or "
            f"text; read the column as text"
        )
    return column.cast(pa.int64())


def encode_as_written(*columns: IdColumn) -> tuple[Vocabulary, list[Codes]]:
    """Return the distinct ids, and each column as codes; numbers become text beside text."""
    if len({column.kind for column in columns}) > 1:
        columns = tuple(map(_as_text, columns))
    return Vocabulary.encode(*columns)


def _as_text(column: IdColumn) -> IdColumn:
    if column.kind == "strings":
        return column
    text = pa.array(column.values).cast(pa.large_string())
    return IdColumn(column.table, column.name, pa.chunked_array([text]))
