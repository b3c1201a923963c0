"""Write biases as boosts for a search engine, in JSON lines or CSV.

Lucene rejects scores and boosts below 0, so the file has a `factor` that multiplies the score, or a
`boost` that is added to it, both at least 0. A number added to all items does not change a ranking,
so `boost` is the bias minus the lowest bias, if that is below 0.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab.bias.table import BiasTable, require_common_scale
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM
from trimtab.tables.files import require_suffix, write_atomically, write_table
from trimtab.tables.frames import take_ids

_MOST_LOG = 87.0  # exp of a number beyond ± this is not a normal float32
_ROWS_PER_BLOCK = 2**16


def require_ending(path: Path) -> None:
    """Raise unless a file name ends in .jsonl or .csv."""
    require_suffix(path, (".jsonl", ".csv"))


def write_boosts(bias: BiasTable, path: Path, escape: bool = False) -> float:
    """Write the file; return the factor or boost of items that are not in it.

    Args:
        bias: biases to write.
        path: file that ends in .jsonl or .csv.
        escape: in CSV, put an apostrophe before ids that a spreadsheet may run as formulas.
    """
    require_ending(path)
    table, missing = boosts_table(bias)
    if path.suffix.lower() == ".csv":
        write_table(table, path, escape)
        return missing
    with write_atomically(path) as file:
        for batch in table.to_batches(max_chunksize=_ROWS_PER_BLOCK):
            lines = (json.dumps(row, allow_nan=False) + "\n" for row in batch.to_pylist())
            file.write("".join(lines).encode("ascii"))
    return missing


def boosts_table(bias: BiasTable) -> tuple[pa.Table, float]:
    """Return item_id, bias, factor or boost, excluded; and the factor or boost of other items."""
    require_common_scale(bias, "be written as boosts")
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
    """Raise if a factor does not fit in a search engine's float32."""
    if np.abs(bias.bias).max(initial=0.0) <= _MOST_LOG:
        return
    place = int(np.abs(bias.bias).argmax())
    (item,) = take_ids(bias.item_ids, np.array([place]))
    raise DataError(
        f"{ITEM} {item} has a log bias of {bias.bias[place]:g}, beyond ±{_MOST_LOG:g}: its factor "
        f"does not fit in a float32; learn with max_bias="
    )
