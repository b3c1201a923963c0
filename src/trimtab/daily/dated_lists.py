"""Dated lists: one file or partition per day, and which of them were made before a window."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, StoreError, warn
from trimtab.tables.columns import TRAINED_UNTIL, ColumnMap, own_names
from trimtab.tables.files import is_csv, read_table
from trimtab.tables.places import Place
from trimtab.tables.times import as_datetime, as_utc, day_start, local_day, microseconds

_DATE = re.compile(
    r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?:\d{2}|\d{4}|\d{6})?(?!\d)"
)  # an hour may follow
_PASS_FOLDER = "pass the folder with one file per day"


@dataclass(frozen=True)
class DatedLists:
    """The lists of each day, in the shop's time zone."""

    folder: Place
    days: dict[date, Place]  # ascending
    tz: str
    columns: ColumnMap = field(default_factory=ColumnMap)  # names of columns in the lists
    _seen: dict[date, int] = field(default_factory=dict, repr=False, compare=False)

    def newest(self, as_of: date) -> date:
        """Return the newest day with lists, up to `as_of`."""
        found = [day for day in self.days if day <= as_of]
        if not found:
            raise DataError(
                f"{self.folder} has no lists of {as_of} or earlier; the first is {min(self.days)}; "
                f"check --as-of"
            )
        return found[-1]

    def seen_until(self, day: date) -> int:
        """Return the instant up to which the engine behind a day's lists may have seen events.

        That is what the lists' column `trained_until` says, where a day means the end of that day;
        without the column, the end of the lists' own day.
        """
        if day not in self._seen:  # each file is read once, for any number of windows
            self._seen[day] = self._read_seen_until(day)
        return self._seen[day]

    def _read_seen_until(self, day: date) -> int:
        table = read_table(self.days[day], (TRAINED_UNTIL,), columns=self.columns)
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
            try:
                seen = self.seen_until(day)
            except StoreError as error:
                if day_start(day, self.tz) < instant:
                    raise
                warn(f"lists of {day} are skipped; they are not needed: {error}")
                continue
            if seen <= instant:
                return day
        return None

    def require_unseen(self, day: date, instant: int) -> None:
        """Refuse lists that do not exist, or whose engine has seen the window."""
        if day not in self.days:
            raise DataError(f"{self.folder} has no lists of {day}; it has {self._range()}")
        seen = self.seen_until(day)
        if seen > instant:
            raise RefusedError(
                f"lists of {day} may have seen events until {_minute(seen)}, but the window begins "
                f"at {_minute(instant)}; learn from lists made before the window"
            )

    def all_have_seen(self, instant: int) -> RefusedError:
        """Return the error for a window that no lists were made before."""
        return RefusedError(
            f"all lists in {self.folder} ({self._range()}) may have seen the window, which begins "
            f"at {_minute(instant)}; keep the lists of earlier days, or add a column "
            f"'{TRAINED_UNTIL}' to the lists"
        )

    def _range(self) -> str:
        return f"{min(self.days)} to {max(self.days)}, {len(self.days)} days"


def find_lists(folder: Place, tz: str, columns: ColumnMap | None = None) -> DatedLists:
    """Return the lists in a folder, by the day in their names.

    A day's lists are a file like `2026-11-01.parquet` or `lists-20261101.csv.gz`, or a folder of
    Parquet files like `date=2026-11-01`. Names that begin with a dot or an underscore are ignored.
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
    if entry.name[0] in "._" or not (_is_table_file(entry) or entry.is_dir()):
        return None
    for found in _DATE.finditer(entry.name):
        with contextlib.suppress(ValueError):
            return date(*map(int, found.groups()))
    return None


def _is_table_file(entry: Place) -> bool:
    return is_csv(entry) or entry.name.lower().endswith(".parquet")


def _are_days(column: pa.ChunkedArray) -> bool:
    """Return whether a column gives whole days, not instants."""
    if pa.types.is_date(column.type):
        return True
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return bool(pc.all(pc.equal(pc.utf8_length(column), len("2026-11-01"))).as_py())


def _minute(instant: int) -> str:
    return f"{as_datetime(instant):%Y-%m-%d %H:%M} UTC"
