"""Results of a backtest, as a few tables in one folder.

Every row has a date and an engine, except in `sellers` and `holes`. Only `results` is always there;
a report shows the tables it finds. Each finished cell is saved, so an interrupted run continues
with the next; a run notes what it is going to do before its first cell, and removes the note after
its last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.tables.files import read_table, write_atomically, write_table
from trimtab.tables.folders import HeaderKind, parse_json, read_header

ABOUT, CELLS, NOTE = "about.json", "cells", "unfinished.json"
VERSION = 1
LEVEL = 0.95  # of the intervals of lifts and gains
BASELINE = "long"  # name of the engine alone in plans and results
INCOMPLETE = "incomplete"  # in `about` of an interrupted run: `done` and `total` cells
TEST, RECENT, EARLIER = "test", "recent", "earlier"
HOLE_WINDOWS: Mapping[str, str] = {  # in the table `holes`, and in words
    TEST: "the test",
    RECENT: "the recent window",
    EARLIER: "an earlier window, which is left out",
}
_REMEDY = "run the backtest again"
_KIND = HeaderKind(
    "trimtab-results", "version", VERSION, what="a backtest", remedy=_REMEDY,
    missing="{folder}: no finished backtest here ({file} is missing); run the backtest first",
)  # fmt: skip

_KEY = "date engine method objective"
_TABLES: Mapping[str, str] = {  # names of columns
    # One row per metric: its value, the value of the engine alone, and the lift with a 95 %
    # interval from a paired bootstrap over users. `objective` is the metric that biases were
    # learned for, and empty for methods that do not learn.
    "results": f"{_KEY} metric value baseline lift lift_low lift_high n_users",
    # Number of the `size` best sellers of the test that are among the `size` most recommended.
    "coverage": f"{_KEY} size covered",
    # KL(bought || recommended) in nats.
    "divergence": f"{_KEY} kl",
    # The lift that a learned method forecast for its objective, with a 90 % interval; null if it
    # found no gain.
    "forecasts": f"{_KEY} forecast forecast_low forecast_high",
    # What each part of a reranker adds to its lift in its objective, with a 95 % interval: see
    # `find_gains`. A part that the reranker does not use adds 0.
    "parts": f"{_KEY} part used gain gain_low gain_high",
    # One row per item with a bias; sales are buyers per week before the window, in it, and in the
    # test.
    "biases": f"{_KEY} item_id name bias sales_before sales_recent sales_after",
    # An engine trained on the last `days` days (0: all events), and its value relative to the
    # shortest window.
    "windows": "date engine days metric value relative",
    # The best sellers of the whole log, by month: rank among all items by number of buyers.
    "sellers": "month item_id name rank buyers",
    # Days with far fewer events than the same weekday usually has, in a window around a date.
    "holes": "date window day events usual",
}
_WHOLE = ("n_users", "size", "covered", "days", "rank", "buyers", "events", "usual")
_NUMBERS = ("value", "baseline", "lift", "kl", "relative", "forecast", "gain", "bias", "sales")


def _type_of(column: str) -> pa.DataType:
    if column in _WHOLE:
        return pa.int64()
    if column.split("_", maxsplit=1)[0] in _NUMBERS:
        return pa.float64()
    return pa.bool_() if column == "used" else pa.string()


SCHEMAS: Mapping[str, pa.Schema] = {
    table: pa.schema([(name, _type_of(name)) for name in columns.split()])
    for table, columns in _TABLES.items()
}


@dataclass(frozen=True)
class Results:
    """The tables of a backtest, and facts about the log and the plan.

    `about` holds `log`, `tz`, `k`, `n_listed`, `window`, `windows`, `test`, `n_users`,
    `n_items`, `n_events`, `first_day`, `last_day`, `version`; results of earlier versions may lack
    some of them. `engines` and `methods` hold the settings of each by name.
    """

    about: Mapping[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    @staticmethod
    def of(about: Mapping[str, Any], rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Results:
        """Return the tables of some rows."""
        return Results(
            about, {name: pa.Table.from_pylist(own, SCHEMAS[name]) for name, own in rows.items()}
        )

    def table(self, name: str) -> pa.Table:
        """Return a table by name; an empty one if the backtest did not make it."""
        return self.tables.get(name, SCHEMAS[name].empty_table())

    def save(self, folder: Path) -> None:
        """Write one Parquet file per table, and about.json last."""
        for name, table in self.tables.items():
            write_table(table.cast(SCHEMAS[name]), folder / f"{name}.parquet")
        header = {"format": _KIND.format, "version": VERSION, "tables": sorted(self.tables)}
        with write_atomically(folder / ABOUT) as file:
            file.write(json.dumps({**header, "about": dict(self.about)}, indent=2).encode())
        for name in SCHEMAS.keys() - self.tables.keys():  # files of an earlier run
            (folder / f"{name}.parquet").unlink(missing_ok=True)

    @staticmethod
    def load(folder: Path) -> Results:
        """Load what `save` wrote."""
        header = read_header(folder / ABOUT, _KIND)
        names, about = header.get("tables"), header.get("about")
        if not isinstance(names, list) or not isinstance(about, dict):
            raise StoreError(f"{folder / ABOUT}: not complete; {_REMEDY}")
        tables = {}
        for name in (own for own in SCHEMAS if own in names):
            table = read_table(folder / f"{name}.parquet")
            try:
                tables[name] = table.select(SCHEMAS[name].names).cast(SCHEMAS[name])
            except (pa.ArrowException, KeyError) as error:
                raise StoreError(
                    f"{folder / name}.parquet: not a table of a backtest ({error}); {_REMEDY}"
                ) from error
        return Results(about, tables)


def is_stored(folder: Path, key: str) -> bool:
    """Return whether a finished cell is there; whether it can be read shows when it is."""
    return (folder / CELLS / key / ABOUT).exists()


def load_cell(folder: Path, key: str) -> Results | None:
    """Return a finished cell, or None if it is missing or unreadable."""
    try:
        return Results.load(folder / CELLS / key)
    except StoreError:
        return None


def merge_cells(cells: Sequence[Results]) -> dict[str, pa.Table]:
    """Return the tables of all cells as one each."""
    names = [name for name in SCHEMAS if any(name in cell.tables for cell in cells)]
    return {name: pa.concat_tables([cell.table(name) for cell in cells]) for name in names}


def note_run(folder: Path, about: Mapping[str, Any], keys: Sequence[str], holes: Any) -> None:
    """Write down what a run is going to do: rows of `holes`, and its cells."""
    note = {"about": dict(about), "cells": list(keys), "holes": holes}
    with write_atomically(folder / NOTE) as file:
        file.write(json.dumps(note, indent=1).encode())


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
        raise StoreError(f"{folder / NOTE}: not readable ({error}); {_REMEDY}") from error
    cells = [cell for key in keys if (cell := load_cell(folder, key)) is not None]
    if not cells:
        raise StoreError(f"{folder}: no date of this backtest is finished; {_REMEDY}")
    about = {**about, INCOMPLETE: {"done": len(cells), "total": len(keys)}}
    return Results(about, {**merge_cells(cells), **Results.of({}, {"holes": holes}).tables})


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
        self._left = list(zip(kinds, stored, strict=True))
        self._total = len(kinds)
        self._seconds: dict[str, list[float]] = {}

    def finish(self, name: str, seconds: float | None) -> CellDone:
        """Return the next cell as finished; seconds is None if it was read, not run."""
        kind, _ = self._left.pop(0)
        if seconds is not None:
            self._seconds.setdefault(kind, []).append(seconds)
        left = None
        if self._seconds:
            overall = [second for own in self._seconds.values() for second in own]
            todo = (kind for kind, stored in self._left if not stored)
            left = sum(mean(self._seconds.get(kind, overall)) for kind in todo)
        return CellDone(name, self._total - len(self._left), self._total, seconds, left)
