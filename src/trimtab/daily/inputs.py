"""What a refresh learns from, gathered: the log, its windows, and the lists that may teach them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from trimtab.daily.lists import DatedLists
from trimtab.daily.sources import read_events
from trimtab.daily.windows import Window
from trimtab.datasets.logs import Log, make_log
from trimtab.files import is_csv, match_kinds, read_table
from trimtab.schema import ITEM, NAME, SCORE, USER, WINDOW

_LIST_COLUMNS = (USER, ITEM, SCORE)


@dataclass(frozen=True)
class Source:
    """The log of events and the catalogue, and whether their ids may be numbers by chance only."""

    log: Log
    from_csv: tuple[bool, bool]  # events, items

    def names(self) -> pa.Table | None:
        """item_id, name, where names are more than the ids again."""
        items = self.log.items.select([ITEM, NAME])
        return None if items[NAME].equals(items[ITEM].cast(pa.string())) else items


@dataclass(frozen=True)
class Teaching:
    """The tables of a fit, and the days of the lists in them, newest first."""

    recs: pa.Table
    recent: pa.Table
    history: pa.Table
    catalogue: pa.Table | None
    days: tuple[date, ...]


def read_source(
    events: str | Path, query: str | None, tz: str | None, items: Path | None
) -> Source:
    """Read events and catalogue."""
    sales, sales_csv = read_events(events, query)
    catalogue = None if items is None else read_table(items)
    from_csv = (sales_csv, items is not None and is_csv(items))
    sales, catalogue = match_kinds([sales, catalogue], from_csv)
    return Source(make_log(sales, tz, catalogue), from_csv)


def read_lists(
    lists: DatedLists, days: Sequence[date], source: Source, text: Sequence[str] = ()
) -> tuple[list[pa.Table], Source]:
    """The lists of some days, and the source with ids of the same kinds."""
    tables = [read_table(lists.days[day], _LIST_COLUMNS) for day in days]
    from_csv = [is_csv(lists.days[day]) for day in days]
    log = source.log
    *tables, events, items = match_kinds(
        [*tables, log.events, log.items], [*from_csv, *source.from_csv], text
    )
    matched = Log(events, items, log.levels, log.tz, log.name)
    return tables, Source(matched, source.from_csv)


def choose_lists(
    lists: DatedLists, windows: Sequence[Window], as_of: date, learn_on: date | None
) -> list[tuple[Window, date]]:
    """Each window that there are lists for, with the newest that have not seen it.

    Raises:
        RefusedError: there are none for the newest window, or those asked for have seen it.
    """
    newest = windows[0]
    if learn_on is None:
        first = lists.before(newest.start, as_of)
        if first is None:
            raise lists.refusal(newest.start)
    else:
        lists.require_unseen(learn_on, newest.start)
        first = learn_on
    chosen = [(newest, first)]
    for window in windows[1:]:
        day = lists.before(window.start, as_of)
        if day is None:
            break
        chosen.append((window, day))
    return chosen


def gather(
    lists: DatedLists, chosen: Sequence[tuple[Window, date]], source: Source, text: Sequence[str]
) -> tuple[Teaching, Source]:
    """The tables of a fit, and the source with ids of the lists' kinds."""
    days = tuple(day for _, day in chosen)
    recs, matched = read_lists(lists, days, source, text)
    recent = [window.events(matched.log) for window, _ in chosen]
    if len(chosen) > 1:
        labels = [str(window.first) for window, _ in chosen]
        recs = [_labelled(*pair) for pair in zip(recs, labels, strict=True)]
        recent = [_labelled(*pair) for pair in zip(recent, labels, strict=True)]
    return Teaching(
        recs=pa.concat_tables(recs, promote_options="default"),
        recent=pa.concat_tables(recent),
        history=chosen[0][0].history(matched.log),
        catalogue=matched.log.catalogue(),
        days=days,
    ), matched


def _labelled(table: pa.Table, label: str) -> pa.Table:
    """A table whose rows all carry one window."""
    return table.append_column(WINDOW, pa.repeat(pa.scalar(label), table.num_rows))
