"""Checks of lists before a refresh learns from them."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.training_tables import ShopData, TrainingTables
from trimtab.errors import RefusedError, StoreError, warn
from trimtab.tables.column_map import own_names
from trimtab.tables.columns import ITEM
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.ids import IdColumn, encode_ids, id_column

_MOST_UNKNOWN = 0.5  # share of the entries in tonight's lists
_SOME_UNKNOWN = 0.1  # from here on, a warning


def require_known_items(lists: DatedLists, tables: TrainingTables, data: ShopData) -> None:
    """Refuse lists to serve if most entries are items that nothing is known of; warn of some.

    An item is known if it is on the training lists or was sold before the day. A category alone
    is not enough: after a renaming, all new names have one.
    """
    day = lists.newest(data.as_of)
    known = [
        _distinct("the training lists", tables.recs[ITEM]),
        _distinct("events", data.log.events[ITEM]),
    ]
    try:
        share = _unknown_share(lists, day, known)
    except StoreError as error:
        warn(f"lists of {day}: their items are not checked: {error}")
        return
    found = (
        f"lists of {day}: {100 * share:.0f} % of the entries are items that are neither on the "
        f"training lists nor in the events; what was learned does not apply to them"
    )
    if share > _MOST_UNKNOWN:
        raise RefusedError(
            f"{found}: not published; check whether ids have changed, or pass --accept "
            f"unknown-items"
        )
    if share > _SOME_UNKNOWN:
        warn(f"{found}; check whether ids have changed")


def _unknown_share(lists: DatedLists, day: date, known: list[IdColumn]) -> float:
    """Return the share of a day's entries whose items are in none of the columns."""
    path = lists.days[day]
    table = read_table(path, [ITEM], [ITEM], lists.columns)
    text = [ITEM] if known[0].kind == "strings" else []
    (table,) = match_id_types([table], [is_csv(path)], text)
    counted = table[ITEM].drop_null().value_counts()  # whatever re-ranks them refuses nulls
    name = own_names(table).get(ITEM, ITEM)
    listed = id_column(str(path), name, pa.chunked_array([counted.field("values")]))
    _, (codes, *others) = encode_ids([listed, *known])
    is_known = pc.is_in(pa.array(codes), pa.chunked_array([pa.array(part) for part in others]))
    entries = counted.field("counts")
    unknown = pc.sum(entries.filter(pc.invert(is_known)), min_count=0).as_py()
    return float(unknown / max(table.num_rows, 1))


def _distinct(table: str, column: pa.ChunkedArray) -> IdColumn:
    """Return the distinct ids of a column."""
    return id_column(table, ITEM, pa.chunked_array([pc.unique(column)]))
