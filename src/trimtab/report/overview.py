"""The results of a backtest as plain data: what was judged, how lifts vary, what to switch on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any

import pyarrow.compute as pc

from trimtab.checks import METRICS
from trimtab.replay.results import BASELINE, EARLIER, HOLE_WINDOWS, Results
from trimtab.replay.rivals import BEST_SELLERS, RERANKER, standard_methods
from trimtab.replay.windows import HOLE
from trimtab.report import decision
from trimtab.report.decision import DatedLift, Decision, Record
from trimtab.report.page import Text, range_class
from trimtab.report.words import METHODS, is_number, method_names, metric_name
from trimtab.tables.times import DAY, HOUR

SELLERS = tuple(
    method.name for window in (DAY, HOUR) for method in standard_methods(BEST_SELLERS, window)
)
_OWN = ("default", "paper", RERANKER)  # kinds of Trimtab's methods, simplest first
Row = dict[str, Any]
Wanted = str | Collection[str]


def where(rows: Iterable[Row], **wanted: Wanted) -> list[Row]:
    """Return the rows with these values, or with one of these."""
    sets = {key: {own} if isinstance(own, str) else set(own) for key, own in wanted.items()}
    return [row for row in rows if all(row[key] in own for key, own in sets.items())]


def group_by(rows: Iterable[Row], keys: Sequence[str], value: str) -> dict[Any, list[Row]]:
    """Return the rows with a number in a column, by one key or by several."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if is_number(row[value]):
            groups.setdefault(itemgetter(*keys)(row), []).append(row)
    return groups


def mean_by(rows: Iterable[Row], keys: Sequence[str], value: str) -> dict[Any, float]:
    """Return the mean of a column by one key or by several, over rows with a number."""
    groups = group_by(rows, keys, value)
    return {key: fmean(row[value] for row in own) for key, own in groups.items()}


def sure_class(low: object, high: object) -> str:
    """Return the class of a number whose interval is on one side of 0: a gain or a loss."""
    if not (is_number(low) and is_number(high)):
        return ""
    return "gain" if low > 0 else "loss" if high < 0 else ""


def mean_class(record: Record) -> str:
    """Return the class of a mean lift, by its worst date; of one date, by its interval."""
    if record.n_dates == 1:
        return sure_class(record.low, record.high)
    return range_class(record.mean, record.worst)


TEXT = Text(
    "backtest.jinja", rule=decision, hole=HOLE, hole_windows=HOLE_WINDOWS, reranker=RERANKER,
    best_sellers=SELLERS, alone=BASELINE, mean_class=mean_class, sure_class=sure_class,
    mean_by=mean_by,
)  # fmt: skip


class Overview:
    """What all sections share: dates, engines, methods, metrics and all lifts.

    Attributes:
        results: the results.
        lifts: rows of the table of results.
        dates: all dates, in order.
        all_engines: all engines, including those judged alone only, in order of appearance.
        engines: engines that methods were tried on.
        engine: the first of them, which most sections show.
        methods: all methods: the known ones in the paper's order, then the others.
        rivals: all methods except the engine alone.
        own_methods: Trimtab's methods, simplest first: biases by default, other biases, rerankers.
        metrics: ACC, MAP, NDCG, then others.
        metric: metric of sections that show one: NDCG, or else the last.
        names: names and colours of the methods.
        holes: days with far fewer events than usual in a window around a date.
        marked_dates: dates with such a day in the test or in the recent window, in order.
        few: whether each date is shown by itself.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.lifts = [{**row, "objective": row["objective"] or ""} for row in self.rows("results")]
        self.dates = sorted({row["date"] for row in self.lifts})
        self.all_engines = list(dict.fromkeys(row["engine"] for row in self.lifts))
        tried = {row["engine"] for row in self.lifts if row["method"] != BASELINE}
        self.engines = [own for own in self.all_engines if own in tried] or self.all_engines
        self.engine = next(iter(self.engines), "")
        self.methods = _put_in_order((row["method"] for row in self.lifts), METHODS)
        self.rivals = [method for method in self.methods if method != BASELINE]
        own = [method for method in self.rivals if self.kind_of(method) in _OWN]
        self.own_methods = sorted(own, key=lambda method: _OWN.index(self.kind_of(method)))
        self.metrics = _put_in_order((row["metric"] for row in self.lifts), METRICS)
        self.metric = "ndcg" if "ndcg" in self.metrics else next(reversed(self.metrics), "")
        self.names = method_names(self.methods)
        self.holes = where(self.rows("holes"), date=self.dates)
        self.marked_dates = sorted({row["date"] for row in self.holes if row["window"] != EARLIER})
        self.few = len(self.dates) <= decision.FEW_DATES

    def kind_of(self, method: str) -> str:
        """Return the kind of a method that may have a name of its own."""
        named = self.results.about.get("methods") or {}
        return str(named.get(method, {}).get("kind", method))

    def name_metric(self, metric: str | None = None) -> str:
        """Return 'NDCG@10'; of the metric shown unless another is given."""
        return metric_name(metric or self.metric, self.results.about.get("k"))

    def judged(self, **wanted: Wanted) -> list[Row]:
        """Return lifts with these values, each learned method by the metric it learned for."""
        return where((r for r in self.lifts if r["objective"] in ("", r["metric"])), **wanted)

    def judged_by(self, *keys: str, **wanted: Wanted) -> dict[Any, Row]:
        """Return `judged` rows by the values of some columns."""
        return {itemgetter(*keys)(row): row for row in self.judged(**wanted)}

    def shown_dates(self) -> list[str]:
        """Return the dates shown in detail: all if few, else the best, the worst and the last."""
        method = next(iter([*self.own_methods, *self.rivals]), None)
        if self.few or method is None:
            return self.dates[: decision.FEW_DATES]
        rows = self.judged(engine=self.engine, method=method, metric=self.metric)
        known = sorted((row["lift"], row["date"]) for row in rows if is_number(row["lift"]))
        return sorted({self.dates[-1], *(date for _, date in (known[:1] + known[-1:]))})

    def rows(self, name: str) -> list[Row]:
        """Return all rows of a table."""
        found: list[Row] = self.results.table(name).to_pylist()
        return found

    def objective_of(self, name: str) -> str:
        """Return the objective of a table to show: the metric shown, or else the first."""
        found = sorted(filter(None, self.results.table(name)["objective"].unique().to_pylist()))
        return self.metric if self.metric in found or not found else found[0]

    def select(self, name: str, **wanted: str) -> list[Row]:
        """Return the rows of a table that have these values."""
        table = self.results.table(name)
        for column, value in wanted.items():
            table = table.filter(pc.equal(table[column], value))
        return where(table.to_pylist(), date=self.dates)

    def records(
        self, engine: str, methods: Sequence[str], metric: str | None = None
    ) -> list[Record]:
        """Return the records of these methods, of those that have a lift; in the metric shown.

        Of the best sellers of several numbers of days, only those with the highest mean.
        """
        found = []
        for method in methods:
            rows = self.judged(engine=engine, method=method, metric=metric or self.metric)
            dated = {row["date"]: _read_lift(row) for row in rows if is_number(row["lift"])}
            if dated:
                found.append(decision.make_record(method, dated))
        sellers = [record for record in found if record.method in SELLERS]
        best = max(sellers, key=lambda record: record.mean, default=None)
        return [record for record in found if record is best or record not in sellers]

    def ranked(self, engine: str, metric: str | None = None) -> list[Record]:
        """Return the records of all methods on an engine, highest mean lift first."""
        found = self.records(engine, self.rivals, metric)
        return sorted(found, key=lambda record: -record.mean)

    def decide(self, engine: str) -> Decision:
        """Return what to switch on for an engine."""
        others = [method for method in self.rivals if method not in self.own_methods]
        own, rivals = (self.records(engine, methods) for methods in (self.own_methods, others))
        return decision.decide(own, rivals)


def _put_in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    found = dict.fromkeys(names)
    return [name for name in order if name in found] + [name for name in found if name not in order]


def _read_lift(row: Row) -> DatedLift:
    low, high = (row[end] if is_number(row[end]) else None for end in ("lift_low", "lift_high"))
    return DatedLift(row["lift"], low, high)
