"""Dated lists in a backtest: found by date as the daily job finds them, and the dates to judge.

Lists count as made before an instant as in the daily job: by their column `trained_until`, or
without it by the end of their own day. So the lists that a date is judged with are those of the day
before it, unless newer ones say that they have not seen it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.daily.dated_lists import DatedLists, find_lists
from trimtab.daily.refresh import Refresh
from trimtab.daily.training_tables import ShopData, read_lists, read_shop_data
from trimtab.errors import DataError
from trimtab.experiments.list_makers import SuppliedLists
from trimtab.experiments.plan import Plan, make_lists_plan
from trimtab.experiments.timeline import split_log
from trimtab.tables.columns import USER, ColumnMap, GivenColumns
from trimtab.tables.log import Log, Window, event_times, rows_of_users
from trimtab.tables.places import Address, Place, as_place, cannot_read
from trimtab.tables.times import day_start, local_day

WEEKS = 8  # that are judged by default, back from the newest date
_END = date(9999, 1, 1)  # all events of the log are before it


@dataclass(frozen=True)
class DatedFolder(SuppliedLists):
    """A folder of dated lists, and the shop's log."""

    lists: DatedLists
    data: ShopData

    @property
    def log(self) -> Log:
        """The log, with ids of the lists' kinds."""
        return self.data.log

    def find(self, instant: int, as_of: date, users: Any | None) -> pa.Table:
        """Return the newest lists made before an instant; see `SuppliedLists`."""
        day = self.lists.newest_before(instant, as_of)
        if day is None:
            raise DataError(str(self.lists.all_have_seen(instant)))
        (table,), _ = read_lists(self.lists, [day], self.data)
        if users is None:
            return table
        kept = rows_of_users(table, pa.table({USER: users}))
        if kept.num_rows == 0:
            raise DataError(
                f"{self.lists.days[day]} has no list of any buyer of the days from "
                f"{local_day(instant, self.log.tz)} on; check that lists and events use the same "
                f"user ids"
            )
        return kept

    def describe(self, as_of: date | None = None) -> dict[str, Any]:
        """Return the folder, its days and a hash of its files, up to a day."""
        days = [day for day in self.lists.days if as_of is None or day <= as_of]
        digest = hashlib.sha256()
        for day in days:
            for line in _identify(self.lists.days[day]):
                digest.update(line.encode())
        span = {"first": str(days[0]), "last": str(days[-1])} if days else {}
        files = digest.hexdigest()[:16]
        return {"kind": "lists", "folder": self.name, "days": len(days), **span, "files": files}

    @property
    def name(self) -> str:
        """The folder's own name."""
        folder = self.lists.folder
        return (folder if isinstance(folder, Address) else folder.resolve()).name or str(folder)

    def catalogue(self) -> pa.Table | None:
        """Return item_id, category, as the daily job learns with them."""
        return self.data.catalogue()

    def require_lists(self, as_of: date, recent_days: int) -> None:
        """Refuse a date without lists made before its recent window."""
        if not self._can_learn(as_of, recent_days):
            start = self._recent_window(as_of, recent_days).start
            raise DataError(f"date={as_of}: {self.lists.all_have_seen(start)}")

    def recent_dates(
        self, recent_days: int, test_days: int, every: int, weeks: int = WEEKS
    ) -> list[date]:
        """Return the dates of the last weeks that lists and log cover, in order.

        A date has lists made right before it and lists made before its recent window, and the log
        has all days of its test.

        Args:
            recent_days: days of the recent window before a date.
            test_days: days of the test, starting on a date.
            every: fewest days between two dates.
            weeks: weeks back from the newest date.

        Raises:
            DataError: there is no such date.
        """
        found: list[date] = []
        last = local_day(event_times(self.log)[-1], self.log.tz)
        for day in self.days_after(last - timedelta(test_days - 1)):
            if found and day <= found[0] - timedelta(weeks * 7):
                break
            if found and day > found[-1] - timedelta(every):
                continue
            if self._can_be_judged(day, recent_days, test_days):
                found.append(day)
        if not found:
            raise self._nothing_to_judge(recent_days, test_days)
        return found[::-1]

    def days_after(self, last: date) -> Iterator[date]:
        """Yield the first day after each day's lists were made, up to `last`, newest first."""
        for day in reversed(self.lists.days):
            if day <= last:
                first = max(day, _first_day_from(self.lists.seen_until(day), self.log.tz))
                if first <= last:
                    yield first

    def _can_be_judged(self, day: date, recent_days: int, test_days: int) -> bool:
        if not self._can_learn(day, recent_days):
            return False
        try:
            split_log(self.log, day, recent_days, test_days)
        except DataError:  # nothing was bought
            return False
        return True

    def _can_learn(self, day: date, recent_days: int) -> bool:
        start = self._recent_window(day, recent_days).start
        return self.lists.newest_before(start, day) is not None

    def _recent_window(self, day: date, recent_days: int) -> Window:
        return Window.of(day - timedelta(recent_days), recent_days, self.log.tz)

    def _nothing_to_judge(self, recent_days: int, test_days: int) -> DataError:
        times, listed = event_times(self.log), list(self.lists.days)
        first, last = (local_day(times[end], self.log.tz) for end in (0, -1))
        return DataError(
            f"{self.lists.folder} ({listed[0]} to {listed[-1]}) and the events ({first} to {last}) "
            f"leave no date to judge: it needs lists made before it, lists made {recent_days} days "
            f"earlier, and events of {test_days} days from it on; add older lists or newer events"
        )


def open_lists(
    lists: str | Path, events: str | Path, query: str | None = None, tz: str | None = None,
    items: str | Path | None = None, columns: GivenColumns = None,
) -> DatedFolder:  # fmt: skip
    """Return dated lists and the shop's log, read as `Refresh` reads them.

    Args:
        lists: folder of dated lists, one file or partition per day.
        events: a Parquet file or folder, a CSV file, or the address of a database.
        query: SQL for a database.
        tz: the shop's time zone, if timestamps have none.
        items: file with item_id, and any of `name` and columns that group items.
        columns: names of columns in all these files, like {"user": "customer"}.
    """
    own = ColumnMap.of(columns)
    data = read_shop_data(events, query, tz, items, _END, own)
    data = replace(data, log=replace(data.log, name=as_place(str(events)).name.partition(".")[0]))
    found = find_lists(as_place(lists), data.log.tz, own)
    _, matched = read_lists(found, [max(found.days)], data)
    return DatedFolder(found, replace(matched, from_csv=(False, False)))


def plan_lists(settings: Mapping[str, Any], folder: DatedFolder) -> Plan:
    """Return the plan of a backtest on dated lists; it learns from windows as the daily job does.

    Args:
        settings: as for `make_lists_plan`.
        folder: the lists, and the log.
    """
    return make_lists_plan({"windows": Refresh.windows, **settings}, folder.name, folder)


def _first_day_from(instant: int, tz: str) -> date:
    """Return the first day that begins at an instant or later."""
    day = local_day(instant, tz)
    return day if day_start(day, tz) >= instant else day + timedelta(1)


def _identify(path: Place) -> Iterator[str]:
    """Yield the name, size and time of change of each file of a day's lists."""
    if isinstance(path, Address):
        yield from _identify_remote(path)
        return
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in inside:
        if file.is_file():
            found = file.stat()
            yield f"{file.relative_to(path.parent)} {found.st_size} {found.st_mtime_ns}\n"


def _identify_remote(folder: Address) -> Iterator[str]:
    from pyarrow.fs import FileSelector

    where = FileSelector(folder.path, recursive=True) if folder.is_dir() else [folder.path]
    try:
        found = folder.filesystem.get_file_info(where)
    except (OSError, pa.ArrowException) as error:
        raise cannot_read(folder, error) from error
    files = [(info.path, info.size, info.mtime_ns or 0) for info in found if info.is_file]
    yield from (f"{name} {size} {changed}\n" for name, size, changed in sorted(files))
