"""Cells of a backtest on disk, and the results of a run that did not end: what is finished.

A run notes what it is going to do before its first cell and removes the note after its last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.experiments.results import ABOUT, INCOMPLETE, SCHEMAS, Results
from trimtab.tables.files import write_atomically
from trimtab.tables.folders import parse_json

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
