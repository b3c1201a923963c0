"""The record of a simulated month: its lifts by day, and whether to switch the job on."""

from __future__ import annotations

import math

from trimtab.daily.simulated_month import BIASES_ALONE, Month, Row
from trimtab.report.decision import (
    DO_NOT,
    FEW_DATES,
    UNKNOWN,
    Decision,
    Record,
    decide,
    student_quantile,
)
from trimtab.report.words import counted

BIAS, RERANKER = "bias", "reranker"
_ENOUGH_DAYS = 14
MOST_DAYS_BELOW = 1 / 3  # single days have few buyers, and fall below 0 by chance more often


def decide_month(month: Month) -> Decision:
    """Return whether to switch on the biases, or the reranker if there is one."""
    columns = {BIAS: "value"}
    if month.about.get("reranker"):
        columns = {BIAS: BIASES_ALONE, RERANKER: "value"}
    records = [_make_record(month, method, column) for method, column in columns.items()]
    return decide([record for record in records if record is not None], [])


def find_interval(month: Month, column: str = "value") -> tuple[float, float]:
    """Return the 95 % interval of the lift over all days, with days as units; NaN if unknown."""
    rows = _judged(month, column)
    lift, baseline = month.lift(column), sum(row["baseline"] * row["n_users"] for row in rows)
    n = len(rows)
    if n < 2 or not baseline:
        return math.nan, math.nan
    # Delta method for a ratio of sums.
    rests = [row["n_users"] * (row[column] - (1 + lift) * row["baseline"]) for row in rows]
    error = math.sqrt(sum(rest * rest for rest in rests) * n / (n - 1)) / baseline
    half = student_quantile(n - 1) * error
    return lift - half, lift + half


def _make_record(month: Month, method: str, column: str) -> Record | None:
    lifts = {
        row["day"]: row[column] / row["baseline"] - 1
        for row in _judged(month, column)
        if row["baseline"]
    }
    ends = find_interval(month, column)
    return Record(method, lifts, month.lift(column), *ends, MOST_DAYS_BELOW) if lifts else None


def _judged(month: Month, column: str) -> list[Row]:
    return [row for row in month.rows if row[column] is not None]


def write_title(month: Month, decision: Decision) -> str:
    """Return the one line on top: what to do."""
    if decision.action == UNKNOWN or decision.chosen is None:
        return "Nothing to judge"
    if decision.action == DO_NOT:
        return "Do not switch it on"
    what = f"the {decision.chosen.method}" if month.about.get("reranker") else "it"
    n_days = decision.chosen.n_dates
    few = f", as far as {counted(n_days, 'day')} can tell" if n_days <= FEW_DATES else ""
    return f"Switch {what} on{few}" if what == "it" else f"Switch on {what}{few}"


def describe_doubt(decision: Decision) -> str:
    """Return what speaks against switching it on; empty if nothing does."""
    record = decision.chosen
    if decision.action != DO_NOT or record is None:
        return ""
    if record.loses_often:
        return f"That is not a sure gain: {record.n_below} of {record.n_dates} days are below 0."
    if math.isnan(record.low):
        return "That is not a sure gain: one day says nothing about the next."
    more = " Replay more days to be surer." if record.n_dates < _ENOUGH_DAYS else ""
    return f"That is not a sure gain: the interval is not above 0.{more}"
