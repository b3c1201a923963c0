"""A saved bias table: one Parquet file and a JSON header that names it.

The header is replaced last, in one step, so that a reader who follows it finds a whole table.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.bias import ItemBias, Summary
from trimtab.errors import StoreError
from trimtab.files import publish
from trimtab.schema import ITEM
from trimtab.store import Store, is_store

FORMAT = "trimtab-item-bias"
VERSION = 2
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
_TRIES = 20
_WAIT_SECONDS = 0.01  # before following the header again
_ABANDONED_SECONDS = 3600  # a part of a file untouched for so long was left by a killed writer


def save_bias(bias: ItemBias, folder: Path) -> None:
    """Publish a bias table in a folder, in place of the one that may be there."""
    if is_store(folder):
        raise StoreError(f"{folder} is a store of versions: choose another folder, or refresh it")
    buffer = io.BytesIO()
    pq.write_table(bias.table(), buffer, compression="zstd")
    content = buffer.getvalue()
    checksum = hashlib.sha256(content).hexdigest()
    name = f"bias-{checksum[:16]}.parquet"
    header = {
        "format": FORMAT,
        "version": VERSION,
        "scale": bias.scale,
        "unlisted": bias.unlisted,
        "data": name,
        "rows": len(bias),
        "checksum": f"sha256:{checksum}",
        "settings": dict(bias.settings),
        "window": dict(bias.window),
        "summary": summary_json(bias.summary),
    }
    with publish(folder / name) as file:
        file.write(content)
    with publish(folder / HEADER) as file:
        file.write(json.dumps(header, indent=2, ensure_ascii=False, allow_nan=False).encode())
    with contextlib.suppress(OSError):
        _clean(folder, name)


def _clean(folder: Path, current: str) -> None:
    """Remove what earlier writers left."""
    for old in folder.glob("bias-*.parquet"):
        if old.name != current:
            old.unlink(missing_ok=True)
    for part in folder.glob(".*.part"):
        if part.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
            part.unlink(missing_ok=True)


def summary_json(summary: Summary) -> dict[str, Any]:
    """A summary as JSON has words for it."""
    return {key: _to_json(value) for key, value in asdict(summary).items()}


def _to_json(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def load_bias(folder: Path) -> ItemBias:
    """Read a bias table, following the header again when it was replaced meanwhile.

    Of a store, it is the one that is served.
    """
    if is_store(folder):
        return Store(folder).load()
    for _ in range(_TRIES):
        header = _read_header(folder)
        try:
            return _read_data(folder, header)
        except FileNotFoundError:
            time.sleep(_WAIT_SECONDS)
    raise StoreError(f"{folder}: the table '{header['data']}' is missing; save the bias again")


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    try:
        header = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder}: no saved bias here ({HEADER} is missing); check the path"
        ) from error
    except NotADirectoryError as error:
        raise StoreError(f"{folder}: not a folder; pass the folder that was saved to") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: not a readable header ({error}); save the bias again") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StoreError(f"{path}: not a saved bias of Trimtab; check the path")
    if not isinstance(header.get("version"), int) or header["version"] > VERSION:
        raise StoreError(
            f"{path}: format version {header.get('version')}, but this Trimtab reads up to "
            f"{VERSION}; upgrade trimtab"
        )
    return header


def _read_data(folder: Path, header: dict[str, Any]) -> ItemBias:
    try:
        path = folder / Path(str(header["data"])).name
        content = path.read_bytes()
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if checksum != header["checksum"]:
            raise StoreError(
                f"{path}: the checksum does not match the header's: the file was changed or cut "
                f"short; save the bias again"
            )
        # Arrow's threads reading a Python file can abort a process that is about to end.
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        return _rebuild(table, header)
    except FileNotFoundError:
        raise
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{folder}: the saved bias is not whole ({error!r}); save the bias again"
        ) from error


def _rebuild(table: pa.Table, header: dict[str, Any]) -> ItemBias:
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
    return ItemBias(
        item_ids=np.array(ids.to_numpy()) if numbers else ids.cast(pa.large_string()),
        scale=header["scale"],
        unlisted=header["unlisted"],
        summary=Summary(**summary),
        settings=header["settings"],
        window=header["window"],
        **columns,
    )


def _from_first_version(table: pa.Table) -> pa.Table:
    """A table of the first format, which knew of no intervals and parts."""
    unknown, none = np.full(table.num_rows, np.nan), np.zeros(table.num_rows)
    added = {"low": unknown, "high": unknown, "trend": none, "category": none, "fresh": none != 0}
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    return table
