"""Biases learned on lists of 50 and applied to lists of 200: down to their depth, and all the way.

    python benchmarks/depth.py                     # 2 logs, 3 engines, 7 dates; about 10 minutes
    python benchmarks/depth.py --engine markov

Biases are learned on three days and judged on the next seven, k = 10. The first column is the lift
on lists of 50, the second on lists of 200 as `apply` does it by default (only the best 50 of each
list are re-ranked), the third with depth="all", as before results knew their depth.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import trimtab as tt
from rolling import DATES, RETAIL
from rolling_cells import N_LISTED, RECENT_DAYS, TEST_DAYS, K, engines, load_logs
from trimtab.datasets import Log
from trimtab.engines import Engine
from trimtab.replay.outcome import Case
from trimtab.replay.windows import rolling_dates, split_log

DEEP, EVERY = 200, 28  # items on a deep list, days between dates
WAYS = {
    "lists of 50": (N_LISTED, None),
    "of 200": (DEEP, None),
    "of 200, all of them": (DEEP, "all"),
}


def run_cell(log: Log, engine: Engine, day: date) -> list[float]:
    """The lifts of one engine at one date."""
    split = split_log(log, day, f"{RECENT_DAYS}d", f"{TEST_DAYS}d")
    case = Case(engine, log, split, N_LISTED, K, ())
    bias, found = case.training.fit(tt.BiasLearner(k=K)), []
    for length, depth in WAYS.values():
        lists = replace(case, n_listed=length).lists
        base = tt.evaluate(lists, case.split.test, K)["ndcg"]
        top = bias.apply(lists, K, depth=depth)
        found.append(tt.evaluate(top, case.split.test, K)["ndcg"] / base - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--retail", type=Path, default=RETAIL)
    parser.add_argument("--engine", action="append", help="only these engines")
    parser.add_argument("--log", action="append", choices=DATES, help="only these logs")
    options = parser.parse_args()
    warnings.simplefilter("ignore", tt.TrimtabWarning)
    table = Table("pair", "dates", *WAYS, title="Mean NDCG@10 lift in % (worst date)")
    for name, log in load_logs(options.retail).items():
        for kind, engine in engines(log).items() if name in (options.log or DATES) else ():
            if kind != "category" and kind in (options.engine or [kind]):
                days = rolling_dates(*DATES[name], EVERY)
                columns = 100 * np.array([run_cell(log, engine, day) for day in days]).T
                shown = [f"{column.mean():+.1f} ({column.min():+.1f})" for column in columns]
                table.add_row(f"{name}, {kind}", str(len(days)), *shown)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
