"""Tonight's lists: the newest, ranked by what was learned, and checked before publishing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.daily.concentration import Concentration, Shown
from trimtab.daily.publish_checks import require_similar_lists, warn_if_same
from trimtab.errors import DataError, warn
from trimtab.models import LeftOut, Model, Ranked
from trimtab.models.model import text_columns
from trimtab.parquet import apply
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.large_lists import (
    DayLists,
    LargeLists,
    read_lists,
    some_lists,
    without_rows,
)
from trimtab.replay.outcome import events_as_of, rank_as_of
from trimtab.replay.shop import ShopData
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, WEIGHT, ColumnMap, own_names
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.times import day_start


@dataclass(frozen=True)
class Limits:
    """What must not be shown, as far as a shop says so."""

    exclude: pa.Table | None  # user_id, item_id
    allowed: pa.Table | None  # item_id
    from_csv: tuple[bool, bool]  # numbers in CSV may be text ids

    @staticmethod
    def read(
        exclude: str | Path | None, allowed: str | Path | None, columns: ColumnMap | None = None
    ) -> Limits:
        """Read both files, if they are given."""
        paths = (exclude, allowed)
        tables = [None if path is None else read_table(path, columns=columns) for path in paths]
        for path, table, needed in zip(paths, tables, ((USER, ITEM), (ITEM,)), strict=True):
            if table is not None:
                require_columns(str(path), table.column_names, needed, own_names(table))
        first, second = (path is not None and is_csv(path) for path in paths)
        return Limits(tables[0], tables[1], (first, second))


class Usual(NamedTuple):
    """What tonight's lists are compared with."""

    trained: DayLists | None  # the newest that were learned from; None if others are accepted
    bought: Concentration  # of the purchases that were learned from
    most: float | None  # share of slots of the ten most shown items; None for the default


class Published(NamedTuple):
    """Tonight's lists as they are published."""

    top: pa.Table | Path  # a file if they are large
    shown: Shown
    left_out: LeftOut  # events that were not used


@dataclass(frozen=True)
class Tonight:
    """The newest lists up to a day, and what is known that morning."""

    listed: DayLists
    day: date  # of the lists
    as_of: date
    tz: str
    history: pa.Table  # all events before as_of
    limits: Limits
    duplicates: str
    room: Path  # for lists that are too large for memory

    def rank(self, model: Model, k: int, usual: Usual, name: str, finish: bool) -> Published:
        """Return the top k of all lists after checks.

        Args:
            model: what was learned.
            k: number of slots.
            usual: the lists must not differ much from this.
            name: of the file, if lists are large.
            finish: whether to leave out what must not be shown.
        """
        hidden = {"exclude": self.limits.exclude, "allowed": self.limits.allowed}
        options: dict[str, Any] = {"duplicates": self.duplicates, **(hidden if finish else {})}
        instant = day_start(self.as_of, self.tz)

        def rank(lists: pa.Table, k: int) -> Ranked:
            return rank_as_of(model, lists, k, self.history, instant, of_later=False, **options)

        some, n_users = some_lists(self.listed)
        ranked = rank(some, k)
        if ranked.top.num_rows == 0:
            raise DataError(
                f"lists of {self.day}: exclude and allowed leave nothing to show; check these files"
            )
        if usual.trained is not None:
            trained, n_usual = some_lists(usual.trained)
            require_similar_lists(
                model, (some, self.day), ranked.top, trained, self.duplicates,
                lambda lists, k: rank(lists, k).top, (n_users, n_usual),
            )  # fmt: skip
        shown = Shown.measure(model, some, ranked.top, k, usual.bought, **options)
        shown.require_below(usual.most, self.day)
        if not isinstance(self.listed, LargeLists):
            return Published(ranked.top, shown, ranked.left_out)
        known = events_as_of(model, self.history, instant)
        path = self.room / name
        done = apply(model, self.listed.rows, path, k, **options, **known)
        return Published(path, shown, done.left_out)


def read_tonight(
    lists: DatedLists, data: ShopData, model: Model, limits: Limits, duplicates: str, room: Path
) -> Tonight:
    """Read the newest lists; warn if they are old, or the same as those before them.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        model: whose item ids decide what numbers in CSV files are.
        limits: what must not be shown.
        duplicates: what to do with repeated rows.
        room: folder for temporary files.
    """
    newest, text = lists.newest(data.as_of), text_columns(model.item_bias)
    if newest < data.as_of - timedelta(1):
        warn(
            f"the newest lists, of {newest}, are {(data.as_of - newest).days} days older than "
            f"as_of={data.as_of}; re-ranking them anyway; check why newer ones are missing"
        )
    warn_if_same(lists, newest)
    (listed,), matched = read_lists(lists, [newest], data, text, room=room)
    events = matched.log.events
    known = (USER, ITEM, TIMESTAMP, WEIGHT)
    history = events.select([name for name in known if name in events.column_names])
    from_csv = (lists.is_csv(newest), data.from_csv[0], *limits.from_csv)
    found, history, exclude, allowed = match_id_types(
        [without_rows(listed), history, limits.exclude, limits.allowed], from_csv, text
    )
    limits = Limits(exclude, allowed, limits.from_csv)
    listed = listed if isinstance(listed, LargeLists) else found
    return Tonight(listed, newest, data.as_of, data.log.tz, history, limits, duplicates, room)
