"""Tables that a command works on: Parquet files are left as they are, CSV files are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.tables.columns import ITEM, SCORE, USER, ColumnMap
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.rows import ParquetRows


class Tables(NamedTuple):
    """Tables by the order in which they were asked for; None for one that was not given."""

    given: list[Any]  # in memory if they are CSV files, otherwise their paths
    columns: list[list[str]]  # their names


def open_tables(
    *paths: str | None, columns: ColumnMap, text: Collection[str] = (),
    needed: Collection[str] = (USER, ITEM, SCORE),
) -> Tables:  # fmt: skip
    """Return tables with matching types of ids.

    Args:
        paths: files, folders or addresses.
        columns: the names that columns have in the files.
        text: columns of ids that are text.
        needed: columns whose absence is an error later.
    """
    found = [None if path is None else _look_into(path, columns) for path in paths]
    columns.warn_of_unused(found, but=needed)
    from_csv = [path is not None and is_csv(path) for path in paths]
    matched = match_id_types(found, from_csv, text)
    given = [
        table if is_read else path
        for path, table, is_read in zip(paths, matched, from_csv, strict=True)
    ]
    return Tables(given, [[] if own is None else own.column_names for own in found])


def _look_into(path: str, columns: ColumnMap) -> pa.Table:
    """Return a CSV file as a table, and a Parquet file as one without rows."""
    if is_csv(path):
        return read_table(path, columns=columns)
    return ParquetRows(path, columns=columns).schema.empty_table()
