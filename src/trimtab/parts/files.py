"""Users in files: tables larger than memory, divided by ranges of user ids, and written by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.parts.packing import pack, unpack
from trimtab.tables.columns import ColumnMap, GivenColumns, own_names
from trimtab.tables.files import is_csv, read_table, write_atomically
from trimtab.tables.rows import ParquetRows, Rows, TableRows
from trimtab.tables.user_ranges import ROWS_PER_PART, divide_by_user

_ROW_GROUP = 2**20  # rows; what `write_table` writes by default


@contextmanager
def open_files(
    tables: Mapping[str, Rows], rows_per_part: int = ROWS_PER_PART, folder: Path | None = None
) -> Iterator[FileParts]:
    """Yield tables divided by users; temporary files are gone afterwards.

    Args:
        tables: by name; each has a column user_id.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; None for the system's.
    """
    with (
        TemporaryDirectory(prefix="trimtab-", dir=folder) as name,
        divide_by_user(tables, rows_per_part, Path(name)) as parts,
    ):
        yield FileParts(parts, Path(name))


@dataclass(frozen=True)
class FileParts:
    """Values that are read from files, one part after the other."""

    parts: Sequence[Any]  # each is read when it is looked up
    folder: Path

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on every part."""
        for part in self.parts:
            yield function(part, *given)

    def keep(self, function: Callable[..., Any], *given: Any) -> FileParts:
        """Return parts whose values are the results of a function, in files."""
        paths: list[Path] = []
        for value in self.map(function, *given):
            paths.append(self.folder / f"{function.__name__}-{len(paths):05d}")
            paths[-1].write_bytes(pack(value))
        return FileParts(_PackedFiles(paths), self.folder)


class _PackedFiles(Sequence[Any]):
    """Values in files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        return unpack(self._paths[number].read_bytes())


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


@contextmanager
def write_parts(path: Path) -> Iterator[ListFile]:
    """Open a file that replaces `path` once it is complete; on failure nothing changes."""
    with write_atomically(path) as file:
        parts = ListFile(file)
        try:
            yield parts
            parts.finish()
        finally:
            parts.close()


class ListFile:
    """Rows on their way to a file, in row groups of the usual size.

    Attributes:
        n_rows: number of rows added so far.
    """

    def __init__(self, file: Any) -> None:
        """Return the writer of an open file."""
        self._file, self.n_rows = file, 0
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._n_waiting = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same schema."""
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, rows.schema, compression="zstd")
        self.n_rows += rows.num_rows
        self._waiting.append(rows)
        self._n_waiting += rows.num_rows
        if self._n_waiting >= _ROW_GROUP:
            self._write_full_groups()

    def _write_full_groups(self) -> None:
        rows = pa.concat_tables(self._waiting)
        for start in range(0, rows.num_rows - _ROW_GROUP + 1, _ROW_GROUP):
            self._write_group(rows.slice(start, _ROW_GROUP))
        left = rows.num_rows % _ROW_GROUP
        self._waiting, self._n_waiting = [rows.slice(rows.num_rows - left)], left

    def _write_group(self, rows: pa.Table) -> None:
        # One chunk per column: pages end where those of a whole table end.
        self._writer.write_table(rows.combine_chunks(), row_group_size=_ROW_GROUP)

    def finish(self) -> None:
        """Write what is left."""
        if self._writer is not None and (self._n_waiting or not self.n_rows):
            self._write_group(pa.concat_tables(self._waiting))

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()
