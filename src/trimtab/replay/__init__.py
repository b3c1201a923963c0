"""What would this morning have given? Lists and a log, judged date by date.

`run_backtest` compares engines, rivals and what Trimtab learns on the days after each date;
`open_lists` opens one's own dated lists for it.
"""

from trimtab.replay.backtest import run_backtest, total_steps
from trimtab.replay.dated_folder import DatedFolder, open_lists
from trimtab.replay.methods import Method
from trimtab.replay.plan import Plan, make_plan, open_log, plan_lists, read_plan_file
from trimtab.replay.python_engines import OwnEngine, PythonEngine
from trimtab.replay.results import CellDone, Results, load_results
from trimtab.replay.rivals import (
    best_sellers,
    decay,
    distribution_difference,
    popularity_ratio,
    recent_popularity,
    truncate,
)
from trimtab.replay.timeline import Split, rolling_dates, split_log

__all__ = [
    "CellDone",
    "DatedFolder",
    "Method",
    "OwnEngine",
    "Plan",
    "PythonEngine",
    "Results",
    "Split",
    "best_sellers",
    "decay",
    "distribution_difference",
    "load_results",
    "make_plan",
    "open_lists",
    "open_log",
    "plan_lists",
    "popularity_ratio",
    "read_plan_file",
    "recent_popularity",
    "rolling_dates",
    "run_backtest",
    "split_log",
    "total_steps",
    "truncate",
]
