"""The record of each method on an engine, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report.backtest.overview import SELLERS, Lift, Overview
from trimtab.report.decision import DatedLift, Decision, Record, decide, make_record


def find_records(view: Overview, engine: str, methods: Sequence[str]) -> list[Record]:
    """Return the records of these methods in the metric shown, of those that have a lift.

    Of the best sellers of several numbers of days, only those with the highest mean.
    """
    found = []
    for method in methods:
        rows = view.judged(engine=engine, method=method, metric=view.metric)
        dated = {row.date: _read(row) for row in rows if row.lift is not None}
        if dated:
            found.append(make_record(method, dated))
    sellers = [record for record in found if record.method in SELLERS]
    best = max(sellers, key=lambda record: record.mean, default=None)
    return [record for record in found if record is best or record not in sellers]


def _read(row: Lift) -> DatedLift:
    assert row.lift is not None
    return DatedLift(row.lift, row.low, row.high)


def decide_engine(view: Overview, engine: str) -> Decision:
    """Return what to switch on for an engine."""
    own = find_records(view, engine, view.own_methods)
    return decide(own, find_records(view, engine, view.other_methods))


def rank_records(view: Overview, engine: str) -> list[Record]:
    """Return the records of all methods on an engine, highest mean lift first."""
    found = find_records(view, engine, view.rivals)
    return sorted(found, key=lambda record: -record.mean)
