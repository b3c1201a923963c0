"""Tables that a command reads: into memory, or left in Parquet files if they are large."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.errors import TrimtabError
from trimtab.replay import large_lists
from trimtab.tables.columns import ITEM, SCORE, USER, ColumnMap
from trimtab.tables.files import is_csv, match_id_types, read_table, read_tables
from trimtab.tables.rows import ParquetRows


class Tables(NamedTuple):
    """Tables by the order in which they were asked for; None for one that was not given."""

    given: list[Any]  # in memory, or the paths of Parquet files if there are large lists
    columns: list[list[str]]  # their names
    are_large: bool


def is_large(path: str | None) -> bool:
    """Return whether a file or folder has more rows than are read into memory at once."""
    if path is None or is_csv(path):
        return False
    try:
        return ParquetRows(path).n_rows > large_lists.LARGE
    except TrimtabError:  # told of when it is read
        return False


def open_tables(
    *paths: str | None, columns: ColumnMap, text: Collection[str] = (),
    needed: Collection[str] = (USER, ITEM, SCORE), large: bool,
) -> Tables:  # fmt: skip
    """Return tables with matching types of ids; if some are large, Parquet files as they are.

    Args:
        paths: files, folders or addresses.
        columns: the names that columns have in the files.
        text: columns of ids that are text.
        needed: columns whose absence is an error later.
        large: whether tables may be too large for memory.
    """
    if not large:
        read = read_tables(*paths, text=text, columns=columns, needed=needed)
        return Tables(read, [[] if own is None else own.column_names for own in read], False)
    found = [None if path is None else _look_into(path, columns) for path in paths]
    columns.warn_of_unused(found, but=needed)
    from_csv = [path is not None and is_csv(path) for path in paths]
    matched = match_id_types(found, from_csv, text)
    given = [
        table if is_read else path
        for path, table, is_read in zip(paths, matched, from_csv, strict=True)
    ]
    return Tables(given, [[] if own is None else own.column_names for own in found], True)


def _look_into(path: str, columns: ColumnMap) -> pa.Table:
    """Return a CSV file as a table, and a Parquet file as one without rows."""
    if is_csv(path):
        return read_table(path, columns=columns)
    return ParquetRows(path, columns=columns).schema.empty_table()
