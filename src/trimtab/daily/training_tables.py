"""What a refresh learns from, gathered: the log, its windows, and the lists that may teach them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.event_sources import read_events
from trimtab.daily.windows import Window
from trimtab.errors import DataError
from trimtab.tables.columns import CATEGORY, ITEM, NAME, SCORE, TIMESTAMP, USER, WINDOW
from trimtab.tables.files import is_csv, match_kinds, plain_type, read_table
from trimtab.tables.log import Log, make_log
from trimtab.tables.timestamps import as_utc, day_start, microseconds, require_zone

_LIST_COLUMNS = (USER, ITEM, SCORE)


@dataclass(frozen=True)
class Source:
    """The log up to a day, and the catalogue; with whether their ids may be numbers by chance."""

    log: Log
    as_of: date
    items: pa.Table | None  # as given
    from_csv: tuple[bool, bool]  # events, items

    def names(self) -> pa.Table | None:
        """item_id, name, where names are more than the ids again."""
        items = self.log.items.select([ITEM, NAME])
        return None if items[NAME].equals(items[ITEM].cast(pa.string())) else items

    def catalogue(self) -> pa.Table | None:
        """item_id, category by the finest level; also of items that were never sold."""
        if not self.log.levels:
            return None
        finest = self.log.levels[-1]
        if self.items is None or finest not in self.items.column_names:
            return self.log.catalogue()
        return self.items.select([ITEM, finest]).rename_columns([ITEM, CATEGORY])


@dataclass(frozen=True)
class Teaching:
    """The tables of a fit, and the days of the lists in them, newest first."""

    recs: pa.Table
    recent: pa.Table
    history: pa.Table
    catalogue: pa.Table | None
    days: tuple[date, ...]
    newest: pa.Table  # the lists of the first of these days


def read_source(
    events: str | Path, query: str | None, tz: str | None, items: Path | None, as_of: date | None
) -> Source:
    """Read events before a day (today, without), and the catalogue."""
    sales, sales_csv = read_events(events, query, tz)
    catalogue = None if items is None else read_table(items)
    from_csv = (sales_csv, items is not None and is_csv(items))
    sales, catalogue = match_kinds([sales, catalogue], from_csv)
    require_columns("events", sales.column_names, [USER, ITEM, TIMESTAMP])  # of a query's
    stamps, zone = as_utc(sales[TIMESTAMP], tz)
    day = datetime.now(require_zone(zone)).date() if as_of is None else as_of
    known = sales.filter(pa.array(microseconds(stamps) < day_start(day, zone)))
    if known.num_rows == 0:
        raise DataError(
            f"events has {sales.num_rows} rows, none of them before {day} ({zone}); check --as-of, "
            f"--tz and that the log is up to date"
        )
    return Source(make_log(known, tz, catalogue), day, catalogue, from_csv)


def read_lists(
    lists: DatedLists, days: Sequence[date], source: Source, text: Sequence[str] = ()
) -> tuple[list[pa.Table], Source]:
    """The lists of some days, and the source with ids of the same kinds."""
    tables = [_read_day(lists.days[day]) for day in days]
    from_csv = [is_csv(lists.days[day]) for day in days]
    log, own = source.log, source.from_csv
    *tables, events, known, items = match_kinds(
        [*tables, log.events, log.items, source.items], [*from_csv, *own, own[1]], text
    )
    _require_one_kind(lists, days, tables)
    return tables, replace(source, log=replace(log, events=events, items=known), items=items)


def _require_one_kind(lists: DatedLists, days: Sequence[date], tables: list[pa.Table]) -> None:
    """Refuse numbers as ids on one day and text on another."""
    for name in (USER, ITEM):
        kinds = [pa.types.is_integer(table[name].type) for table in tables]
        if len(set(kinds)) > 1:
            odd = kinds.index(not kinds[0])
            raise DataError(
                f"column '{name}' of {lists.days[days[odd]]} holds {tables[odd][name].type}, that "
                f"of {lists.days[days[0]]} {tables[0][name].type}: ids must be of one kind; write "
                f"one of them again"
            )


def _read_day(path: Path) -> pa.Table:
    table = read_table(path, _LIST_COLUMNS, _LIST_COLUMNS)
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows: it needs the day's lists; write it again, or drop it")
    columns = {name: _widened(table[name]) for name in _LIST_COLUMNS}
    return pa.table(columns)


def _widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the widest type of its kind, so that days of other types go together."""
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
    """Each window that there are lists for, with the newest that have not seen it.

    Raises:
        RefusedError: there are none for the newest window, or those asked for have seen it.
    """
    newest = windows[0]
    lists.newest(as_of)  # refuses lists that are all of the future
    if learn_on is None:
        first = lists.before(newest.start, as_of)
        if first is None:
            raise lists.refusal(newest.start)
    else:
        lists.require_unseen(learn_on, newest.start)
        first = learn_on
    chosen = [(newest, first)]
    for window in windows[1:]:
        day = lists.before(window.start, as_of)
        if day is None:
            break
        chosen.append((window, day))
    return chosen


def gather(
    lists: DatedLists, chosen: Sequence[tuple[Window, date]], source: Source, text: Sequence[str]
) -> tuple[Teaching, Source]:
    """The tables of a fit, and the source with ids of the lists' kinds."""
    days = tuple(day for _, day in chosen)
    recs, matched = read_lists(lists, days, source, text)
    newest = recs[0]
    recent = [window.events(matched.log) for window, _ in chosen]
    if len(chosen) > 1:
        labels = [str(window.first) for window, _ in chosen]
        recs = [_labelled(*pair) for pair in zip(recs, labels, strict=True)]
        recent = [_labelled(*pair) for pair in zip(recent, labels, strict=True)]
    return Teaching(
        recs=pa.concat_tables(recs, promote_options="permissive"),
        recent=pa.concat_tables(recent),
        history=chosen[0][0].history(matched.log),
        catalogue=matched.catalogue(),
        days=days,
        newest=newest,
    ), matched


def _labelled(table: pa.Table, label: str) -> pa.Table:
    """A table whose rows all carry one window."""
    return table.append_column(WINDOW, pa.repeat(pa.scalar(label), table.num_rows))
