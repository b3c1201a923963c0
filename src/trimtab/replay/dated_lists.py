"""Dated lists: files or partitions of days or times, and which were made before an instant.

One rule for the day of a file, everywhere: its lists count as made when the day ends, as their
engine may have seen that day's events, unless their column `trained_until` says when. So lists of
2 May are for 3 May, in training, in a backtest and in a refresh for a day in the past. Today's
refresh shows the newest lists there are, because nothing that exists has seen what comes. A file
that says a time, like 2026-05-02T14-00.parquet, was made at that time.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, StoreError, warn
from trimtab.parts.files import write_parts
from trimtab.replay.shop import ShopData, are_csv, read_files
from trimtab.replay.windows import Window, rows_of_users
from trimtab.tables.columns import (
    ITEM,
    SCORE,
    TRAINED_UNTIL,
    USER,
    ColumnMap,
    Table,
    own_names,
    require_numbers,
)
from trimtab.tables.files import is_csv, match_id_types
from trimtab.tables.places import Address, Place, cannot_read
from trimtab.tables.rows import ParquetRows, Rows, TableRows
from trimtab.tables.times import (
    Moment,
    as_datetime,
    as_utc,
    instant_of,
    local_day,
    microseconds,
)
from trimtab.tables.vocabulary import is_text, plain_type

LARGE = 20_000_000  # rows: about 500 MB in memory
LIST_COLUMNS = (USER, ITEM, SCORE)
_MOST_CHECKED = 100_000  # users whose lists are looked at
DayLists = Any  # pa.Table | ParquetRows

# A day, and the time after a T; digits that follow without one are ignored.
_DATE = re.compile(
    r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?:T(\d{2})-?(\d{2})|\d{2}|\d{4}|\d{6})?(?!\d)"
)
_PASS_FOLDER = "pass the folder with one file per day"


@dataclass(frozen=True)
class DatedLists:
    """The lists of each day, or time of day, in the shop's time zone."""

    folder: Place
    days: dict[Moment, Place]  # ascending
    tz: str
    columns: ColumnMap = field(default_factory=ColumnMap)  # names of columns in the lists
    _seen: dict[Moment, int | StoreError] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The folder's own name."""
        folder = self.folder
        return (folder if isinstance(folder, Address) else folder.resolve()).name or str(folder)

    def is_csv(self, day: Moment) -> bool:
        """Return whether a day's lists are a CSV file, or a folder of them."""
        return are_csv(self.days[day])

    def read(self, day: Moment, wanted: Sequence[str], needed: Sequence[str] = ()) -> pa.Table:
        """Return some columns of a day's lists."""
        return read_files(self.days[day], wanted, needed, self.columns)

    def require_any(self, as_of: Moment) -> None:
        """Refuse lists that are all of days after this one."""
        if min(self.days) > as_of:
            raise DataError(
                f"{self.folder} has no lists of {as_of} or earlier; the first is {min(self.days)}; "
                f"check as_of="
            )

    def newest(self, as_of: Moment) -> Moment:
        """Return the day of the newest lists to show on a day: for a past day, made before it."""
        self.require_any(as_of)
        if as_of >= local_day(instant_of(datetime.now(UTC)), self.tz):
            return max(day for day in self.days if day <= as_of)
        return self.require_before(as_of.instant(self.tz), as_of, "the day")

    def seen_until(self, day: Moment) -> int:
        """Return the instant up to which the engine behind a day's lists may have seen events.

        That is what the lists' column `trained_until` says, where a day means the end of that day;
        without the column, the end of the lists' own day, or the time in their name.

        Raises:
            StoreError: the lists cannot be read.
        """
        if day not in self._seen:  # each file is read once, for any number of windows
            try:
                self._seen[day] = self._read_seen_until(day)
            except StoreError as error:
                self._seen[day] = error
        seen = self._seen[day]
        if isinstance(seen, StoreError):
            raise seen
        return seen

    def _read_seen_until(self, day: Moment) -> int:
        table = self.read(day, (TRAINED_UNTIL,))
        if TRAINED_UNTIL not in table.column_names or len(table) == 0:
            named = _date_of(self.days[day])
            is_time = named is not None and named[1]
            return (day if is_time else day + timedelta(days=1)).instant(self.tz)
        column, name = table[TRAINED_UNTIL], own_names(table).get(TRAINED_UNTIL, TRAINED_UNTIL)
        stamps, _ = as_utc(column, self.tz, f"the lists of {day}", name)
        last = int(microseconds(stamps).max())
        if _are_days(column):
            return (local_day(last, self.tz) + timedelta(days=1)).instant(self.tz)
        return last

    def newest_before(self, instant: int, as_of: Moment) -> Moment | None:
        """Return the newest day whose lists saw no events after an instant; None without one.

        Args:
            instant: the start of a window, in microseconds since 1970.
            as_of: lists of later days do not count.
        """
        for day in reversed([day for day in self.days if day <= as_of]):
            is_known = day in self._seen
            try:
                seen = self.seen_until(day)
            except StoreError as error:
                if day.instant(self.tz) < instant:
                    raise
                if not is_known:
                    warn(f"lists of {day} are skipped: {error}")
                continue
            if seen <= instant:
                return day
        return None

    def has_named(self, error: StoreError) -> bool:
        """Return whether a warning has named the lists that an error is about."""
        return any(error is own for own in self._seen.values())

    def require_before(self, instant: int, as_of: Moment, what: str = "the window") -> Moment:
        """Return the day that `newest_before` finds; refuse if all lists have seen what begins."""
        day = self.newest_before(instant, as_of)
        if day is None:
            raise RefusedError(
                f"all lists in {self.folder} ({min(self.days)} to {max(self.days)}, "
                f"{len(self.days)} days) may have seen {what}, which begins at "
                f"{as_datetime(instant):%Y-%m-%d %H:%M} UTC; keep the lists of earlier days, or "
                f"add a column '{TRAINED_UNTIL}' to the lists"
            )
        return day

    def first_days(self, last: Moment) -> Iterator[Moment]:
        """Yield the first day that each day's lists can be shown on, up to `last`, newest first."""
        for day in reversed([day for day in self.days if day <= last]):
            first = max(day, local_day(self.seen_until(day) - 1, self.tz) + timedelta(days=1))
            if first <= last:
                yield first

    def describe(self, as_of: Moment | None = None) -> dict[str, Any]:
        """Return the folder, its days and a hash of its files, up to a day."""
        days = [day for day in self.days if as_of is None or day <= as_of]
        digest = hashlib.sha256()
        for line in chain.from_iterable(_identify(self.days[day]) for day in days):
            digest.update(line.encode())
        span = {"first": str(days[0]), "last": str(days[-1])} if days else {}
        files = digest.hexdigest()[:16]
        return {"kind": "lists", "folder": self.name, "days": len(days), **span, "files": files}


def find_lists(folder: Place, tz: str, columns: ColumnMap | None = None) -> DatedLists:
    """Return the lists in a folder, by the day, or the time of a day, in their names.

    A day's lists are a file like `2026-11-01.parquet` or `lists-20261101.csv.gz`, or a folder of
    Parquet or CSV files like `date=2026-11-01`; those of a time are named like
    `2026-11-01T14-00.parquet`. Names that begin with a dot or an underscore are
    ignored.
    """
    if folder.is_file():
        raise StoreError(f"{folder} is a file; {_PASS_FOLDER}")
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {_PASS_FOLDER}")
    days: dict[Moment, Place] = {}
    entries: list[Place] = [*folder.iterdir()]
    for entry in sorted(entries, key=lambda entry: entry.name):
        if not _may_be_lists(entry) or (found := _date_of(entry)) is None:
            continue
        day, _ = found
        if day in days:
            raise DataError(
                f"{folder} has lists of {day} twice: {days[day].name} and {entry.name}; keep one"
            )
        days[day] = entry
    if not days:
        raise DataError(
            f"{folder} has no dated lists; name them by day, like 2026-11-01.parquet or "
            f"date=2026-11-01"
        )
    return DatedLists(folder, dict(sorted(days.items())), tz, ColumnMap.of(columns))


def _may_be_lists(entry: Place) -> bool:
    if entry.name[0] in "._":
        return False
    return is_csv(entry) or entry.name.lower().endswith(".parquet") or entry.is_dir()


def _date_of(entry: Place) -> tuple[Moment, bool] | None:
    """Return the day, or the time of day, in a name; and whether it has a time."""
    for found in _DATE.finditer(entry.name):
        with contextlib.suppress(ValueError):
            year, month, day, hour, minute = (int(own or 0) for own in found.groups())
            return Moment(year, month, day, hour, minute), found[4] is not None
    return None


def _are_days(column: pa.ChunkedArray) -> bool:
    """Return whether a column gives whole days, not instants."""
    if not is_text(column.type):
        return bool(pa.types.is_date(column.type))
    return bool(pc.all(pc.equal(pc.utf8_length(column), len("2026-11-01"))).as_py())


def _identify(place: Place) -> Iterator[str]:
    """Yield the name, size and time of change of each file of a day's lists."""
    from pyarrow.fs import FileSelector, LocalFileSystem

    system: Any = LocalFileSystem()
    path = str(place)
    if isinstance(place, Address):
        path, system = place.location
    try:
        what = FileSelector(path, recursive=True) if place.is_dir() else [path]
        found = [info for info in system.get_file_info(what) if info.is_file]
    except (OSError, pa.ArrowException) as error:
        if isinstance(place, Address):
            raise cannot_read(place, error) from error
        raise
    for info in sorted(found, key=lambda info: info.path):
        name = info.path.removeprefix(path.removesuffix(place.name))
        yield f"{name} {info.size} {info.mtime_ns or 0}\n"


# Lists of some days, read; those that are too large for memory stay in their files ----------------


def open_rows(lists: DatedLists, day: Moment, columns: Sequence[str] = LIST_COLUMNS) -> Rows:
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
    lists: DatedLists, days: Sequence[Moment], data: ShopData, text: Sequence[str] = (),
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
    others = {"events": data.log.events, "items": data.items, **data.limits}
    every = match_id_types(
        [*map(without_rows, found), data.log.items, *others.values()],
        [*map(lists.is_csv, days), *(name in data.from_csv for name in ("items", *others))],
        text,
    )
    matched, (known, events, items, *limits) = every[: len(days)], every[len(days) :]
    _require_one_kind(lists, days, matched)
    for day, table in zip(days, matched, strict=True):
        require_numbers(Table(str(lists.days[day]), table, None, False, own_names(table)))
    log = replace(data.log, events=events, items=known)
    data = replace(data, log=log, items=items, limits=dict(zip(data.limits, limits, strict=True)))
    pairs = zip(found, matched, strict=True)
    return [own if is_large(own) else table for own, table in pairs], data


def _read_day(lists: DatedLists, day: Moment, may_stay: bool) -> DayLists:
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


def _require_one_kind(lists: DatedLists, days: Sequence[Moment], tables: list[pa.Table]) -> None:
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
