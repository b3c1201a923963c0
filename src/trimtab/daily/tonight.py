"""Tonight's lists: the newest, ranked by biases or by a reranker, and checked before publishing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.checks import require_columns
from trimtab.daily.concentration import Concentration, Shown
from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.large_lists import DayLists, LargeLists, some_lists, without_rows
from trimtab.daily.list_checks import warn_if_same
from trimtab.daily.publish_checks import require_similar_lists
from trimtab.daily.training_tables import ShopData, read_lists
from trimtab.errors import DataError, warn
from trimtab.models import ItemBias, LeftOut, Model, Ranked, Reranker
from trimtab.models.list_ranking import warn_of
from trimtab.models.model import text_columns
from trimtab.parquet import apply
from trimtab.store.versions import LISTS, TOP
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, ColumnMap, own_names
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.times import as_datetime, day_start


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


class TrainedOn(NamedTuple):
    """What tonight's lists are compared with."""

    lists: DayLists  # the newest that were learned from
    accept_others: bool  # whether tonight's lists may differ much from them
    bought: Concentration  # of the purchases that were learned from
    most: float | None  # share of slots of the ten most shown items; None for the default


class Wanted(NamedTuple):
    """Which lists are published."""

    by_bias: bool  # as ranked by the biases
    finished: bool  # by the biases, if there is no reranker


class RankedTonight(NamedTuple):
    """Tonight's lists as they are published."""

    day: date  # of the engine's lists
    top: pa.Table | Path | None  # by biases, if asked for; a file if they are large
    finished: pa.Table | Path | None  # with what must not be shown left out, if asked for
    left_out: LeftOut  # events that the reranker did not use
    shown: Shown


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

    def rank(
        self, k: int, bias: ItemBias, reranker: Reranker | None, wanted: Wanted, check: TrainedOn
    ) -> RankedTonight:
        """Return the lists as they are published.

        Args:
            k: number of slots.
            bias: learned biases.
            reranker: as learned this morning, if there is one; it finishes the lists.
            wanted: which lists to return besides.
            check: the lists must not differ much from these.
        """
        top, finished, shown, left_out = None, None, None, LeftOut()
        hidden = {"exclude": self.limits.exclude, "allowed": self.limits.allowed}
        if wanted.by_bias:
            top, shown, _ = self._rank(bias, k, check, TOP)
        if reranker is not None:
            known = {"history": self.history, "as_of": self._instant(reranker)}
            finished, shown, left_out = self._rank(reranker, k, check, LISTS, **hidden, **known)
        elif wanted.finished:
            finished, shown, _ = self._rank(bias, k, check, LISTS, **hidden)
        assert shown is not None
        return RankedTonight(self.day, top, finished, left_out, shown)

    def _instant(self, reranker: Reranker) -> datetime:
        # Days of the log may end after those of the shop if its timestamps are whole days.
        return as_datetime(max(day_start(self.as_of, self.tz), reranker.learned_until))

    def _rank(
        self, model: Model, k: int, check: TrainedOn, name: str, **options: Any
    ) -> tuple[pa.Table | Path, Shown, LeftOut]:
        """Return the top k of all lists, in memory or in a file of the given name, after checks."""
        options["duplicates"] = self.duplicates

        def rank(lists: pa.Table, k: int) -> Ranked:
            ranked = model.rank(lists, k, **options)
            warn_of(model, ranked, k, None, of_later=False)
            return ranked

        some, n_users = some_lists(self.listed)
        ranked = rank(some, k)
        top = ranked.top
        self._require_rows(top.num_rows)
        if not check.accept_others:
            trained, usual = some_lists(check.lists)
            require_similar_lists(
                model.item_bias, (some, self.day), top, trained, self.duplicates,
                lambda lists, k: rank(lists, k).top, (n_users, usual),
            )  # fmt: skip
        shared = {name: own for name, own in options.items() if name not in ("history", "as_of")}
        shown = Shown.measure(model.item_bias, some, top, k, check.bought, **shared)
        shown.require_below(check.most, self.day)
        if isinstance(self.listed, LargeLists):
            path = self.room / name
            done = apply(model, self.listed.rows, path, k, **options)
            return path, shown, done.left_out
        return top, shown, ranked.left_out

    def _require_rows(self, n_rows: int) -> None:
        if n_rows == 0:
            raise DataError(
                f"lists of {self.day}: exclude and allowed leave nothing to show; check these files"
            )


def read_tonight(
    lists: DatedLists, data: ShopData, bias: ItemBias, limits: Limits, duplicates: str,
    room: Path,
) -> Tonight:  # fmt: skip
    """Read the newest lists; warn if they are old, or the same as those before them.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        bias: whose item ids decide what numbers in CSV files are.
        limits: what must not be shown.
        duplicates: what to do with repeated rows.
        room: folder for temporary files.
    """
    newest, text = lists.newest(data.as_of), text_columns(bias)
    if newest < data.as_of - timedelta(1):
        warn(
            f"the newest lists, of {newest}, are {(data.as_of - newest).days} days older than "
            f"as_of={data.as_of}; re-ranking them anyway; check why newer ones are missing"
        )
    warn_if_same(lists, newest)
    (listed,), matched = read_lists(lists, [newest], data, text, room=room)
    history = matched.log.events.select([USER, ITEM, TIMESTAMP])
    from_csv = (is_csv(lists.days[newest]), data.from_csv[0], *limits.from_csv)
    found, history, exclude, allowed = match_id_types(
        [without_rows(listed), history, limits.exclude, limits.allowed], from_csv, text
    )
    limits = Limits(exclude, allowed, limits.from_csv)
    listed = listed if isinstance(listed, LargeLists) else found
    return Tonight(listed, newest, data.as_of, data.log.tz, history, limits, duplicates, room)
