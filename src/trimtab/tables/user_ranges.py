"""Divide tables that are larger than memory by ranges of user ids.

All rows of a user, from all tables, are in the same part, and parts follow the order of user ids.
A table whose row groups are in the order of users is read where it is: the footers of Parquet files
say which row groups overlap a range. The rows of other tables are copied once, to a temporary file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.checks import require_columns, require_whole
from trimtab.tables.column_map import GivenColumns, own_names
from trimtab.tables.columns import USER
from trimtab.tables.copied_rows import CopiedRows
from trimtab.tables.parquet_rows import BATCH_ROWS, ParquetRows, RowGroup, Rows, TableRows
from trimtab.tables.places import Place
from trimtab.tables.range_choice import UserRanges, choose_ranges, user_column
from trimtab.tables.row_checks import require_values
from trimtab.tables.vocabulary import require_same_id_type

ROWS_PER_PART = 10_000_000
_FEWEST_AT_ONCE = 2**16  # rows that are copied together
_MOST_READ = 2.0  # times that a row is read, on average; beyond that, rows are copied

Source = str | Place | Rows | Any  # an Arrow table


@contextlib.contextmanager
def divide_by_user(
    tables: Mapping[str, Source],
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
) -> Iterator[UserParts]:
    """Yield tables divided by ranges of user ids; temporary files are gone afterwards.

    Args:
        tables: Parquet files, folders or addresses; `ParquetRows`, to read some columns only; or
            Arrow tables. Errors name a table by its key.
        columns: the names that columns have in files and folders.
        rows_per_part: about how many rows of the largest table a part has. It has more if a single
            user does.
        folder: where rows are copied to if their order makes it necessary; None for the system's
            folder of temporary files.
    """
    require_whole("rows_per_part", rows_per_part, 1)
    opened = {name: _open(name, source, columns) for name, source in tables.items()}
    require_same_id_type([
        user_column(name, rows, rows.schema.empty_table()[USER]) for name, rows in opened.items()
    ])  # fmt: skip
    for name, rows in opened.items():
        require_values(name, rows, USER)
    largest = max(opened, key=lambda name: opened[name].n_rows)
    ranges = choose_ranges(largest, opened[largest], rows_per_part)
    batch_rows = min(max(rows_per_part, _FEWEST_AT_ONCE), BATCH_ROWS)
    with contextlib.ExitStack() as files:
        divided: dict[str, CopiedRows | _RowsInPlace] = {}
        for name, rows in opened.items():
            divided[name] = _divide(name, rows, ranges, folder, batch_rows)
            files.callback(divided[name].close)
        yield UserParts(divided, ranges.n_parts)


class UserParts(Sequence["UserPart"]):
    """The parts of divided tables, in the order of user ids.

    Attributes:
        n_parts: number of parts, at least 1.
        rows: number of rows of each table.
        copied: names of the tables whose rows had to be copied.
    """

    def __init__(self, divided: Mapping[str, CopiedRows | _RowsInPlace], n_parts: int) -> None:
        """Return the parts of tables that are divided already."""
        self._divided, self.n_parts = divided, n_parts
        self.rows = {name: table.n_rows for name, table in divided.items()}
        self.copied = {name for name, table in divided.items() if isinstance(table, CopiedRows)}

    def __len__(self) -> int:
        return self.n_parts

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, slice):
            return [self[number] for number in range(*part.indices(self.n_parts))]
        if not -self.n_parts <= part < self.n_parts:
            raise IndexError(f"part {part}: there are {self.n_parts} parts")
        return UserPart(self._divided, part % self.n_parts)


class UserPart(Mapping[str, pa.Table]):
    """The rows of one range of users, by table; they are read at each look-up."""

    def __init__(self, divided: Mapping[str, CopiedRows | _RowsInPlace], number: int) -> None:
        """Return a part; nothing is read yet."""
        self._divided, self.number = divided, number

    def __getitem__(self, name: str) -> pa.Table:
        return self._divided[name].read(self.number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._divided)

    def __len__(self) -> int:
        return len(self._divided)


class _RowsInPlace:
    """The rows of a table by part, read from the row groups that overlap a range."""

    def __init__(self, name: str, rows: Rows, ranges: UserRanges) -> None:
        self._name, self._rows, self._ranges = name, rows, ranges
        self.n_rows = rows.n_rows
        self._groups: list[list[RowGroup]] = [[] for _ in range(ranges.n_parts)]
        self._shared = set[RowGroup]()  # with rows of several parts
        for group in rows.row_groups:
            parts = ranges.overlap(group) if group.n_rows else ()
            for part in parts:
                self._groups[part].append(group)
            if len(parts) > 1:
                self._shared.add(group)

    def n_read(self) -> int:
        """Return how many rows are read for all parts together."""
        return sum(group.n_rows for groups in self._groups for group in groups)

    def read(self, part: int) -> pa.Table:
        """Return the rows of a part, in the order of the table."""
        groups = self._groups[part]
        batches = self._rows.batches(groups)
        if not self._shared.isdisjoint(groups):
            batches = (self._pick(batch, part) for batch in batches)
        whole = pa.concat_tables([self._rows.plain_schema.empty_table(), *batches])
        return self._rows.finish(whole)

    def _pick(self, batch: pa.Table, part: int) -> pa.Table:
        ids = user_column(self._name, self._rows, batch[self._rows.own_user])
        own = self._ranges.find(ids) == part
        return batch if own.all() else batch.filter(pa.array(own))

    def close(self) -> None:
        """Nothing is open."""


def _open(name: str, source: Source, columns: GivenColumns) -> Rows:
    if isinstance(source, pa.Table):
        rows: Rows = TableRows(source)
    elif isinstance(source, ParquetRows | TableRows):
        rows = source
    else:
        rows = ParquetRows(source, columns=columns)
    empty = rows.schema.empty_table()
    require_columns(name, empty.column_names, (USER,), own_names(empty))
    return rows


def _divide(
    name: str, rows: Rows, ranges: UserRanges, folder: Path | None, batch_rows: int
) -> CopiedRows | _RowsInPlace:
    in_place = _RowsInPlace(name, rows, ranges)
    if in_place.n_read() <= _MOST_READ * rows.n_rows:
        return in_place
    return CopiedRows(name, rows, ranges, folder, batch_rows)
