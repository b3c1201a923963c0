"""What would this morning have given? Lists and a log, judged date by date.

`run_backtest` compares engines, rivals and what Trimtab learns on the days after each date;
`open_lists` opens one's own dated lists for it.
"""

from trimtab.replay.judge import run_backtest
from trimtab.replay.outcome import open_lists
from trimtab.replay.plan import make_plan, plan_lists
from trimtab.replay.windows import split_log

__all__ = ["make_plan", "open_lists", "plan_lists", "run_backtest", "split_log"]
