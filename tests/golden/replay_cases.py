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
TEST = ("--date", "2026-02-16", "--date", "2026-02-18", "--test-days", 3, "--metric", "ndcg")


def cases() -> dict[str, Callable[[Shop], Any]]:
    """All cases by name: each takes a shop and returns what it gave, as JSON has it."""
    return {
        "backtest of lists": _backtest_lists,
        "backtest of engines": _backtest_engines,
        "simulation": _simulate,
        "simulation of lists": _simulate_lists,
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
    return ("--lists", shop.lists, "--events", shop.events, "--tz", "UTC", "--k", 5)


def _backtest_lists(shop: Shop) -> Any:
    _run("backtest", *_own(shop), *TEST, "--out", shop.folder / "own", "--no-report")
    return _tables(shop.folder / "own")


def _backtest_engines(shop: Shop) -> Any:
    engines = (
        "--engine",
        "markov",
        "--engine",
        "category",
        "--items",
        shop.folder / "items.parquet",
    )
    _run(
        "backtest", "--events", shop.events, *engines, *TEST, "--k", 5, "--set", "n_listed=20",
        "--out", shop.folder / "engines", "--no-report",
    )  # fmt: skip
    return _tables(shop.folder / "engines")


def _tables(folder: Path) -> Any:
    """Every table of a backtest but those with a row per item, of which there are sums."""
    found = {
        path.stem: pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))
    }
    moved = found.pop("biases")
    found["biases"] = [{"n": len(moved), "sum": sum(abs(own["bias"]) for own in moved)}]
    found["coverage"] = [sum(own["covered"] for own in found["coverage"])]
    found["sellers"] = found["sellers"][:3]
    return found


def _simulate(shop: Shop) -> Any:
    out = shop.folder / "month"
    given = (
        "--events",
        shop.events,
        "--days",
        2,
        "--k",
        5,
        "--set",
        "n_listed=20",
        "--set",
        "retrain_every=3",
    )
    _run("simulate", *given, "--out", out, "--no-report")
    return _days(out)


def _simulate_lists(shop: Shop) -> Any:
    out = shop.folder / "own-month"
    _run("simulate", *_own(shop), "--days", 2, "--method", "reranker", "--out", out, "--no-report")
    return _days(out)


def _days(folder: Path) -> Any:
    return pq.read_table(folder / "days.parquet").drop_columns(["seconds"]).to_pylist()


def _refresh(shop: Shop, *more: object) -> Any:
    return _stable(json.loads(_run(*shop.arguments("--as-of", AS_OF, *more, "--json"))))


def _history(shop: Shop) -> Any:
    """Of a version with biases and of one with a reranker."""
    for number, more in enumerate((["--finish-lists"], ["--method", "reranker"])):
        day = AS_OF.replace(day=AS_OF.day - 3 + number)
        _run(*shop.arguments("--as-of", day, *more))
    given = ("--store", shop.store, "--events", shop.events, "--test-days", 3)
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
