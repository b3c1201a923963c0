"""Divide tables that are larger than memory by ranges of user ids.

All rows of a user, from all tables, are in the same part, and parts follow the order of user ids.
A table whose row groups are in the order of users is read where it is: the footers of Parquet files
say which row groups overlap a range of integers or text. The rows of other tables are copied once,
to a temporary file.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.checks import require_columns, require_whole
from trimtab.errors import StoreError
from trimtab.tables.columns import USER, own_names
from trimtab.tables.rows import (
    BATCH_ROWS,
    Rows,
    require_users,
)
from trimtab.tables.vocabulary import IdColumn, id_column, require_same_id_type, text_bytes
from trimtab.threads import run_ranges

ROWS_PER_PART = 10_000_000
_MOST_PARTS = 10_000
_N_SAMPLED = 2**18
_SEED = 0
_FEWEST_AT_ONCE = 2**16  # rows that are copied together
_MOST_READ = 2.0  # times that a row is read, on average; beyond that, rows are copied

Reader = Callable[[int], pa.Table]  # the rows of a part


@contextlib.contextmanager
def divide_by_user(
    tables: Mapping[str, Rows], rows_per_part: int = ROWS_PER_PART, folder: Path | None = None
) -> Iterator[UserParts]:
    """Yield tables divided by ranges of user ids; temporary files are gone afterwards.

    Args:
        tables: rows of files or of tables in memory. Errors name a table by its key.
        rows_per_part: about how many rows of the largest table a part has. It has more if a single
            user does.
        folder: where rows are copied to if their order makes it necessary; None for the system's
            folder of temporary files.
    """
    require_whole("rows_per_part", rows_per_part, 1)
    columns = []
    for name, rows in tables.items():
        empty = rows.schema.empty_table()
        require_columns(name, empty.column_names, (USER,), own_names(empty))
        columns.append(user_column(name, rows, empty[USER]))
    require_same_id_type(columns)
    for name, rows in tables.items():
        require_users(name, rows)
    largest = max(tables, key=lambda name: tables[name].n_rows)
    ranges = choose_ranges(largest, tables[largest], rows_per_part)
    batch_rows = min(max(rows_per_part, _FEWEST_AT_ONCE), BATCH_ROWS)
    with contextlib.ExitStack() as files:
        readers: dict[str, Reader] = {}
        copied = set()
        for name, rows in tables.items():
            wheres, most = ranges.conditions(rows.field(USER)), _MOST_READ * rows.n_rows
            can_compare = rows.can_compare(USER)
            if wheres == [None] or (can_compare and rows.count_read(wheres) <= most):
                readers[name] = partial(_read_in_place, rows, wheres)
                continue
            copy = _CopiedRows(name, rows, ranges, folder, batch_rows)
            files.callback(copy.close)
            readers[name] = copy.read
            copied.add(name)
        n_rows = {name: rows.n_rows for name, rows in tables.items()}
        yield UserParts(readers, ranges.n_parts, n_rows, copied)


class UserParts(list["UserPart"]):
    """The parts of divided tables, in the order of user ids.

    Attributes:
        n_parts: number of parts, at least 1.
        rows: number of rows of each table.
        copied: names of the tables whose rows had to be copied.
    """

    def __init__(
        self, readers: Mapping[str, Reader], n_parts: int, rows: Mapping[str, int], copied: set[str]
    ) -> None:
        """Return the parts of tables that are divided already."""
        super().__init__(UserPart(readers, part) for part in range(n_parts))
        self.n_parts, self.rows, self.copied = n_parts, rows, copied


class UserPart(Mapping[str, pa.Table]):
    """The rows of one range of users, by table; they are read at each look-up."""

    def __init__(self, readers: Mapping[str, Reader], number: int) -> None:
        """Return a part; nothing is read yet."""
        self._readers, self.number = readers, number

    def __getitem__(self, name: str) -> pa.Table:
        return self._readers[name](self.number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def _read_in_place(rows: Rows, wheres: Sequence[Any], part: int) -> pa.Table:
    """Return the rows of a part, in the order of the table."""
    found = rows.batches(where=wheres[part])
    return rows.finish(pa.concat_tables([rows.plain_schema.empty_table(), *found]))


class _CopiedRows:
    """The rows of a table by part; those of a part are in the order of the table."""

    def __init__(
        self, name: str, rows: Rows, ranges: UserRanges, folder: Path | None, batch_rows: int
    ) -> None:
        """Copy the rows to a temporary file, which the system removes when it is closed."""
        self._name, self._rows, self._ranges = name, rows, ranges
        self._pieces: list[list[int]] = [[] for _ in range(ranges.n_parts)]  # batches, by part
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        with self._writing():
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        try:
            self._copy(batch_rows)
            self._reader = pa.ipc.open_file(self._file)
        except BaseException:
            self.close()
            raise

    def _copy(self, batch_rows: int) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with self._writing():
            writer = pa.ipc.new_file(self._file, self._rows.plain_schema, options=options)
        n_written = 0
        for batch in self._rows.batches(size=batch_rows):
            ids = user_column(self._name, self._rows, batch[USER])
            (rows,) = batch.combine_chunks().to_batches()
            for part, piece in self._ranges.split(rows, ids):
                with self._writing():
                    writer.write_batch(piece)
                self._pieces[part].append(n_written)
                n_written += 1
        with self._writing():
            writer.close()
            self._file.flush()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0]
            raise StoreError(
                f"cannot write temporary files to {self._folder}: {reason}; free space there, set "
                f"TMPDIR to another folder, or sort {self._name} by {self._rows.own_name(USER)}"
            ) from error

    def read(self, part: int) -> pa.Table:
        """Return the rows of a part."""
        pieces = [self._reader.get_batch(number) for number in self._pieces[part]]
        return self._rows.finish(pa.Table.from_batches(pieces, self._rows.plain_schema))

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):  # what was not written yet may not fit on the disk
            self._file.close()


class UserRanges:
    """Ranges of user ids in ascending order, given by the first id of each but the first one."""

    def __init__(self, starts: Any) -> None:
        """Return the ranges that start at distinct ascending ids: integers, or Arrow text."""
        self._starts = starts
        self.n_parts = len(starts) + 1

    def find(self, ids: IdColumn) -> Ints:
        """Return the number of the range that each id is in."""
        if isinstance(ids.values, np.ndarray):
            return np.searchsorted(self._starts, ids.values, side="right")
        found = [self._find_text(chunk) for chunk in ids.values.chunks]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _find_text(self, ids: pa.Array) -> Ints:
        from trimtab.kernels.id_ranges import find_text_ranges

        found = np.zeros(len(ids), np.int64)
        if self.n_parts > 1:
            run_ranges(
                find_text_ranges, len(ids), *text_bytes(ids), *text_bytes(self._starts), found
            )
        return found

    def split(self, rows: pa.RecordBatch, ids: IdColumn) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range that has any, with its number; rows keep their order.

        Args:
            rows: of any table.
            ids: of their users.
        """
        parts = self.find(ids).astype(np.uint16)  # sorted by counting, not by comparing
        if len(parts) and (parts == parts[0]).all():
            yield int(parts[0]), rows
            return
        rows = rows.take(pa.array(np.argsort(parts, kind="stable")))
        ends = np.cumsum(np.bincount(parts, minlength=self.n_parts))
        start = 0
        for part, end in enumerate(ends.tolist()):
            if end > start:
                yield part, rows.slice(start, end - start)
            start = end

    def conditions(self, user: Any) -> list[Any]:
        """Return the condition that each range makes for a column; None if there is only one."""
        starts = [pa.scalar(start) for start in self._starts.tolist()]
        below = [user < start for start in starts]
        above = [user >= start for start in starts]
        between = [low & high for low, high in zip(above, below[1:], strict=False)]
        return [*below[:1], *between, *above[-1:]] or [None]


def user_column(name: str, rows: Rows, column: pa.ChunkedArray) -> IdColumn:
    """Return some of a table's user ids; raise if they are neither integers nor text."""
    return id_column(name, rows.own_name(USER), column)


def choose_ranges(name: str, rows: Rows, rows_per_part: int) -> UserRanges:
    """Return ranges with about as many rows of a table each, where its users allow it."""
    n_parts = min(-(-rows.n_rows // rows_per_part), _MOST_PARTS)
    starts = starts_of_sample(_sample_users(name, rows), n_parts) if n_parts > 1 else []
    column = pa.chunked_array([sorted(set(starts))]) if starts else rows.schema.empty_table()[USER]
    return ranges_from(user_column(name, rows, column))


def starts_of_sample(users: pa.Array, n_parts: int) -> list[Any]:
    """Return ids at which parts with about as many sampled users each would start."""
    ordered = users.take(pc.sort_indices(users))
    return [ordered[len(ordered) * part // n_parts].as_py() for part in range(1, n_parts)]


def ranges_from(starts: IdColumn) -> UserRanges:
    """Return the ranges that start at some ids, which are distinct and ascend."""
    if isinstance(starts.values, np.ndarray):
        return UserRanges(starts.values)
    return UserRanges(pa.concat_arrays([pa.array([], pa.large_string()), *starts.values.chunks]))


def _sample_users(name: str, rows: Rows) -> pa.Array:
    """Return the user ids of a random sample of rows, as int64 or large text."""
    rng = np.random.default_rng(_SEED)
    rate = min(1.0, _N_SAMPLED / rows.n_rows)
    sampled: list[pa.Array] = []
    for batch in rows.batches([USER]):
        picked = rng.integers(0, len(batch), int(np.ceil(rate * len(batch))))
        column = batch[USER].take(pa.array(np.sort(picked)))
        values = user_column(name, rows, column).values
        sampled += [pa.array(values)] if isinstance(values, np.ndarray) else values.chunks
    return pa.concat_arrays(sampled)
