"""What the coefficients of a Reranker mean, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from trimtab.rerank.rerank_table import Coefficient

_ONE_MORE = {  # how much of a term one compares, and the words for it
    "score": (1.0, "a score e times as high"),
    "bought_before": (1.0, "bought before by the user"),
    "times_bought": (math.log(2.0), "bought twice as often by the user"),
    "days_since": (math.log(2.0), "twice as long since the user's last purchase"),
    "bought_lately": (math.log(2.0), "twice as many purchases of late by the user"),
    "trending": (1.0, "added because it sells well, instead of the last item of the list"),
    "own": (1.0, "added because the user bought it, instead of the last item of the list"),
}
_ITEM = {
    "long_run_share": "twice the share of all sales",
    "rise_of_quarter": "twice the share in the last three months, against all time",
    "rise_of_month": "twice the share in the last month, against three months",
    "rise_of_week": "twice the share in the last week, against the month",
    "rise_of_window": "twice the share in the last days, against the week",
    "bought_per_listed": "bought twice as often per list that holds it",
    "share_shown": "shown twice as often by the engine",
    "days_unsold": "twice as long unsold",
    "age": "twice as long on sale",
    "repeat_rate": "twice as often bought again",
}
_UNKNOWN = 1.0  # standard error: from a fifth to five times as likely


def coefficient_table(learned: Sequence[Coefficient], scale: str) -> pa.Table:
    """Return coefficients as a table, each with a sentence.

    Args:
        learned: the coefficients.
        scale: of the biases, on which scores are compared.
    """
    return pa.table(
        {
            "name": pa.array([c.name for c in learned], pa.string()),
            "kind": pa.array([c.kind for c in learned], pa.string()),
            "value": pa.array([c.value for c in learned], pa.float64()),
            "error": pa.array([c.error for c in learned], pa.float64()),
            "meaning": pa.array([explain(c, scale) for c in learned], pa.string()),
        }
    )


def explain(coefficient: Coefficient, scale: str = "log") -> str:
    """Return what a coefficient means, as in "bought before by the user: 3.1 x as likely".

    Where a term hardly varies within lists, the prior's 0 is left, with a large error.
    """
    step, words = _ONE_MORE.get(
        coefficient.name,
        (math.log(2.0), _ITEM.get(coefficient.name, f"twice the {coefficient.name}")),
    )
    if coefficient.kind == "score" and scale != "log":
        words = "a score higher by the gap from the first to the k-th of the list"
    if coefficient.error > _UNKNOWN and abs(coefficient.value) < coefficient.error / 10:
        return f"{words}: not learned"
    return f"{words}: {_times(math.exp(step * coefficient.value))} as likely"


def _times(ratio: float) -> str:
    """Return a ratio like "3.1 x", or "0.95 x" close to 1."""
    return f"{ratio:.2f} x" if 0.8 < ratio < 1.25 else f"{ratio:.2g} x"
