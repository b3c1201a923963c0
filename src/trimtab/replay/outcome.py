"""A date: the lists that were made before it, and what a model shows of them.

Lists are made by an engine that is trained anew on the events before an instant, or are the newest
of one's own that had not seen it; a `Case` has both for one date.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import MOST_K
from trimtab.engines.base import Engine
from trimtab.errors import DataError, RefusedError
from trimtab.learn.personal_units import repeats_own
from trimtab.models import Model
from trimtab.replay.dated_lists import DatedLists, find_lists, read_lists
from trimtab.replay.python_engines import OwnEngine, make_lists
from trimtab.replay.shop import END, ShopData, read_shop_data
from trimtab.replay.training import (
    LeakedListsError,
    Training,
    find_leaks,
    judge,
    rank_as_of,
    read_training,
)
from trimtab.replay.windows import Split, Window, log_days, rows_of_users, split_log
from trimtab.tables.columns import ITEM, USER, ColumnMap, GivenColumns
from trimtab.tables.log import Log
from trimtab.tables.places import as_place
from trimtab.tables.times import local_day
from trimtab.tables.vocabulary import Vocabulary, id_column

WEEKS = 8  # that are judged by default, back from the newest date


# Lists of one's own engine ----------------------------------------------------------------------


@dataclass(frozen=True)
class DatedFolder(DatedLists):
    """A folder of dated lists, and the shop's log."""

    _: KW_ONLY
    data: ShopData
    source: Mapping[str, Any]  # the arguments of `open_lists`, which a `Refresh` has too
    _last_read: dict[date, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def log(self) -> Log:
        """The log, with ids of the lists' kinds."""
        return self.data.log

    def find(self, instant: int, as_of: date, users: Any | None) -> pa.Table:
        """Return the newest lists whose engine saw nothing after an instant.

        Args:
            instant: start of a window, in microseconds since 1970.
            as_of: the date that is judged; lists of later days did not exist then.
            users: users to return the lists of; None for all.

        Raises:
            RefusedError: there are no such lists.
            DataError: there are none of these users.
        """
        day = self.require_before(instant, as_of)
        if day not in self._last_read:
            self._last_read.clear()
            (self._last_read[day],), _ = read_lists(self, [day], self.data)
        table = self._last_read[day]
        if users is None:
            return table
        kept = rows_of_users(table, pa.table({USER: users}))
        if kept.num_rows == 0:
            raise DataError(
                f"{self.days[day]} has no list of any buyer of the days from "
                f"{local_day(instant, self.log.tz)} on; check that lists and events use the same "
                f"user ids"
            )
        return kept

    def require_lists(self, as_of: date, recent_days: int) -> None:
        """Refuse a date without lists made before its recent window."""
        try:
            window = Window.before(as_of, recent_days, self.log.tz)
            self.require_before(window.start, as_of)
        except RefusedError as error:
            raise DataError(f"date={as_of}: {error}") from error

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
        for day in self.first_days(log_days(self.log)[1] - timedelta(test_days - 1)):
            if found and day <= found[0] - timedelta(weeks * 7):
                break
            if found and day > found[-1] - timedelta(every):
                continue
            if self._can_be_judged(day, recent_days, test_days):
                found.append(day)
        return self._in_order(found, "date to judge", recent_days, f"{test_days} days from it on")

    def mornings(self, most: int, recent_days: int) -> list[date]:
        """Return the last mornings with lists to re-rank and lists to learn from, in order.

        The last of them is the one after the newest lists, or the log's last but one day.

        Args:
            most: most mornings.
            recent_days: length of the daily job's windows.
        """
        last = log_days(self.log)[1] - timedelta(1)
        day = next(self.first_days(last), None)
        found: list[date] = []
        while day is not None and len(found) < most and self._can_learn(day, recent_days):
            found.append(day)
            day -= timedelta(1)
        return self._in_order(found, "morning to replay", recent_days, "two days from it on")

    def _can_be_judged(self, day: date, recent_days: int, test_days: int) -> bool:
        try:
            split_log(self.log, day, recent_days, test_days)
        except DataError:  # nothing was bought
            return False
        return self._can_learn(day, recent_days)

    def _can_learn(self, day: date, recent_days: int) -> bool:
        window = Window.before(day, recent_days, self.log.tz)
        has_lists = self.newest_before(window.start, day) is not None
        return has_lists and window.history(self.log).num_rows > 0

    def _in_order(self, found: list[date], what: str, recent_days: int, after: str) -> list[date]:
        if not found:
            listed, (first, last) = list(self.days), log_days(self.log)
            raise DataError(
                f"{self.folder} ({listed[0]} to {listed[-1]}) and the events ({first} to "
                f"{last}) leave no {what}: it needs lists made before it, lists made {recent_days} "
                f"days earlier, and events of {after}; add older lists or newer events"
            )
        return found[::-1]


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
    data = read_shop_data(events, query, tz, items, END, own)
    found = find_lists(as_place(lists), data.log.tz, own)
    _, data = read_lists(found, [max(found.days)], data)
    log = replace(data.log, name=as_place(str(events)).name.partition(".")[0])
    data = replace(data, log=log, from_csv=frozenset())
    names = {"lists": lists, "events": events, "query": query, "tz": tz, "items": items}
    source = {**names, "columns": columns}
    return DatedFolder(found.folder, found.days, found.tz, own, data=data, source=source)


# Cases ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An engine at a date; it makes lists when they are first used."""

    engine: Any
    log: Log
    split: Split
    n_listed: int
    k: int
    earlier: Sequence[Window] = ()  # also learned from by default, newest first

    @functools.cached_property
    def training(self) -> Training:
        """The windows to learn from, each with lists made before it."""
        windows = [self.split.window]
        recs = [self.before_window(self.split.window)]
        for window in self.earlier:
            bought = window.events(self.log)
            try:
                lists = rows_of_users(self.before_window(window, bought[USER]), bought)
            except DataError:  # the log does not reach back far enough for this engine
                break
            if len(lists):
                windows.append(window)
                recs.append(lists)
        return Training.of(windows, recs, self.log)

    def made_before(self, window: Window, engine: Any, users: Any | None = None) -> Any:
        """Return lists that an engine makes right before a window, of all users if None."""
        return make_lists(engine, window.history(self.log), window.start, users, self.n_listed)

    def before_window(self, window: Window, users: Any | None = None) -> Any:
        """Return lists made right before a window that is learned from."""
        return self.made_before(window, self.engine, users)

    @property
    def before(self) -> Any:
        """Lists made before the recent window, to learn on."""
        return self.training.newest

    @functools.cached_property
    def lists(self) -> Any:
        """Lists made at the date for the buyers of the test, to evaluate."""
        return self.lists_of(self.engine)

    def lists_of(self, engine: Engine | OwnEngine) -> Any:
        """Return lists of another engine at the date, for the same users."""
        return self.made_before(self.split.test_window, engine, self.split.test[USER])

    @functools.cached_property
    def lists_hold_own(self) -> bool:
        """Whether lists hold what their users already have, by the Reranker's rule."""
        found = judge(self.lists, self.split.known.select([USER, ITEM]), MOST_K)
        n_users = np.count_nonzero(np.diff(found.bought.indptr))
        buyers = np.bincount(found.bought.items, minlength=found.n_items)
        by_chance = float(buyers[found.shown].sum()) / n_users
        # ACC times k: entries that the user has
        return repeats_own(MOST_K * float(found.metrics.acc.sum()), by_chance)

    def rank(self, model: Model) -> Any:
        """Return the top k of these lists as a model ranks them on the morning of the date."""
        split, options = self.split, self._options(model)
        return rank_as_of(model, self.lists, self.k, split.known, split.test_from, **options).top

    def _options(self, model: Model) -> dict[str, Any]:
        return {"depth": None if model.item_bias.depth is None else self.n_listed}


class DatedCase(Case):
    """Dated lists at a date: what a refresh would have learned from them, and shown."""

    @functools.cached_property
    def training(self) -> Training:
        """The windows to learn from, each with lists made before it."""
        data = self.engine.data.before(self.split.as_of)
        return read_training(self.engine, data, [self.split.window, *self.earlier])[0]

    @functools.cached_property
    def lists(self) -> Any:
        """The newest lists made before the date, of the buyers of the test.

        Raises:
            LeakedListsError: they seem to have seen the test.
        """
        split, training = self.split, self.training
        lists = self.engine.find(split.test_from, split.as_of, split.test[USER])
        windows = [split.test_window, *training.windows]
        finding = find_leaks(self.log, windows, [lists, *training.recs])[0]
        if finding is not None:
            raise LeakedListsError(
                f"the newest lists made before it hold {finding}; they may have seen the test"
            )
        return lists

    def _options(self, model: Model) -> dict[str, Any]:
        """Return what ranks as if everybody's lists were there, to the model's depth."""
        if not model.needs_events:
            return {}
        every = self.engine.find(self.split.test_from, self.split.as_of, None)
        return {"listed": Vocabulary.encode(id_column("lists", ITEM, every[ITEM]))[0].ids}
