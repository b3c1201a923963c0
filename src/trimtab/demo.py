"""The demo: the paper's experiments on a real retailer's year, as tables and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.cells import Step
from trimtab.datasets.logs import Log
from trimtab.plan import Plan, make_plan
from trimtab.report import write_report
from trimtab.results import Results

REGULAR, HOLIDAY = "2017-11-01", "2017-12-11"
_SETTINGS: dict[str, Any] = {
    "dates": [REGULAR, HOLIDAY],
    "engines": ["markov", "category", "factorization"],
    "baselines": ["popularity", "repeat"],
    "training_windows": [7, 30, 91, 182],
}


def demo_plan(log: Log) -> Plan:
    """A regular and a holiday date, the paper's three engines, all methods."""
    return make_plan(_SETTINGS, log)


def run_demo(plan: Plan, log: Log, folder: Path, step: Step) -> tuple[Results, Path]:
    """Results and the place of the page."""
    from trimtab.backtest import run_backtest

    results = run_backtest(plan, log, folder, step)
    page = folder / "report.html"
    step("report")
    write_report(results, page)
    return results, page
