"""Fits of the default learner by one version of the package or by two, on the same tables.

A version is a folder that holds the package `trimtab` (its `src`). Each version works in a process
of its own, which gets the tables and returns an `Outcome`, so all versions get the same tables.
Outcomes are cached in build/fits by the content of the package's files and of the tables; give
--against a copy that nobody edits meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

OWN_SRC = Path(__file__).resolve().parent.parent / "src"
KEPT = Path("build/fits")


@dataclass(frozen=True)
class Case:
    """The tables of a fit, the lists to re-rank with its biases, and the purchases that judge."""

    recs: pa.Table
    recent: pa.Table
    lists: pa.Table
    later: pa.Table
    history: pa.Table | None = None
    items: pa.Table | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    returns_top: bool = False  # whether the outcome has the re-ranked lists

    def digest(self) -> str:
        """Return a name for the content."""
        settings = (sorted(self.settings.items()), self.returns_top)
        sha = hashlib.sha256(repr(settings).encode())
        for table in (self.recs, self.recent, self.lists, self.later, self.history, self.items):
            sha.update(b"-" if table is None else ",".join(table.column_names).encode())
            for column in () if table is None else table.columns:
                _add_column(sha, column)
        return sha.hexdigest()


class Outcome(NamedTuple):
    """What a fit gave, and the metric on the purchases that judge, without and with its biases."""

    before: float
    after: float
    forecast: float | None
    low: float | None
    high: float | None
    converged: bool
    moved: bool  # some bias is not 0
    scale: str
    seconds: float
    table: pa.Table  # of biases
    said: list[str]  # warnings
    top: pa.Table | None  # the re-ranked lists, if asked for

    @property
    def lift(self) -> float:
        """The lift; nan if the metric was 0 before."""
        return self.after / self.before - 1 if self.before else float("nan")


class Version:
    """One version of the package, working in a process of its own."""

    def __init__(self, name: str, src: Path) -> None:
        self.name, self._src, self._process = name, src, None
        self._digest = _digest_sources(src)

    def fit(self, case: Case) -> Outcome:
        """Return the outcome of a fit with this version, from an earlier run if there is one."""
        name = hashlib.sha256((self._digest + case.digest()).encode()).hexdigest()[:32]
        kept = KEPT / f"{name}.pickle"
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        outcome = self._ask(case)
        KEPT.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(pickle.dumps(outcome))
        unfinished.replace(kept)
        return outcome

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()

    def _ask(self, case: Case) -> Outcome:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(self._src)},
            )
        try:
            pickle.dump(vars(case), self._process.stdin, protocol=5)
            self._process.stdin.flush()
            return Outcome(**pickle.load(self._process.stdout))
        except (BrokenPipeError, EOFError):
            sys.exit(f"{self._src}: this version failed, see its error above")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose versions."""
    parser.add_argument(
        "--against", type=Path, metavar="SRC", help="src folder of another version to compare with"
    )


@contextmanager
def open_versions(options: argparse.Namespace) -> Iterator[list[Version]]:
    """Yield this version, and after it the one to compare with, if there is one."""
    versions = [Version("this", OWN_SRC)]
    if options.against is not None:
        if not (options.against / "trimtab" / "__init__.py").exists():
            sys.exit(f"--against {options.against}: no package trimtab in this folder")
        versions.append(Version("other", options.against.resolve()))
    try:
        yield versions
    finally:
        for version in versions:
            version.close()


def _digest_sources(src: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted((src / "trimtab").rglob("*.py")):
        sha.update(str(path.relative_to(src)).encode() + path.read_bytes())
    return sha.hexdigest()


def _add_column(sha: Any, column: pa.ChunkedArray) -> None:
    sha.update(str(column.type).encode())
    if pa.types.is_primitive(column.type):
        number = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        sha.update(np.ascontiguousarray(number.to_numpy()).tobytes())
    else:
        sha.update(repr(column.to_pylist()).encode())


# --- the process that fits ------------------------------------------------------------------------


def _fit(case: dict[str, Any]) -> dict[str, Any]:
    import trimtab as tt

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun = time.perf_counter()
        bias = tt.BiasLearner(**case["settings"]).fit(
            case["recs"], case["recent"], history=case["history"], items=case["items"]
        )
        seconds = time.perf_counter() - begun
        top = bias.apply(case["lists"])
        before, after = (
            tt.evaluate(lists, case["later"])["ndcg"] for lists in (case["lists"], top)
        )
    summary = bias.summary
    return {
        "before": before, "after": after, "forecast": summary.forecast,
        "low": summary.forecast_low, "high": summary.forecast_high,
        "converged": summary.converged, "moved": bool(np.any(bias.bias != 0)),
        "scale": bias.scale, "seconds": seconds, "table": bias.table(),
        "said": [str(warning.message) for warning in said],
        "top": top if case["returns_top"] else None,
    }  # fmt: skip


def _serve() -> None:
    """Answer each pickled case on standard input by a pickled outcome."""
    import trimtab

    src = os.environ["PYTHONPATH"]
    if not Path(trimtab.__file__).is_relative_to(src):
        sys.exit(f"imported {trimtab.__file__}, not the package in {src}")
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while True:
        try:
            case = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_fit(case), answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    _serve()
