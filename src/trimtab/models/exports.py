"""Biases for a search engine, as boosts in JSON lines, CSV or bulk updates; and for a database.

Lucene rejects scores and boosts below 0, so the file has a `factor` that multiplies the score, or a
`boost` that is added to it, both at least 0. A number added to all items does not change a ranking,
so `boost` is the bias minus the lowest bias, if that is below 0.

Elasticsearch and OpenSearch take bulk updates: for each item a line with the id of its document,
and one with the fields. `search_body` makes the query that uses these fields.

SQL re-ranks lists inside a database: one query for DuckDB and PostgreSQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import require_k
from trimtab.errors import DataError, SettingError
from trimtab.models.list_ranking import choose_depth
from trimtab.models.model import BiasTable
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, ColumnMap, GivenColumns
from trimtab.tables.files import require_suffix, write_atomically, write_table

_MOST_LOG = 87.0  # exp of a number beyond ± this is not a normal float32
_ROWS_PER_BLOCK = 2**16
_BULK = ".ndjson"
_FIELD, _EXCLUDED_FIELD = "trimtab_{}", "trimtab_excluded"
_BIASED = {  # a log bias divides scores below 0, so that a positive one always raises an item
    "additive": "else score + bias",
    "log": "when score < 0 then score / exp(bias) else score * exp(bias)",
}


def require_ending(path: Path) -> None:
    """Raise unless a file name ends in .jsonl, .csv or .ndjson."""
    require_suffix(path, (".jsonl", ".csv", _BULK))


def write_boosts(bias: BiasTable, path: Path, escape: bool = False) -> float:
    """Write the file; return the factor or boost of items that are not in it."""
    require_ending(path)
    table, missing = _boosts(bias)
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
    """Return the search that ranks documents by a query's score with the biases."""
    _, missing = _boosts(bias)
    value, mode = ("factor", "multiply") if bias.scale == "log" else ("boost", "sum")
    shown = {"must": dict(query), "must_not": {"term": {_EXCLUDED_FIELD: True}}}
    scored = {
        "query": {"bool": shown},
        "field_value_factor": {"field": _FIELD.format(value), "missing": missing},
        "boost_mode": mode,
    }
    return {"size": k, "query": {"function_score": scored}}


def _boosts(bias: BiasTable) -> tuple[pa.Table, float]:
    """Return item_id, bias, factor or boost, excluded; and the factor or boost of other items."""
    bias.require_common_scale("be written as boosts")
    largest = int(np.abs(bias.bias).argmax()) if len(bias) else 0
    if bias.scale == "log" and len(bias) and abs(bias.bias[largest]) > _MOST_LOG:
        raise DataError(
            f"{ITEM} {bias.vocabulary[largest]} has a log bias of {bias.bias[largest]:g}, beyond "
            f"±{_MOST_LOG:g}: its factor does not fit in a float32; learn with max_bias="
        )
    if bias.scale == "log":
        name, values, missing = "factor", np.exp(bias.bias), 1.0
    else:
        missing = -float(bias.bias.min(initial=0.0)) + 0.0  # never -0
        name, values = "boost", bias.bias + missing
    table = bias.table().select([ITEM, "bias", "excluded"])
    return table.add_column(2, name, pa.array(values)), missing


# SQL ---------------------------------------------------------------------------------------------


def write_query(
    bias: BiasTable, k: int, lists: str, biases: str, exclude: str | None, allowed: str | None,
    columns: GivenColumns, depth: int | str | None,
) -> str:  # fmt: skip
    """Return a query that gives the rows of `ItemBias.apply`; see `ItemBias.sql`."""
    require_k(k)
    bias.require_common_scale("be applied by a query")
    deepest = choose_depth(bias, depth)
    if bias.unlisted == "zero":
        raise SettingError(
            "biases with unlisted='zero' cannot be applied by a query, which adds no items to "
            "lists; use bias.apply, or learn with unlisted='never'"
        )
    user, item, score, rank = _quote_columns(columns)
    double = f"cast(l.{score} as double precision)"
    # Text ids are compared by code point, as `apply` does.
    collation = "" if isinstance(bias.item_ids, np.ndarray) else ' collate "C"'
    is_below = "false"
    if deepest is not None:
        order = f"partition by l.{user}\n      order by {double} desc, l.{item}{collation}"
        is_below = f"row_number() over ({order}) > {deepest}"
    may_be_shown = "not coalesce(b.excluded, false)"
    if allowed is not None:
        table = _quote_table("allowed", allowed)
        may_be_shown += f"\n      and exists (select 1 from {table} as a where a.{item} = l.{item})"
    if exclude is not None:
        table, pair = (
            _quote_table("exclude", exclude),
            f"x.{user} = l.{user} and x.{item} = l.{item}",
        )
        may_be_shown += f"\n      and not exists (select 1 from {table} as x\n        where {pair})"
    return f"""\
-- The top {k} of every user, re-ranked with the biases (scale: {bias.scale}).
with trimtab_entries as (
  select l.{user} as list_user, l.{item} as item, {double} as score,
    coalesce(cast(b.bias as double precision), 0) as bias,
    {is_below} as is_below,
    {may_be_shown} as may_be_shown
  from {_quote_table("lists", lists)} as l
  left join {_quote_table("biases", biases)} as b on b.{ITEM} = l.{item}
),
trimtab_biased as (
  select list_user, item, is_below,
    case when is_below then score {_BIASED[bias.scale]} end as biased
  from trimtab_entries
  where may_be_shown
),
trimtab_ranked as (
  select list_user, item, biased, row_number() over (
    partition by list_user order by is_below, biased desc, item{collation}) as place
  from trimtab_biased
)
-- What is below the depth scores no more than the last item above it.
select list_user as {user}, item as {item},
  min(biased) over (partition by list_user order by place) as {score}, place as {rank}
from trimtab_ranked
where place <= {k}
order by 1, 4
"""


def _quote_columns(given: GivenColumns) -> list[str]:
    """Return the caller's names of user, item, score and rank, in quotes."""
    needed, own = (USER, ITEM, SCORE, RANK), ColumnMap.of(given).own
    for name, listed in own.items():
        if name not in needed:
            raise SettingError(f"columns: {name!r} is not used; use {', '.join(needed)}")
        if len(listed) > 1:
            raise SettingError(f"columns: {name!r} has {len(listed)} names; give one")
    found = [own.get(name, (name,))[0] for name in needed]
    if len(set(found)) < len(found):
        raise SettingError(f"columns: {', '.join(found)} must be different columns; rename one")
    return [_quote("columns", name, name) for name in found]


def _quote_table(setting: str, name: Any) -> str:
    """Return the name of a table in quotes; dots separate the parts, like shop.lists."""
    return ".".join(_quote(setting, part, name) for part in str(name).split("."))


def _quote(setting: str, part: str, given: Any) -> str:
    """Return a name in quotes; raise if it is empty or has characters that no name has."""
    if not part or not part.isprintable():
        raise SettingError(
            f"{setting}={given!r}: must be a name, without line breaks or empty parts"
        )
    return '"' + part.replace('"', '""') + '"'
