"""Rows of Parquet files that may be larger than memory, read in batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import refuse_missing, require_columns
from trimtab.errors import StoreError, TrimtabError
from trimtab.tables.columns import ColumnMap, GivenColumns, own_names, without_views
from trimtab.tables.places import Address, Place, as_place, cannot_read
from trimtab.tables.vocabulary import plain_type

BATCH_ROWS = 2**20
_BUFFER_BYTES = 2**23  # of a column chunk, read at once
_COMPARED = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)


class Rows:
    """The rows of a table, read in batches.

    Batches have Trimtab's names of columns, and plain types where the table has dictionaries;
    `finish` gives them the table's types.

    Attributes:
        n_rows: the number of all rows.
        found: all columns of the table, by Trimtab's names.
        plain_schema: the columns of batches.
        schema: the columns of what `finish` returns.
        own: the caller's names of columns, where they differ.
    """

    def __init__(
        self, data: Any, names: ColumnMap, wanted: Sequence[str] | None, place: Place | None = None
    ) -> None:
        """Return the rows of an Arrow dataset.

        Args:
            data: the dataset, with the caller's names of columns.
            names: the caller's names.
            wanted: columns to read, where they exist; None for all.
            place: of its files; None for a table in memory.
        """
        self._data, self._place, self.n_rows = data, place, int(data.count_rows())
        self._sources = names.find(data.schema.names)
        empty = names.rename(without_views(data.schema.empty_table()))
        self.found: list[str] = empty.column_names
        kept = self.found if wanted is None else [name for name in wanted if name in self.found]
        self.schema: pa.Schema = empty.select(kept).schema
        self.plain_schema = pa.schema([(f.name, plain_type(f.type)) for f in self.schema])
        self.own = own_names(empty)

    @property
    def names(self) -> list[str]:
        """Columns that are read."""
        return list(self.schema.names)

    def has_rows(self) -> bool:
        """Return whether there are any rows."""
        return self.n_rows > 0

    def own_name(self, column: str) -> str:
        """Return the caller's name of a column, for messages."""
        return self.own.get(column, column)

    def field(self, column: str) -> Any:
        """Return a column of the files, for conditions."""
        return pc.field(self._sources.get(column, column))

    def batches(
        self, columns: Sequence[str] | None = None, where: Any = None, size: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """Yield the rows in their order, `size` at a time; the next are read meanwhile.

        Args:
            columns: columns to read; None for all.
            where: a condition that rows must meet; row groups without such rows are not read.
            size: rows of a batch; the last one may have fewer.
        """
        scanner = self._data.scanner(
            columns=self._picked(columns),
            filter=where,
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,  # whole row groups would wait in memory
        )
        held = self.plain_schema.empty_table().select(columns or self.plain_schema.names)
        with reading(self._place):
            for batch in scanner.to_batches():
                held = pa.concat_tables([held, pa.Table.from_batches([batch])])
                if held.num_rows >= size:
                    yield held.slice(0, size)
                    held = held.slice(size)
        if held.num_rows:
            yield held

    def _picked(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        kinds = [self.plain_schema.field(c) for c in columns or self.plain_schema.names]
        return {kind.name: self.field(kind.name).cast(kind.type) for kind in kinds}

    def read(self) -> pa.Table:
        """Return all rows in memory."""
        with reading(self._place):
            return self.finish(self._data.to_table(columns=self._picked()))

    def finish(self, table: pa.Table) -> pa.Table:
        """Return batches with the table's types, and the caller's names in the metadata."""
        columns = [
            column.dictionary_encode() if pa.types.is_dictionary(kind) else column
            for column, kind in zip(table.columns, self.schema.types, strict=True)
        ]
        typed = pa.Table.from_arrays(columns, names=self.schema.names).cast(self.schema)
        return typed.unify_dictionaries()

    def count_read(self, column: str, wheres: Sequence[Any]) -> float:
        """Return how many rows are read to find those that meet each condition on a column.

        Infinity if footers of Parquet files do not tell which row groups are read.
        """
        if wheres == [None]:
            return self.n_rows
        if self._place is None or not self._can_compare(column):
            return math.inf
        return sum(
            group.num_rows
            for where in wheres
            for file in self._data.get_fragments(where)
            for group in file.subset(where, self._data.schema).row_groups
        )

    def _can_compare(self, column: str) -> bool:
        """Return whether Arrow takes conditions on a column, and knows its bounds by row group."""
        kind = self._data.schema.field(self._sources.get(column, column)).type
        has_views = any(map(pa.types.is_string_view, self._data.schema.types))
        return not has_views and any(is_kind(kind) for is_kind in _COMPARED)

    def require_values(self, name: str, column: str) -> None:
        """Raise if values are missing; mostly, the files' footers say that there are all."""
        where = self.field(column).is_null() if self._can_compare(column) else None
        n_nulls = sum(batch[0].null_count for batch in self.batches([column], where))
        refuse_missing(name, self.own_name(column), n_nulls, self.n_rows)


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
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        place = as_place(path)
        require_existing(place)
        path, filesystem = place.location if isinstance(place, Address) else (place, None)
        with reading(place):
            opened = pq.ParquetDataset(
                path, filesystem, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
            if not opened.files:
                raise StoreError(f"{place}: the folder has no Parquet files; check the path")
            require_distinct_columns(place, opened.schema.names)
            form = ds.ParquetFileFormat()
            data = ds.FileSystemDataset(opened.fragments, opened.schema, form, opened.filesystem)
            super().__init__(data, ColumnMap.of(columns), wanted, place)
        require_columns(str(place), self.found, needed, self.own)


class TableRows(Rows):
    """The rows of an Arrow table, which may have the caller's names in its metadata."""

    def __init__(self, table: pa.Table, wanted: Sequence[str] | None = None) -> None:
        """Return the rows of a table in memory; `wanted` as for `read_table`."""
        import pyarrow.dataset as ds

        super().__init__(ds.dataset(without_views(table)), ColumnMap(), wanted)


@contextmanager
def reading(place: Place | None, kind: str = "Parquet") -> Iterator[None]:
    """Raise one clear error, with the next step, for a file that its reader fails to read."""
    try:
        yield
    except Exception as error:  # a damaged file can cause any error in its reader
        if place is None or isinstance(error, TrimtabError):
            raise
        if isinstance(place, Address) and not isinstance(error, pa.ArrowException):
            raise cannot_read(place, error) from error
        reason = str(error).partition("\n")[0]
        raise StoreError(
            f"{place}: not a readable {kind} file ({reason}); write it again as Parquet, or as CSV "
            f"in UTF-8"
        ) from error


def require_existing(place: Place) -> None:
    """Raise if there is no such file or folder."""
    if not place.exists():
        what = "no such file or bucket" if isinstance(place, Address) else "no such file"
        raise StoreError(f"{place}: {what}; check the path")


def require_distinct_columns(place: Place, found: Sequence[str]) -> None:
    """Raise if a table has two columns of the same name."""
    repeated = [name for name in found if found.count(name) > 1]
    if repeated:
        raise StoreError(f"{place}: column '{repeated[0]}' occurs twice; drop or rename one")
