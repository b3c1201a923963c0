"""Cells of the rolling benchmark: an engine at a date under rivals and learners, kept on disk.

A cell has parts, each a small JSON file named after all that it depends on: an interrupted run goes
on where it was, and after a change in the package only what it can touch is computed again. The
engine's lists are kept too, since making them takes most of the time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import trimtab as tt
from als_engine import ALS
from trimtab.datasets import Log, load_complete_journey, read_log
from trimtab.engines import Category, Engine, Factorization, Markov
from trimtab.experiments.methods import Case, Method
from trimtab.experiments.timeline import EarlierWindow, earlier_windows, split_log
from trimtab.metrics.bootstrap import lift_intervals
from trimtab.metrics.evaluation import evaluate_units
from trimtab.tables.columns import TIMESTAMP, USER
from trimtab.tables.timestamps import day_start, microseconds

KNOBS: dict[str, tuple[str, tuple[float, ...]]] = {
    "truncate": ("days", (14, 30, 91, 182)),
    "decay": ("days", (10, 20, 60, 180)),
    "distrdiff": ("factor", (0.25, 0.5, 1, 2, 4, 8, 16)),
    "ratio": ("gamma", (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1)),
    "recent": ("gamma", (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)),
}
REFITTED = ("truncate", "decay")  # each setting trains the engine anew: most of the time
QUICK_REFITS = (("truncate", 30), ("decay", 20), ("decay", 60))
LAMBDAMART = "lambdamart"
LEARNERS = ("paper", "default")
METRICS = ("acc", "map", "ndcg")
K, N_LISTED, RECENT_DAYS, TEST_DAYS = 10, 50, 3, 7
WINDOWS = 6  # that the default learns from, as the daily job does
DEFAULT = "default"  # the part with the default's NDCG and its forecast
N_DRAWS = 1000
ROUNDS = 3  # as many for each time: the best of more would flatter
_HERE, _PACKAGE = Path(__file__).parent, Path(tt.__file__).parent
_BESIDE = ("cli", "report")  # parts of the package that no number depends on


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

    @property
    def has_rivals(self) -> bool:
        """Whether rivals are judged too."""
        return len(self.parts) > 1

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

    log: Log
    folder: Path

    @functools.cached_property
    def before(self) -> pa.Table:
        """Lists made before the recent window."""
        return self._made_at(self.split.as_of - timedelta(RECENT_DAYS))

    def before_earlier(self, own: EarlierWindow) -> pa.Table:
        """Lists made before an earlier window."""
        return self._made_at(own.window.first)

    @functools.cached_property
    def lists(self) -> pa.Table:
        """Lists made at the date."""
        return self._made_at(self.split.as_of)

    def _made_at(self, day: date) -> pa.Table:
        place = self.folder / f"{day}.parquet"
        if place.exists():
            return pq.read_table(place)
        events, tz = self.log.events, self.log.tz
        start, stop = (day_start(day + timedelta(days), tz) for days in (0, TEST_DAYS))
        first, last = np.searchsorted(microseconds(events[TIMESTAMP]), [start, stop])
        users = events[USER].slice(first, last - first)
        self.folder.mkdir(parents=True, exist_ok=True)
        return _keep(self._lists(self.engine, events.slice(0, first), start, users), place)


def load_logs(retail: Path) -> dict[str, Log]:
    """The logs at hand by name; the second only where its file is."""
    opened = {"Complete Journey": load_complete_journey()}
    if retail.exists():
        names = retail.with_name(f"{retail.stem}_items.parquet")
        opened["Online retail"] = read_log(
            retail, tz="Europe/London", items=names if names.exists() else None
        )
    return opened


def engines(log: Log) -> dict[str, Engine]:
    made: dict[str, Engine] = {"markov": Markov(), "factorization": Factorization()}
    if log.levels:
        made["category"] = Category(items=log.items, level=log.levels[-1])
    return {**made, "als": ALS()}


def parts_of(quick: bool, timed: bool) -> tuple[str, ...]:
    """The parts that a cell needs; a quick run trains engines anew at fewer settings."""
    refits = [name for name, refit in _REFITS.items() if not quick or refit in QUICK_REFITS]
    return (*refits, "rescores", "learners", DEFAULT, *(["times"] if timed else []))


def part_keys(log: Log) -> dict[str, str]:
    """A key for the lists and for each part: it changes with code, settings and events."""
    engine_code = [
        *_PACKAGE.glob("engines/*.py"),
        _PACKAGE / "experiments" / "timeline.py",
        _HERE / "als_engine.py",
    ]
    rival_code = [
        *engine_code,
        _PACKAGE / "experiments" / "rivals.py",
        _PACKAGE / "metrics" / "evaluation.py",
    ]
    package = [
        file
        for file in _PACKAGE.rglob("*.py")
        if file.relative_to(_PACKAGE).parts[0] not in _BESIDE
    ]
    mark = repr((_mark(log), K, N_LISTED, RECENT_DAYS, TEST_DAYS))
    drawn, rescored = f"{mark} {N_DRAWS}", [KNOBS[kind] for kind in KNOBS if kind not in REFITTED]
    learned = _digest(package, f"{drawn} {WINDOWS}")
    return {
        "lists": _digest(engine_code, mark),
        **{part: _digest(rival_code, drawn) for part in _REFITS},
        "rescores": _digest([*rival_code, _HERE / "lambdamart.py"], f"{drawn} {rescored}"),
        "learners": learned,
        DEFAULT: learned,
        "times": learned,
    }


def start_worker(retail: Path) -> None:
    """Open the logs once a process."""
    global _logs
    _logs = load_logs(retail)


def fill_cell(cell: Cell) -> float:
    """Compute and keep the parts of a cell that are missing; gives the seconds of CPU it took."""
    begun = time.process_time()
    cell.folder.mkdir(parents=True, exist_ok=True)
    log = _logs[cell.log]
    split = split_log(log, cell.day, RECENT_DAYS, TEST_DAYS)
    earlier = earlier_windows(log, split, RECENT_DAYS, WINDOWS)
    case = KeptCase(
        engines(log)[cell.engine], split, N_LISTED, K, log.catalogue(), earlier, log=log,
        folder=cell.folder.parent / f"lists-{cell.keys['lists']}",
    )  # fmt: skip
    for part in cell.missing():
        fill = _refit if part in _REFITS else _FILLS[part]
        text = json.dumps(fill(case, part))
        _publish(cell.place(part), lambda path, text=text: path.write_text(text))
    return time.process_time() - begun


def _refit(case: Case, part: str) -> dict[str, Any]:
    return {"rows": _judge(case, [_rival(case, *_REFITS[part])])}


def _rescore(case: Case, _: str) -> dict[str, Any]:
    from lambdamart import Reranker

    rivals = [
        _rival(case, kind, value)
        for kind, (_, values) in KNOBS.items()
        if kind not in REFITTED
        for value in values
    ]
    trees = ((LAMBDAMART, name, METRICS, lists) for name, lists in Reranker(case).lists())
    return {"rows": _judge(case, [*rivals, *trees])}


def _learn(case: Case, _: str) -> dict[str, Any]:
    """The learners, but for the default's NDCG."""
    wanted = [(kind, metric) for kind in LEARNERS for metric in METRICS]
    wanted.remove(("default", "ndcg"))
    return {"rows": _judge(case, [_shown(*own, _bias(case, *own), case) for own in wanted])}


def _learn_default(case: Case, _: str) -> dict[str, Any]:
    bias = _bias(case, "default", "ndcg")
    summary = bias.summary
    return {
        "rows": _judge(case, [_shown("default", "ndcg", bias, case)]),
        "forecast": {
            "lift": summary.forecast,
            "low": summary.forecast_low,
            "high": summary.forecast_high,
        },
        "converged": summary.converged,
        "windows": summary.n_windows,
    }


def _bias(case: Case, kind: str, metric: str) -> tt.ItemBias:
    return Method(kind, kind).learn(case, metric)


def _shown(kind: str, metric: str, bias: tt.ItemBias, case: Case) -> _Shown:
    depth = None if bias.depth is None else N_LISTED
    return kind, "", (metric,), bias.apply(case.lists, K, depth=depth)


def _time(case: Case, _: str) -> dict[str, float]:
    """Seconds of the default fit and of a plain ascent on the same tables, taking turns."""
    fits: dict[str, Callable[[], Any]] = {
        "default": lambda: Method("default", "default").learn(case, "ndcg"),
        "ascent": lambda: tt.BiasLearner(k=K, method="ascent").fit(case.before, case.split.recent),
    }
    taken: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(ROUNDS):
        for name, fit in fits.items():
            begun = time.perf_counter()
            fit()
            taken[name].append(time.perf_counter() - begun)
    return {name: min(seconds) for name, seconds in taken.items()}


_REFITS = {f"{kind}-{value:g}": (kind, value) for kind in REFITTED for value in KNOBS[kind][1]}
_FILLS = {"rescores": _rescore, "learners": _learn, DEFAULT: _learn_default, "times": _time}
_logs: dict[str, Log] = {}
_Shown = tuple[str, str, tuple[str, ...], Any]  # kind, setting, metrics to judge by, lists


def _rival(case: Case, kind: str, value: float) -> _Shown:
    knob = KNOBS[kind][0]
    return kind, f"{knob} {value:g}", METRICS, Method(kind, kind, {knob: value}).lists(case)


def _judge(case: Case, shown: Iterable[_Shown]) -> list[dict[str, Any]]:
    """A row for each way to make lists and metric: its lift over the engine alone."""
    base = evaluate_units(case.lists, case.split.test, K).buyers()
    keys, values, baseline = [], [], []
    for kind, setting, metrics, lists in shown:
        buyers = evaluate_units(lists, case.split.test, K).buyers()
        for metric in metrics:
            keys.append({"kind": kind, "setting": setting, "metric": metric})
            values.append(getattr(buyers, metric))
            baseline.append(getattr(base, metric))
    found = lift_intervals(np.stack(values, 1), np.stack(baseline, 1), N_DRAWS, seed=0)
    return [
        {
            **key, "value": float(value.mean()), "baseline": float(alone.mean()),
            **interval._asdict(), "n_users": len(value),
        }
        for key, value, alone, interval in zip(keys, values, baseline, found, strict=True)
    ]  # fmt: skip


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
