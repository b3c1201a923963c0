"""Dated lists: one file or partition per day, and which of them were made before an instant.

One rule for the day of a file, everywhere: its lists count as made when the day ends, as their
engine may have seen that day's events, unless their column `trained_until` says when. So lists of
2 May are for 3 May, in training, in a backtest and in a refresh for a day in the past. Today's
refresh shows the newest lists there are, because nothing that exists has seen what comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, StoreError, warn
from trimtab.replay.shop import are_csv, read_files
from trimtab.tables.columns import TRAINED_UNTIL, ColumnMap, own_names
from trimtab.tables.files import is_csv
from trimtab.tables.places import Address, Place, cannot_read
from trimtab.tables.times import (
    as_datetime,
    as_utc,
    day_start,
    local_day,
    microseconds,
    require_zone,
)
from trimtab.tables.vocabulary import is_text

# A day, after which the time of day may follow.
_DATE = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?:\d{2}|\d{4}|\d{6})?(?!\d)")
_PASS_FOLDER = "pass the folder with one file per day"


@dataclass(frozen=True)
class DatedLists:
    """The lists of each day, in the shop's time zone."""

    folder: Place
    days: dict[date, Place]  # ascending
    tz: str
    columns: ColumnMap = field(default_factory=ColumnMap)  # names of columns in the lists
    _seen: dict[date, int | StoreError] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The folder's own name."""
        folder = self.folder
        return (folder if isinstance(folder, Address) else folder.resolve()).name or str(folder)

    def is_csv(self, day: date) -> bool:
        """Return whether a day's lists are a CSV file, or a folder of them."""
        return are_csv(self.days[day])

    def read(self, day: date, wanted: Sequence[str], needed: Sequence[str] = ()) -> pa.Table:
        """Return some columns of a day's lists."""
        return read_files(self.days[day], wanted, needed, self.columns)

    def require_any(self, as_of: date) -> None:
        """Refuse lists that are all of days after this one."""
        if min(self.days) > as_of:
            raise DataError(
                f"{self.folder} has no lists of {as_of} or earlier; the first is {min(self.days)}; "
                f"check as_of="
            )

    def newest(self, as_of: date) -> date:
        """Return the day of the newest lists to show on a day: for a past day, made before it."""
        self.require_any(as_of)
        if as_of >= datetime.now(require_zone(self.tz)).date():
            return max(day for day in self.days if day <= as_of)
        return self.require_before(day_start(as_of, self.tz), as_of, "the day")

    def seen_until(self, day: date) -> int:
        """Return the instant up to which the engine behind a day's lists may have seen events.

        That is what the lists' column `trained_until` says, where a day means the end of that day;
        without the column, the end of the lists' own day.

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

    def _read_seen_until(self, day: date) -> int:
        table = self.read(day, (TRAINED_UNTIL,))
        if TRAINED_UNTIL not in table.column_names or len(table) == 0:
            return day_start(day + timedelta(1), self.tz)
        column, name = table[TRAINED_UNTIL], own_names(table).get(TRAINED_UNTIL, TRAINED_UNTIL)
        stamps, _ = as_utc(column, self.tz, f"the lists of {day}", name)
        last = int(microseconds(stamps).max())
        if _are_days(column):
            return day_start(local_day(last, self.tz) + timedelta(1), self.tz)
        return last

    def newest_before(self, instant: int, as_of: date) -> date | None:
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
                if day_start(day, self.tz) < instant:
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

    def require_before(self, instant: int, as_of: date, what: str = "the window") -> date:
        """Return the day that `newest_before` finds; refuse if all lists have seen what begins."""
        day = self.newest_before(instant, as_of)
        if day is None:
            raise RefusedError(
                f"all lists in {self.folder} ({self._range()}) may have seen {what}, which begins "
                f"at {_minute(instant)}; keep the lists of earlier days, or add a column "
                f"'{TRAINED_UNTIL}' to the lists"
            )
        return day

    def _range(self) -> str:
        return f"{min(self.days)} to {max(self.days)}, {len(self.days)} days"

    def first_days(self, last: date) -> Iterator[date]:
        """Yield the first day that each day's lists can be shown on, up to `last`, newest first."""
        for day in reversed([day for day in self.days if day <= last]):
            first = max(day, local_day(self.seen_until(day) - 1, self.tz) + timedelta(1))
            if first <= last:
                yield first

    def describe(self, as_of: date | None = None) -> dict[str, Any]:
        """Return the folder, its days and a hash of its files, up to a day."""
        days = [day for day in self.days if as_of is None or day <= as_of]
        digest = hashlib.sha256()
        for line in chain.from_iterable(_identify(self.days[day]) for day in days):
            digest.update(line.encode())
        span = {"first": str(days[0]), "last": str(days[-1])} if days else {}
        files = digest.hexdigest()[:16]
        return {"kind": "lists", "folder": self.name, "days": len(days), **span, "files": files}


def find_lists(folder: Place, tz: str, columns: ColumnMap | None = None) -> DatedLists:
    """Return the lists in a folder, by the day in their names.

    A day's lists are a file like `2026-11-01.parquet` or `lists-20261101.csv.gz`, or a folder of
    Parquet or CSV files like `date=2026-11-01`. Names that begin with a dot or an underscore are
    ignored.
    """
    if folder.is_file():
        raise StoreError(f"{folder} is a file; {_PASS_FOLDER}")
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; {_PASS_FOLDER}")
    days: dict[date, Place] = {}
    entries: list[Place] = [*folder.iterdir()]
    for entry in sorted(entries, key=lambda entry: entry.name):
        day = _day_of(entry)
        if day is None:
            continue
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


def _day_of(entry: Place) -> date | None:
    if entry.name[0] in "._":
        return None
    if not (is_csv(entry) or entry.name.lower().endswith(".parquet") or entry.is_dir()):
        return None
    for found in _DATE.finditer(entry.name):
        with contextlib.suppress(ValueError):
            return date(*map(int, found.groups()))
    return None


def _are_days(column: pa.ChunkedArray) -> bool:
    """Return whether a column gives whole days, not instants."""
    if not is_text(column.type):
        return bool(pa.types.is_date(column.type))
    return bool(pc.all(pc.equal(pc.utf8_length(column), len("2026-11-01"))).as_py())


def _minute(instant: int) -> str:
    return f"{as_datetime(instant):%Y-%m-%d %H:%M} UTC"


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
