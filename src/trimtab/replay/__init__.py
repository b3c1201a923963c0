"""What would this morning have given? Lists and a log, judged date by date.

`run_backtest` compares engines, rivals and what Trimtab learns on the days after each date;
`open_lists` opens one's own dated lists for it.
"""

from trimtab.replay.judge import run_backtest, total_steps
from trimtab.replay.outcome import DatedFolder, open_lists
from trimtab.replay.plan import Plan, make_plan, open_log, plan_lists, read_plan_file
from trimtab.replay.python_engines import OwnEngine, PythonEngine
from trimtab.replay.results import CellDone, Results, load_results
from trimtab.replay.rivals import Method
from trimtab.replay.windows import Split, rolling_dates, split_log

__all__ = [
    "CellDone",
    "DatedFolder",
    "Method",
    "OwnEngine",
    "Plan",
    "PythonEngine",
    "Results",
    "Split",
    "load_results",
    "make_plan",
    "open_lists",
    "open_log",
    "plan_lists",
    "read_plan_file",
    "rolling_dates",
    "run_backtest",
    "split_log",
    "total_steps",
]
