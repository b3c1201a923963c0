"""Backtests: dates x engines x methods x metrics, evaluated on the days after each date.

Each (date, engine) is one cell, saved when it is done, so an interrupted run continues with the
next cell. Cells are merged at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import StoreError
from trimtab.experiments.backtest_cell import Step, count_steps, run_cell
from trimtab.experiments.date_holes import list_holes, warn_of_holes
from trimtab.experiments.item_sales import rank_sellers
from trimtab.experiments.list_makers import ListMaker, describe_maker
from trimtab.experiments.plan import Plan
from trimtab.experiments.results import SCHEMAS, Results
from trimtab.experiments.timeline import split_log
from trimtab.tables.columns import ITEM, TIMESTAMP, USER
from trimtab.tables.files import require_writable_folder
from trimtab.tables.log import Log
from trimtab.tables.timestamps import local_day, microseconds

CELLS = "cells"


def run_backtest(plan: Plan, log: Log, folder: Path, step: Step = lambda text: None) -> Results:
    """Run every cell that is not finished, save the merged results in a folder and return them.

    Args:
        plan: what to compare.
        log: log to split by date.
        folder: folder for the results; cells finished by an earlier run are read from it.
        step: called with a short text before each step; see `total_steps`.
    """
    require_writable_folder(folder)
    splits = [split_log(log, day, plan.recent_days, plan.test_days) for day in plan.dates]
    holes = list_holes(plan, log, splits)
    warn_of_holes(holes)
    log_hash = _hash_log(log)
    cells = []
    for split in splits:
        for name, engine in {**plan.engines, **plan.baselines}.items():
            is_baseline = name not in plan.engines
            key = _cell_key(plan, log_hash, split.as_of, name, engine, is_baseline)
            cell = _load_cell(folder / CELLS / key)
            if cell is None:
                cell = run_cell(plan, log, split, name, engine, is_baseline, step)
                cell.save(folder / CELLS / key)
            else:
                for _ in range(count_steps(plan, is_baseline)):
                    step(f"{split.as_of} {name}: already done")
            cells.append(cell)
    more = {"sellers": rank_sellers(log), "holes": holes}
    results = Results(_about(plan, log), {**_merge(cells), **more})
    results.save(folder)
    return results


def _load_cell(folder: Path) -> Results | None:
    """Return a finished cell, or None if it is missing or unreadable."""
    try:
        return Results.load(folder)
    except StoreError:
        return None


def total_steps(plan: Plan) -> int:
    """Return how often `run_backtest` calls `step`."""
    each = len(plan.engines) * count_steps(plan, False)
    return len(plan.dates) * (each + len(plan.baselines) * count_steps(plan, True))


def _cell_key(
    plan: Plan, log_hash: str, day: date, name: str, engine: ListMaker, is_baseline: bool
) -> str:
    """Return a folder name that changes with everything the cell's results depend on."""
    from trimtab.version import __version__

    settings = {
        "version": __version__,
        "log": log_hash,
        "name": name,
        "engine": describe_maker(engine, day),
        "alone": is_baseline,
        "methods": [[m.name, m.kind, dict(m.settings)] for m in plan.methods],
        "metrics": plan.metrics,
        "numbers": [
            plan.k, plan.n_listed, plan.recent_days, plan.windows, plan.test_days,
            plan.training_windows, plan.n_draws, plan.seed,
        ],
    }  # fmt: skip
    text = json.dumps(settings, sort_keys=True)
    safe = "".join(c if c.isalnum() else "_" for c in name)
    return f"{day}-{safe[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _about(plan: Plan, log: Log) -> dict[str, Any]:
    from trimtab.version import __version__

    times = microseconds(log.events[TIMESTAMP])
    return {
        "log": log.name,
        "tz": log.tz,
        "n_events": log.events.num_rows,
        "n_users": log.count(USER),
        "n_items": log.count(ITEM),
        "first_day": str(local_day(times[0], log.tz)),
        "last_day": str(local_day(times[-1], log.tz)),
        "k": plan.k,
        "n_listed": plan.n_listed,
        "recent_days": plan.recent_days,
        "windows": plan.windows,
        "test_days": plan.test_days,
        "n_draws": plan.n_draws,
        "engines": {name: describe_maker(engine) for name, engine in plan.engines.items()},
        "methods": {m.name: {"kind": m.kind, **m.settings} for m in plan.methods},
        "version": __version__,
    }


def _hash_log(log: Log) -> str:
    """Return a hash of the events and the catalogue."""
    digest = hashlib.sha256(log.tz.encode())
    for table in (log.events, log.items):
        for name in table.column_names:
            digest.update(name.encode())
            for buffer in _buffers(table[name]):
                digest.update(buffer)
    return digest.hexdigest()


def _buffers(column: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return (buffer for buffer in whole.buffers() if buffer is not None)


def _merge(cells: list[Results]) -> dict[str, pa.Table]:
    names = [name for name in SCHEMAS if any(name in cell.tables for cell in cells)]
    return {name: pa.concat_tables([cell.table(name) for cell in cells]) for name in names}
