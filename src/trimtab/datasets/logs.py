"""Log: events with their time zone and the catalogue they are about; read from files or frames."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError
from trimtab.files import read_table, read_tables
from trimtab.frames import read_frame
from trimtab.instants import as_utc, require_zone
from trimtab.schema import (
    CATEGORY,
    ITEM,
    NAME,
    PRICE,
    QUANTITY,
    TIMESTAMP,
    USER,
    require_columns,
    require_rows,
)

_OPTIONAL = (CATEGORY, QUANTITY, PRICE)


@dataclass(frozen=True)
class Log:
    """Purchases, ordered by time, and what is known of the items.

    Attributes:
        events: user_id, item_id, timestamp (UTC), and quantity and price where they are known.
        items: one row an item, ids ascending: item_id, name, and a column for each level.
        levels: columns of `items` that group items, from coarse to fine; may be empty.
        tz: time zone that days begin in.
        name: what to call the log.
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

    def count(self, column: str) -> int:
        """Number of different values in a column of the events."""
        return int(pc.count_distinct(self.events[column]).as_py())


def read_log(path: str | Path, tz: str | None = None, items: str | Path | None = None) -> Log:
    """A log from a Parquet or CSV file of user_id, item_id, timestamp.

    Args:
        path: a file, or a folder of Parquet files; `category`, `quantity` and `price` are read
            where they are there. Rows with a quantity of 0 or less are no purchases and left out.
        tz: time zone of the shop, like "Europe/London". Needed where timestamps say none; where
            they do, days begin in `tz` all the same.
        items: a file with item_id, and any of `name` (or `description`) and columns that group
            items, from coarse to fine.
    """
    place = Path(path)
    if items is None:
        return make_log(read_table(place), tz, None, place.stem)
    events, catalogue = read_tables(place, Path(items))
    return make_log(events, tz, catalogue, place.stem)


def make_log(
    events: Any, tz: str | None = None, items: Any | None = None, name: str = "log"
) -> Log:
    """A log from any data frame; see `read_log` for the columns.

    Example:
        >>> import pyarrow as pa
        >>> events = pa.table({"user_id": [1], "item_id": [7], "timestamp": ["2026-03-01 10:00"]})
        >>> make_log(events, tz="Europe/London").tz
        'Europe/London'
    """
    if tz is not None:
        require_zone(tz)
    table = read_frame(events, "events", USER, ITEM, TIMESTAMP, optional=_OPTIONAL).columns
    stamps, zone = as_utc(table[TIMESTAMP], tz)
    table = table.set_column(table.column_names.index(TIMESTAMP), TIMESTAMP, stamps)
    table = _purchases(table).sort_by(TIMESTAMP)
    require_rows("events (rows with a quantity above 0)", table.num_rows)
    catalogue, levels = _catalogue(table, items)
    kept = [c for c in table.column_names if c != CATEGORY]
    return Log(table.select(kept), catalogue, levels, zone, name)


def _purchases(table: pa.Table) -> pa.Table:
    if QUANTITY not in table.column_names:
        return table
    try:
        return table.filter(pc.greater(table[QUANTITY], 0))
    except pa.ArrowException as error:
        raise DataError(
            f"column '{QUANTITY}' of events holds {table[QUANTITY].type}: it must be numbers; "
            f"cast or drop the column"
        ) from error


def _catalogue(events: pa.Table, items: Any | None) -> tuple[pa.Table, tuple[str, ...]]:
    """Every item of the events once, with its name and levels, and the names of the levels."""
    if items is None:
        known = _own_categories(events)
    else:
        given = read_frame(items, "items", ITEM).columns
        known = pa.table({**_all_columns(items), ITEM: given[ITEM]})
    require_columns("items", known.column_names, [ITEM])
    ids = _sorted_unique(events[ITEM])
    rows = pc.index_in(ids, known[ITEM].combine_chunks().cast(ids.type))
    columns = {ITEM: ids, NAME: pc.fill_null(_names(known).take(rows), ids.cast(pa.string()))}
    levels = tuple(c for c in known.column_names if c not in (ITEM, NAME, "description"))
    for level in levels:
        columns[level] = known[level].combine_chunks().cast(pa.string()).take(rows)
    return pa.table(columns), levels


def _all_columns(frame: Any) -> dict[str, Any]:
    import narwhals as nw

    given = nw.from_native(frame).lazy().collect().to_arrow()
    return {name: given[name] for name in given.column_names}


def _own_categories(events: pa.Table) -> pa.Table:
    """The last category that the events give each item."""
    if CATEGORY not in events.column_names:
        return pa.table({ITEM: _sorted_unique(events[ITEM])})
    rows = pa.table({ITEM: events[ITEM], CATEGORY: events[CATEGORY]})
    last = rows.append_column("row", pa.array(np.arange(len(rows))))
    last = last.group_by(ITEM, use_threads=False).aggregate([("row", "max")])
    return rows.take(last["row_max"])


def _names(known: pa.Table) -> pa.Array:
    for column in (NAME, "description"):
        if column in known.column_names:
            return known[column].combine_chunks().cast(pa.string())
    return known[ITEM].combine_chunks().cast(pa.string())


def _sorted_unique(column: pa.ChunkedArray) -> pa.Array:
    values = pc.unique(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.take(pc.sort_indices(values))
