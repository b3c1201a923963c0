"""Save and load a bias table, as a table in a folder."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias.table import BiasTable, Summary
from trimtab.tables.columns import ITEM
from trimtab.tables.file_headers import HeaderKind
from trimtab.tables.table_folders import read_folder, write_folder

FORMAT = "trimtab-item-bias"
VERSION = 3
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
    header = {"format": FORMAT, "version": _version_of(bias), **describe(bias)}
    write_folder(folder, "bias", bias.table(), header)


def describe(bias: BiasTable) -> dict[str, Any]:
    """Return what is not in the table itself, as JSON values."""
    return {
        "scale": bias.scale,
        "unlisted": bias.unlisted,
        "depth": bias.depth,
        "settings": dict(bias.settings),
        "window": dict(bias.window),
        "summary": summary_json(bias.summary),
    }


def _version_of(bias: BiasTable) -> int:
    """The oldest format version that can hold these biases, so that 0.1.0 reads what it can.

    It would take biases of scale "list" for logs.
    """
    return 3 if bias.scale == "list" else 2


def summary_json(summary: Summary) -> dict[str, Any]:
    """Return a summary as JSON values; nan becomes null."""
    return {key: _to_json(value) for key, value in asdict(summary).items()}


def _to_json(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def load_table(folder: Path) -> dict[str, Any]:
    """Return the fields of a saved `BiasTable`; from a store, those of the served version."""
    return read_folder(folder, "bias", _KIND, _rebuild)


def _rebuild(table: pa.Table, header: dict[str, Any]) -> dict[str, Any]:
    if header["version"] == 1:
        table = _from_first_version(table)
    return rebuild(table, header)


def rebuild(table: pa.Table, described: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `BiasTable` from its table and what `describe` returned."""
    ids = table[ITEM].combine_chunks()
    numbers = pa.types.is_integer(ids.type)
    columns = {name: np.array(table[name].cast(kind).to_numpy()) for name, kind in _COLUMNS.items()}
    unknown = {field.name: None if field.default is None else math.nan for field in fields(Summary)}
    summary: dict[str, Any] = {
        k: unknown[k] if v is None else v for k, v in described["summary"].items() if k in unknown
    }
    return dict(
        item_ids=np.array(ids.to_numpy()) if numbers else ids.cast(pa.large_string()),
        scale=described["scale"],
        unlisted=described["unlisted"],
        summary=Summary(**summary),
        settings=dict(described["settings"]),
        window=dict(described["window"]),
        depth=described.get("depth"),  # files made by 0.1.0 have none
        **columns,
    )


def _from_first_version(table: pa.Table) -> pa.Table:
    """Return a table of format version 1 with the columns it lacks: intervals and parts."""
    unknown, none = np.full(table.num_rows, np.nan), np.zeros(table.num_rows)
    added = {"low": unknown, "high": unknown, "trend": none, "category": none, "fresh": none != 0}
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    return table
