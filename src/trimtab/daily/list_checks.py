"""Checks of lists before a refresh learns from them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.large_lists import LIST_COLUMNS, LargeLists, distinct_items
from trimtab.daily.training_tables import ShopData, TrainingTables
from trimtab.errors import RefusedError, StoreError, TrimtabError, warn
from trimtab.tables.columns import ITEM, ColumnMap, own_names
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.places import Place
from trimtab.tables.rows import ParquetRows, Rows, TableRows
from trimtab.tables.vocabulary import IdColumn, Vocabulary, id_column

_MOST_UNKNOWN = 0.5  # share of the entries in tonight's lists
_SOME_UNKNOWN = 0.1  # from here on, a warning


def require_known_items(lists: DatedLists, tables: TrainingTables, data: ShopData) -> None:
    """Refuse lists to serve if most entries are items that nothing is known of; warn of some.

    An item is known if it is on the training lists or was sold before the day. A category alone
    is not enough: after a renaming, all new names have one.
    """
    day = lists.newest(data.as_of)
    known = [
        id_column("the training lists", ITEM, distinct_items(tables.recs)),
        id_column("events", ITEM, pa.chunked_array([pc.unique(data.log.events[ITEM])])),
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


def warn_if_same(lists: DatedLists, day: date) -> None:
    """Warn if a day's lists hold what those before them hold.

    That is no error if the engine is trained once a week; if it is trained every night, an old file
    has a new name.
    """
    earlier = [own for own in lists.days if own < day]
    if earlier and _hold_the_same(lists, earlier[-1], day):
        warn(
            f"lists of {day} are the same as those of {earlier[-1]}; check whether the engine has "
            f"run, unless it is trained less often"
        )


def _hold_the_same(lists: DatedLists, *days: date) -> bool:
    """Return whether the lists of two days have the same rows in the same order."""
    try:
        first, second = (_open_rows(lists.days[day], lists.columns) for day in days)
        if first.n_rows != second.n_rows:
            return False
        pairs = zip(first.batches(), second.batches(), strict=False)
        return all(one.equals(other) for one, other in pairs)
    except TrimtabError:
        return False  # whatever needs these lists says what is wrong with them


def _open_rows(path: Place, columns: ColumnMap) -> Rows:
    if is_csv(path):
        return TableRows(read_table(path, LIST_COLUMNS, LIST_COLUMNS, columns))
    return ParquetRows(path, LIST_COLUMNS, LIST_COLUMNS, columns)


def _unknown_share(lists: DatedLists, day: date, known: list[IdColumn]) -> float:
    """Return the share of a day's entries whose items are in none of the columns."""
    path = lists.days[day]
    items, entries, n_rows = _count_items(path, lists.columns, known[0].kind == "strings")
    _, (codes, *others) = Vocabulary.encode(items, *known)
    is_known = pc.is_in(pa.array(codes), pa.chunked_array([pa.array(part) for part in others]))
    unknown = pc.sum(entries.filter(pc.invert(is_known)), min_count=0).as_py()
    return float(unknown / max(n_rows, 1))


def _count_items(path: Place, columns: ColumnMap, is_text: bool) -> tuple[IdColumn, Any, int]:
    """Return the items on a day's lists, how often each is listed, and the number of rows."""
    large = LargeLists.open(path, columns)
    if large is not None:
        counted = large.count_items()
        items = id_column(str(path), large.rows.own_name(ITEM), counted[ITEM])
        return items, counted["count_sum"], large.rows.n_rows
    table = read_table(path, [ITEM], [ITEM], columns)
    (table,) = match_id_types([table], [is_csv(path)], [ITEM] if is_text else [])
    found = table[ITEM].drop_null().value_counts()  # whatever re-ranks them refuses nulls
    name = own_names(table).get(ITEM, ITEM)
    items = id_column(str(path), name, pa.chunked_array([found.field("values")]))
    return items, found.field("counts"), table.num_rows
