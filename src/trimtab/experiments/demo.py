"""The plan of the demo: the paper's experiments on a gift shop's year."""

from __future__ import annotations

from typing import Any

from trimtab.experiments.plan import Plan, make_plan
from trimtab.tables.log import Log

_REGULAR_DATE, _BEFORE_CHRISTMAS = "2010-07-07", "2010-11-10"
_SETTINGS: dict[str, Any] = {
    "dates": [_REGULAR_DATE, _BEFORE_CHRISTMAS],
    "engines": ["markov", "factorization"],
    "baselines": ["popularity", "repeat"],
    "training_windows": [7, 30, 91, 182],
}
_QUICK: dict[str, Any] = {
    "dates": [_BEFORE_CHRISTMAS], "engines": ["markov"], "metrics": ["ndcg"],
}  # fmt: skip


def demo_plan(log: Log, quick: bool = False) -> Plan:
    """Return a plan: a regular week and one before Christmas, two engines, all methods.

    The paper's third engine needs categories, which this shop does not have.

    Args:
        log: the gift shop's log.
        quick: only the week before Christmas, one engine and one metric.
    """
    return make_plan(_QUICK if quick else _SETTINGS, log)
