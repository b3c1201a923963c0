"""Tonight's lists: the newest, ranked by biases or by a reranker, and checked before publishing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.bias.table import text_columns
from trimtab.checks import require_columns
from trimtab.daily.dated_lists import DatedLists
from trimtab.daily.publish_checks import Rank, require_similar_lists
from trimtab.daily.training_tables import ShopData, read_lists
from trimtab.errors import DataError, warn
from trimtab.rerank import LeftOut, Reranker
from trimtab.tables.column_map import ColumnMap, own_names
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.timestamps import as_datetime, day_start


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
    """The newest lists learned from."""

    lists: pa.Table
    accept_others: bool  # whether tonight's lists may differ much from them


class Wanted(NamedTuple):
    """Which lists are published."""

    by_bias: bool  # as ranked by the biases
    finished: bool  # by the biases, if there is no reranker


class RankedTonight(NamedTuple):
    """Tonight's lists as they are published."""

    day: date  # of the engine's lists
    top: pa.Table | None  # by biases, if asked for
    finished: pa.Table | None  # with what must not be shown left out, if asked for
    left_out: LeftOut  # events that the reranker did not use


@dataclass(frozen=True)
class Tonight:
    """The newest lists up to a day, and what is known that morning."""

    listed: pa.Table
    day: date  # of the lists
    as_of: date
    tz: str
    history: pa.Table  # all events before as_of
    limits: Limits
    duplicates: str

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
        top, finished, left_out = None, None, LeftOut(0, 0, 0)
        if wanted.by_bias:
            top = self._rank_by_bias(bias, k, check)
        if reranker is not None:
            finished, left_out = self._finish(reranker, k, check)
        elif wanted.finished:
            finished = self._require_rows(self._rank_by_bias(bias, k, check, self.limits))
        return RankedTonight(self.day, top, finished, left_out)

    def _rank_by_bias(
        self, bias: ItemBias, k: int, check: TrainedOn, limits: Limits | None = None
    ) -> pa.Table:
        hidden: dict[str, Any] = {}
        if limits is not None:
            hidden = {"exclude": limits.exclude, "allowed": limits.allowed}

        def rank(lists: pa.Table, k: int) -> pa.Table:
            return bias.apply(lists, k, duplicates=self.duplicates, **hidden)

        top = rank(self.listed, k)
        self._require_similar(bias, top, check, rank)
        return top

    def _require_rows(self, finished: pa.Table) -> pa.Table:
        if finished.num_rows == 0:
            raise DataError(
                f"lists of {self.day}: exclude and allowed leave nothing to show; check these files"
            )
        return finished

    def _finish(self, reranker: Reranker, k: int, check: TrainedOn) -> tuple[pa.Table, LeftOut]:
        # Days of the log may end after those of the shop if its timestamps are whole days.
        instant = max(day_start(self.as_of, self.tz), reranker.learned_until)

        def rank(lists: pa.Table, k: int) -> tuple[pa.Table, LeftOut]:
            return reranker.apply_and_count(
                lists, k, history=self.history, as_of=as_datetime(instant),
                exclude=self.limits.exclude, allowed=self.limits.allowed,
                duplicates=self.duplicates,
            )  # fmt: skip

        top, left_out = rank(self.listed, k)
        self._require_rows(top)
        self._require_similar(reranker.bias, top, check, lambda lists, k: rank(lists, k)[0])
        return top, left_out

    def _require_similar(self, bias: ItemBias, top: pa.Table, check: TrainedOn, rank: Rank) -> None:
        if not check.accept_others:
            newest = (self.listed, self.day)
            require_similar_lists(bias, newest, top, check.lists, self.duplicates, rank)


def read_tonight(
    lists: DatedLists, data: ShopData, bias: ItemBias, limits: Limits, duplicates: str
) -> Tonight:
    """Read the newest lists; warn if they are old.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        bias: whose item ids decide what numbers in CSV files are.
        limits: what must not be shown.
        duplicates: what to do with repeated rows.
    """
    newest, text = lists.newest(data.as_of), text_columns(bias)
    if newest < data.as_of - timedelta(1):
        warn(
            f"the newest lists, of {newest}, are {(data.as_of - newest).days} days older than "
            f"as_of={data.as_of}; re-ranking them anyway; check why newer ones are missing"
        )
    (listed,), matched = read_lists(lists, [newest], data, text)
    history = matched.log.events.select([USER, ITEM, TIMESTAMP])
    from_csv = (is_csv(lists.days[newest]), data.from_csv[0], *limits.from_csv)
    listed, history, exclude, allowed = match_id_types(
        [listed, history, limits.exclude, limits.allowed], from_csv, text
    )
    limits = Limits(exclude, allowed, limits.from_csv)
    return Tonight(listed, newest, data.as_of, data.log.tz, history, limits, duplicates)
