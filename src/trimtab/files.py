"""Tables in Parquet and CSV files: read with clear errors, published all at once."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import StoreError
from trimtab.schema import ITEM, USER, WINDOW

_ID_COLUMNS = (USER, ITEM, WINDOW)
_CANONICAL_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
_FORMULA = r"^([=+\-@\t\r'])"  # what a spreadsheet may run, and our own mark
_DEFUSED = r"^'([=+\-@\t\r'])"


@contextlib.contextmanager
def publish(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when complete, and not at all on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise StoreError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_table(path: Path) -> pa.Table:
    """A Parquet file, a folder of them, or a CSV file with a header."""
    if not path.exists():
        raise StoreError(f"{path}: no such file; check the path")
    try:
        if path.suffix.lower() == ".csv":
            return _read_csv(path)
        import pyarrow.parquet as pq

        return pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        kind = "CSV" if path.suffix.lower() == ".csv" else "Parquet"
        raise StoreError(
            f"{path}: not a readable {kind} file ({reason}); write it again as Parquet or CSV"
        ) from error


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    types = dict.fromkeys(_ID_COLUMNS, pa.string())
    options = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    table = csv.read_csv(path, convert_options=options)
    for name in _ID_COLUMNS:
        if name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, _plain_ids(table[name]))
    return table


def _plain_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers if all are written as such ('007' is not), otherwise text, marks taken off."""
    if len(column) and pc.all(pc.match_substring_regex(column, _CANONICAL_WHOLE)).as_py():
        return column.cast(pa.int64())
    return pc.replace_substring_regex(column, _DEFUSED, r"\1")


def write_table(table: pa.Table, path: Path) -> None:
    """Write Parquet or CSV, by the file's ending."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise StoreError(
            f"{path}: unknown kind of file '{suffix}'; end the name in .parquet or .csv"
        )
    with publish(path) as file:
        if suffix == ".csv":
            from pyarrow import csv

            csv.write_csv(_defused(table), file)
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, file, compression="zstd")


def _defused(table: pa.Table) -> pa.Table:
    """Text that a spreadsheet would run as a formula gets a leading apostrophe."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.replace_substring_regex(column, _FORMULA, r"'\1")
        columns[name] = column
    return pa.table(columns)
