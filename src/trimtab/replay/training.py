"""What is learned from on a morning: purchases in windows, and lists made before each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError, warn
from trimtab.from_parts import fit_tables
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias
from trimtab.parts.files import open_files
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.large_lists import (
    LIST_COLUMNS,
    DayLists,
    LargeLists,
    StackedLists,
    widen_lists,
    without_rows,
)
from trimtab.replay.leaked_lists import leave_out_leaked
from trimtab.replay.shop import ShopData
from trimtab.replay.windows import HOLE, Window, find_holes, rows_of_users, stack_windows
from trimtab.tables.columns import CATEGORY, ITEM, USER, WINDOW, Table, own_names, require_numbers
from trimtab.tables.files import match_id_types
from trimtab.tables.log import Log
from trimtab.tables.rows import Rows, TableRows

Learner = BiasLearner | RerankLearner


@dataclass(frozen=True)
class Training:
    """The tables of a fit; windows, and the days of the lists made before them, newest first."""

    recs: pa.Table | StackedLists
    recent: pa.Table
    history: pa.Table  # events before the newest window
    catalogue: pa.Table | None
    windows: tuple[Window, ...]
    days: tuple[date, ...]  # none if the lists were made by an engine
    newest: DayLists  # the lists made before the newest window

    @staticmethod
    def stack(
        windows: Sequence[Window], recs: Sequence[DayLists], log: Log,
        catalogue: pa.Table | None = None, days: Sequence[date] = (),
    ) -> Training:  # fmt: skip
        """Return windows as one table each; of earlier ones, only the lists of their buyers.

        Args:
            windows: newest first.
            recs: lists made before each window.
            log: events.
            catalogue: item_id, category; that of the log by default.
            days: of the lists.
        """
        bought = [window.events(log) for window in windows]
        stacked: Any
        if any(isinstance(own, LargeLists) for own in recs):
            labels = [str(window.first) for window in windows] if len(windows) > 1 else None
            stacked = StackedLists(recs, labels)
            _, recent = stack_windows(windows, [without_rows(own) for own in recs], bought)
        else:
            stacked, recent = stack_windows(windows, recs, bought)
        items = log.catalogue() if catalogue is None else catalogue
        history = windows[0].history(log)
        return Training(stacked, recent, history, items, tuple(windows), tuple(days), recs[0])

    def lists_of(self, window: Window) -> pa.Table:
        """Return the lists made before one of the windows."""
        recs: Any = self.recs
        if len(self.windows) == 1:
            return recs
        return recs.filter(pc.equal(recs[WINDOW], str(window.first))).drop_columns([WINDOW])

    def fit(
        self, learner: Learner, duplicates: str = "error", room: Path | None = None,
        start: ItemBias | None = None,
    ) -> Any:  # fmt: skip
        """Return the model that a learner learns.

        Args:
            learner: settings.
            duplicates: what to do with repeated rows.
            room: folder for temporary files, if lists are too large for memory.
            start: biases to start from.
        """
        known: dict[str, Any] = {}
        if learner.biases.is_hierarchy:
            known = {"history": self.history, "items": self.catalogue}
        if isinstance(self.recs, StackedLists):
            return self._fit_large(learner, self.recs, known, duplicates, room, start)
        if start is not None:
            known["start"] = start
        return learner.fit(self.recs, self.recent, duplicates=duplicates, **known)

    def _fit_large(
        self, learner: Learner, recs: StackedLists, known: dict[str, Any], duplicates: str,
        room: Path | None, start: ItemBias | None,
    ) -> Any:  # fmt: skip
        lists = {f"recs {n}" if n else "recs": _rows(own) for n, own in enumerate(recs.lists)}
        others = {"recent": self.recent, **known}
        if (items := others.get("items")) is not None:
            others["items"] = items.select([ITEM, CATEGORY])
        tables = {name: TableRows(own) for name, own in others.items() if own is not None}
        labels = dict(zip(lists, recs.windows or (), strict=False))
        divide = partial(open_files, folder=room)
        return fit_tables(learner, {**lists, **tables}, divide, duplicates, labels, start)


def _rows(lists: DayLists) -> Rows:
    return lists.rows if isinstance(lists, LargeLists) else TableRows(lists)


def read_training(
    lists: DatedLists, data: ShopData, windows: Sequence[Window], *, learn_on: date | None = None,
    text: Sequence[str] = (), accept_leaked: bool = False, room: Path | None = None,
) -> tuple[Training, ShopData]:  # fmt: skip
    """Return what is learned from dated lists, and the shop's data with ids of the lists' kinds.

    Of earlier windows, those with a hole in the log, without lists made before them, or with lists
    that seem to have seen them are left out.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        windows: that may be learned from, newest first.
        learn_on: day of the lists of the newest window; None for the newest made before it.
        text: columns of ids that are text.
        accept_leaked: whether to learn also from lists that seem to have seen their window.
        room: folder for temporary files, if large lists may stay in their files.

    Raises:
        RefusedError: all lists have seen the newest window, or seem to have.
    """
    chosen = _choose_lists(lists, windows, data.as_of, learn_on)
    chosen = _leave_out_holes(data.log, chosen, data.as_of)
    kept, days = zip(*chosen, strict=True)
    recs, matched = read_lists(lists, days, data, text, kept, room)
    if not accept_leaked and len(recs) > 1:
        pairs = zip(recs, kept, strict=True)
        looked_at = [_some_of(own, window, matched.log) for own, window in pairs]
        places = leave_out_leaked(matched.log, chosen, looked_at)
        kept, days = zip(*(chosen[place] for place in places), strict=True)
        recs = [recs[place] for place in places]
    return Training.stack(kept, recs, matched.log, matched.catalogue(), days), matched


def _choose_lists(
    lists: DatedLists, windows: Sequence[Window], as_of: date, learn_on: date | None
) -> list[tuple[Window, date]]:
    """Return each window that has lists, with the newest day whose lists were made before it."""
    newest = windows[0]
    lists.require_any(as_of)
    if learn_on is None:
        first = lists.newest_before(newest.start, as_of)
        if first is None:
            raise lists.all_have_seen(newest.start)
    else:
        lists.require_unseen(learn_on, newest.start)
        first = learn_on
    chosen = [(newest, first)]
    for window in windows[1:]:
        day = lists.newest_before(window.start, as_of)
        if day is None:
            break
        chosen.append((window, day))
    return chosen


def _leave_out_holes(
    log: Log, chosen: Sequence[tuple[Window, date]], as_of: date
) -> list[tuple[Window, date]]:
    """Return the newest window and the earlier ones without a hole, and say which are left out."""
    newest, *earlier = chosen
    kept = [newest]
    for window, day in earlier:
        holes = find_holes(log, window, as_of)
        if holes:
            warn(f"the window from {window.first} on is left out: {holes[0]}: {HOLE}")
        elif window.events(log).num_rows:
            kept.append((window, day))
    return kept


def _some_of(lists: DayLists, window: Window, log: Log) -> pa.Table:
    """Return the lists, or those of some of the window's buyers if they are large."""
    if not isinstance(lists, LargeLists):
        return lists
    return lists.of_some(pc.unique(window.events(log)[USER]))


def read_lists(
    lists: DatedLists, days: Sequence[date], data: ShopData, text: Sequence[str] = (),
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
    may_stay = room is not None
    tables = [_read_day(lists, day, may_stay) for day in days[:1]]
    for place, day in enumerate(days[1:], start=1):
        found = _read_day(lists, day, may_stay)
        tables.append(_lists_of(found, windows[place].events(data.log), room) if windows else found)
    from_csv = [lists.is_csv(day) for day in days]
    log, (events_csv, items_csv) = data.log, data.from_csv
    *matched, events, known, items = match_id_types(
        [*(without_rows(table) for table in tables), log.events, log.items, data.items],
        [*from_csv, events_csv, items_csv, items_csv],
        text,
    )
    _require_one_kind(lists, days, matched)
    for day, table in zip(days, matched, strict=True):
        require_numbers(Table(str(lists.days[day]), table, None, False, own_names(table)))
    tables = [
        own if isinstance(own, LargeLists) else table
        for own, table in zip(tables, matched, strict=True)
    ]
    return tables, replace(data, log=replace(log, events=events, items=known), items=items)


def _lists_of(lists: DayLists, buyers: pa.Table, room: Path | None) -> DayLists:
    """Return the lists of the users who bought something."""
    if not isinstance(lists, LargeLists):
        return rows_of_users(lists, buyers)
    assert room is not None
    number = len(list(room.iterdir()))
    return lists.keep_users(pc.unique(buyers[USER]), room / f"lists-{number}.parquet")


def _require_one_kind(lists: DatedLists, days: Sequence[date], tables: list[pa.Table]) -> None:
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


def _read_day(lists: DatedLists, day: date, may_stay: bool) -> DayLists:
    large = LargeLists.open(lists, day) if may_stay else None
    if large is not None:
        return large
    table = lists.read(day, LIST_COLUMNS, LIST_COLUMNS)
    if table.num_rows == 0:
        raise DataError(f"{lists.days[day]} has no rows; write the day's lists again, or delete it")
    return widen_lists(table)
