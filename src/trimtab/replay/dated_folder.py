"""One's own engine in a replay: its dated lists, and the log; and the dates that they can judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import DataError
from trimtab.replay.dated_lists import DatedLists, find_lists
from trimtab.replay.leaked_lists import LeakedListsError, find_leaks
from trimtab.replay.shop import END, ShopData, read_shop_data
from trimtab.replay.timeline import Split, split_log
from trimtab.replay.training import Training, read_lists, read_training
from trimtab.replay.windows import Window, event_times, rows_of_users
from trimtab.tables.columns import USER, ColumnMap, GivenColumns
from trimtab.tables.log import Log
from trimtab.tables.places import as_place
from trimtab.tables.times import local_day

WEEKS = 8  # that are judged by default, back from the newest date


@dataclass(frozen=True)
class DatedFolder:
    """A folder of dated lists, and the shop's log."""

    lists: DatedLists
    data: ShopData
    source: Mapping[str, Any]  # the arguments of `open_lists`, which a `Refresh` has too
    _last_read: dict[date, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def log(self) -> Log:
        """The log, with ids of the lists' kinds."""
        return self.data.log

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.lists.name

    def describe(self, as_of: date | None = None) -> dict[str, Any]:
        """Return the folder, its days and a hash of its files, up to a day."""
        return self.lists.describe(as_of)

    def find(self, instant: int, as_of: date, users: Any | None) -> pa.Table:
        """Return the newest lists whose engine saw nothing after an instant.

        Args:
            instant: start of a window, in microseconds since 1970.
            as_of: the date that is judged; lists of later days did not exist then.
            users: users to return the lists of; None for all.

        Raises:
            DataError: there are no such lists, or none of these users.
        """
        day = self.lists.newest_before(instant, as_of)
        if day is None:
            raise DataError(str(self.lists.all_have_seen(instant)))
        table = self._read_day(day)
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

    def _read_day(self, day: date) -> pa.Table:
        if day not in self._last_read:
            self._last_read.clear()
            (self._last_read[day],), _ = read_lists(self.lists, [day], self.data)
        return self._last_read[day]

    def read_training(self, as_of: date, windows: list[Window]) -> Training:
        """Return what a refresh for a date would learn from."""
        return read_training(self.lists, self.data.before(as_of), windows)[0]

    def require_unleaked(self, split: Split, training: Training, listed: pa.Table) -> None:
        """Refuse to judge lists that seem to have seen the test.

        Args:
            split: of the date.
            training: windows before the date, and lists that seem honest.
            listed: the lists to judge.
        """
        test = Window(split.as_of, split.test_from, split.test_to)
        recs = [listed, *(training.lists_of(window) for window in training.windows)]
        finding = find_leaks(self.log, [test, *training.windows], recs)[0]
        if finding is not None:
            raise LeakedListsError(
                f"the newest lists made before it hold {finding}; they may have seen the test"
            )

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
        for day in self.lists.first_days(last - timedelta(test_days - 1)):
            if found and day <= found[0] - timedelta(weeks * 7):
                break
            if found and day > found[-1] - timedelta(every):
                continue
            if self._can_be_judged(day, recent_days, test_days):
                found.append(day)
        if not found:
            raise self._nothing_to_judge(recent_days, test_days)
        return found[::-1]

    def mornings(self, most: int, recent_days: int) -> list[date]:
        """Return the last mornings with lists to re-rank and lists to learn from, in order.

        The last of them is the one after the newest lists, or the log's last but one day.

        Args:
            most: most mornings.
            recent_days: length of the daily job's windows.
        """
        last = local_day(event_times(self.log)[-1], self.log.tz) - timedelta(1)
        day = next(self.lists.first_days(last), None)
        found: list[date] = []
        while day is not None and len(found) < most and self._can_learn(day, recent_days):
            found.append(day)
            day -= timedelta(1)
        if not found:
            raise DataError(
                f"{self.lists.folder} and the events, until {last + timedelta(1)}, leave no "
                f"morning to replay: it needs lists made before it, and lists made {recent_days} "
                f"days earlier; add older lists or newer events"
            )
        return found[::-1]

    def _can_be_judged(self, day: date, recent_days: int, test_days: int) -> bool:
        if not self._can_learn(day, recent_days):
            return False
        try:
            split_log(self.log, day, recent_days, test_days)
        except DataError:  # nothing was bought
            return False
        return True

    def _can_learn(self, day: date, recent_days: int) -> bool:
        window = self._recent_window(day, recent_days)
        has_lists = self.lists.newest_before(window.start, day) is not None
        return has_lists and window.history(self.log).num_rows > 0

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
    source = {
        "lists": lists, "events": events, "query": query, "tz": tz, "items": items,
        "columns": columns,
    }  # fmt: skip
    own = ColumnMap.of(columns)
    data = read_shop_data(events, query, tz, items, END, own)
    data = replace(data, log=replace(data.log, name=as_place(str(events)).name.partition(".")[0]))
    found = find_lists(as_place(lists), data.log.tz, own)
    _, matched = read_lists(found, [max(found.days)], data)
    return DatedFolder(found, replace(matched, from_csv=(False, False)), source)
