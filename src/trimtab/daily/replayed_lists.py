"""Dated lists in a replay of the daily job: which of them exist on a morning."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from trimtab.daily.dated_folder import DatedFolder
from trimtab.daily.dated_lists import find_lists
from trimtab.daily.training_tables import read_lists
from trimtab.errors import DataError, StoreError
from trimtab.tables.columns import TRAINED_UNTIL
from trimtab.tables.files import write_table
from trimtab.tables.log import Window, event_times
from trimtab.tables.places import Address
from trimtab.tables.times import day_start, local_day


@dataclass(frozen=True)
class ReplayedLists:
    """Dated lists that appear in the job's folder morning by morning.

    Lists exist on a morning if they are of that day or earlier and have seen nothing of the day:
    those of the day itself only if their column `trained_until` says so.
    """

    folder: DatedFolder

    def mornings(self, most: int, recent_days: int) -> list[date]:
        """Return the last mornings with lists to re-rank and lists to learn from, in order.

        The last of them is the one after the newest lists, or the log's last but one day.

        Args:
            most: most mornings.
            recent_days: length of the job's windows.
        """
        log = self.folder.log
        last = local_day(event_times(log)[-1], log.tz) - timedelta(1)
        day = next(self.folder.days_after(last), None)
        found: list[date] = []
        while day is not None and len(found) < most and self._can_learn(day, recent_days):
            found.append(day)
            day -= timedelta(1)
        if not found:
            raise DataError(
                f"{self.folder.lists.folder} and the events, until {last + timedelta(1)}, leave no "
                f"morning to replay: it needs lists made before it, and lists made {recent_days} "
                f"days earlier; add older lists or newer events"
            )
        return found[::-1]

    def _can_learn(self, day: date, recent_days: int) -> bool:
        window = Window.of(day - timedelta(recent_days), recent_days, self.folder.log.tz)
        has_lists = self.folder.lists.newest_before(window.start, day) is not None
        return has_lists and window.history(self.folder.log).num_rows > 0

    def put_into(self, place: Path, morning: date) -> None:
        """Put the lists that exist on a morning into the job's folder, those that are not there.

        Files that the job can read are linked. Lists at other places, or with own names of columns,
        are written as the job reads them.
        """
        lists, start = self.folder.lists, day_start(morning, self.folder.log.tz)
        place.mkdir(parents=True, exist_ok=True)
        there = find_lists(place, lists.tz).days if any(place.iterdir()) else {}
        for day, path in lists.days.items():
            if day > morning or day in there or lists.seen_until(day) > start:
                continue
            if isinstance(path, Address) or lists.columns.own:
                self._write(day, place / f"{day}.parquet")
            else:
                _link(path, place / path.name)

    def _write(self, day: date, path: Path) -> None:
        (table,), _ = read_lists(self.folder.lists, [day], self.folder.data)
        until = pa.scalar(self.folder.lists.seen_until(day), pa.timestamp("us", tz="UTC"))
        seen = pa.repeat(until, table.num_rows)
        write_table(table.append_column(TRAINED_UNTIL, seen), path)

    def read(self, morning: date) -> pa.Table:
        """Return the newest lists that exist on a morning."""
        log, lists = self.folder.log, self.folder.lists
        day = lists.newest_before(day_start(morning, log.tz), morning)
        assert day is not None, "a morning that can be replayed has lists"
        (table,), _ = read_lists(lists, [day], self.folder.data)
        return table

    def items(self) -> pa.Table:
        """Return the items as the shop has them, with those that were never sold."""
        given = self.folder.data.items
        return self.folder.log.items if given is None else given


def _link(path: Path, to: Path) -> None:
    """Link a file or folder; copy it where the file system has no links."""
    try:
        to.symlink_to(path.resolve(), path.is_dir())
    except OSError:
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        try:
            copy(path, to)
        except OSError as error:
            raise StoreError(f"cannot copy {path} to {to}: {error.strerror or error}") from error
