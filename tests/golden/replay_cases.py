"""Backtests, a simulation and refreshes of a small shop, and what they give, to compare.

`python tests/golden/replay_cases.py` writes the figures to `replays.json`; do so only in a change
that explains why they differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import pyarrow.parquet as pq

from shops import AS_OF, Shop, make_shop, run_in_process

FIGURES = Path(__file__).with_name("replays.json")
CHANGING = ("created", "seconds", "version", "lists_folder", "events", "checksums", "files")
TEST = ("--date", "2026-02-16", "--date", "2026-02-18", "--test", "3d", "--metric", "ndcg")
RETRAIN = ("--set", "n_listed=20", "--set", "retrain_every=3")


def cases() -> dict[str, Callable[[Shop], Any]]:
    """All cases by name: each takes a shop and returns what it gave, as JSON has it."""
    return {
        "backtest of lists": lambda shop: _backtest(shop, *_own(shop)),
        "backtest of engines": _backtest_engines,
        "simulation": lambda shop: _simulate(shop, "--events", shop.events, *RETRAIN),
        "simulation of lists": lambda shop: _simulate(shop, *_own(shop), "--method", "reranker"),
        "refresh": lambda shop: _refresh(shop, "--finish-lists"),
        "refresh with a reranker": lambda shop: _refresh(shop, "--method", "reranker"),
        "history": _history,
    }


def _run(*arguments: object) -> str:
    with warnings.catch_warnings(action="ignore"):
        ran = run_in_process(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _own(shop: Shop) -> tuple[object, ...]:
    return ("--lists", shop.lists, "--events", shop.events, "--tz", "UTC")


def _backtest(shop: Shop, *given: object) -> Any:
    out = shop.folder / "judged"
    _run("backtest", *given, *TEST, "--k", 5, "--out", out, "--no-report")
    return _tables(out)


def _backtest_engines(shop: Shop) -> Any:
    engines = ("--engine", "markov", "--engine", "category", "--set", "n_listed=20")
    items = shop.folder / "items.parquet"
    return _backtest(shop, "--events", shop.events, *engines, "--items", items)


def _tables(folder: Path) -> Any:
    """Every table of a backtest but those with a row per item, of which there are sums."""
    found = {own.stem: pq.read_table(own).to_pylist() for own in sorted(folder.glob("*.parquet"))}
    moved = found.pop("biases")
    found["biases"] = [{"n": len(moved), "sum": sum(abs(own["bias"]) for own in moved)}]
    found["coverage"] = [sum(own["covered"] for own in found["coverage"])]
    found["sellers"] = found["sellers"][:3]
    return found


def _simulate(shop: Shop, *given: object) -> Any:
    """The days of a simulation, without what is another from run to run."""
    out = shop.folder / "month"
    _run("simulate", *given, "--days", 2, "--k", 5, "--out", out, "--no-report")
    return pq.read_table(out / "days.parquet").drop_columns(["seconds"]).to_pylist()


def _refresh(shop: Shop, *more: object) -> Any:
    return _stable(json.loads(_run(*shop.arguments("--as-of", AS_OF, *more, "--json"))))


def _history(shop: Shop) -> Any:
    """Of a version with biases and of one with a reranker."""
    for number, more in enumerate((["--finish-lists"], ["--method", "reranker"])):
        day = AS_OF.replace(day=AS_OF.day - 3 + number)
        _run(*shop.arguments("--as-of", day, *more))
    given = ("--store", shop.store, "--events", shop.events, "--test", "3d")
    return _stable(json.loads(_run("history", *given, "--json")))


def _stable(told: Any) -> Any:
    """Without what is another from run to run."""
    if isinstance(told, list):
        return [_stable(own) for own in told]
    if isinstance(told, dict):
        return {name: _stable(own) for name, own in told.items() if name not in CHANGING}
    return told


if __name__ == "__main__":
    written = {}
    for name, case in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            written[name] = case(make_shop(Path(folder) / "shop"))
    lines = (f"{json.dumps(name)}: {json.dumps(own)}" for name, own in written.items())
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
