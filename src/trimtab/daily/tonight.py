"""Tonight's lists: the newest, ranked by what was learned, and checked before publishing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import require_columns
from trimtab.daily.publish_checks import (
    Concentration,
    Shown,
    require_similar_lists,
    unchanged_share,
    warn_if_same,
)
from trimtab.errors import DataError, warn
from trimtab.models import LeftOut, Model, Ranked
from trimtab.models.model import text_columns
from trimtab.parquet import apply
from trimtab.replay.dated_lists import (
    DatedLists,
    DayLists,
    is_large,
    read_lists,
    some_lists,
    without_rows,
)
from trimtab.replay.outcome import events_as_of, rank_as_of
from trimtab.replay.shop import ShopData
from trimtab.tables.columns import ITEM, RANK, USER, ColumnMap, own_names
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.times import day_start

_LIMITS = {"exclude": (USER, ITEM), "allowed": (ITEM,)}  # and the columns that they need


class Finished(NamedTuple):
    """The newest lists as they are published."""

    day: date  # of the lists
    top: pa.Table | Path  # a file if they are large
    shown: Shown
    left_out: LeftOut  # events that were not used


def read_limits(
    files: Mapping[str, str | Path | None], columns: ColumnMap
) -> dict[str, tuple[pa.Table | None, bool]]:
    """Return what must not be shown and what may be, and whether each is from a CSV file."""
    found = {}
    for name, path in files.items():
        table = None if path is None else read_table(path, columns=columns)
        if table is not None:
            require_columns(str(path), table.column_names, _LIMITS[name], own_names(table))
        found[name] = table, path is not None and is_csv(path)
    return found


def finish_lists(
    lists: DatedLists, data: ShopData, model: Model, k: int, *, trained: DayLists | None,
    bought: Concentration, limits: dict[str, tuple[pa.Table | None, bool]], duplicates: str,
    room: Path,
) -> Finished:  # fmt: skip
    """Return the top k of the newest lists, after checks; warn if they are old, or not new.

    Args:
        lists: all lists.
        data: the shop's data, up to the day.
        model: what was learned; its item ids decide what numbers in CSV files are.
        k: number of slots.
        trained: the newest lists that were learned from, which these must not differ much from;
            None if others are accepted.
        bought: concentration of the purchases that were learned from.
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
    tables, from_csv = zip(*limits.values(), strict=True)
    found, history, *matching = match_id_types(
        [without_rows(listed), matched.log.events, *tables],
        (lists.is_csv(newest), data.from_csv[0], *from_csv), text,
    )  # fmt: skip
    listed = listed if is_large(listed) else found
    instant = day_start(data.as_of, data.log.tz)
    options = {"duplicates": duplicates, **dict(zip(limits, matching, strict=True))}

    def rank(lists: pa.Table, k: int) -> Ranked:
        return rank_as_of(model, lists, k, history, instant, of_later=False, **options)

    some, n_users = some_lists(listed)
    ranked = rank(some, k)
    top, left_out = ranked.top, ranked.left_out
    if top.num_rows == 0:
        raise DataError(
            f"lists of {newest}: exclude and allowed leave nothing to show; check these files"
        )
    if trained is not None:
        usual, n_usual = some_lists(trained)
        again = rank(usual, int(pc.max(top[RANK]).as_py())).top
        shares = (
            unchanged_share(model, some, top, duplicates),
            unchanged_share(model, usual, again, duplicates),
        )
        require_similar_lists(newest, (n_users, n_usual), shares)
    shown = Shown.measure(model, some, top, k, bought, **options)
    if is_large(listed):
        top, known = room / "finished.parquet", events_as_of(model, history, instant)
        left_out = apply(model, listed, top, k, **options, **known).left_out
    return Finished(newest, top, shown, left_out)
