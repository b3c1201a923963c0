"""Log: purchase events, their time zone and their item catalogue, from files or frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_no_nulls, require_rows
from trimtab.errors import DataError
from trimtab.tables.columns import (
    CATEGORY,
    ITEM,
    NAME,
    PRICE,
    QUANTITY,
    TIMESTAMP,
    USER,
    GivenColumns,
    column_names,
    own_names,
    read_frame,
    require_numbers,
    with_column,
)
from trimtab.tables.files import read_tables
from trimtab.tables.places import as_place
from trimtab.tables.times import as_utc, require_zone
from trimtab.tables.vocabulary import id_column, is_text, plain_type, require_same_id_type

_NEEDED = (USER, ITEM, TIMESTAMP)
_OPTIONAL = (CATEGORY, QUANTITY, PRICE)
_DESCRIPTION = "description"
_GROUP_TYPES = (is_text, pa.types.is_integer, pa.types.is_boolean)


@dataclass(frozen=True)
class Log:
    """Purchases in time order, and the item catalogue.

    Attributes:
        events: user_id, item_id, timestamp (UTC), and quantity and price if known.
        items: one row per item, ids ascending: item_id, name, and one column per level.
        levels: columns of `items` that group items, from coarse to fine; may be empty.
        tz: time zone in which days begin.
        name: name of the log.
    """

    events: pa.Table
    items: pa.Table
    levels: tuple[str, ...]
    tz: str
    name: str

    def __repr__(self) -> str:
        return (
            f"Log({self.name}: {self.events.num_rows} events of {self.count(USER)} users and "
            f"{self.count(ITEM)} items, days in {self.tz})"
        )

    def catalogue(self) -> pa.Table | None:
        """Return item_id and category (the finest level), or None if there are no levels."""
        if not self.levels:
            return None
        return self.items.select([ITEM, self.levels[-1]]).rename_columns([ITEM, CATEGORY])

    def count(self, column: str) -> int:
        """Return the number of distinct values in a column of the events."""
        return int(pc.count_distinct(self.events[column]).as_py())


def read_log(
    path: str | Path,
    tz: str | None = None,
    items: str | Path | None = None,
    columns: GivenColumns = None,
) -> Log:
    """Return a log from a Parquet or CSV file with user_id, item_id and timestamp.

    Args:
        path: a file, a folder of Parquet files, or an address like s3://bucket/events.parquet.
            `category`, `quantity` and `price` are read if they exist; rows with a quantity of 0 or
            less are dropped.
        tz: time zone of the shop, like "Europe/London", in which days begin. Required if the
            timestamps have no time zone.
        items: a file with item_id, and optionally `name` (or `description`) and columns that group
            items, from coarse to fine: text, whole numbers or flags.
        columns: names of columns in the files, like {"user": "customer", "time": "ts"}.
    """
    events, catalogue = read_tables(path, items, columns=columns, needed=_NEEDED)
    return make_log(events, tz, catalogue, as_place(path).name.partition(".")[0])


def make_log(
    events: Any,
    tz: str | None = None,
    items: Any | None = None,
    name: str = "log",
    optional: tuple[str, ...] = (),
) -> Log:
    """Return a log from any data frame; see `read_log` for the columns.

    Args:
        events: user_id, item_id, timestamp.
        tz: time zone of the shop.
        items: item table; or None.
        name: name of the log.
        optional: more columns of the events to keep if they exist.

    Example:
        >>> import pyarrow as pa
        >>> events = pa.table({"user_id": [1], "item_id": [7], "timestamp": ["2026-03-01 10:00"]})
        >>> make_log(events, tz="Europe/London").tz
        'Europe/London'
    """
    if tz is not None:
        require_zone(tz)
    given = read_frame(events, "events", *_NEEDED, optional=(*_OPTIONAL, *optional))
    table = given.columns
    for column in (USER, ITEM):
        given.ids(column)  # raises if the ids are not valid
        table = with_column(table, column, table[column].cast(plain_type(table[column].type)))
    stamps, zone = as_utc(table[TIMESTAMP], tz, name=given.own_name(TIMESTAMP))
    table = with_column(table, TIMESTAMP, stamps)
    if given.has(QUANTITY):
        require_no_nulls("events", given.own_name(QUANTITY), table[QUANTITY])
        require_numbers(given, QUANTITY)
        table = table.filter(pc.greater(table[QUANTITY], 0))
    table = table.sort_by(TIMESTAMP)
    require_rows("events (rows with a quantity above 0)", table.num_rows)
    catalogue, levels = _build_catalogue(table, items)
    kept = [c for c in table.column_names if c != CATEGORY]
    events = table.select(kept).replace_schema_metadata(None)  # without the caller's names
    return Log(events, catalogue, levels, zone, name)


def _build_catalogue(events: pa.Table, items: Any | None) -> tuple[pa.Table, tuple[str, ...]]:
    """Return each item of the events once with its name and levels, and the level names."""
    ids = pc.unique(events[ITEM])
    ids = ids.take(pc.sort_indices(ids))
    plain = ids.cast(pa.string())
    columns = {ITEM: ids, NAME: plain}
    tables = [_event_categories(events)] if CATEGORY in events.column_names else []
    tables += [] if items is None else [_read_items(items, events)]
    for known in tables:
        rows = pc.index_in(ids, known[ITEM].combine_chunks())
        for column in known.column_names[1:]:
            text = known[column].cast(plain_type(known[column].type)).cast(pa.string())
            columns[column] = text.take(rows)
    named = pc.fill_null(pc.not_equal(columns[NAME], ""), False)
    columns[NAME] = pc.if_else(named, columns[NAME], plain)
    return pa.table(columns), tuple(c for c in columns if c not in (ITEM, NAME))


def _read_items(items: Any, events: pa.Table) -> pa.Table:
    """Return a checked table of items: item_id, levels, and name if there is one."""
    names = column_names(items, "items")
    chosen = [c for c in names if c not in (ITEM, USER, TIMESTAMP, QUANTITY, PRICE)]
    table = read_frame(items, "items", ITEM, optional=tuple(chosen))
    own = own_names(events).get(ITEM, ITEM)
    require_same_id_type([id_column("events", own, events[ITEM]), table.ids(ITEM)])
    known = with_column(table.columns, ITEM, table.columns[ITEM].cast(events[ITEM].type))
    name = table.own_name(ITEM)
    if pc.count_distinct(known[ITEM]).as_py() < len(known):
        raise DataError(f"column '{name}' of items has repeated ids; keep one row per item")
    if not pc.any(pc.is_in(known[ITEM], pc.unique(events[ITEM]))).as_py():
        raise DataError(
            f"no {name} of items is in events (items has {known[ITEM][0]}, events "
            f"{events[ITEM][0]}); check that both use the same ids"
        )
    grouping = [c for c in chosen if _is_group_type(known[c].type)]
    levels = known.select([ITEM, *(c for c in grouping if c not in (NAME, _DESCRIPTION))])
    shown = next((c for c in (NAME, _DESCRIPTION) if c in grouping), None)
    return levels if shown is None else levels.append_column(NAME, known[shown])


def _is_group_type(kind: pa.DataType) -> bool:
    """Return whether a column can group items: text, whole numbers and flags can."""
    return any(is_kind(plain_type(kind)) for is_kind in _GROUP_TYPES)


def _event_categories(events: pa.Table) -> pa.Table:
    """Return the last category of each item in the events."""
    kind = events[CATEGORY].type
    if not _is_group_type(kind):
        name = own_names(events).get(CATEGORY, CATEGORY)
        raise DataError(
            f"column '{name}' of events holds {kind}: it must be text or whole numbers; cast or "
            f"drop the column"
        )
    rows = pa.table({ITEM: events[ITEM], CATEGORY: events[CATEGORY].cast(plain_type(kind))})
    last = (CATEGORY, "last", pc.ScalarAggregateOptions(skip_nulls=False))
    found = rows.group_by(ITEM, use_threads=False).aggregate([last])
    return found.rename_columns([ITEM, CATEGORY])
