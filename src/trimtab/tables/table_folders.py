"""A table in a folder: one Parquet file, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.file_headers import HeaderKind, checksum, read_header, retry_while_replaced
from trimtab.tables.files import write_atomically
from trimtab.tables.store_pointer import is_store, served_folder

HEADER = "header.json"
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_Rebuilt = TypeVar("_Rebuilt")


def write_folder(folder: Path, name: str, table: pa.Table, header: dict[str, Any]) -> None:
    """Save a table in a folder, replacing any of the same name that is there.

    Args:
        folder: created if missing; must not be a store.
        name: first part of the name of the Parquet file.
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
    file_name = f"{name}-{digest.removeprefix('sha256:')[:16]}.parquet"
    header = {**header, "data": file_name, "rows": table.num_rows, "checksum": digest}
    with write_atomically(folder / file_name) as file:
        file.write(content)
    with write_atomically(folder / HEADER) as file:
        file.write(json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode())
    with contextlib.suppress(OSError):
        _remove_old_files(folder, name, file_name)


def _remove_old_files(folder: Path, name: str, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob(f"{name}-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def read_folder(
    folder: Path, in_version: str, kind: HeaderKind,
    rebuild: Callable[[pa.Table, dict[str, Any]], _Rebuilt],
) -> _Rebuilt:  # fmt: skip
    """Return what was saved in a folder; from a store, that of the served version.

    Args:
        folder: of the table, or a store.
        in_version: folder of the table within a version of a store.
        kind: of the header.
        rebuild: makes the result from table and header; a KeyError means that a part is missing.
    """

    def read() -> _Rebuilt:
        place = served_folder(folder) / in_version if is_store(folder) else folder
        return _read(place, read_header(place / HEADER, kind), kind, rebuild)

    def is_missing_version(error: Exception) -> bool:
        return is_store(folder) and isinstance(error.__cause__, FileNotFoundError)

    return retry_while_replaced(
        read,
        lambda error: isinstance(error, FileNotFoundError) or is_missing_version(error),
        f"{folder}: the table named in {HEADER} is missing; {kind.remedy}",
    )


def _read(
    folder: Path, header: dict[str, Any], kind: HeaderKind,
    rebuild: Callable[[pa.Table, dict[str, Any]], _Rebuilt],
) -> _Rebuilt:  # fmt: skip
    import pyarrow.parquet as pq

    try:
        path = folder / Path(str(header["data"])).name
        content = path.read_bytes()
        if checksum(content) != header["checksum"]:
            raise StoreError(
                f"{path}: the checksum does not match {HEADER}, so the file is damaged; "
                f"{kind.remedy}"
            )
        # Arrow threads that read a Python file can abort a process that is about to exit.
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        if table.num_rows != header["rows"]:
            raise KeyError(f"{table.num_rows} rows, but the header says {header['rows']}")
        return rebuild(table, header)
    except (FileNotFoundError, StoreError):
        raise
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: {kind.what.removeprefix('a ')} is incomplete ({error!r}); {kind.remedy}"
        ) from error
