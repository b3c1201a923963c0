"""A date: the lists that were made before it, and what a model shows of them.

Lists are made by an engine that is trained anew on the events before an instant, or are the newest
of one's own that had not seen it; a `Case` has both for one date.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
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
from trimtab.replay.windows import (
    Split,
    Window,
    default_test,
    event_times,
    log_days,
    rows_of_users,
    split_log,
)
from trimtab.tables.columns import ITEM, USER, ColumnMap, GivenColumns
from trimtab.tables.log import Log
from trimtab.tables.places import as_place
from trimtab.tables.times import (
    DAY,
    HOUR,
    MINUTE,
    Moment,
    duration_name,
    local_day,
    spoken_duration,
)
from trimtab.tables.vocabulary import Vocabulary, id_column

# Times between dates that are judged by default, and how far back; of windows shorter than a day
_EVERY, _BACK = 7 * DAY, 8 * 7 * DAY
_SHORT_EVERY, _SHORT_BACK = 2 * HOUR, DAY


# Lists of one's own engine ----------------------------------------------------------------------


@dataclass(frozen=True)
class DatedFolder(DatedLists):
    """A folder of dated lists, and the shop's log."""

    _: KW_ONLY
    data: ShopData
    source: Mapping[str, Any]  # the arguments of `open_lists`, which a `Refresh` has too
    _last_read: dict[Moment, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @property
    def log(self) -> Log:
        """The log, with ids of the lists' kinds."""
        return self.data.log

    def find(self, instant: int, as_of: Moment, users: Any | None) -> pa.Table:
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

    def require_lists(self, as_of: Moment, length: int) -> None:
        """Refuse a date without lists made before its recent window."""
        try:
            window = Window.before(as_of, length, self.log.tz)
            self.require_before(window.start, as_of)
        except RefusedError as error:
            raise DataError(f"date={as_of}: {error}") from error

    def recent_dates(
        self, length: int, test: int | None = None, every: int | None = None
    ) -> list[Moment]:
        """Return the dates of the last weeks that lists and log cover, in order.

        A date has lists made right before it and lists made before its recent window, and the log
        has all of its test. With windows shorter than a day dates are times of the last day.

        Args:
            length: of the recent window before a date.
            test: length of the test, starting on a date; None for the default.
            every: shortest time between two dates; None for a week, or two hours.

        Raises:
            DataError: there is no such date.
        """
        test, short = test or default_test(length), length < DAY
        every = every or (_SHORT_EVERY if short else _EVERY)
        step, back = (timedelta(microseconds=n) for n in (every, _SHORT_BACK if short else _BACK))
        found: list[Moment] = []
        for day in self._times(test, every) if short else self._days(test):
            if found and day <= found[0] - back:
                break
            if found and day > found[-1] - step:
                continue
            if self._can_be_judged(day, length, test):
                found.append(day)
        return self._in_order(found, "date to judge", length, f"{spoken_duration(test)} from it on")

    def _days(self, test: int) -> Iterator[Moment]:
        """Yield the days on which lists can first be shown and judged, newest first."""
        return self.first_days(log_days(self.log)[1] - timedelta(days=-(-test // DAY) - 1))

    def _times(self, test: int, apart: int) -> Iterator[Moment]:
        """Yield times that can be judged, newest first, until the log begins."""
        times = event_times(self.log)
        last = (int(times[-1]) // MINUTE + 1) * MINUTE - test
        return (Moment.at(at, self.log.tz) for at in range(last, int(times[0]), -apart))

    def mornings(self, most: int, length: int, every: int) -> list[Moment]:
        """Return the last mornings with lists to re-rank and lists to learn from, in order.

        The last of them is the one after the newest lists, or the log's last but one day; or a time
        of day, if they are less than a day apart.

        Args:
            most: most mornings.
            length: of the daily job's windows.
            every: time between two mornings.
        """
        days = self.first_days(log_days(self.log)[1] - timedelta(days=1))
        day = next(days if every >= DAY else self._times(every, every), None)
        found: list[Moment] = []
        while day is not None and len(found) < most and self._can_learn(day, length):
            found.append(day)
            day -= timedelta(microseconds=every)
        return self._in_order(found, "morning to replay", length, "two days from it on")

    def _can_be_judged(self, day: Moment, length: int, test: int) -> bool:
        try:
            split_log(self.log, day, *map(duration_name, (length, test)))
        except DataError:  # nothing was bought
            return False
        return self._can_learn(day, length)

    def _can_learn(self, day: Moment, length: int) -> bool:
        window = Window.before(day, length, self.log.tz)
        has_lists = self.newest_before(window.start, day) is not None
        return has_lists and window.history(self.log).num_rows > 0

    def _in_order(self, found: list[Moment], what: str, length: int, after: str) -> list[Moment]:
        if not found:
            listed, (first, last) = list(self.days), log_days(self.log)
            raise DataError(
                f"{self.folder} ({listed[0]} to {listed[-1]}) and the events ({first} to "
                f"{last}) leave no {what}: it needs lists made before it, lists made "
                f"{spoken_duration(length)} earlier, and events of {after}; add older lists or "
                f"newer events"
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
