"""Backtests: compare engines, rival methods and biases on the days after each date."""

from trimtab.experiments.backtest import run_backtest, total_steps
from trimtab.experiments.best_sellers import best_sellers
from trimtab.experiments.list_makers import OwnEngine, SuppliedLists
from trimtab.experiments.methods import Method
from trimtab.experiments.pace import CellDone
from trimtab.experiments.plan import Plan, make_plan, open_log, read_plan_file
from trimtab.experiments.python_engines import PythonEngine
from trimtab.experiments.results import Results
from trimtab.experiments.rivals import (
    decay,
    distribution_difference,
    popularity_ratio,
    recent_popularity,
    truncate,
)
from trimtab.experiments.timeline import Split, rolling_dates, split_log
from trimtab.experiments.unfinished import load_results

__all__ = [
    "CellDone",
    "Method",
    "OwnEngine",
    "Plan",
    "PythonEngine",
    "Results",
    "Split",
    "SuppliedLists",
    "best_sellers",
    "decay",
    "distribution_difference",
    "load_results",
    "make_plan",
    "open_log",
    "popularity_ratio",
    "read_plan_file",
    "recent_popularity",
    "rolling_dates",
    "run_backtest",
    "split_log",
    "total_steps",
    "truncate",
]
