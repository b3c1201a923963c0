"""Biases learned on lists of 50 and applied to lists of 200: down to their depth, and all the way.

    python benchmarks/depth.py                     # 2 logs, 3 engines, 7 dates; about 10 minutes
    python benchmarks/depth.py --engine markov

Biases are learned on three days and judged on the next seven, k = 10. The first column is the lift
on lists of 50, the second on lists of 200 as `apply` does it by default (only the best 50 of each
list are re-ranked), the third with depth="all", as before results knew their depth.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import trimtab as tt
from rolling import DATES, NEEDED, RETAIL
from rolling_cells import N_LISTED, RECENT_DAYS, TEST_DAYS, K, engines, load_logs
from trimtab.cli.printing import progress_bar
from trimtab.replay.windows import rolling_dates, split_log
from trimtab.tables.columns import USER
from trimtab.tables.times import as_datetime

DEEP, EVERY = 200, 28  # items on a deep list, days between dates
WAYS = {
    "lists of 50": (N_LISTED, None),
    "of 200": (DEEP, None),
    "of 200, all of them": (DEEP, "all"),
}


def run_cell(log, engine, day) -> list[float]:
    """The lifts of one engine at one date."""
    split = split_log(log, day, RECENT_DAYS, TEST_DAYS)
    before = replace(engine).fit(split.train, as_datetime(split.recent_from))
    now = replace(engine).fit(split.known, as_datetime(split.test_from))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        bias = tt.BiasLearner(k=K).fit(
            before.recommend(split.recent[USER], N_LISTED), split.recent,
            history=split.train, items=log.catalogue(),
        )  # fmt: skip
        found = []
        for length, depth in WAYS.values():
            lists = now.recommend(split.test[USER], length)
            base = tt.evaluate(lists, split.test, K)["ndcg"]
            top = bias.apply(lists, K, depth=depth)
            found.append(tt.evaluate(top, split.test, K)["ndcg"] / base - 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--retail", type=Path, default=RETAIL)
    parser.add_argument("--engine", action="append", help="only these engines")
    options = parser.parse_args()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install '.[dev]'", file=sys.stderr)
        return 2
    table = Table("pair", "dates", *WAYS, title="Mean NDCG@10 lift in % (worst date)")
    logs = load_logs(options.retail)
    cells = [
        (name, engine, day)
        for name, log in logs.items()
        for engine in engines(log)
        if engine != "category" and (not options.engine or engine in options.engine)
        for day in rolling_dates(*DATES[name], EVERY)
    ]
    found: dict[tuple[str, str], list[list[float]]] = {}
    with progress_bar(len(cells)) as step:
        for name, engine, day in cells:
            step(f"{name}, {engine}, {day}")
            lifts = run_cell(logs[name], engines(logs[name])[engine], day)
            found.setdefault((name, engine), []).append(lifts)
    for (name, engine), rows in found.items():
        columns = 100 * np.array(rows).T
        shown = [f"{column.mean():+.1f} ({column.min():+.1f})" for column in columns]
        table.add_row(f"{name}, {engine}", str(len(rows)), *shown)
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
