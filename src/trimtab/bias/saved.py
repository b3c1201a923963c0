"""Save and load a bias table, as a table in a folder."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias.saved_checks import COLUMNS, check_columns, check_description
from trimtab.bias.table import BiasTable, Summary
from trimtab.bias.table_folders import SavedKind, read_folder, write_folder
from trimtab.tables.columns import ITEM
from trimtab.tables.folders import HeaderKind

FORMAT = "trimtab-item-bias"
VERSION = 3
_HEADER = HeaderKind(
    FORMAT,
    "version",
    VERSION,
    what="a saved bias",
    remedy="save the bias again",
    missing="{folder}: no saved bias here ({file} is missing); check the path",
)
_IN_FIRST_VERSION = ("bias", "excluded", "gain", "support")


def _columns_of(header: dict[str, Any]) -> dict[str, pa.DataType]:
    """The columns of a table by the version of its format."""
    names = _IN_FIRST_VERSION if header["version"] == 1 else tuple(COLUMNS)
    return {name: COLUMNS[name] for name in names}


def _check_table(table: pa.Table, header: dict[str, Any]) -> None:
    check_columns(table, header["scale"])


_KIND = SavedKind(_HEADER, "bias", _columns_of, check_description, _check_table)


def save_table(bias: BiasTable, folder: Path) -> None:
    """Save a bias table in a folder, replacing any that is there."""
    header = {"format": FORMAT, "version": _version_of(bias), **describe(bias)}
    write_folder(folder, _KIND, bias.table(), header)


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
    return read_folder(folder, _KIND, _rebuild)


def _rebuild(table: pa.Table, header: dict[str, Any]) -> dict[str, Any]:
    if header["version"] == 1:
        table = _from_first_version(table)
    return rebuild(table, header)


def rebuild(table: pa.Table, described: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a `BiasTable` from its table and what `describe` returned.

    Both must obey the rules in `saved_checks`.
    """
    ids = table[ITEM].combine_chunks()
    numbers = pa.types.is_integer(ids.type)
    columns = {name: np.array(table[name].to_numpy()) for name in COLUMNS}
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
