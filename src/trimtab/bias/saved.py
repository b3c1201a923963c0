"""Save and load a bias table: one Parquet file, and a JSON header that names it.

The header is replaced last, in one step, so readers always find a complete table.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias.table import BiasTable, Summary
from trimtab.errors import StoreError
from trimtab.tables.columns import ITEM
from trimtab.tables.file_headers import HeaderKind, checksum, read_header, retry_while_replaced
from trimtab.tables.files import write_atomically
from trimtab.tables.store_pointer import is_store, served_folder

FORMAT = "trimtab-item-bias"
VERSION = 3
HEADER = "header.json"
_COLUMNS = {
    "bias": pa.float64(),
    "excluded": pa.bool_(),
    "gain": pa.float64(),
    "support": pa.int64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "trend": pa.float64(),
    "category": pa.float64(),
    "fresh": pa.bool_(),
}
_ABANDONED_SECONDS = 3600  # older partial files were left by a killed writer
_KIND = HeaderKind(
    FORMAT,
    "version",
    VERSION,
    what="a saved bias",
    remedy="save the bias again",
    missing="{folder}: no saved bias here ({file} is missing); check the path",
)


def save_table(bias: BiasTable, folder: Path) -> None:
    """Save a bias table in a folder, replacing any that is there."""
    if is_store(folder):
        raise StoreError(f"{folder} is a store: save to another folder, or run trimtab refresh")
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(bias.table(), buffer, compression="zstd")
    content = buffer.getvalue()
    digest = checksum(content)
    name = f"bias-{digest.removeprefix('sha256:')[:16]}.parquet"
    header = {
        "format": FORMAT,
        "version": _version_of(bias),
        "scale": bias.scale,
        "unlisted": bias.unlisted,
        "depth": bias.depth,
        "data": name,
        "rows": len(bias),
        "checksum": digest,
        "settings": dict(bias.settings),
        "window": dict(bias.window),
        "summary": summary_json(bias.summary),
    }
    with write_atomically(folder / name) as file:
        file.write(content)
    with write_atomically(folder / HEADER) as file:
        file.write(json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode())
    with contextlib.suppress(OSError):
        _remove_old_files(folder, name)


def _version_of(bias: BiasTable) -> int:
    """The oldest format version that can hold these biases, so that 0.1.0 reads what it can.

    It would take biases of scale "list" for logs.
    """
    return 3 if bias.scale == "list" else 2


def _remove_old_files(folder: Path, current: str) -> None:
    """Remove the files of earlier writers."""
    for old in folder.glob("bias-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def summary_json(summary: Summary) -> dict[str, Any]:
    """Return a summary as JSON values; nan becomes null."""
    return {key: _to_json(value) for key, value in asdict(summary).items()}


def _to_json(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def load_table(folder: Path) -> dict[str, Any]:
    """Return the fields of a saved `BiasTable`; from a store, those of the served version."""

    def read() -> dict[str, Any]:
        place = served_folder(folder) / "bias" if is_store(folder) else folder
        return _read_data(place, read_header(place / HEADER, _KIND))

    def is_missing_version(error: Exception) -> bool:
        return is_store(folder) and isinstance(error.__cause__, FileNotFoundError)

    return retry_while_replaced(
        read,
        lambda error: isinstance(error, FileNotFoundError) or is_missing_version(error),
        f"{folder}: the table named in {HEADER} is missing; {_KIND.remedy}",
    )


def _read_data(folder: Path, header: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.parquet as pq

    try:
        path = folder / Path(str(header["data"])).name
        content = path.read_bytes()
        if checksum(content) != header["checksum"]:
            raise StoreError(
                f"{path}: the checksum does not match {HEADER}, so the file is damaged; "
                f"{_KIND.remedy}"
            )
        # Arrow threads that read a Python file can abort a process that is about to exit.
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        return _rebuild(table, header)
    except FileNotFoundError:
        raise
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: the saved bias is incomplete ({error!r}); {_KIND.remedy}"
        ) from error


def _rebuild(table: pa.Table, header: dict[str, Any]) -> dict[str, Any]:
    if table.num_rows != header["rows"]:
        raise KeyError(f"{table.num_rows} rows, but the header says {header['rows']}")
    ids = table[ITEM].combine_chunks()
    numbers = pa.types.is_integer(ids.type)
    if header["version"] == 1:
        table = _from_first_version(table)
    columns = {name: np.array(table[name].cast(kind).to_numpy()) for name, kind in _COLUMNS.items()}
    unknown = {field.name: None if field.default is None else math.nan for field in fields(Summary)}
    summary: dict[str, Any] = {
        k: unknown[k] if v is None else v for k, v in header["summary"].items() if k in unknown
    }
    return dict(
        item_ids=np.array(ids.to_numpy()) if numbers else ids.cast(pa.large_string()),
        scale=header["scale"],
        unlisted=header["unlisted"],
        summary=Summary(**summary),
        settings=dict(header["settings"]),
        window=dict(header["window"]),
        depth=header.get("depth"),  # files made by 0.1.0 have none
        **columns,
    )


def _from_first_version(table: pa.Table) -> pa.Table:
    """Return a table of format version 1 with the columns it lacks: intervals and parts."""
    unknown, none = np.full(table.num_rows, np.nan), np.zeros(table.num_rows)
    added = {"low": unknown, "high": unknown, "trend": none, "category": none, "fresh": none != 0}
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    return table
