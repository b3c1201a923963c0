"""Users in files: tables larger than memory, divided by ranges of user ids, and written by part.

A table whose row groups are in the order of users is read where it is: the footers of Parquet files
say which row groups overlap a range of integers or text. The rows of other tables are copied once,
to a temporary file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import require_columns, require_whole
from trimtab.errors import StoreError
from trimtab.parts.packing import pack, unpack
from trimtab.tables.columns import USER, ColumnMap, GivenColumns, own_names
from trimtab.tables.files import first_line, is_csv, read_table, write_atomically
from trimtab.tables.rows import BATCH_ROWS, ParquetRows, Rows, TableRows
from trimtab.tables.vocabulary import IdColumn, UserRanges, id_column, require_same_id_type

ROWS_PER_PART = 10_000_000
_MOST_PARTS = 10_000
_N_SAMPLED = 2**18  # rows, to choose ranges by
_SEED = 0
_FEWEST_AT_ONCE = 2**16  # rows that are copied together
_MOST_READ = 2.0  # times that a row is read, on average; beyond that, rows are copied
_ROW_GROUP = 2**20  # rows; what `write_table` writes by default

Reader = Callable[[int], pa.Table]  # the rows of a part


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
    place = Path(gettempdir()) if folder is None else folder
    try:
        room = TemporaryDirectory(prefix="trimtab-", dir=place)
    except OSError as error:
        raise StoreError(
            f"cannot write temporary files to {place}: {error.strerror}; use another folder"
        ) from error
    with room as name:
        yield FileParts(divide_by_user(tables, rows_per_part, Path(name)), Path(name))


@dataclass(frozen=True)
class FileParts:
    """Values that are read from files, one part after the other."""

    reads: Sequence[Callable[[], Any]]  # by part
    folder: Path

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        return len(self.reads)

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on every part."""
        for read in self.reads:
            yield function(read(), *given)

    def keep(self, function: Callable[..., Any], *given: Any) -> FileParts:
        """Return parts whose values are the results of a function, in files."""
        reads = []
        for number, value in enumerate(self.map(function, *given)):
            path = self.folder / f"{function.__name__}-{number:05d}"
            path.write_bytes(pack(value))
            reads.append(partial(_read_packed, path))
        return FileParts(reads, self.folder)


def _read_packed(path: Path) -> Any:
    return unpack(path.read_bytes())


def open_table(
    name: str, source: Any, needed: Sequence[str], optional: Sequence[str],
    columns: GivenColumns = None,
) -> Rows:  # fmt: skip
    """Open a table of files, or one in memory; refuse it as `read_frame` does.

    Args:
        name: name of the table, for errors.
        source: Parquet files, a CSV file, an Arrow table, or rows that are open already.
        needed: columns that must exist.
        optional: columns to read where they exist.
        columns: the names that columns have in files.
    """
    wanted = (*needed, *optional)
    if isinstance(source, Rows):
        rows = source
    elif isinstance(source, pa.Table):
        table = source if own_names(source) else ColumnMap.of(columns).rename(source)
        rows = TableRows(table, wanted)
    elif is_csv(source):
        rows = TableRows(read_table(source, columns=columns), wanted)
    else:
        rows = ParquetRows(source, wanted, (), columns)
    require_columns(name, rows.found, needed, rows.own)
    return rows


# Dividing tables by users ------------------------------------------------------------------------


def divide_by_user(
    tables: Mapping[str, Rows], rows_per_part: int, folder: Path
) -> list[Callable[[], dict[str, pa.Table]]]:
    """Divide tables by ranges of user ids; return functions that read the tables of each part.

    Args:
        tables: rows of files or of tables in memory. Errors name a table by its key.
        rows_per_part: about how many rows of the largest table a part has. It has more if a single
            user does.
        folder: where rows are copied to if their order makes it necessary; kept by the caller for
            as long as parts are read.
    """
    require_whole("rows_per_part", rows_per_part, 1)
    for name, rows in tables.items():
        require_columns(name, rows.names, (USER,), rows.own)
    require_same_id_type([_user_ids(n, r, r.schema.empty_table()) for n, r in tables.items()])
    for name, rows in tables.items():
        rows.require_values(name, USER)
    ranges = _choose_ranges(*max(tables.items(), key=lambda own: own[1].n_rows), rows_per_part)
    batch_rows = min(max(rows_per_part, _FEWEST_AT_ONCE), BATCH_ROWS)
    readers: dict[str, Reader] = {}
    for name, rows in tables.items():
        wheres = ranges.conditions(rows.field(USER))
        if rows.count_read(USER, wheres) <= _MOST_READ * rows.n_rows:
            readers[name] = partial(_read_in_place, rows, wheres)
        else:
            readers[name] = _copy(name, rows, ranges, folder, batch_rows)
    return [partial(_read_part, readers, part) for part in range(ranges.n_parts)]


def _read_part(readers: Mapping[str, Reader], part: int) -> dict[str, pa.Table]:
    return {name: read(part) for name, read in readers.items()}


def _read_in_place(rows: Rows, wheres: Sequence[Any], part: int) -> pa.Table:
    """Return the rows of a part, in the order of the table."""
    found = rows.batches(where=wheres[part])
    return rows.finish(pa.concat_tables([rows.plain_schema.empty_table(), *found]))


def _copy(name: str, rows: Rows, ranges: UserRanges, folder: Path, batch_rows: int) -> Reader:
    """Copy rows to a file, and return a reader of parts, in the order of the table."""
    path, options = folder / f"{name}.arrow", pa.ipc.IpcWriteOptions(compression="lz4")
    pieces: list[list[int]] = [[] for _ in range(ranges.n_parts)]  # batches, by part
    n_written = 0
    try:
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, rows.plain_schema, options=options) as writer,
        ):
            for batch in rows.batches(size=batch_rows):
                (own,) = batch.combine_chunks().to_batches()
                for part, piece in ranges.split(own, _user_ids(name, rows, batch)):
                    writer.write_batch(piece)
                    pieces[part].append(n_written)
                    n_written += 1
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else first_line(error)
        raise StoreError(
            f"cannot write temporary files to {folder}: {reason}; free space there, set TMPDIR to "
            f"another folder, or sort {name} by {rows.own_name(USER)}"
        ) from error
    copied = pa.ipc.open_file(pa.OSFile(str(path)))

    def read(part: int) -> pa.Table:
        found = [copied.get_batch(number) for number in pieces[part]]
        return rows.finish(pa.Table.from_batches(found, rows.plain_schema))

    return read


def _user_ids(name: str, rows: Rows, table: pa.Table) -> IdColumn:
    """Return the user ids of some rows; raise if they are neither integers nor text."""
    return id_column(name, rows.own_name(USER), table[USER])


def _choose_ranges(name: str, rows: Rows, rows_per_part: int) -> UserRanges:
    """Return ranges with about as many rows of a table each, where its users allow it."""
    n_parts = min(-(-rows.n_rows // rows_per_part), _MOST_PARTS)
    sampled = rows.plain_schema.empty_table().select([USER])
    if n_parts > 1:
        rng, rate = np.random.default_rng(_SEED), min(1.0, _N_SAMPLED / rows.n_rows)
        for batch in rows.batches([USER]):
            picked = rng.integers(0, len(batch), int(np.ceil(rate * len(batch))))
            sampled = pa.concat_tables([sampled, batch.take(pa.array(np.sort(picked)))])
    return UserRanges.of_sample(_user_ids(name, rows, sampled), n_parts)


# Writing lists by part ---------------------------------------------------------------------------


@contextmanager
def write_parts(path: Path) -> Iterator[ListFile]:
    """Open a file that replaces `path` once it is complete; on failure nothing changes."""
    with write_atomically(path) as file, ExitStack() as opened:
        parts = ListFile(file, opened)
        yield parts
        parts.finish()


class ListFile:
    """Rows on their way to a file, in row groups of the usual size.

    Attributes:
        n_rows: number of rows added so far.
    """

    def __init__(self, file: Any, opened: ExitStack) -> None:
        """Return the writer of an open file; `opened` closes it."""
        self._file, self._opened, self.n_rows = file, opened, 0
        self._writer: Any = None
        self._waiting: Any = None

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same schema."""
        import pyarrow.parquet as pq

        if self._writer is None:
            writer = pq.ParquetWriter(self._file, rows.schema, compression="zstd")
            self._writer = self._opened.enter_context(writer)
            self._waiting = rows.slice(0, 0)
        self.n_rows += rows.num_rows
        self._waiting = pa.concat_tables([self._waiting, rows])
        while self._waiting.num_rows >= _ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        # One chunk per column: pages end where those of a whole table end.
        group = self._waiting.slice(0, _ROW_GROUP).combine_chunks()
        self._writer.write_table(group, row_group_size=_ROW_GROUP)
        self._waiting = self._waiting.slice(_ROW_GROUP)

    def finish(self) -> None:
        """Write what is left."""
        if self._writer is not None and (self._waiting.num_rows or not self.n_rows):
            self._write_group()
