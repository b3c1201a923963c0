"""A Parquet file that is written part by part, with the bytes of one written at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.tables.files import write_atomically

_ROW_GROUP = 2**20  # rows; what `write_table` writes by default


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
