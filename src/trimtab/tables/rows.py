"""Rows of Parquet files that may be larger than memory, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import refuse_missing
from trimtab.errors import TrimtabError
from trimtab.tables.columns import (
    USER,
    ColumnMap,
    GivenColumns,
    is_text,
    own_names,
    plain_type,
    without_views,
)
from trimtab.tables.files import (
    not_readable,
    open_parquet,
    pick_columns,
    require_distinct_columns,
    require_existing,
)
from trimtab.tables.frames import not_finite
from trimtab.tables.places import Place, as_place

BATCH_ROWS = 2**20
_MOST_ID = 2**63 - 1  # larger ids are refused when they are read
_BUFFER_BYTES = 2**23  # of a column chunk, read at once


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file, and the range of its user ids; None where the file does not say."""

    file: int
    number: int
    n_rows: int
    lowest: Any
    highest: Any
    n_nulls: int | None  # user ids without a value


class Rows:
    """The rows of a table, read in batches.

    Batches have the caller's names of columns, and plain types where the table has dictionaries;
    `finish` makes them a table with Trimtab's names and the table's types.

    Attributes:
        found: all columns of the table, by Trimtab's names.
        plain_schema: the columns of batches.
        schema: the columns of what `finish` returns.
    """

    row_groups: list[RowGroup]

    def __init__(
        self, own_schema: pa.Schema, metadata: Any, names: ColumnMap, wanted: Sequence[str] | None
    ) -> None:
        """Return rows with these columns, by the caller's names; a subclass reads them."""
        self._own_schema, self._metadata = own_schema, metadata
        self._names, self._wanted = names, wanted
        self.found: list[str] = names.rename(own_schema.empty_table()).column_names
        self.plain_schema = pa.schema([(f.name, plain_type(f.type)) for f in own_schema])
        self.schema: pa.Schema = self.finish(self.plain_schema.empty_table()).schema

    @property
    def n_rows(self) -> int:
        """The number of all rows."""
        return sum(group.n_rows for group in self.row_groups)

    @property
    def own_user(self) -> str:
        """The caller's name of the column with user ids."""
        return self.source_of(USER)

    def source_of(self, column: str) -> str:
        """Return the name of a column in batches."""
        return self._names.find(self._own_schema.names).get(column, column)

    def own_name(self, column: str) -> str:
        """Return the caller's name of a column, for messages."""
        return own_names(self.schema.empty_table()).get(column, column)

    def batches(
        self,
        groups: Sequence[RowGroup] | None = None,
        columns: Sequence[str] | None = None,
        size: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """Yield the rows in their order, about `size` at a time; the next are read meanwhile.

        Args:
            groups: row groups to read; None for all.
            columns: columns to read, by the caller's names; None for all.
            size: the most rows of a batch. Small row groups share a batch.
        """
        schema = self.plain_schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        pieces = self._pieces(self.row_groups if groups is None else groups, schema, size)
        return _read_ahead(_fill_up(pieces, size))

    def _pieces(
        self, groups: Sequence[RowGroup], schema: pa.Schema, size: int
    ) -> Iterator[pa.Table]:
        raise NotImplementedError

    def finish(self, table: pa.Table) -> pa.Table:
        """Return batches with Trimtab's names and the table's types."""
        table = _restore_dictionaries(table, self._own_schema)
        table = self._names.rename(table.replace_schema_metadata(self._metadata))
        kept = table.column_names if self._wanted is None else self._wanted
        return table.select([name for name in kept if name in table.column_names])


class ParquetRows(Rows):
    """The rows of a Parquet file, or of all files in a folder, as `read_table` would read them."""

    def __init__(
        self,
        path: str | Place,
        wanted: Sequence[str] | None = None,
        needed: Sequence[str] = (),
        columns: GivenColumns = None,
    ) -> None:
        """Open the files and read their footers; the arguments are those of `read_table`."""
        self.place, names = as_place(path), ColumnMap.of(columns)
        require_existing(self.place)
        try:
            data = open_parquet(self.place)
            self._fragments = list(data.fragments)
            schema = without_views(data.schema.empty_table()).schema.remove_metadata()
            found = names.rename(schema.empty_table()).column_names
            require_distinct_columns(self.place, schema.names)
            picked = pick_columns(self.place, schema, wanted or schema.names, needed, names)
            if wanted is not None:
                schema = pa.schema([schema.field(name) for name in dict.fromkeys(picked)])
            super().__init__(schema, data.schema.metadata, names, wanted)
            self.found, self.row_groups = found, list(self._read_footers())
        except TrimtabError:
            raise
        except Exception as error:  # a damaged file can cause any error in its reader
            raise not_readable(self.place, error) from error

    def _read_footers(self) -> Iterator[RowGroup]:
        for file, fragment in enumerate(self._fragments):
            footer = fragment.metadata
            paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
            is_read = self.own_user in paths and self.own_user in self.plain_schema.names
            place = paths.index(self.own_user) if is_read else None
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                found = None if place is None else group.column(place).statistics
                yield RowGroup(file, number, group.num_rows, *self._bounds(found))

    def _bounds(self, found: Any | None) -> tuple[Any, Any, int | None]:
        """Return the lowest and the highest user id of a row group, and the number of nulls."""
        if found is None:
            return None, None, None
        n_nulls = found.null_count if found.has_null_count else None
        bounds: tuple[Any, Any] = (None, None)
        with suppress(UnicodeDecodeError):  # bounds that were cut off within a character
            bounds = (found.min, found.max) if found.has_min_max else bounds
        if is_text(self.plain_schema.field(self.own_user).type):
            is_usable = all(isinstance(bound, str) for bound in bounds)
        else:
            is_usable = all(isinstance(bound, int) and bound <= _MOST_ID for bound in bounds)
        return (*bounds, n_nulls) if is_usable else (None, None, n_nulls)

    def _pieces(
        self, groups: Sequence[RowGroup], schema: pa.Schema, size: int
    ) -> Iterator[pa.Table]:
        by_file: dict[int, list[int]] = {}
        for group in groups:
            by_file.setdefault(group.file, []).append(group.number)
        try:
            for file, numbers in by_file.items():
                yield from self._read_file(file, numbers, schema, size)
        except Exception as error:  # as above
            raise not_readable(self.place, error) from error

    def _read_file(
        self, file: int, numbers: list[int], schema: pa.Schema, size: int
    ) -> Iterator[pa.Table]:
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        fragment = self._fragments[file]
        keys = ds.get_partition_keys(fragment.partition_expression)  # from folders like day=1
        with fragment.open() as source:
            opened = pq.ParquetFile(source, metadata=fragment.metadata, buffer_size=_BUFFER_BYTES)
            found = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(size, numbers, found):
                yield _conform(batch, schema, keys)


class TableRows(Rows):
    """The rows of an Arrow table, which may have the caller's names in its metadata."""

    def __init__(self, table: pa.Table) -> None:
        """Return the rows of a table in memory."""
        self._table = table = without_views(table)
        super().__init__(table.schema.remove_metadata(), table.schema.metadata, ColumnMap(), None)
        self.row_groups = [RowGroup(0, 0, table.num_rows, None, None, None)]

    def _pieces(
        self, groups: Sequence[RowGroup], schema: pa.Schema, size: int
    ) -> Iterator[pa.Table]:
        for start in range(0, self.n_rows if groups else 0, size):
            yield self._table.select(schema.names).slice(start, size).cast(schema)


def _restore_dictionaries(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table of plain types with dictionaries where a schema of these columns has them."""
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            encoded = _encode_dictionary(table[field.name], field.type)
            table = table.set_column(place, field, encoded)
    return table


def _conform(batch: pa.RecordBatch, schema: pa.Schema, keys: dict[str, Any]) -> pa.Table:
    """Return a file's batch with the types and columns of all files together."""
    columns = []
    for field in schema:
        if field.name in batch.schema.names:
            columns.append(batch[field.name].cast(field.type))
        elif field.name in keys:
            value = pa.scalar(keys[field.name], field.type)
            columns.append(pa.repeat(value, batch.num_rows))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _encode_dictionary(column: pa.ChunkedArray, kind: pa.DictionaryType) -> pa.ChunkedArray:
    encoded = column.combine_chunks().dictionary_encode()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    made = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(kind.index_type), chunk.dictionary, ordered=kind.ordered
        )
        for chunk in chunks
    ]
    return pa.chunked_array(made, kind)


def _fill_up(pieces: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Put small pieces together, so that few have less than half of `size` rows."""
    held: list[pa.Table] = []
    n_held = 0
    for piece in pieces:
        if held and n_held + piece.num_rows > size:
            yield pa.concat_tables(held)
            held, n_held = [], 0
        held.append(piece)
        n_held += piece.num_rows
    if held:
        yield pa.concat_tables(held)


def _read_ahead(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield batches, each read while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, batches, None)
        while (batch := waiting.result()) is not None:
            waiting = pool.submit(next, batches, None)
            yield batch


def require_values(name: str, rows: Rows, column: str) -> None:
    """Raise if a column has missing values; those of users are counted in the files' footers."""
    counts = [group.n_nulls if column == USER else None for group in rows.row_groups]
    if None in counts:
        counts = [batch[0].null_count for batch in rows.batches(columns=[rows.source_of(column)])]
    n_nulls = sum(count for count in counts if count is not None)
    refuse_missing(name, rows.own_name(column), n_nulls, rows.n_rows)


def find_lowest(name: str, rows: Rows, column: str) -> float:
    """Return the lowest number of a column; raise if one is not finite. Not for missing values."""
    first, lowest = 0, np.inf
    for batch in rows.batches(columns=[rows.source_of(column)]):
        values = batch[0].cast(pa.float64(), safe=False).to_numpy()
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise not_finite(name, rows.own_name(column), values[wrong[0]], first + int(wrong[0]))
        first, lowest = first + len(values), min(lowest, values.min(initial=np.inf))
    return float(lowest)
