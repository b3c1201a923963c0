"""SQL that re-ranks lists with biases inside a database: one query for DuckDB and PostgreSQL."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.bias.depth import choose_depth
from trimtab.bias.table import BiasTable, require_common_scale
from trimtab.checks import require_k
from trimtab.errors import SettingError
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, ColumnMap, GivenColumns

_BIASED = {  # a log bias divides scores below 0, so that a positive one always raises an item
    "additive": "else score + bias",
    "log": "when score < 0 then score / exp(bias) else score * exp(bias)",
}


def write_query(
    bias: BiasTable, k: int, lists: str, biases: str, exclude: str | None, allowed: str | None,
    columns: GivenColumns, depth: int | str | None,
) -> str:  # fmt: skip
    """Return a query that gives the rows of `ItemBias.apply`; see `ItemBias.sql`."""
    require_k(k)
    require_common_scale(bias, "be applied by a query")
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
    may_be_shown = "not coalesce(b.excluded, false)" + _only(allowed, item)
    may_be_shown += _without(exclude, user, item)
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


def _only(allowed: str | None, item: str) -> str:
    if allowed is None:
        return ""
    table = _quote_table("allowed", allowed)
    return f"\n      and exists (select 1 from {table} as a where a.{item} = l.{item})"


def _without(exclude: str | None, user: str, item: str) -> str:
    if exclude is None:
        return ""
    table = _quote_table("exclude", exclude)
    pair = f"x.{user} = l.{user} and x.{item} = l.{item}"
    return f"\n      and not exists (select 1 from {table} as x\n        where {pair})"


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
