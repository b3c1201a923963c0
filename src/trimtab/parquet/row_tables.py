"""Tables of files: opened, and their ids and values checked over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_columns
from trimtab.tables.columns import ColumnMap, GivenColumns, own_names
from trimtab.tables.files import is_csv, read_table
from trimtab.tables.frames import Table, require_numbers
from trimtab.tables.rows import ParquetRows, Rows, TableRows, find_lowest, require_values
from trimtab.tables.vocabulary import IdColumn, as_id_column, encode_ids, id_column

_MOST_WAITING = 4_000_000  # ids that are not merged yet


def open_table(
    name: str, source: Any, needed: Sequence[str], optional: Sequence[str], columns: GivenColumns
) -> Rows:
    """Open a table of files, or one in memory; refuse it as `read_frame` does.

    Args:
        name: name of the table, for errors.
        source: Parquet files, a CSV file or an Arrow table.
        needed: columns that must exist.
        optional: columns to read where they exist.
        columns: the names that columns have in files.
    """
    wanted = (*needed, *optional)
    if isinstance(source, ParquetRows | TableRows):
        rows: Rows = source
    elif isinstance(source, pa.Table) or is_csv(source):
        table = read_into_memory(source, columns)
        require_columns(name, table.column_names, needed, own_names(table))
        rows = TableRows(table.select([c for c in wanted if c in table.column_names]))
    else:
        rows = ParquetRows(source, wanted, (), columns)
    require_columns(name, rows.found, needed, own_names(rows.schema.empty_table()))
    return rows


def read_into_memory(source: Any, columns: GivenColumns) -> pa.Table:
    """Return a small table, from a file or as it is."""
    if isinstance(source, pa.Table):
        return source if own_names(source) else ColumnMap.of(columns).rename(source)
    return read_table(source, columns=columns)


def find_ids(name: str, rows: Rows, column: str) -> Any:
    """Return the distinct ids of a column, ascending."""
    merged = IdUnion(name, column)
    for batch in rows.batches(columns=[rows.source_of(column)]):
        distinct = pa.chunked_array([pc.unique(batch[0])])
        merged.add(id_column(name, rows.own_name(column), distinct))
    return merged.finish()


class IdUnion:
    """Distinct ids of many columns, merged now and then."""

    def __init__(self, table: str, column: str) -> None:
        """Return no ids yet; the names are for errors."""
        self._table, self._column = table, column
        self._waiting: list[IdColumn] = []

    def add(self, ids: IdColumn) -> None:
        """Add ids."""
        self._waiting.append(ids)
        if len(self._waiting) > 1 and sum(map(len, self._waiting)) > _MOST_WAITING:
            self._merge()

    def _merge(self) -> None:
        merged, _ = encode_ids(self._waiting)
        self._waiting = [as_id_column(self._table, self._column, merged)]

    def finish(self) -> Any:
        """Return all ids, ascending."""
        if not self._waiting:
            return np.empty(0, np.int64)
        return encode_ids(self._waiting)[0]


def recheck(name: str, rows: Rows, ids: Iterable[str], numbers: Iterable[str]) -> None:
    """Raise what a table in memory would be refused for: errors of parts count other rows.

    Args:
        name: name of the table.
        rows: its rows.
        ids: columns of ids, where they exist.
        numbers: columns of numbers, where they exist.
    """
    own = own_names(rows.schema.empty_table())
    empty = Table(name, rows.schema.empty_table(), None, False, own)
    for column in (column for column in ids if empty.has(column)):
        require_values(name, rows, column)
    for column in (column for column in numbers if empty.has(column)):
        require_values(name, rows, column)
        require_numbers(empty, column)
        find_lowest(name, rows, column)
