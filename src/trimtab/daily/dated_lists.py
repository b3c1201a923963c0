"""Dated lists: one file or partition a day, and which of them may teach a window."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, RefusedError, StoreError, warn
from trimtab.tables.files import read_table
from trimtab.tables.timestamps import as_datetime, as_utc, day_start, local_day, microseconds

TRAINED_UNTIL = "trained_until"
_DATE = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?:\d{2}|\d{4}|\d{6})?(?!\d)")  # an hour, too
_KINDS = (".parquet", ".csv")


@dataclass(frozen=True)
class DatedLists:
    """The lists of each day, in the shop's time zone."""

    folder: Path
    days: dict[date, Path]  # ascending
    tz: str

    def newest(self, as_of: date) -> date:
        """The newest lists that are not of the future."""
        found = [day for day in self.days if day <= as_of]
        if not found:
            raise DataError(
                f"{self.folder} has no lists of {as_of} or before, the first are of "
                f"{min(self.days)}; check --as-of"
            )
        return found[-1]

    def seen_until(self, day: date) -> int:
        """The instant before which the lists' engine may have seen events.

        It is what the lists' own column `trained_until` says, a day in it being the end of that
        day; without, the end of the lists' own day.
        """
        column = _read_column(self.days[day], TRAINED_UNTIL)
        if column is None or len(column) == 0:
            return day_start(day + timedelta(1), self.tz)
        stamps, _ = as_utc(column, self.tz, f"the lists of {day}", TRAINED_UNTIL)
        last = int(microseconds(stamps).max())
        if _are_days(column):
            return day_start(local_day(last, self.tz) + timedelta(1), self.tz)
        return last

    def before(self, instant: int, as_of: date) -> date | None:
        """The newest lists whose engine has seen nothing from an instant on; None: there are none.

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
                warn(f"lists that are not needed are left out: {error}")
                continue
            if seen <= instant:
                return day
        return None

    def require_unseen(self, day: date, instant: int) -> None:
        """Refuse lists that do not exist, or whose engine has seen the window."""
        if day not in self.days:
            raise DataError(f"{self.folder} has no lists of {day}; there are {self._range()}")
        seen = self.seen_until(day)
        if seen > instant:
            raise RefusedError(
                f"the lists of {day} may have seen events until {_minute(seen)}, but the window "
                f"begins at {_minute(instant)}: lists that have seen the window teach nothing; use "
                f"earlier ones"
            )

    def refusal(self, instant: int) -> RefusedError:
        """What to say when no lists may teach a window."""
        return RefusedError(
            f"all lists in {self.folder} ({self._range()}) may have seen the window, which begins "
            f"at {_minute(instant)}: lists that have seen it teach nothing; keep the lists of "
            f"earlier days, or say in a column '{TRAINED_UNTIL}' what they were trained on"
        )

    def _range(self) -> str:
        return f"{min(self.days)} to {max(self.days)}, {len(self.days)} days"


def find_lists(folder: Path, tz: str) -> DatedLists:
    """The lists in a folder by the day in their names.

    A day's lists are a file like `2026-11-01.parquet` or `lists-20261101.csv`, or a folder of
    Parquet files like `date=2026-11-01`. Names that begin with a dot or an underscore do not count.
    """
    if folder.is_file():
        raise StoreError(f"{folder} is a file; pass the folder that holds one file a day")
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; pass the folder that holds one file a day")
    days: dict[date, Path] = {}
    for entry in sorted(folder.iterdir()):
        day = _day_of(entry)
        if day is None:
            continue
        if day in days:
            raise DataError(
                f"{folder} has two lists of {day}: {days[day].name} and {entry.name}; keep one"
            )
        days[day] = entry
    if not days:
        raise DataError(
            f"{folder} has no dated lists: name them by day, like 2026-11-01.parquet or "
            f"date=2026-11-01"
        )
    return DatedLists(folder, dict(sorted(days.items())), tz)


def _day_of(entry: Path) -> date | None:
    if entry.name[0] in "._" or not (entry.is_dir() or entry.suffix.lower() in _KINDS):
        return None
    for found in _DATE.finditer(entry.name):
        with contextlib.suppress(ValueError):
            return date(*map(int, found.groups()))
    return None


def _are_days(column: pa.ChunkedArray) -> bool:
    """Whether instants are given as whole days."""
    if pa.types.is_date(column.type):
        return True
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return bool(pc.all(pc.equal(pc.utf8_length(column), len("2026-11-01"))).as_py())


def _read_column(path: Path, column: str) -> pa.ChunkedArray | None:
    """A column of a file; None where there is none."""
    if path.suffix.lower() == ".csv":
        table = read_table(path)
        return table[column] if column in table.column_names else None
    import pyarrow.dataset as ds

    try:
        data = ds.dataset(path, format="parquet", exclude_invalid_files=False)
        if column not in data.schema.names:
            return None
        return data.to_table([column])[column]
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(
            f"{path}: not readable as Parquet ({reason}); write it again as Parquet or CSV"
        ) from error


def _minute(instant: int) -> str:
    return f"{as_datetime(instant):%Y-%m-%d %H:%M} UTC"
