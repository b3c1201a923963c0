"""Log: purchase events, their time zone and their item catalogue, from files or frames.

Windows are whole days of a log. A hole is a day with far fewer events than usual, or a holiday.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
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
    WINDOW,
    GivenColumns,
    column_names,
    own_names,
    read_frame,
    require_numbers,
    with_column,
)
from trimtab.tables.files import read_tables
from trimtab.tables.places import as_place
from trimtab.tables.times import as_utc, day_start, local_day, microseconds, require_zone
from trimtab.tables.vocabulary import id_column, is_text, plain_type, require_same_id_type

_NEEDED = (USER, ITEM, TIMESTAMP)
_OPTIONAL = (CATEGORY, QUANTITY, PRICE)
_DESCRIPTION = "description"
_GROUP_TYPES = (is_text, pa.types.is_integer, pa.types.is_boolean)
HOLE = "a hole in the log or a holiday"
_COMPARED_WEEKS = 4  # before a day and after it, for its usual number of events
_LEAST_SHARE = 0.2  # of the usual number; a day below it is a hole
_ENOUGH = 20  # events that a weekday usually has, for a comparison
_REGULAR = 1 / 3  # of other weeks with as few events: the weekday is often like this


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
    if items is not None:
        tables.append(_read_items(items, events))
    for known in tables:
        rows = pc.index_in(ids, known[ITEM].combine_chunks())
        for column in (c for c in known.column_names if c != ITEM):
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
    ids = table.columns[ITEM].cast(plain_type(events[ITEM].type))
    known = with_column(table.columns, ITEM, ids)
    if pc.count_distinct(known[ITEM]).as_py() < len(known):
        name = table.own_name(ITEM)
        raise DataError(f"column '{name}' of items has repeated ids; keep one row per item")
    if not pc.any(pc.is_in(known[ITEM], pc.unique(events[ITEM].cast(known[ITEM].type)))).as_py():
        raise DataError(
            f"no {table.own_name(ITEM)} of items is in events (items has {known[ITEM][0]}, events "
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


@dataclass(frozen=True)
class Window:
    """Some whole days in the shop's time zone."""

    first: date
    start: int  # microseconds since 1970; half-open
    stop: int

    @staticmethod
    def of(first: date, days: int, tz: str) -> Window:
        """Return the window of some days, beginning with `first`."""
        return Window(first, day_start(first, tz), day_start(first + timedelta(days), tz))

    def events(self, log: Log) -> pa.Table:
        """Return the events in the window."""
        begin, end = self.rows(event_times(log))
        return log.events.slice(begin, end - begin)

    def history(self, log: Log) -> pa.Table:
        """Return the events before the window."""
        return log.events.slice(0, self.rows(event_times(log))[0])

    def rows(self, times: Ints) -> tuple[int, int]:
        """Return the first row in the window and the first row after it, of sorted times."""
        begin, end = np.searchsorted(times, [self.start, self.stop])
        return int(begin), int(end)


def recent_windows(log: Log, as_of: date, days: int, most: int) -> list[Window]:
    """Return windows right before a day and before each other, newest first.

    There are events before each of them, and in the newest.

    Args:
        log: ordered by time.
        as_of: the day.
        days: length of a window.
        most: most windows to return.

    Raises:
        DataError: there are no events in the newest window, or none before it.
    """
    times = event_times(log)
    found: list[Window] = []
    for back in range(1, most + 1):
        window = Window.of(as_of - timedelta(days * back), days, log.tz)
        begin, end = window.rows(times)
        if begin == 0 or (begin == end and not found):
            break
        found.append(window)
    if not found:
        span = f"{local_day(times[0], log.tz)} to {local_day(times[-1], log.tz)}"
        raise DataError(
            f"events run from {span} ({log.tz}), but some must be in the {days} days before "
            f"{as_of} and some earlier; check --as-of, --tz and that the log is up to date"
        )
    return found


def stack_windows(
    windows: Sequence[Window], recs: Sequence[pa.Table], recent: Sequence[pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """Return the lists and the purchases of several windows, with a column `window` if several.

    Of earlier windows, only the lists of their buyers are kept: nothing is learned from others.

    Args:
        windows: newest first.
        recs: lists made before each window.
        recent: purchases in each window.
    """
    if len(windows) == 1:
        return recs[0], recent[0]
    earlier = map(rows_of_users, recs[1:], recent[1:])
    return _stack(windows, [recs[0], *earlier]), _stack(windows, recent)


def _stack(windows: Sequence[Window], tables: Sequence[pa.Table]) -> pa.Table:
    labelled = [
        table.append_column(WINDOW, pa.repeat(str(window.first), table.num_rows))
        for window, table in zip(windows, tables, strict=True)
    ]
    return pa.concat_tables(labelled, promote_options="permissive")


def rows_of_users(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows of users that another table has too; all if ids are of different types."""
    try:
        users = pc.unique(other[USER]).cast(table[USER].type)
    except pa.ArrowException:
        return table
    return table.filter(pc.is_in(table[USER], users))


def event_times(log: Log) -> Ints:
    """Return the times of the log's events, in microseconds since 1970."""
    return microseconds(log.events[TIMESTAMP])


@dataclass(frozen=True)
class Weekday:
    """The times of events on a day, and on the same weekday of other weeks.

    Times are in microseconds since the day began.
    """

    day: date
    sold: Ints
    others: list[Ints]  # of the weeks before, then of the weeks after

    def __str__(self) -> str:
        return f"{self.day} has {self.events} events; that weekday usually has {self.usual}"

    @property
    def events(self) -> int:
        """The number of events on the day."""
        return len(self.sold)

    @property
    def usual(self) -> int | None:
        """The median number of events in other weeks; None if there are few.

        Of an even number of weeks it is the lower of the two in the middle: in a shop that grew,
        the days before are not holes.
        """
        usual = median_low([len(times) for times in self.others]) if self.others else 0
        return usual if usual >= _ENOUGH else None

    @property
    def is_hole(self) -> bool:
        """Whether the day has far fewer events than usual."""
        least = _LEAST_SHARE * (self.usual or 0)
        n_low = sum(len(times) < least for times in self.others)
        return self.events < least and n_low < _REGULAR * len(self.others)


def find_holes(log: Log, window: Window, until: date) -> list[Weekday]:
    """Return the days of a window with far fewer events than usual, in order.

    Each is compared with the same weekday in the four weeks before it and after it. A weekday with
    few events, or with as few in a third of these weeks, is never a hole; nor is a day before the
    log begins.

    Args:
        log: ordered by time.
        window: the days to look at.
        until: other weeks are only compared before this day; the log may be incomplete from it on.
    """
    times = event_times(log)
    first = max(window.first, local_day(times[0], log.tz))
    n_days = (local_day(window.stop - 1, log.tz) - first).days + 1
    days = (first + timedelta(n) for n in range(n_days))
    compared = (compare_weekday(times, log.tz, day, until) for day in days)
    return [day for day in compared if day.is_hole]


def compare_weekday(times: Ints, tz: str, day: date, until: date) -> Weekday:
    """Return a day and the same weekday of the weeks around it, as far as the log goes."""

    def times_on(day: date) -> Ints:
        window = Window.of(day, 1, tz)
        begin, end = window.rows(times)
        return times[begin:end] - window.start

    first = local_day(times[0], tz)
    weeks = [*range(-1, -_COMPARED_WEEKS - 1, -1), *range(1, _COMPARED_WEEKS + 1)]
    others = [day + timedelta(7 * week) for week in weeks]
    return Weekday(day, times_on(day), [times_on(own) for own in others if first <= own < until])
