"""A copy of a table's rows in a temporary file, in parts by ranges of users."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.parquet_rows import BATCH_ROWS, Rows
from trimtab.tables.range_choice import UserRanges, user_column


class CopiedRows:
    """The rows of a table by part; those of a part are in the order of the table."""

    def __init__(
        self,
        name: str,
        rows: Rows,
        ranges: UserRanges,
        folder: Path | None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Copy the rows to a temporary file, which the system removes when it is closed.

        Args:
            name: name of the table, for errors.
            rows: rows to copy.
            ranges: ranges of user ids, one per part.
            folder: where the file lies; None for the usual folder of temporary files.
            batch_rows: rows that are copied at once.
        """
        self._name, self._rows, self._ranges = name, rows, ranges
        self.n_rows = rows.n_rows
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
            for part, piece in self._split(batch):
                with self._writing():
                    writer.write_batch(piece)
                self._pieces[part].append(n_written)
                n_written += 1
        with self._writing():
            writer.close()
            self._file.flush()

    def _split(self, batch: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each part that has any."""
        ids = user_column(self._name, self._rows, batch[self._rows.own_user])
        (rows,) = batch.combine_chunks().to_batches()
        yield from self._ranges.split(rows, ids)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0]
            raise StoreError(
                f"cannot write temporary files to {self._folder}: {reason}; free space there, set "
                f"TMPDIR to another folder, or sort {self._name} by {self._rows.own_user}"
            ) from error

    def read(self, part: int) -> pa.Table:
        """Return the rows of a part."""
        pieces = [self._reader.get_batch(number) for number in self._pieces[part]]
        return self._rows.finish(pa.Table.from_batches(pieces, self._rows.plain_schema))

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # what was not written yet may not fit on the disk
            self._file.close()
