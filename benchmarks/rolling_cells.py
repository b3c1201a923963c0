"""Cells of the rolling benchmark: an engine at a date under rivals and learners, kept on disk.

A cell has parts, each a small JSON file named after all that it depends on: an interrupted run goes
on where it was, and after a change in the package only what it can touch is computed again. The
engine's lists are kept too, since making them takes most of the time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import trimtab as tt
from als_engine import ALS, UnseenALS, UnseenMarkov
from rolling_parts import (
    ABLATION,
    DEFAULT,
    FILLS,
    KNOBS,
    N_DRAWS,
    N_LISTED,
    OTHER_METRICS,
    PAPER,
    QUICK_REFITS,
    RECENT_DAYS,
    REFITS,
    RERANKER,
    SIMPLE_RIVALS,
    TERMS_LAMBDAMART,
    TEST_DAYS,
    WINDOWS,
    K,
    refit,
)
from trimtab.datasets import Log, load_complete_journey, read_log
from trimtab.engines import Category, Engine, Factorization, Markov, Repeat, TifuKNN
from trimtab.replay.outcome import Case
from trimtab.replay.windows import Window, earlier_windows, split_log
from trimtab.tables.columns import USER
from trimtab.tables.times import DAY

FILMS = "Films"  # the log in which nobody has anything twice
HALF_LIFE = 60  # days, of events in the decayed ALS
_HERE, _PACKAGE = Path(__file__).parent, Path(tt.__file__).parent
_BESIDE = (  # parts of the package that no number depends on
    "__init__.py", "abtest", "adapters", "cli", "daily", "report", "serve", "spark", "store",
    "version.py",
)  # fmt: skip


class Cell(NamedTuple):
    """One engine at one date of one log, and where its parts are kept."""

    log: str
    engine: str
    day: date
    folder: Path
    keys: dict[str, str]  # by part, and that of the lists
    parts: tuple[str, ...]

    def place(self, part: str) -> Path:
        """The file of a part."""
        return self.folder / f"{part}-{self.keys[part]}.json"

    def missing(self) -> list[str]:
        """Parts yet to be computed."""
        return [part for part in self.parts if not self.place(part).exists()]

    def read(self, part: str) -> dict[str, Any]:
        """What a part says; it must be there."""
        return json.loads(self.place(part).read_text())

    def rows(self) -> list[dict[str, Any]]:
        """Lifts of all rivals and learners."""
        return [row for part in self.parts for row in self.read(part).get("rows", [])]


@dataclass(frozen=True, kw_only=True)
class KeptCase(Case):
    """A case whose lists are kept in a folder, for all dates and windows of a pair.

    Lists of a day are those of the buyers of the next days: nobody else is learned from or judged.
    """

    folder: Path

    def before_window(self, window: Window, users: object = None) -> pa.Table:
        """Lists made before a window."""
        del users  # all that are kept
        return self._made_at(window.first)

    @functools.cached_property
    def lists(self) -> pa.Table:
        """Lists made at the date."""
        return self._made_at(self.split.as_of)

    def _made_at(self, day: date) -> pa.Table:
        place = self.folder / f"{day}.parquet"
        if place.exists():
            return pq.read_table(place)
        window = Window.of(day, TEST_DAYS * DAY, self.log.tz)
        self.folder.mkdir(parents=True, exist_ok=True)
        users = window.events(self.log)[USER]
        return _keep(self.made_before(window, self.engine, users), place)


def load_logs(retail: Path, films: Path | None = None) -> dict[str, Log]:
    """The logs at hand by name; the second and the third only where their files are."""
    opened = {"Complete Journey": load_complete_journey()}
    if retail.exists():
        names = retail.with_name(f"{retail.stem}_items.parquet")
        opened["Online retail"] = read_log(
            retail, tz="Europe/London", items=names if names.exists() else None
        )
    if films is not None and films.exists():
        opened[FILMS] = read_log(films, tz="UTC")
    return opened


def engines(log: Log) -> dict[str, Engine]:
    made: dict[str, Engine] = {"markov": Markov(), "factorization": Factorization()}
    if log.levels:
        made["category"] = Category(items=log.items, level=log.levels[-1])
    return {**made, "als": ALS()}


def all_engines(name: str, log: Log) -> dict[str, Engine]:
    """Those of `engines`, and three that follow users' own purchases; for films two others."""
    if name == FILMS:
        return {"markov": UnseenMarkov(), "als": UnseenALS()}
    decayed = ALS(decay_days=HALF_LIFE / math.log(2))
    return {
        **engines(log),
        "repeat": Repeat(),
        f"als-half-life-{HALF_LIFE}": decayed,
        "tifu-knn": TifuKNN(tz=log.tz),
    }


def parts_of(quick: bool) -> tuple[str, ...]:
    """The parts that a cell needs; a quick run trains engines anew at fewer settings."""
    refits = [name for name, refit in REFITS.items() if not quick or refit in QUICK_REFITS]
    rivals = (*refits, "rescores", SIMPLE_RIVALS, TERMS_LAMBDAMART)
    return (*rivals, PAPER, DEFAULT, RERANKER, OTHER_METRICS, ABLATION)


def part_keys(name: str, log: Log) -> dict[str, str]:
    """A key for the lists and for each part: it changes with code, settings and events."""
    replay, engines = _PACKAGE / "replay", _PACKAGE.glob("engines/*.py")
    engine_code = [*engines, replay / "windows.py", _HERE / "als_engine.py"]
    rival_code = [replay / "rivals.py", _PACKAGE / "metrics" / "evaluation.py"]
    own = [*_HERE.glob("reranker_*.py"), *_HERE.glob("lambdamart*.py")]
    mark = repr((_mark(log), K, N_LISTED, RECENT_DAYS, TEST_DAYS, N_DRAWS, WINDOWS))
    return {
        **dict.fromkeys(FILLS, _digest([*_code_beside(_BESIDE), *own], mark + repr(KNOBS))),
        **dict.fromkeys(REFITS, _digest([*engine_code, *rival_code], mark)),
        "lists": _digest(engine_code, mark),
    }


def _code_beside(left_out: tuple[str, ...]) -> list[Path]:
    """The package's files, but for some of its folders."""
    files = _PACKAGE.rglob("*.py")
    return [file for file in files if file.relative_to(_PACKAGE).parts[0] not in left_out]


_logs: dict[str, Log] = {}


def start_worker(retail: Path, films: Path) -> None:
    """Open the logs once a process."""
    global _logs
    _logs = load_logs(retail, films)


def fill_cell(cell: Cell) -> float:
    """Compute and keep the parts of a cell that are missing; gives the seconds of CPU it took."""
    begun = time.process_time()
    cell.folder.mkdir(parents=True, exist_ok=True)
    log = _logs[cell.log]
    split = split_log(log, cell.day, f"{RECENT_DAYS}d", f"{TEST_DAYS}d")
    earlier = earlier_windows(log, split, RECENT_DAYS * DAY, WINDOWS)
    engine = all_engines(cell.log, log)[cell.engine]
    folder = cell.folder.parent / f"lists-{cell.keys['lists']}"
    case = KeptCase(engine, log, split, N_LISTED, K, earlier, folder=folder)
    for part in cell.missing():
        fill = refit if part in REFITS else FILLS[part]
        text = json.dumps(fill(case, part))
        _publish(cell.place(part), lambda path, text=text: path.write_text(text))
    return time.process_time() - begun


def _mark(log: Log) -> str:
    """A hash of the events and the catalogue."""
    digest = hashlib.sha256()
    for table in (log.events, log.items):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        digest.update(sink.getvalue())
    return digest.hexdigest()


def _digest(files: Iterable[Path], settings: str) -> str:
    digest = hashlib.sha256(settings.encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _keep(table: pa.Table, place: Path) -> pa.Table:
    _publish(place, lambda path: pq.write_table(table, path, compression="zstd"))
    return table


def _publish(place: Path, write: Callable[[Path], Any]) -> None:
    """Write a file that is either whole or not there."""
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    write(part)
    part.replace(place)
