"""Backtests: dates x engines x methods x metrics, evaluated on the days after each date.

Each (date, engine) is one cell, saved when it is done, so an interrupted run continues with the
next cell. Cells are merged at the end.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.errors import DataError, warn
from trimtab.replay.dated_folder import DatedFolder
from trimtab.replay.item_sales import rank_sellers
from trimtab.replay.judge import Cell, Step, count_steps
from trimtab.replay.leaked_lists import LeakedListsError
from trimtab.replay.methods import ListMaker
from trimtab.replay.plan import Plan
from trimtab.replay.python_engines import describe_engine
from trimtab.replay.results import (
    EARLIER,
    HOLE_WINDOWS,
    RECENT,
    SCHEMAS,
    TEST,
    Done,
    Pace,
    Results,
    end_run,
    is_stored,
    load_cell,
    merge_cells,
    note_run,
    save_cell,
)
from trimtab.replay.timeline import Split, split_log
from trimtab.replay.windows import HOLE, Weekday, Window, event_times, find_holes, recent_windows
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, WEIGHT
from trimtab.tables.files import require_writable_folder
from trimtab.tables.log import Log
from trimtab.tables.times import local_day, microseconds


def run_backtest(
    plan: Plan,
    log: Log,
    folder: Path,
    step: Step = lambda text: None,
    done: Done = lambda cell: None,
) -> Results:
    """Run every cell that is not finished, save the merged results in a folder and return them.

    If the run is interrupted, `load_results` returns what is finished.

    Args:
        plan: what to compare.
        log: log to split by date.
        folder: folder for the results; cells finished by an earlier run are read from it.
        step: called with a short text before each step; see `total_steps`.
        done: called after each cell, with an estimate of the time left.
    """
    require_writable_folder(folder)
    splits = [split_log(log, day, plan.recent_days, plan.test_days) for day in plan.dates]
    holes = list_holes(plan, log, splits)
    warn_of_holes(holes)
    engines, log_hash = {**plan.engines, **plan.baselines}, _hash_log(log)
    planned = [
        Cell(plan, log, split, name, engine) for split in splits for name, engine in engines.items()
    ]
    keys = [_key(cell, log_hash) for cell in planned]
    about = _about(plan, log)
    note_run(folder, about, keys, holes)
    pace = Pace([cell.name for cell in planned], [is_stored(folder, key) for key in keys])
    cells = []
    for cell, key in zip(planned, keys, strict=True):
        try:
            found, seconds = _run_or_load(cell, folder, key, step)
            cells.append(found)
        except LeakedListsError as error:
            warn(f"{cell.split.as_of} is left out: {error}")
            seconds = 0.0
        done(pace.finish(str(cell), seconds))
    if not cells:
        raise DataError(
            "no date can be judged: all lists seem to have seen what comes after them; make lists "
            "of days in the past from the events before these days only"
        )
    more = {"sellers": rank_sellers(log), "holes": holes}
    results = Results(about, {**merge_cells(cells), **more})
    results.save(folder)
    end_run(folder)
    return results


def _run_or_load(cell: Cell, folder: Path, key: str, step: Step) -> tuple[Results, float | None]:
    """Return the results of a cell, and the seconds it took; None if it was finished before."""
    found = load_cell(folder, key)
    if found is not None:
        for _ in range(cell.count_steps()):
            step(f"{cell}: already done")
        return found, None
    began = time.monotonic()
    made = cell.run(step)
    save_cell(made, folder, key)
    return made, time.monotonic() - began


def total_steps(plan: Plan) -> int:
    """Return how often `run_backtest` calls `step`."""
    each = len(plan.engines) * count_steps(plan, False)
    return len(plan.dates) * (each + len(plan.baselines) * count_steps(plan, True))


def _key(cell: Cell, log_hash: str) -> str:
    """Return a folder name that changes with everything the cell's results depend on."""
    from trimtab.version import __version__

    plan, day = cell.plan, cell.split.as_of
    settings = {
        "version": __version__,
        "log": log_hash,
        "name": cell.name,
        "engine": _describe(cell.engine, day),
        "alone": cell.is_baseline,
        "methods": [[m.name, m.kind, dict(m.settings)] for m in plan.methods],
        "metrics": plan.metrics,
        "numbers": [
            plan.k, plan.n_listed, plan.recent_days, plan.windows, plan.test_days,
            plan.training_windows, plan.n_draws, plan.seed,
        ],
    }  # fmt: skip
    text = json.dumps(settings, sort_keys=True)
    safe = "".join(c if c.isalnum() else "_" for c in cell.name)
    return f"{day}-{safe[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _describe(maker: ListMaker, day: date | None = None) -> dict[str, Any]:
    """Return what lists depend on, besides the events; of dated lists those up to a day."""
    return maker.describe(day) if isinstance(maker, DatedFolder) else describe_engine(maker)


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
        **_list_length(plan),
        "recent_days": plan.recent_days,
        "windows": plan.windows,
        "test_days": plan.test_days,
        **({"weighted": True} if WEIGHT in log.events.column_names else {}),
        "n_draws": plan.n_draws,
        "engines": {name: _describe(engine) for name, engine in plan.engines.items()},
        "methods": {m.name: {"kind": m.kind, **m.settings} for m in plan.methods},
        "version": __version__,
    }


def _list_length(plan: Plan) -> dict[str, int]:
    """Return the length of engines' lists; supplied lists are as long as they are."""
    supplied = all(isinstance(maker, DatedFolder) for maker in plan.engines.values())
    return {} if supplied else {"n_listed": plan.n_listed}


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


def list_holes(plan: Plan, log: Log, splits: Sequence[Split]) -> pa.Table:
    """Return the days with far fewer events than usual around each date, as the table `holes`.

    Windows to learn from are looked at with the events before the date, as in the daily job; the
    test with the whole log, except its last day, which may not be complete.
    """
    last = local_day(event_times(log)[-1], log.tz)
    rows = [
        {
            "date": str(split.as_of), "window": window, "day": str(hole.day),
            "events": hole.events, "usual": hole.usual,
        }
        for split in splits
        for window, hole in _holes_around(plan, log, split, last)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMAS["holes"])


def _holes_around(plan: Plan, log: Log, split: Split, last: date) -> Iterator[tuple[str, Weekday]]:
    test = Window(split.as_of, split.test_from, split.test_to)
    recent, *earlier = recent_windows(log, split.as_of, plan.recent_days, plan.windows)
    looked_at = [(TEST, test, last), (RECENT, recent, split.as_of)]
    looked_at += [(EARLIER, window, split.as_of) for window in earlier]
    for name, window, until in looked_at:
        yield from ((name, hole) for hole in find_holes(log, window, until))


def warn_of_holes(holes: pa.Table) -> None:
    """Warn of each hole: date, day, window and counts."""
    for row in holes.to_pylist():
        warn(
            f"{row['date']}: {row['day']}, in {HOLE_WINDOWS[row['window']]}, has {row['events']} "
            f"events; that weekday usually has {row['usual']}: {HOLE}"
        )
