"""A table in a folder: one Parquet file, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table. What breaks a
rule is neither saved nor loaded.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.column_rules import check_ids, check_no_nulls, check_schema
from trimtab.tables.columns import ITEM
from trimtab.tables.file_headers import (
    HeaderKind,
    checksum,
    first_line,
    read_header,
    retry_while_replaced,
)
from trimtab.tables.files import write_atomically
from trimtab.tables.json_rules import NAME, TEXT, RuleError, check_fields, parse_json, whole
from trimtab.tables.store_pointer import is_store, served_folder

HEADER = "header.json"
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
# Rows of a table: many only in a file that is large enough for as many different ids. A table of
# ids in sequence and no bias at all has 1.5 rows per byte.
_ALWAYS_ALLOWED, _MOST_PER_BYTE = 100_000, 4
_MOST_HASHED = 10_000_000  # ids; in more of them, Arrow may not be able to count different texts
_ADDED_RULES = {"data": NAME, "rows": whole(), "checksum": TEXT}
_Rebuilt = TypeVar("_Rebuilt")


class SavedKind(NamedTuple):
    """A kind of table in a folder: its header, its columns, and the rules for both."""

    header: HeaderKind
    name: str  # first part of the Parquet file's name, and the folder within a version of a store
    columns: Callable[[dict[str, Any]], Mapping[str, pa.DataType]]  # by header, without the ids
    check_header: Callable[[str, dict[str, Any]], None]  # the name of the file, and the header
    check_table: Callable[[pa.Table, dict[str, Any]], None]


def write_folder(folder: Path, kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    """Save a table in a folder, replacing any of the same kind that is there.

    Args:
        folder: created if missing; must not be a store.
        kind: of the table.
        table: the table.
        header: what else is to be saved; name, rows and checksum of the table are added.
    """
    if is_store(folder):
        raise StoreError(f"{folder} is a store: save to another folder, or run trimtab refresh")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    content = buffer.getvalue()
    digest = checksum(content)
    file_name = f"{kind.name}-{digest.removeprefix('sha256:')[:16]}.parquet"
    header = {**header, "data": file_name, "rows": table.num_rows, "checksum": digest}
    described = _check_before_saving(folder, kind, table, header)
    with write_atomically(folder / file_name) as file:
        file.write(content)
    with write_atomically(folder / HEADER) as file:
        file.write(described)
    with contextlib.suppress(OSError):
        _remove_old_files(folder, kind.name, file_name)


def _check_before_saving(
    folder: Path, kind: SavedKind, table: pa.Table, header: dict[str, Any]
) -> bytes:
    """Return the header as JSON; raise if what is to be saved could not be loaded."""
    try:
        described = json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode()
        _check(kind, table, parse_json(described))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot save to {folder}: {error}; correct it and save again") from error
    return described


def _check(kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    """Raise RuleError if a table or its header breaks a rule."""
    _check_header(kind, header)
    check_schema(table.schema, kind.columns(header))
    check_ids(table[ITEM])
    _check_table(kind, table, header)


def _check_header(kind: SavedKind, header: dict[str, Any]) -> None:
    check_fields(HEADER, header, _ADDED_RULES)
    kind.check_header(HEADER, header)


def _check_table(kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    for name in kind.columns(header):
        check_no_nulls(name, table[name])
    kind.check_table(table, header)


def _remove_old_files(folder: Path, name: str, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob(f"{name}-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def read_folder(
    folder: Path, kind: SavedKind, rebuild: Callable[[pa.Table, dict[str, Any]], _Rebuilt]
) -> _Rebuilt:
    """Return what was saved in a folder; from a store, that of the served version.

    Args:
        folder: of the table, or a store.
        kind: of the table.
        rebuild: makes the result from table and header, which obey the rules.
    """

    def read() -> _Rebuilt:
        place = served_folder(folder) / kind.name if is_store(folder) else folder
        header = read_header(place / HEADER, kind.header)
        return rebuild(_read(place, header, kind), header)

    def is_missing_version(error: Exception) -> bool:
        return is_store(folder) and isinstance(error.__cause__, FileNotFoundError)

    return retry_while_replaced(
        read,
        lambda error: isinstance(error, FileNotFoundError) or is_missing_version(error),
        f"{folder}: the table named in {HEADER} is missing; {kind.header.remedy}",
    )


def _read(folder: Path, header: dict[str, Any], kind: SavedKind) -> pa.Table:
    """Return the table that a header names; raise if either breaks a rule."""
    try:
        _check_header(kind, header)
        path = folder / header["data"]
        content = path.read_bytes()
        if checksum(content) == header["checksum"]:
            return _parse(content, header, kind)
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged Parquet file can cause any error in its reader
        what = kind.header.what.removeprefix("a ")
        raise StoreError(
            f"{folder}: {what} is damaged: {first_line(error)}; {kind.header.remedy}"
        ) from error
    raise StoreError(
        f"{path}: the checksum does not match {HEADER}, so the file is damaged; "
        f"{kind.header.remedy}"
    )


def _parse(content: bytes, header: dict[str, Any], kind: SavedKind) -> pa.Table:
    """Return the table in a Parquet file; nothing large is read before it is checked.

    Ids come first: only a table that repeats them can be large in memory and small in a file.
    """
    import pyarrow.parquet as pq

    # Arrow threads that read a Python file can abort a process that is about to exit.
    file = pq.ParquetFile(pa.BufferReader(content))
    _check_rows(file.metadata, header["rows"], len(content))
    check_schema(file.schema_arrow, kind.columns(header))
    ids = _read_ids(content, header["rows"])
    check_ids(ids)
    columns = file.read([*kind.columns(header)], use_threads=False)
    table = columns.add_column(0, ITEM, ids)
    if table.num_rows != header["rows"]:
        raise RuleError(f"the table has {table.num_rows} rows, but {HEADER} says {header['rows']}")
    _check_table(kind, table, header)
    return table


def _read_ids(content: bytes, n_rows: int) -> pa.ChunkedArray:
    """Return the ids; a long text that is repeated is found before there are copies of it."""
    import pyarrow.parquet as pq

    each_once = [ITEM] if n_rows <= _MOST_HASHED else None
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=each_once)
    ids = file.read([ITEM], use_threads=False)[ITEM]
    if not pa.types.is_dictionary(ids.type):
        return ids
    for chunk in ids.chunks:
        if len(chunk.dictionary) + chunk.null_count < len(chunk):
            raise RuleError(
                f"column '{ITEM}' has {len(chunk.dictionary)} different ids in {len(chunk)} rows, "
                f"but must have each id once"
            )
    return ids.cast(pa.large_string())


def _check_rows(metadata: Any, n_rows: int, n_bytes: int) -> None:
    """Raise RuleError unless a Parquet file says that it has a number of rows, and it can."""
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    for found in (metadata.num_rows, sum(group.num_rows for group in groups)):
        if found != n_rows:
            raise RuleError(f"the table has {found} rows, but {HEADER} says {n_rows}")
    most = max(_ALWAYS_ALLOWED, _MOST_PER_BYTE * n_bytes)
    if n_rows > most:
        raise RuleError(
            f"the table has {n_rows} rows in {n_bytes} bytes, but a file of that size must have "
            f"at most {most}"
        )
