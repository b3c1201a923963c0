"""A day's lists that are too large for memory: they stay in their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.parts.files import open_files, write_parts
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.windows import rows_of_users
from trimtab.tables.columns import ITEM, SCORE, USER
from trimtab.tables.rows import ParquetRows
from trimtab.tables.vocabulary import is_text, plain_type

LARGE = 20_000_000  # rows: about 500 MB in memory
LIST_COLUMNS = (USER, ITEM, SCORE)
_MOST_CHECKED = 100_000  # users whose lists are looked at
_ROWS_LOOKED_AT, _PARTS_LOOKED_AT = 1_000_000, 5


@dataclass(frozen=True)
class LargeLists:
    """Lists in Parquet files."""

    rows: ParquetRows

    @staticmethod
    def open(lists: DatedLists, day: date) -> LargeLists | None:
        """Open a day's lists; None if they fit into memory."""
        if lists.is_csv(day):
            return None
        found = LargeLists(ParquetRows(lists.days[day], LIST_COLUMNS, LIST_COLUMNS, lists.columns))
        return found if found.rows.n_rows > LARGE else None

    @property
    def empty(self) -> pa.Table:
        """The lists without rows."""
        return self._finish(self.rows.plain_schema.empty_table())

    def _finish(self, batch: pa.Table) -> pa.Table:
        return widen_lists(self.rows.finish(batch))

    def keep_users(self, users: Any, path: Path) -> LargeLists:
        """Return the lists of some users, written to a file of their own."""
        with write_parts(path) as kept:
            kept.add(self.empty)
            for batch in self._of_users(users):
                kept.add(batch)
        return LargeLists(ParquetRows(path, LIST_COLUMNS))

    def of_some(self, users: Any) -> pa.Table:
        """Return the lists of some users: of all that are given, or of an even sample of them."""
        step = 1 + len(users) // _MOST_CHECKED
        some = users.take(pc.sort_indices(users))[::step]
        return pa.concat_tables([self.empty, *self._of_users(some)])

    def _of_users(self, users: Any) -> Any:
        """The rows of some users, batch by batch; all if ids are of different types."""
        wanted = pa.table({USER: users})
        for batch in self.rows.batches():
            yield rows_of_users(self._finish(batch), wanted)

    def count_items(self) -> pa.Table:
        """Return how often each item is listed: item_id, count."""
        counted = []
        for batch in self.rows.batches(columns=[ITEM]):
            found = _widen(batch[ITEM]).drop_null().value_counts()
            counted.append(pa.table({ITEM: found.field("values"), "count": found.field("counts")}))
        return pa.concat_tables(counted).group_by(ITEM).aggregate([("count", "sum")])


DayLists = Any  # pa.Table | LargeLists


class StackedLists(NamedTuple):
    """Lists of several windows, newest first, of which at least one is large."""

    lists: Sequence[DayLists]
    windows: Sequence[str] | None  # their labels; None if there is only one


def without_rows(lists: DayLists | StackedLists) -> pa.Table:
    """Return the lists, or a table without rows and with the same columns if they are large."""
    if isinstance(lists, StackedLists):
        return without_rows(lists.lists[0])
    return lists.empty if isinstance(lists, LargeLists) else lists


def distinct_items(lists: DayLists | StackedLists) -> pa.ChunkedArray:
    """Return the items on lists, each once."""
    if isinstance(lists, StackedLists):
        found = [distinct_items(own).combine_chunks() for own in lists.lists]
        return pa.chunked_array([pc.unique(pa.chunked_array(found))])
    if isinstance(lists, LargeLists):
        return lists.count_items()[ITEM]
    return pa.chunked_array([pc.unique(lists[ITEM])])


def some_lists(lists: DayLists) -> tuple[pa.Table, int]:
    """Return lists to look at, all if they fit into memory, and the number of users of all."""
    if not isinstance(lists, LargeLists):
        return lists, count_users(lists)
    with open_files({"lists": lists.rows}, rows_per_part=_ROWS_LOOKED_AT) as parts:
        step = -(-len(parts.reads) // _PARTS_LOOKED_AT)
        found = (widen_lists(read()["lists"]) for read in parts.reads[::step])
        some = pa.concat_tables([lists.empty, *found])
    n_users = count_users(some)
    return some, round(n_users * lists.rows.n_rows / max(some.num_rows, 1))


def count_users(lists: pa.Table) -> int:
    """Return the number of users with lists."""
    return int(pc.count_distinct(lists[USER]).as_py())


def widen_lists(table: pa.Table) -> pa.Table:
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
