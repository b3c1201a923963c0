"""The plan of the demo: the paper's experiments on a retailer's year."""

from __future__ import annotations

from typing import Any

from trimtab.experiments.plan import Plan, make_plan
from trimtab.tables.log import Log

_REGULAR_DATE, _HOLIDAY_DATE = "2017-11-01", "2017-12-11"
_SETTINGS: dict[str, Any] = {
    "dates": [_REGULAR_DATE, _HOLIDAY_DATE],
    "engines": ["markov", "category", "factorization"],
    "baselines": ["popularity", "repeat"],
    "training_windows": [7, 30, 91, 182],
}


def demo_plan(log: Log) -> Plan:
    """Return a plan: a regular and a holiday date, the paper's three engines, all methods."""
    return make_plan(_SETTINGS, log)
