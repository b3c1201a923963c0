"""A table in a folder: one Parquet file, and a JSON header that names it and has its checksum.

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
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Struct

from trimtab.errors import StoreError
from trimtab.tables.columns import ITEM, is_text
from trimtab.tables.files import first_line, write_atomically
from trimtab.tables.folders import (
    HeaderKind,
    checksum,
    convert_json,
    is_store,
    parse_json,
    read_header,
    require_plain_name,
    retry_while_replaced,
    served_folder,
)

HEADER = "header.json"
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_MOST_SHOWN = 60  # characters of a wrong value
_Read = TypeVar("_Read")


class SavedKind(NamedTuple):
    """A kind of table in a folder: its header, its columns, and the rules for both."""

    header: HeaderKind
    name: str  # first part of the Parquet file's name, and the folder within a version of a store
    columns: Callable[[dict[str, Any]], Mapping[str, pa.DataType]]  # by header, without the ids
    check_header: Callable[[str, dict[str, Any]], None]  # the name of the file, and the header
    check_table: Callable[[pa.Table, dict[str, Any]], None]


class _Described(Struct):
    """What every header says of its table."""

    data: str
    rows: Annotated[int, Meta(ge=0)]
    checksum: str

    def __post_init__(self) -> None:
        require_plain_name("data", self.data)


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
    try:  # what could not be loaded is not saved
        described = json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode()
        kind.check_header(HEADER, parse_json(described))
        _check_table(kind, table, header)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot save to {folder}: {error}; correct it and save again") from error
    for name, written in ((file_name, content), (HEADER, described)):
        with write_atomically(folder / name) as file:
            file.write(written)
    with contextlib.suppress(OSError):
        _remove_old_files(folder, kind.name, file_name)


def _remove_old_files(folder: Path, name: str, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob(f"{name}-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def read_folder(
    folder: Path, kind: SavedKind, rebuild: Callable[[pa.Table, dict[str, Any]], _Read]
) -> _Read:
    """Return what was saved in a folder; from a store, that of the served version.

    Args:
        folder: of the table, or a store.
        kind: of the table.
        rebuild: makes the result from table and header, which obey the rules.
    """

    def read() -> _Read:
        place = served_folder(folder) / kind.name if is_store(folder) else folder
        header = read_header(place / HEADER, kind.header)
        return rebuild(_read_table(place, header, kind), header)

    def is_missing_version(error: Exception) -> bool:
        return is_store(folder) and isinstance(error.__cause__, FileNotFoundError)

    return retry_while_replaced(
        read,
        lambda error: isinstance(error, FileNotFoundError) or is_missing_version(error),
        f"{folder}: the table named in {HEADER} is missing; {kind.header.remedy}",
    )


def _read_table(folder: Path, header: dict[str, Any], kind: SavedKind) -> pa.Table:
    """Return the table that a header names; raise if either breaks a rule."""
    import pyarrow.parquet as pq

    try:
        described = convert_json(HEADER, header, _Described)
        kind.check_header(HEADER, header)
        path = folder / described.data
        content = path.read_bytes()
        if checksum(content) == described.checksum:
            # Arrow threads that read a Python file can abort a process that is about to exit.
            file = pq.ParquetFile(pa.BufferReader(content))
            _check_schema(file.schema_arrow, kind.columns(header))
            table = file.read([ITEM, *kind.columns(header)], use_threads=False)
            if table.num_rows != described.rows:
                raise ValueError(f"the table has {table.num_rows} rows, not {described.rows}")
            _check_table(kind, table, header)
            return table
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


def _check_schema(schema: pa.Schema, kinds: Mapping[str, pa.DataType]) -> None:
    """Raise ValueError unless a table has ids and columns of the given types, each once."""
    for name in (ITEM, *kinds):
        n = schema.names.count(name)
        if n != 1:
            raise ValueError(f"the table has {n} columns '{name}', but must have one")
        found, wanted = schema.field(name).type, kinds.get(name)
        is_right = found == wanted if wanted else found == pa.int64() or is_text(found)
        if not is_right:
            raise ValueError(
                f"column '{name}' holds {found}, but must hold {wanted or 'int64 or text'}"
            )


def _check_table(kind: SavedKind, table: pa.Table, header: dict[str, Any]) -> None:
    """Raise ValueError unless ids ascend and no value is missing."""
    _check_schema(table.schema, kind.columns(header))
    for name in (ITEM, *kind.columns(header)):
        if n_nulls := table[name].null_count:
            raise ValueError(
                f"column '{name}' has no value in {n_nulls} of {table.num_rows} rows, but must "
                f"have one in each"
            )
    ids = table[ITEM]
    ids.validate(full=True)  # text in UTF-8
    row = pc.index(pc.greater_equal(ids.slice(0, max(len(ids) - 1, 0)), ids.slice(1)), True).as_py()
    if row >= 0:
        before, after = (str(ids[at].as_py())[:_MOST_SHOWN] for at in (row, row + 1))
        raise ValueError(
            f"column '{ITEM}' has {after!r} after {before!r} in row {row + 1} (from 0), but must "
            f"ascend, with each id once"
        )
    kind.check_table(table, header)


def check_numbers(
    name: str, column: pa.ChunkedArray, most: float, may_be_nan: bool = False
) -> None:
    """Raise ValueError unless all numbers of a column are within ± a bound."""
    values = column.to_numpy()
    wrong = ~(np.abs(values) <= most)
    if may_be_nan:
        wrong &= ~np.isnan(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"column '{name}' has {values[row]:g} in row {row} (from 0), but must be from "
            f"{-most:g} to {most:g}"
        )
