"""Write biases as boosts for a search engine, in JSON lines, CSV, or bulk updates.

Lucene rejects scores and boosts below 0, so the file has a `factor` that multiplies the score, or a
`boost` that is added to it, both at least 0. A number added to all items does not change a ranking,
so `boost` is the bias minus the lowest bias, if that is below 0.

Elasticsearch and OpenSearch take bulk updates: for each item a line with the id of its document,
and one with the fields. `search_body` makes the query that uses these fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias.table import BiasTable, require_common_scale
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM
from trimtab.tables.files import require_suffix, write_atomically, write_table
from trimtab.tables.vocabulary import take_ids

_MOST_LOG = 87.0  # exp of a number beyond ± this is not a normal float32
_ROWS_PER_BLOCK = 2**16
_BULK = ".ndjson"
_FIELD, _EXCLUDED_FIELD = "trimtab_{}", "trimtab_excluded"


def require_ending(path: Path) -> None:
    """Raise unless a file name ends in .jsonl, .csv or .ndjson."""
    require_suffix(path, (".jsonl", ".csv", _BULK))


def write_boosts(bias: BiasTable, path: Path, escape: bool = False) -> float:
    """Write the file; return the factor or boost of items that are not in it.

    Args:
        bias: biases to write.
        path: file that ends in .jsonl, .csv or .ndjson.
        escape: in CSV, put an apostrophe before ids that a spreadsheet may run as formulas.
    """
    require_ending(path)
    table, missing = boosts_table(bias)
    if path.suffix.lower() == ".csv":
        write_table(table, path, escape)
        return missing
    rows = _bulk_lines if path.suffix.lower() == _BULK else iter
    with write_atomically(path) as file:
        for batch in table.to_batches(max_chunksize=_ROWS_PER_BLOCK):
            lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows(batch.to_pylist()))
            file.write("".join(lines).encode("ascii"))
    return missing


def _bulk_lines(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Two lines per item: the id of the document, and the fields to set in it."""
    for row in rows:
        value = next(name for name in ("factor", "boost") if name in row)
        yield {"update": {"_id": str(row[ITEM])}}
        yield {"doc": {_FIELD.format(value): row[value], _EXCLUDED_FIELD: row["excluded"]}}


def search_body(bias: BiasTable, query: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the search that ranks documents by a query's score with the biases.

    Args:
        bias: the biases that the bulk updates were written from.
        query: query whose scores the biases were learned on.
        k: number of documents.
    """
    table, missing = boosts_table(bias)
    value, mode = ("factor", "multiply") if bias.scale == "log" else ("boost", "sum")
    assert value in table.column_names
    shown = {"must": dict(query), "must_not": {"term": {_EXCLUDED_FIELD: True}}}
    scored = {
        "query": {"bool": shown},
        "field_value_factor": {"field": _FIELD.format(value), "missing": missing},
        "boost_mode": mode,
    }
    return {"size": k, "query": {"function_score": scored}}


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
