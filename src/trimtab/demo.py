"""A first look: learn on generated purchases, judge on later days."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from trimtab.datasets import DriftData, generate_drift
from trimtab.evaluation import evaluate
from trimtab.learn import BiasLearner
from trimtab.metrics import lift

_CASES = (("strong", 1.0), ("moderate", 0.5), ("none", 0.0))
_METRICS = ("acc", "map", "ndcg")


def run_demo(n_users: int, seed: int, console: Console) -> None:
    """Print, for each strength of drift, the metrics of later days before and after."""
    console.print(
        f"{n_users} generated users, top 50 of an engine trained on the long run; biases are "
        f"learned on one window of purchases and judged on the next."
    )
    table = Table("drift", "method", "metric", "before", "after", "lift")
    with console.status("learning"):
        for name, drift in _CASES:
            data = generate_drift(n_users=n_users, drift=drift, seed=seed)
            for method, learners in _learners().items():
                for row in _judge(data, learners):
                    table.add_row(name, method, *row)
            table.add_section()
    console.print(table)
    console.print(
        "Drift that a bias can follow gives a gain on days not seen; without drift there is "
        "nothing to gain, and the default leaves the lists nearly as they are."
    )


def _learners() -> dict[str, dict[str, BiasLearner]]:
    return {
        "default": {m: BiasLearner(metric=m) for m in _METRICS},
        "paper": {m: BiasLearner.paper(metric=m) for m in _METRICS},
    }


def _judge(data: DriftData, learners: dict[str, BiasLearner]) -> list[list[str]]:
    """One row a metric, each learned for and judged by that metric."""
    recs, recent, test = data.recs(), data.recent_events(), data.test_events()
    before: dict[str, Any] = evaluate(recs, test)
    rows = []
    for metric, learner in learners.items():
        after = evaluate(learner.fit(recs, recent).apply(recs), test)[metric]
        change = f"{lift(after, before[metric]):+.1%}"
        rows.append([f"{metric.upper()}@10", f"{before[metric]:.4f}", f"{after:.4f}", change])
    return rows
