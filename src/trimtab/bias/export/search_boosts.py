"""Biases as numbers to boost documents with in a search engine: JSON lines or CSV.

Engines built on Lucene refuse scores and boosts below 0, so what is written for them never is:
`factor`, to multiply a score with, or `boost`, to add. The same number more for all items changes
no ranking, so `boost` is the bias less the lowest one where that is below 0.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab.bias.table import BiasTable
from trimtab.errors import DataError, StoreError
from trimtab.tables.columns import ITEM
from trimtab.tables.files import publish, write_table
from trimtab.tables.frames import take_ids

ENDINGS = (".jsonl", ".csv")
_MOST_LOG = 87.0  # exp of it, or of less than its negative, is no normal float32
_ROWS = 2**16  # written at a time


def require_ending(path: Path) -> None:
    """Refuse a name that does not say which kind of file to write."""
    if path.suffix.lower() not in ENDINGS:
        raise StoreError(f"{path}: unknown kind of file; end the name in {' or '.join(ENDINGS)}")


def write_boosts(bias: BiasTable, path: Path) -> float:
    """What counts for items that are not in the file: 1, or the boost of a bias of 0."""
    require_ending(path)
    table, missing = boosts_table(bias)
    if path.suffix.lower() == ".csv":
        write_table(table, path)
        return missing
    with publish(path) as file:
        for batch in table.to_batches(max_chunksize=_ROWS):
            lines = (json.dumps(row, allow_nan=False) + "\n" for row in batch.to_pylist())
            file.write("".join(lines).encode("ascii"))
    return missing


def boosts_table(bias: BiasTable) -> tuple[pa.Table, float]:
    """item_id, bias, factor or boost, excluded; and what counts for items that are not there."""
    if bias.scale == "log":
        _require_factors(bias)
        name, values, missing = "factor", np.exp(bias.bias), 1.0
    else:
        missing = -float(bias.bias.min(initial=0.0)) + 0.0  # never -0
        name, values = "boost", bias.bias + missing
    ids = bias.item_ids
    columns = {
        ITEM: pa.array(ids) if isinstance(ids, np.ndarray) else ids,
        "bias": bias.bias,
        name: values,
        "excluded": pa.array(bias.excluded),
    }
    return pa.table(columns), missing


def _require_factors(bias: BiasTable) -> None:
    """Refuse biases whose factors a search engine's float32 cannot hold."""
    if np.abs(bias.bias).max(initial=0.0) <= _MOST_LOG:
        return
    place = int(np.abs(bias.bias).argmax())
    (item,) = take_ids(bias.item_ids, np.array([place]))
    raise DataError(
        f"{ITEM} {item} has a log bias of {bias.bias[place]:g}, beyond ±{_MOST_LOG:g}: no search "
        f"engine holds a factor of that size; learn again with a cap, max_bias="
    )
