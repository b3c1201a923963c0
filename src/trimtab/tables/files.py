"""Tables in Parquet and CSV files: read with clear errors, published all at once."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_columns
from trimtab.errors import DataError, StoreError
from trimtab.tables.columns import ITEM, USER, WINDOW

_ID_COLUMNS = (USER, ITEM, WINDOW)
_CANONICAL_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
_FORMULA = r"^([=+\-@\t\r'])"  # what a spreadsheet may run, and our own mark
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_DEFUSED = r"^'([=+\-@\t\r'])"


@contextlib.contextmanager
def publish(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when complete, and not at all on failure."""
    require_place(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder outlast a loss of power, where the system can."""
    with contextlib.suppress(OSError):  # some file systems do not sync folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def require_place(folder: Path) -> None:
    """Refuse a folder that can be neither written in nor made; makes nothing."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise StoreError(f"cannot write in {folder}: {nearest} is not a folder; choose another")
    if not os.access(nearest, os.W_OK):
        raise StoreError(f"cannot write in {folder}: {nearest} is read-only; choose another")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_table(
    path: Path, columns: Sequence[str] | None = None, needed: Sequence[str] = ()
) -> pa.Table:
    """A Parquet file, a folder of them, or a CSV file with a header.

    Args:
        path: the file or folder.
        columns: those of them that there are; all without.
        needed: those that must be there.
    """
    if not path.exists():
        raise StoreError(f"{path}: no such file; check the path")
    try:
        table = _read_csv(path) if is_csv(path) else _read_parquet(path, columns, needed)
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        kind = "CSV" if is_csv(path) else "Parquet"
        raise StoreError(
            f"{path}: not a readable {kind} file ({reason}); write it again as Parquet or CSV"
        ) from error
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise StoreError(f"{path}: column '{twice[0]}' occurs twice; drop or rename one")
    require_columns(str(path), table.column_names, needed)
    names = table.column_names if columns is None else columns
    return table.select([name for name in names if name in table.column_names])


def _read_parquet(path: Path, columns: Sequence[str] | None, needed: Sequence[str]) -> pa.Table:
    import pyarrow.parquet as pq

    if columns is None:
        return pq.read_table(path)
    data = pq.ParquetDataset(path)
    require_columns(str(path), data.schema.names, needed)
    return data.read([name for name in columns if name in data.schema.names])


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    types = dict.fromkeys(_ID_COLUMNS, pa.string())
    # Only an empty field is a missing value: 'NA' and 'null' are ids like any other.
    options = csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    table = csv.read_csv(path, convert_options=options)
    for place, name in enumerate(table.column_names):
        if name in _ID_COLUMNS:
            table = table.set_column(place, name, _plain_ids(table.column(place)))
    return table


def _plain_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers if all are written as such ('007' is not), otherwise text, marks taken off."""
    if len(column) and pc.all(pc.match_substring_regex(column, _CANONICAL_WHOLE)).as_py():
        with contextlib.suppress(pa.ArrowInvalid):  # beyond 64 bits
            return column.cast(pa.int64())
    return pc.replace_substring_regex(column, _DEFUSED, r"\1")


def read_tables(*paths: Path | None, text: Collection[str] = ()) -> list[Any]:
    """Several tables that belong together; None stays None; see `match_kinds` for `text`."""
    tables = [None if path is None else read_table(path) for path in paths]
    return match_kinds(tables, [path is not None and is_csv(path) for path in paths], text)


def match_kinds(
    tables: Sequence[Any], from_csv: Sequence[bool], text: Collection[str] = ()
) -> list[Any]:
    """Tables whose ids of one name are of one kind.

    Whether '12' in a CSV file is a number or text shows only in the other tables: it is text if
    their ids of the same name are, or if `text` names the column.
    """
    matched = list(tables)
    for name in _ID_COLUMNS:
        if name in text or any(_holds_text(table, name) for table in matched):
            matched = [
                _as_text(table, name) if is_from_csv and table is not None else table
                for table, is_from_csv in zip(matched, from_csv, strict=True)
            ]
    return matched


def _holds_text(table: pa.Table | None, name: str) -> bool:
    if table is None or name not in table.column_names:
        return False
    return _is_text(plain_type(table[name].type))


def _as_text(table: pa.Table, name: str) -> pa.Table:
    if name not in table.column_names:
        return table
    place = table.column_names.index(name)
    return table.set_column(place, name, table[name].cast(pa.string()))


def is_csv(path: Path) -> bool:
    """Whether a file's name says that it is CSV."""
    return path.suffix.lower() == ".csv"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, where they are held in a dictionary too."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _TEXT)


def require_kind(path: Path) -> None:
    """Refuse a name that does not say which kind of file to write."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise StoreError(f"{path}: unknown kind of file; end the name in .parquet or .csv")


def write_table(table: pa.Table, path: Path) -> None:
    """Write Parquet or CSV, by the file's ending."""
    require_kind(path)
    with publish(path) as file:
        if is_csv(path):
            from pyarrow import csv

            csv.write_csv(_defused(table), file)
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, file, compression="zstd")


def _defused(table: pa.Table) -> pa.Table:
    """Text that a spreadsheet would run as a formula gets a leading apostrophe."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].cast(plain_type(table[name].type))
        if _is_text(column.type):
            column = pc.replace_substring_regex(column.cast(pa.large_string()), _FORMULA, r"'\1")
        columns[name] = column
    return pa.table(columns)
