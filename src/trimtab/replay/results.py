"""Results of a backtest, as a few tables in one folder.

Every row has a date and an engine, except in `sellers` and `holes`. Only `results` is always there;
a report shows the tables it finds. Each finished cell is saved, so an interrupted run continues
with the next; a run notes what it is going to do before its first cell, and removes the note after
its last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.files import read_table, write_atomically, write_table
from trimtab.tables.folders import HeaderKind, parse_json, read_header

FORMAT = "trimtab-results"
VERSION = 1
ABOUT = "about.json"
LEVEL = 0.95  # of the intervals of lifts and gains
BASELINE = "long"  # name of the engine alone in plans and results
INCOMPLETE = "incomplete"  # in `about` of an interrupted run: `done` and `total` cells
TEST, RECENT, EARLIER = "test", "recent", "earlier"
HOLE_WINDOWS: Mapping[str, str] = {  # in the table `holes`, and in words
    TEST: "the test",
    RECENT: "the recent window",
    EARLIER: "an earlier window, which is left out",
}
_KIND = HeaderKind(
    FORMAT,
    "version",
    VERSION,
    what="a backtest",
    remedy="run the backtest again",
    missing="{folder}: no finished backtest here ({file} is missing); run the backtest first",
)

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()
_CASE = [("date", _TEXT), ("engine", _TEXT)]
_METHOD = [*_CASE, ("method", _TEXT), ("objective", _TEXT)]
SCHEMAS: Mapping[str, pa.Schema] = {
    # One row per metric: its value, the value of the engine alone, and the lift with a 95 %
    # interval from a paired bootstrap over users. `objective` is the metric that biases were
    # learned for, and empty for methods that do not learn.
    "results": pa.schema(
        [
            *_METHOD,
            ("metric", _TEXT), ("value", _NUMBER), ("baseline", _NUMBER),
            ("lift", _NUMBER), ("lift_low", _NUMBER), ("lift_high", _NUMBER),
            ("n_users", _WHOLE),
        ]
    ),
    # Number of the `size` best sellers of the test that are among the `size` most recommended.
    "coverage": pa.schema([*_METHOD, ("size", _WHOLE), ("covered", _WHOLE)]),
    # KL(bought || recommended) in nats.
    "divergence": pa.schema([*_METHOD, ("kl", _NUMBER)]),
    # Number of biases that are not 0, and of excluded items, in each learned bias table.
    "fits": pa.schema([*_METHOD, ("n_biases", _WHOLE), ("n_excluded", _WHOLE)]),
    # The lift that a learned method forecast for its objective, with a 90 % interval; null if it
    # found no gain.
    "forecasts": pa.schema(
        [
            *_METHOD,
            ("forecast", _NUMBER), ("forecast_low", _NUMBER), ("forecast_high", _NUMBER),
        ]
    ),
    # What each part of a reranker adds to its lift in its objective, with a 95 % interval: see
    # `reranker_parts`. A part that the reranker does not use adds 0.
    "parts": pa.schema(
        [
            *_METHOD,
            ("part", _TEXT), ("used", pa.bool_()),
            ("gain", _NUMBER), ("gain_low", _NUMBER), ("gain_high", _NUMBER),
        ]
    ),
    # Share of items with a bias under both objectives, among items with one under either.
    "overlap": pa.schema(
        [*_CASE, ("method", _TEXT), ("first", _TEXT), ("second", _TEXT), ("share", _NUMBER)]
    ),
    # One row per item with a bias; sales are buyers per week before the window, in it, and in the
    # test.
    "biases": pa.schema(
        [
            *_METHOD,
            ("item_id", _TEXT), ("name", _TEXT), ("bias", _NUMBER),
            ("sales_before", _NUMBER), ("sales_recent", _NUMBER), ("sales_after", _NUMBER),
        ]
    ),
    # An engine trained on the last `days` days (0: all events), and its value relative to the
    # shortest window.
    "windows": pa.schema(
        [*_CASE, ("days", _WHOLE), ("metric", _TEXT), ("value", _NUMBER), ("relative", _NUMBER)]
    ),
    # The best sellers of the whole log, by month: rank among all items by number of buyers.
    "sellers": pa.schema(
        [
            ("month", _TEXT), ("item_id", _TEXT), ("name", _TEXT),
            ("rank", _WHOLE), ("buyers", _WHOLE),
        ]
    ),
    # Days with far fewer events than the same weekday usually has, in a window around a date.
    "holes": pa.schema(
        [
            ("date", _TEXT), ("window", _TEXT), ("day", _TEXT),
            ("events", _WHOLE), ("usual", _WHOLE),
        ]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The tables of a backtest, and facts about the log and the plan.

    `about` holds `log`, `tz`, `k`, `n_listed`, `recent_days`, `windows`, `test_days`, `n_users`,
    `n_items`, `n_events`, `first_day`, `last_day`, `version`; results of earlier versions may lack
    some of them. `engines` and `methods` hold the settings of each by name.
    """

    about: Mapping[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def table(self, name: str) -> pa.Table:
        """Return a table by name; an empty one if the backtest did not make it."""
        return self.tables.get(name, SCHEMAS[name].empty_table())

    def save(self, folder: Path) -> None:
        """Write one Parquet file per table, and about.json last."""
        for name, table in self.tables.items():
            write_table(table.cast(SCHEMAS[name]), folder / f"{name}.parquet")
        header = {"format": FORMAT, "version": VERSION, "tables": sorted(self.tables)}
        with write_atomically(folder / ABOUT) as file:
            file.write(json.dumps({**header, "about": dict(self.about)}, indent=2).encode())
        for name in SCHEMAS.keys() - self.tables.keys():  # files of an earlier run
            (folder / f"{name}.parquet").unlink(missing_ok=True)

    @staticmethod
    def load(folder: Path) -> Results:
        """Load what `save` wrote."""
        header = _read_header(folder)
        tables = {}
        for name in header["tables"]:
            table = read_table(folder / f"{name}.parquet")
            try:
                tables[name] = table.select(SCHEMAS[name].names).cast(SCHEMAS[name])
            except (pa.ArrowException, KeyError) as error:
                raise StoreError(
                    f"{folder / name}.parquet: not a table of a backtest ({error}); {_KIND.remedy}"
                ) from error
        return Results(header["about"], tables)


def _read_header(folder: Path) -> dict[str, Any]:
    header = read_header(folder / ABOUT, _KIND)
    tables = header.get("tables")
    known = isinstance(tables, list) and all(str(name) in SCHEMAS for name in tables)
    if not known or not isinstance(header.get("about"), dict):
        raise StoreError(f"{folder / ABOUT}: not complete; {_KIND.remedy}")
    return header


CELLS, NOTE = "cells", "unfinished.json"


def is_stored(folder: Path, key: str) -> bool:
    """Return whether a finished cell is there; whether it can be read shows when it is."""
    return (folder / CELLS / key / ABOUT).exists()


def load_cell(folder: Path, key: str) -> Results | None:
    """Return a finished cell, or None if it is missing or unreadable."""
    try:
        return Results.load(folder / CELLS / key)
    except StoreError:
        return None


def save_cell(cell: Results, folder: Path, key: str) -> None:
    """Save a finished cell."""
    cell.save(folder / CELLS / key)


def merge_cells(cells: Sequence[Results]) -> dict[str, pa.Table]:
    """Return the tables of all cells as one each."""
    names = [name for name in SCHEMAS if any(name in cell.tables for cell in cells)]
    return {name: pa.concat_tables([cell.table(name) for cell in cells]) for name in names}


def note_run(folder: Path, about: Mapping[str, Any], keys: Sequence[str], holes: pa.Table) -> None:
    """Write down what a run is going to do."""
    note = {"about": dict(about), "cells": list(keys), "holes": holes.to_pylist()}
    with write_atomically(folder / NOTE) as file:
        file.write(json.dumps(note, indent=1).encode())


def end_run(folder: Path) -> None:
    """Remove the note: all cells are finished and saved."""
    (folder / NOTE).unlink(missing_ok=True)


def load_results(folder: Path) -> Results:
    """Return the results of the last run in a folder, of its finished cells if it did not end.

    Raises:
        StoreError: there are none, or no cell is finished.
    """
    try:
        note = parse_json((folder / NOTE).read_bytes())
        keys, about, holes = note["cells"], note["about"], note["holes"]
    except FileNotFoundError:
        return Results.load(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{folder / NOTE}: not readable ({error}); run the backtest again"
        ) from error
    cells = [cell for key in keys if (cell := load_cell(folder, key)) is not None]
    if not cells:
        raise StoreError(f"{folder}: no date of this backtest is finished; run the backtest again")
    finished = {"done": len(cells), "total": len(keys)}
    tables = {**merge_cells(cells), "holes": pa.Table.from_pylist(holes, SCHEMAS["holes"])}
    return Results({**about, INCOMPLETE: finished}, tables)


class CellDone(NamedTuple):
    """A cell that is finished, and what is left."""

    name: str
    place: int  # from 1
    total: int
    seconds: float | None  # None if an earlier run had finished it
    left: float | None  # seconds, estimated; None if nothing is known yet


Done = Callable[[CellDone], None]


class Pace:
    """Counts finished cells and estimates the time of the others.

    A cell is expected to take as long as the finished ones of the same kind did on average; without
    one, as long as all of them.

    Example:
        >>> pace = Pace(["markov", "als", "markov", "als"], [False, False, False, True])
        >>> pace.finish("1 May, markov", 3.0).left
        6.0
        >>> pace.finish("1 May, als", 9.0).left
        3.0
    """

    def __init__(self, kinds: Sequence[str], stored: Sequence[bool]) -> None:
        """Begin a run.

        Args:
            kinds: kind of each cell, in order, such as its engine.
            stored: whether an earlier run has finished the cell.
        """
        self._kinds, self._stored = kinds, stored
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._n_done = 0

    def finish(self, name: str, seconds: float | None) -> CellDone:
        """Return the next cell as finished; seconds is None if it was read, not run."""
        if seconds is not None:
            self._seconds[self._kinds[self._n_done]].append(seconds)
        self._n_done += 1
        return CellDone(name, self._n_done, len(self._kinds), seconds, self._left())

    def _left(self) -> float | None:
        if not self._seconds:
            return None
        overall = mean(second for own in self._seconds.values() for second in own)
        cells = zip(self._kinds[self._n_done :], self._stored[self._n_done :], strict=True)
        return sum(
            mean(self._seconds[kind]) if kind in self._seconds else overall
            for kind, stored in cells
            if not stored
        )
