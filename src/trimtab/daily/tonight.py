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

_LIMITS = {"exclude": (USER, ITEM), "allowed": (ITEM,)}  # and the columns that they need


class Finished(NamedTuple):
    """Tonight's lists as they are published."""

    top: pa.Table | Path  # a file if they are large
    shown: Shown
    left_out: LeftOut  # events that were not used


@dataclass(frozen=True)
class Tonight:
    """The newest lists up to a day, and what is known that morning."""

    listed: DayLists
    day: date  # of the lists
    instant: int  # that they are for, in microseconds since 1970
    history: pa.Table  # all events before it
    options: dict[str, Any]  # what must not be shown, and duplicates, as for `Model.rank`
    room: Path  # for lists that are too large for memory

    def rank(
        self, model: Model, k: int, trained: DayLists | None, bought: Concentration
    ) -> Finished:
        """Return the top k of all lists after checks.

        Args:
            model: what was learned.
            k: number of slots.
            trained: the newest lists that were learned from, which these must not differ much
                from; None if others are accepted.
            bought: concentration of the purchases that were learned from.
        """

        def rank(lists: pa.Table, k: int) -> Ranked:
            return rank_as_of(
                model, lists, k, self.history, self.instant, of_later=False, **self.options
            )

        some, n_users = some_lists(self.listed)
        ranked = rank(some, k)
        if ranked.top.num_rows == 0:
            raise DataError(
                f"lists of {self.day}: exclude and allowed leave nothing to show; check these files"
            )
        if trained is not None:
            usual, n_usual = some_lists(trained)
            require_similar_lists(
                model, (some, self.day), ranked.top, usual, self.options["duplicates"],
                lambda lists, k: rank(lists, k).top, (n_users, n_usual),
            )  # fmt: skip
        shown = Shown.measure(model, some, ranked.top, k, bought, **self.options)
        if not isinstance(self.listed, LargeLists):
            return Finished(ranked.top, shown, ranked.left_out)
        known = events_as_of(model, self.history, self.instant)
        path = self.room / "finished.parquet"
        done = apply(model, self.listed.rows, path, k, **self.options, **known)
        return Finished(path, shown, done.left_out)


def read_limits(
    exclude: str | Path | None, allowed: str | Path | None, columns: ColumnMap
) -> dict[str, tuple[pa.Table | None, bool]]:
    """Return what must not be shown and what may be, and whether each is from a CSV file."""
    found = {}
    for (name, needed), path in zip(_LIMITS.items(), (exclude, allowed), strict=True):
        table = None if path is None else read_table(path, columns=columns)
        if table is not None:
            require_columns(str(path), table.column_names, needed, own_names(table))
        found[name] = table, path is not None and is_csv(path)
    return found


def read_tonight(
    lists: DatedLists, data: ShopData, model: Model,
    limits: dict[str, tuple[pa.Table | None, bool]], duplicates: str, room: Path,
) -> Tonight:  # fmt: skip
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
    tables, from_csv = zip(*limits.values(), strict=True)
    found, history, *matching = match_id_types(
        [without_rows(listed), history, *tables],
        (lists.is_csv(newest), data.from_csv[0], *from_csv), text,
    )  # fmt: skip
    options = {"duplicates": duplicates, **dict(zip(limits, matching, strict=True))}
    listed = listed if isinstance(listed, LargeLists) else found
    return Tonight(listed, newest, day_start(data.as_of, data.log.tz), history, options, room)
