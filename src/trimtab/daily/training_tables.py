"""The tables a refresh learns from: the shop's events in windows, and lists made before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_columns
from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.event_sources import read_events
from trimtab.daily.large_lists import (
    LIST_COLUMNS,
    DayLists,
    LargeLists,
    StackedLists,
    widen_lists,
    without_rows,
)
from trimtab.daily.leaked_lists import leave_out_leaked
from trimtab.errors import DataError
from trimtab.tables.columns import (
    CATEGORY,
    ITEM,
    NAME,
    SCORE,
    TIMESTAMP,
    TRAINED_UNTIL,
    USER,
    WEIGHT,
    ColumnMap,
    own_names,
)
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.frames import Table, require_numbers
from trimtab.tables.log import Log, Window, make_log, rows_of_users, stack_windows
from trimtab.tables.places import Place
from trimtab.tables.times import as_utc, day_start, microseconds, require_zone

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

    recs: pa.Table | StackedLists
    recent: pa.Table
    history: pa.Table
    catalogue: pa.Table | None
    windows: tuple[Window, ...]
    days: tuple[date, ...]
    newest_lists: DayLists  # the lists of the first of these days


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
    room: Path | None = None,
) -> tuple[list[DayLists], ShopData]:
    """Return the lists of some days, and the shop's data with ids of the same kinds.

    Args:
        lists: all lists.
        days: days to read.
        data: the shop's data.
        text: columns of ids that are text.
        windows: one per day, newest first; of all but the first, only lists of its buyers are kept,
            as they are read: all lists of all windows may not fit into memory.
        room: folder for temporary files, if large lists may stay in their files.
    """
    may_stay = room is not None
    tables = [_read_day(lists.days[day], lists.columns, may_stay) for day in days[:1]]
    for place, day in enumerate(days[1:], start=1):
        found = _read_day(lists.days[day], lists.columns, may_stay)
        tables.append(_lists_of(found, windows[place].events(data.log), room) if windows else found)
    from_csv = [is_csv(lists.days[day]) for day in days]
    log, (events_csv, items_csv) = data.log, data.from_csv
    *matched, events, known, items = match_id_types(
        [*(without_rows(table) for table in tables), log.events, log.items, data.items],
        [*from_csv, events_csv, items_csv, items_csv],
        text,
    )
    _require_one_kind(lists, days, matched)
    for day, table in zip(days, matched, strict=True):
        require_numbers(Table(str(lists.days[day]), table, None, False, own_names(table)))
    tables = [
        own if isinstance(own, LargeLists) else table
        for own, table in zip(tables, matched, strict=True)
    ]
    return tables, replace(data, log=replace(log, events=events, items=known), items=items)


def _lists_of(lists: DayLists, buyers: pa.Table, room: Path | None) -> DayLists:
    """Return the lists of the users who bought something."""
    if not isinstance(lists, LargeLists):
        return rows_of_users(lists, buyers)
    assert room is not None
    number = len(list(room.iterdir()))
    return lists.keep_users(pc.unique(buyers[USER]), room / f"lists-{number}.parquet")


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


def _read_day(path: Place, columns: ColumnMap, may_stay: bool) -> DayLists:
    large = LargeLists.open(path, columns) if may_stay else None
    if large is not None:
        return large
    table = read_table(path, LIST_COLUMNS, LIST_COLUMNS, columns)
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows; write the day's lists again, or delete the file")
    return widen_lists(table)


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
    accept_leaked: bool, room: Path,
) -> tuple[TrainingTables, ShopData]:  # fmt: skip
    """Return the tables of a fit, and the shop's data with ids of the lists' kinds.

    Args:
        lists: all lists.
        chosen: windows, newest first, each with the day of its lists.
        data: the shop's data.
        text: columns of ids that are text.
        accept_leaked: whether to learn also from lists that seem to have seen their window.
        room: folder for temporary files.
    """
    windows, days = zip(*chosen, strict=True)
    recs, matched = read_lists(lists, days, data, text, windows, room)
    if not accept_leaked and len(recs) > 1:
        pairs = zip(recs, windows, strict=True)
        looked_at = [_some_of(own, window, matched.log) for own, window in pairs]
        kept = leave_out_leaked(matched.log, chosen, looked_at)
        windows, days = zip(*(chosen[place] for place in kept), strict=True)
        recs = [recs[place] for place in kept]
    bought = [window.events(matched.log) for window in windows]
    stacked, recent = _stack(windows, recs, bought)
    return TrainingTables(
        recs=stacked,
        recent=recent,
        history=windows[0].history(matched.log),
        catalogue=matched.catalogue(),
        windows=windows,
        days=days,
        newest_lists=recs[0],
    ), matched


def _some_of(lists: DayLists, window: Window, log: Log) -> pa.Table:
    """Return the lists, or those of some of the window's buyers if they are large."""
    if not isinstance(lists, LargeLists):
        return lists
    return lists.of_some(pc.unique(window.events(log)[USER]))


def _stack(
    windows: Sequence[Window], recs: Sequence[DayLists], bought: Sequence[pa.Table]
) -> tuple[pa.Table | StackedLists, pa.Table]:
    """Return lists and purchases of all windows as one; large lists stay in their files."""
    if not any(isinstance(own, LargeLists) for own in recs):
        return stack_windows(windows, recs, bought)
    labels = [str(window.first) for window in windows] if len(windows) > 1 else None
    _, recent = stack_windows(windows, [without_rows(own) for own in recs], bought)
    return StackedLists(recs, labels), recent
