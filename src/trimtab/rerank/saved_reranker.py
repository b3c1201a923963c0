"""Save and load a Reranker, as a table in a folder: the biases, and what it adds to them."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.bias.saved import describe, rebuild
from trimtab.bias.saved_checks import COLUMNS
from trimtab.bias.table_folders import SavedKind, read_folder, write_folder
from trimtab.errors import StoreError
from trimtab.rerank.rerank_table import Coefficient, RerankSummary, RerankTable
from trimtab.rerank.reranker_checks import ADDED_COLUMNS, check_header, check_table
from trimtab.tables.folders import HeaderKind, is_store, served_folder

FORMAT = "trimtab-reranker"
VERSION = 1
FOLDER = "reranker"  # within a version of a store
_HEADER = HeaderKind(
    FORMAT,
    "version",
    VERSION,
    what="a saved reranker",
    remedy="save the reranker again",
    missing="{folder}: no saved reranker here ({file} is missing); check the path",
)
_KIND = SavedKind(
    _HEADER, FOLDER, lambda _: {**COLUMNS, **ADDED_COLUMNS}, check_header, check_table
)


def save_reranker(reranker: RerankTable, folder: Path) -> None:
    """Save a Reranker in a folder, replacing any that is there."""
    ranks = np.full(len(reranker.item_part), -1, np.int32)
    ranks[reranker.trending] = np.arange(len(reranker.trending), dtype=np.int32)
    table = reranker.bias.table()
    table = table.append_column("item_part", pa.array(reranker.item_part))
    table = table.append_column("trending", pa.array(ranks))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "bias": describe(reranker.bias),
        "coefficients": [list(coefficient) for coefficient in reranker.learned],
        "summary": asdict(reranker.summary),
        "settings": dict(reranker.settings),
        "may_repeat": reranker.may_repeat,
        "score_unit": reranker.score_unit,
        "learned_until": reranker.learned_until,
        "has_zone": reranker.has_zone,
    }
    write_folder(folder, _KIND, table, header)


def load_reranker(folder: Path) -> dict[str, Any]:
    """Return the fields of a saved `RerankTable`; from a store, those of the served version."""
    if is_store(folder):
        served = served_folder(folder)
        if served.is_dir() and not (served / FOLDER).exists():
            raise StoreError(
                f"{folder}: the version served, {served.name}, has no reranker; publish one with "
                f"trimtab refresh --reranker"
            )
    return read_folder(folder, _KIND, _rebuild)


def _rebuild(table: pa.Table, header: dict[str, Any]) -> dict[str, Any]:
    ranks = table["trending"].to_numpy()
    listed = np.flatnonzero(ranks >= 0)
    names = {field.name for field in fields(RerankSummary)}
    summary = {name: value for name, value in dict(header["summary"]).items() if name in names}
    return {
        "bias": ItemBias(**rebuild(table, header["bias"])),
        "item_part": np.array(table["item_part"].to_numpy()),
        "trending": listed[np.argsort(ranks[listed])].astype(np.int32),
        "learned": tuple(Coefficient(*row) for row in header["coefficients"]),
        "summary": RerankSummary(**{**summary, "sources": tuple(summary["sources"])}),
        "settings": dict(header["settings"]),
        "may_repeat": header["may_repeat"],
        "score_unit": float(header["score_unit"]),
        "learned_until": header["learned_until"],
        "has_zone": header["has_zone"],
    }
