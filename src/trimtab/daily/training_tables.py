"""The tables a refresh learns from: the shop's events in windows, and lists made before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.event_sources import read_events
from trimtab.daily.leaked_lists import leave_out_leaked
from trimtab.errors import DataError
from trimtab.tables.arrow_types import plain_type
from trimtab.tables.column_map import ColumnMap, own_names
from trimtab.tables.columns import (
    CATEGORY,
    ITEM,
    NAME,
    SCORE,
    TIMESTAMP,
    TRAINED_UNTIL,
    USER,
    WEIGHT,
)
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.log import Log, make_log
from trimtab.tables.log_windows import Window, rows_of_users, stack_windows
from trimtab.tables.places import Place
from trimtab.tables.timestamps import as_utc, day_start, microseconds, require_zone

_LIST_COLUMNS = (USER, ITEM, SCORE)
_ELSEWHERE = (USER, ITEM, TIMESTAMP, SCORE, TRAINED_UNTIL)  # needed, or columns of the lists


@dataclass(frozen=True)
class ShopData:
    """The log of events before a day, and the items."""

    log: Log
    as_of: date
    items: pa.Table | None  # as given
    from_csv: tuple[bool, bool]  # events, items: numbers in CSV may be text ids

    def names(self) -> pa.Table | None:
        """Return item_id, name; None when every name is just the id."""
        items = self.log.items.select([ITEM, NAME])
        return None if items[NAME].equals(items[ITEM].cast(pa.string())) else items

    def catalogue(self) -> pa.Table | None:
        """Return item_id, category by the finest level, including items never sold."""
        if not self.log.levels:
            return None
        finest = self.log.levels[-1]
        if self.items is None or finest not in self.items.column_names:
            return self.log.catalogue()
        return self.items.select([ITEM, finest]).rename_columns([ITEM, CATEGORY])


@dataclass(frozen=True)
class TrainingTables:
    """The tables of a fit, and the windows and the days of the lists in them, newest first."""

    recs: pa.Table
    recent: pa.Table
    history: pa.Table
    catalogue: pa.Table | None
    windows: tuple[Window, ...]
    days: tuple[date, ...]
    newest_lists: pa.Table  # the lists of the first of these days


def read_shop_data(
    events: str | Path, query: str | None, tz: str | None, items: str | Path | None,
    as_of: date | None, columns: ColumnMap | None = None,
) -> ShopData:  # fmt: skip
    """Read the events before a day (today if None) and the items."""
    names = ColumnMap.of(columns)
    sales, sales_csv = read_events(events, query, tz, names)
    catalogue = None if items is None else read_table(items, columns=names)
    in_items = (NAME, CATEGORY) if items is None else ()
    names.warn_of_unused([sales, catalogue], but=(*_ELSEWHERE, *in_items))
    from_csv = (sales_csv, items is not None and is_csv(items))
    sales, catalogue = match_id_types([sales, catalogue], from_csv)
    own = own_names(sales)
    needed = (USER, ITEM, TIMESTAMP)
    require_columns("events", sales.column_names, needed, own)  # a query may lack them
    stamps, zone = as_utc(sales[TIMESTAMP], tz, name=own.get(TIMESTAMP, TIMESTAMP))
    # Parsed once: from here on timestamps are UTC, and the time zone of days is passed along.
    sales = sales.set_column(sales.column_names.index(TIMESTAMP), TIMESTAMP, stamps)
    day = datetime.now(require_zone(zone)).date() if as_of is None else as_of
    known = sales.filter(pa.array(microseconds(stamps) < day_start(day, zone)))
    if known.num_rows == 0:
        raise DataError(
            f"events has {sales.num_rows} rows, none of them before {day} ({zone}); check --as-of, "
            f"--tz and that the log is up to date"
        )
    log = make_log(known, zone, catalogue, optional=(WEIGHT,))
    return ShopData(log, day, catalogue, from_csv)


def read_lists(
    lists: DatedLists,
    days: Sequence[date],
    data: ShopData,
    text: Sequence[str] = (),
    windows: Sequence[Window] = (),
) -> tuple[list[pa.Table], ShopData]:
    """Return the lists of some days, and the shop's data with ids of the same kinds.

    Args:
        lists: all lists.
        days: days to read.
        data: the shop's data.
        text: columns of ids that are text.
        windows: one per day, newest first; of all but the first, only lists of its buyers are kept,
            as they are read: all lists of all windows may not fit into memory.
    """
    tables = [_read_day(lists.days[day], lists.columns) for day in days[:1]]
    for place, day in enumerate(days[1:], start=1):
        table = _read_day(lists.days[day], lists.columns)
        tables.append(rows_of_users(table, windows[place].events(data.log)) if windows else table)
    from_csv = [is_csv(lists.days[day]) for day in days]
    log, (events_csv, items_csv) = data.log, data.from_csv
    *tables, events, known, items = match_id_types(
        [*tables, log.events, log.items, data.items],
        [*from_csv, events_csv, items_csv, items_csv],
        text,
    )
    _require_one_kind(lists, days, tables)
    return tables, replace(data, log=replace(log, events=events, items=known), items=items)


def _require_one_kind(lists: DatedLists, days: Sequence[date], tables: list[pa.Table]) -> None:
    """Refuse integer ids on one day and text ids on another."""
    for name in (USER, ITEM):
        are_integers = [pa.types.is_integer(table[name].type) for table in tables]
        if len(set(are_integers)) > 1:
            odd = are_integers.index(not are_integers[0])
            raise DataError(
                f"column '{name}' holds {tables[odd][name].type} in {lists.days[days[odd]]} but "
                f"{tables[0][name].type} in {lists.days[days[0]]}; rewrite one of them with "
                f"ids of the same type"
            )


def _read_day(path: Place, columns: ColumnMap) -> pa.Table:
    table = read_table(path, _LIST_COLUMNS, _LIST_COLUMNS, columns)
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows; write the day's lists again, or delete the file")
    widened = pa.table({name: _widen(table[name]) for name in _LIST_COLUMNS})
    return widened.replace_schema_metadata(table.schema.metadata)


def _widen(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in the widest type of its kind: days of different types can be stacked."""
    kind = plain_type(column.type)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(kind).cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(kind).cast(pa.large_string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column


def choose_lists(
    lists: DatedLists, windows: Sequence[Window], as_of: date, learn_on: date | None
) -> list[tuple[Window, date]]:
    """Return each window that has lists, with the newest day whose lists were made before it.

    Raises:
        RefusedError: the newest window has no such lists, or the lists asked for have seen it.
    """
    newest = windows[0]
    lists.newest(as_of)  # refuses lists that are all of the future
    if learn_on is None:
        first = lists.newest_before(newest.start, as_of)
        if first is None:
            raise lists.all_have_seen(newest.start)
    else:
        lists.require_unseen(learn_on, newest.start)
        first = learn_on
    chosen = [(newest, first)]
    for window in windows[1:]:
        day = lists.newest_before(window.start, as_of)
        if day is None:
            break
        chosen.append((window, day))
    return chosen


def build_training_tables(
    lists: DatedLists, chosen: Sequence[tuple[Window, date]], data: ShopData, text: Sequence[str],
    accept_leaked: bool,
) -> tuple[TrainingTables, ShopData]:  # fmt: skip
    """Return the tables of a fit, and the shop's data with ids of the lists' kinds.

    Args:
        lists: all lists.
        chosen: windows, newest first, each with the day of its lists.
        data: the shop's data.
        text: columns of ids that are text.
        accept_leaked: whether to learn also from lists that seem to have seen their window.
    """
    windows, days = zip(*chosen, strict=True)
    recs, matched = read_lists(lists, days, data, text, windows)
    if not accept_leaked:
        kept = leave_out_leaked(matched.log, chosen, recs)
        windows, days = zip(*(chosen[place] for place in kept), strict=True)
        recs = [recs[place] for place in kept]
    bought = [window.events(matched.log) for window in windows]
    stacked, recent = stack_windows(windows, recs, bought)
    return TrainingTables(
        recs=stacked,
        recent=recent,
        history=windows[0].history(matched.log),
        catalogue=matched.catalogue(),
        windows=windows,
        days=days,
        newest_lists=recs[0],
    ), matched
