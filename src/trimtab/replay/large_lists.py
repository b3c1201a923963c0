"""The lists of some days, read; those that are too large for memory stay in their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError
from trimtab.parts.files import write_parts
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.shop import ShopData
from trimtab.replay.windows import Window, rows_of_users
from trimtab.tables.columns import ITEM, SCORE, USER, Table, own_names, require_numbers
from trimtab.tables.files import match_id_types
from trimtab.tables.rows import ParquetRows, Rows, TableRows
from trimtab.tables.vocabulary import is_text, plain_type

LARGE = 20_000_000  # rows: about 500 MB in memory
LIST_COLUMNS = (USER, ITEM, SCORE)
_MOST_CHECKED = 100_000  # users whose lists are looked at


DayLists = Any  # pa.Table | ParquetRows


def open_rows(lists: DatedLists, day: date, columns: Sequence[str] = LIST_COLUMNS) -> Rows:
    """Open a day's lists, of which these columns are needed; a CSV file is read at once."""
    if lists.is_csv(day):
        return TableRows(lists.read(day, columns, columns))
    return ParquetRows(lists.days[day], columns, columns, lists.columns)


def is_large(lists: DayLists) -> bool:
    """Return whether lists stay in their files."""
    return isinstance(lists, ParquetRows)


def of_some(lists: DayLists, users: Any) -> pa.Table:
    """Return the lists, or those of some users if they are large: of an even sample of many."""
    if not is_large(lists):
        return lists
    step = 1 + len(users) // _MOST_CHECKED
    return pa.concat_tables(_of_users(lists, users.take(pc.sort_indices(users))[::step]))


def _of_users(lists: Rows, users: Any) -> Iterator[pa.Table]:
    """No rows, then the rows of some users, in batches; all if ids are of different types."""
    yield without_rows(lists)
    wanted = pa.table({USER: users})
    for batch in lists.batches():
        yield rows_of_users(_widen_lists(lists.finish(batch)), wanted)


def count_items(lists: Rows) -> pa.Table:
    """Return how often each item is listed: item_id, count_sum; nulls are left out."""
    counted = []
    for batch in lists.batches(columns=[ITEM]):
        found = _widen(batch[ITEM]).drop_null().value_counts()
        counted.append(pa.table({ITEM: found.field("values"), "count": found.field("counts")}))
    return pa.concat_tables(counted).group_by(ITEM).aggregate([("count", "sum")])


def without_rows(lists: DayLists) -> pa.Table:
    """Return the lists, or a table without rows and with the same columns if they are large."""
    if not is_large(lists):
        return lists
    return _widen_lists(lists.finish(lists.plain_schema.empty_table()))


def distinct_items(lists: Sequence[DayLists]) -> pa.ChunkedArray:
    """Return the items on the lists of some days, each once."""
    large = [count_items(own) if is_large(own) else own for own in lists]
    every = pa.chunked_array([chunk for own in large for chunk in own[ITEM].chunks])
    return pa.chunked_array([pc.unique(every)])


def some_lists(lists: DayLists) -> tuple[pa.Table, int]:
    """Return lists to look at, all if they fit into memory, and the number of users of all."""
    if not is_large(lists):
        return lists, count_users(lists)
    found = [pc.unique(batch[USER]) for batch in lists.batches(columns=[USER])]
    users = pc.unique(_widen(pa.chunked_array(found)))
    return of_some(lists, users), len(users)


def count_users(lists: pa.Table) -> int:
    """Return the number of users with lists."""
    return int(pc.count_distinct(lists[USER]).as_py())


def read_lists(
    lists: DatedLists, days: Sequence[date], data: ShopData, text: Sequence[str] = (),
    windows: Sequence[Window] = (), room: Path | None = None,
) -> tuple[list[DayLists], ShopData]:  # fmt: skip
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
    found: list[DayLists] = []
    for place, day in enumerate(days):
        found.append(_read_day(lists, day, may_stay=room is not None))
        if place and windows:
            bought = windows[place].events(data.log)
            found[place] = _lists_of(found[place], bought, room)
    log, (events_csv, items_csv) = data.log, data.from_csv
    *matched, events, known, items = match_id_types(
        [*map(without_rows, found), log.events, log.items, data.items],
        [*map(lists.is_csv, days), events_csv, items_csv, items_csv],
        text,
    )
    _require_one_kind(lists, days, matched)
    for day, table in zip(days, matched, strict=True):
        require_numbers(Table(str(lists.days[day]), table, None, False, own_names(table)))
    data = replace(data, log=replace(log, events=events, items=known), items=items)
    pairs = zip(found, matched, strict=True)
    return [own if is_large(own) else table for own, table in pairs], data


def _read_day(lists: DatedLists, day: date, may_stay: bool) -> DayLists:
    if may_stay and not lists.is_csv(day):
        rows = open_rows(lists, day)
        if rows.n_rows > LARGE:
            return rows
    table = lists.read(day, LIST_COLUMNS, LIST_COLUMNS)
    if table.num_rows == 0:
        raise DataError(f"{lists.days[day]} has no rows; write the day's lists again, or delete it")
    return _widen_lists(table)


def _lists_of(lists: DayLists, bought: pa.Table, room: Path | None) -> DayLists:
    """Return the lists of the users who bought something."""
    if not is_large(lists):
        return rows_of_users(lists, bought)
    assert room is not None
    path = room / f"lists-{len(list(room.iterdir()))}.parquet"
    with write_parts(path) as kept:
        for batch in _of_users(lists, pc.unique(bought[USER])):
            kept.add(batch)
    return ParquetRows(path, LIST_COLUMNS)


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


def _widen_lists(table: pa.Table) -> pa.Table:
    """Return lists with columns of the widest types, so that those of several days can be one."""
    widened = pa.table({name: _widen(table[name]) for name in LIST_COLUMNS})
    return widened.replace_schema_metadata(table.schema.metadata)


def _widen(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = plain_type(column.type)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(kind).cast(pa.int64())
    if is_text(kind):
        return column.cast(kind).cast(pa.large_string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column
