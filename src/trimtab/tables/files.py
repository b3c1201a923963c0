"""Read and write Parquet and CSV files: ids stay as they are, and writes are atomic."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_columns
from trimtab.errors import StoreError
from trimtab.tables.columns import (
    ITEM,
    SCORE,
    USER,
    WINDOW,
    ColumnMap,
    GivenColumns,
    own_names,
    with_column,
)
from trimtab.tables.places import Place, as_place, open_stream, require_local
from trimtab.tables.rows import (
    ParquetRows,
    reading,
    require_distinct_columns,
    require_existing,
)
from trimtab.tables.vocabulary import is_text, plain_type

ID_COLUMNS = (USER, ITEM, WINDOW, "email_id", "session_id")
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,18})$"  # 007 is text
_COMMA_NUMBER = r"^-?[0-9]+(,[0-9]+)?$"  # as where semicolons separate columns
_SEPARATORS = (",", ";", "\t", "|")
_MOST_HEADER = 1 << 16  # bytes
_FORMULA_START = r"^([=+\-@\t\r])"  # a spreadsheet may run what follows
_CSV_NAME = re.compile(r"\.[ct]sv(\.(gz|bz2|zst|lz4))?$", re.IGNORECASE)


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once it is complete; on failure nothing changes."""
    require_writable_folder(path.parent)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unlike files of `tempfile`, it has the permissions that the umask gives.
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        opened = part.open("xb")
    except OSError as error:
        raise StoreError(f"cannot write to {path.parent}: {error.strerror}") from error
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's file names to disk, if the system can."""
    with contextlib.suppress(OSError):  # some file systems do not sync folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def require_writable_folder(folder: Path) -> None:
    """Raise if a folder cannot be created or written to. Creates nothing."""
    require_local(folder)
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise StoreError(f"cannot write to {folder}: {nearest} is not a folder; use another folder")
    if not os.access(nearest, os.W_OK):
        raise StoreError(f"cannot write to {folder}: {nearest} is read-only; use another folder")


def read_table(
    path: str | Place,
    wanted: Sequence[str] | None = None,
    needed: Sequence[str] = (),
    columns: GivenColumns = None,
) -> pa.Table:
    """Return the table in a Parquet file, a folder of Parquet files, or a CSV file with a header.

    Args:
        path: file or folder to read, or its address, like s3://bucket/events.parquet.
        wanted: columns to read, where they exist; None for all.
        needed: columns that must exist.
        columns: the names that columns have in the file; the table has Trimtab's.
    """
    place, names = as_place(path), ColumnMap.of(columns)
    if not is_csv(place):
        return ParquetRows(place, wanted, needed, names).read()
    require_existing(place)
    with reading(place, "CSV"):
        table = _read_csv(
            place, {*ID_COLUMNS, *(o for c in ID_COLUMNS for o in names.own.get(c, ()))}
        )
    require_distinct_columns(place, table.column_names)
    table = names.rename(table)
    require_columns(str(place), table.column_names, needed, own_names(table))
    return table.select([c for c in wanted or table.column_names if c in table.column_names])


def read_tables(
    *paths: str | Path | None,
    text: Collection[str] = (),
    columns: GivenColumns = None,
    needed: Collection[str] = (USER, ITEM, SCORE),
) -> list[Any]:
    """Return several tables with matching id types; None stays None. See `match_id_types`.

    Args:
        *paths: files, folders or addresses, as for `read_table`.
        text: columns of ids that are text.
        columns: the names that columns have in the files.
        needed: columns whose absence is an error later; a warning tells of other mapped columns
            that no table has.
    """
    names = ColumnMap.of(columns)
    tables = [None if path is None else read_table(path, columns=names) for path in paths]
    names.warn_of_unused(tables, but=needed)
    return match_id_types(tables, [path is not None and is_csv(path) for path in paths], text)


def match_id_types(
    tables: Sequence[Any], from_csv: Sequence[bool], text: Collection[str] = ()
) -> list[Any]:
    """Return the tables with the same id types in all of them.

    '12' in a CSV file can be a number or text. It becomes text if another table has text in the
    same column, or if `text` names the column.
    """
    matched = list(tables)
    for name in ID_COLUMNS:
        have = [
            at for at, own in enumerate(matched) if own is not None and name in own.column_names
        ]
        if name in text or any(is_text(plain_type(matched[at][name].type)) for at in have):
            for at in (at for at in have if from_csv[at]):
                as_text = matched[at][name].cast(pa.string())
                matched[at] = with_column(matched[at], name, as_text)
    return matched


def is_csv(place: str | Place) -> bool:
    """Return whether a file name ends in .csv or .tsv, compressed or not."""
    return _CSV_NAME.search(as_place(place).name) is not None


def require_suffix(path: Path, suffixes: Sequence[str] = (".parquet", ".csv")) -> None:
    """Raise unless a file name ends in one of the suffixes."""
    require_local(path)
    if path.suffix.lower() not in suffixes:
        raise StoreError(f"{path}: unknown file type; end the name in {' or '.join(suffixes)}")


def write_table(table: pa.Table, path: Path, escape: bool = False) -> None:
    """Write a Parquet or CSV file, as the file name ends.

    Args:
        table: table to write.
        path: file to write.
        escape: in CSV, put an apostrophe before text that a spreadsheet may run as a formula. It
            becomes part of the text, so ids change.
    """
    require_suffix(path)
    with write_atomically(path) as file:
        if not is_csv(path):
            import pyarrow.parquet as pq

            pq.write_table(table, file, compression="zstd")
            return
        from pyarrow import csv

        columns = _plain_columns(table)
        for name, column in columns.items() if escape else ():
            if is_text(column.type):
                columns[name] = pc.replace_substring_regex(column, _FORMULA_START, r"'\1")
        csv.write_csv(pa.table(columns), file)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; others may tell of C++."""
    return str(error).partition("\n")[0]


def _read_csv(place: Place, ids: Collection[str]) -> pa.Table:
    """Return the table in a CSV file with a header, whatever separates its columns.

    Args:
        place: file to read.
        ids: columns of ids: integers if all of them are plain whole numbers, else text.
    """
    from pyarrow import csv

    with open_stream(place) as stream:
        start = bytes(stream.read(_MOST_HEADER)).decode("utf-8", "replace")
    header = re.sub(r'"[^"]*"', "", next(iter(start.splitlines()), ""))
    separator = max(_SEPARATORS, key=header.count)  # the first, the comma, if there is none
    # Only an empty field is a missing value; 'NA' and 'null' are valid ids.
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(ids, pa.string()), null_values=[""], strings_can_be_null=True
    )
    with open_stream(place) as stream:
        table = csv.read_csv(stream, None, csv.ParseOptions(delimiter=separator), options)
    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if name in ids:
            table = table.set_column(at, name, _parse(column, _WHOLE_NUMBER, pa.int64()))
        elif separator == ";" and is_text(column.type):
            table = table.set_column(at, name, _parse(column, _COMMA_NUMBER, pa.float64()))
    return table


def _parse(column: pa.ChunkedArray, pattern: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return texts as numbers if all of them are written in one way, else as they are."""
    if len(column) and pc.all(pc.match_substring_regex(column, pattern)).as_py():
        with contextlib.suppress(pa.ArrowInvalid):  # more than 64 bits
            return pc.replace_substring(column, ",", ".").cast(kind)
    return column


def _plain_columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return columns without dictionaries; text in the type that regular expressions take."""
    kinds = {field.name: plain_type(field.type) for field in table.schema}
    return {
        name: table[name].cast(pa.large_string() if is_text(kind) else kind)
        for name, kind in kinds.items()
    }


def count_formulas(table: pa.Table) -> int:
    """Return the number of texts in a table that a spreadsheet may run as formulas."""
    texts = [column for column in _plain_columns(table).values() if is_text(column.type)]
    matches = [pc.match_substring_regex(text, _FORMULA_START) for text in texts]
    return sum(pc.sum(match).as_py() or 0 for match in matches)
