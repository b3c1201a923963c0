"""The results of a backtest as plain data: what was judged, how lifts vary, what to switch on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow.compute as pc

from trimtab.checks import METRICS
from trimtab.replay.results import BASELINE, EARLIER, Results
from trimtab.replay.rivals import BEST_SELLERS, LEARNING_KINDS, RERANKER, standard_methods
from trimtab.report.decision import FEW_DATES, DatedLift, Decision, Record, decide, make_record
from trimtab.report.words import METHODS, Name, is_number, method_names, metric_name

SELLERS = tuple(method.name for method in standard_methods(BEST_SELLERS))
Row = dict[str, Any]


class Spread(NamedTuple):
    """Numbers of several dates: mean, worst and best."""

    mean: float
    worst: float
    best: float


def find_spread(rows: Iterable[Row], column: str = "lift") -> Spread | None:
    """Return how a column varies over dates; None if none of its values is a number."""
    values = [row[column] for row in rows if is_number(row[column])]
    if not values:
        return None
    return Spread(sum(values) / len(values), min(values), max(values))


def sign_of(row: Row, name: str = "lift") -> int:
    """Return 1 or -1 if the whole interval is on one side of 0, otherwise 0."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if not (is_number(low) and is_number(high)):
        return 0
    return int(low > 0) - int(high < 0)


def where(rows: Iterable[Row], **wanted: str | Collection[str]) -> list[Row]:
    """Return the rows with these values, or with one of these."""
    sets = {key: {own} if isinstance(own, str) else set(own) for key, own in wanted.items()}
    return [row for row in rows if all(row[key] in own for key, own in sets.items())]


def mean_by(rows: Iterable[Row], keys: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    """Return the mean of a column for each combination of keys, over rows with a number."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if is_number(row[value]):
            groups.setdefault(tuple(row[key] for key in keys), []).append(row[value])
    return {key: sum(values) / len(values) for key, values in groups.items()}


@dataclass(frozen=True)
class Overview:
    """What all sections share: dates, engines, methods, metrics and all lifts."""

    results: Results

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts about the log and the plan."""
        return self.results.about

    @cached_property
    def lifts(self) -> list[Row]:
        """The rows of the table of results."""
        rows: list[Row] = self.results.table("results").to_pylist()
        return [{**row, "objective": row["objective"] or ""} for row in rows]

    @cached_property
    def dates(self) -> list[str]:
        """All dates, in order."""
        return sorted({row["date"] for row in self.lifts})

    @cached_property
    def all_engines(self) -> list[str]:
        """All engines, including those judged alone only, in order of appearance."""
        return list(dict.fromkeys(row["engine"] for row in self.lifts))

    @cached_property
    def engines(self) -> list[str]:
        """Engines that methods were tried on; most sections show the first one."""
        tried = {row["engine"] for row in self.lifts if row["method"] != BASELINE}
        return [engine for engine in self.all_engines if engine in tried] or self.all_engines

    @property
    def engine(self) -> str:
        """The engine that most sections show."""
        return self.engines[0]

    @cached_property
    def methods(self) -> list[str]:
        """All methods: the known ones in the paper's order, then the others."""
        return _put_in_order((row["method"] for row in self.lifts), METHODS)

    @cached_property
    def rivals(self) -> list[str]:
        """All methods except the engine alone."""
        return [method for method in self.methods if method != BASELINE]

    @cached_property
    def own_methods(self) -> list[str]:
        """Trimtab's methods, simplest first: biases by default, other biases, rerankers."""
        order = ("default", "paper", RERANKER)
        own = [method for method in self.rivals if self.kind_of(method) in order]
        return sorted(own, key=lambda method: order.index(self.kind_of(method)))

    @cached_property
    def other_methods(self) -> list[str]:
        """The methods that Trimtab's are compared with, except the engine alone."""
        return [method for method in self.rivals if method not in self.own_methods]

    def kind_of(self, method: str) -> str:
        """Return the kind of a method that may have a name of its own."""
        known = self.about.get("methods")
        own = known.get(method) if isinstance(known, Mapping) else None
        return str(own.get("kind", method)) if isinstance(own, Mapping) else method

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics: ACC, MAP, NDCG, then others."""
        return _put_in_order((row["metric"] for row in self.lifts), METRICS)

    @property
    def metric(self) -> str:
        """The metric of sections that show one: NDCG, or else the last."""
        return "ndcg" if "ndcg" in self.metrics else self.metrics[-1]

    def name_metric(self, metric: str | None = None) -> str:
        """Return 'NDCG@10'; of the metric shown unless another is given."""
        return metric_name(metric or self.metric, self.about.get("k"))

    @cached_property
    def names(self) -> dict[str, Name]:
        """Names and colours of the methods."""
        return method_names(self.methods)

    @cached_property
    def holes(self) -> list[Row]:
        """Days with far fewer events than usual in a window around a date."""
        return where(self.results.table("holes").to_pylist(), date=self.dates)

    @cached_property
    def marked_dates(self) -> list[str]:
        """Dates with such a day in the test or in the recent window, in order."""
        return sorted({row["date"] for row in self.holes if row["window"] != EARLIER})

    @property
    def few(self) -> bool:
        """Whether each date is shown by itself."""
        return len(self.dates) <= FEW_DATES

    @property
    def mean_note(self) -> str:
        """Addition to the caption of a table of means; empty for one date."""
        return "" if len(self.dates) == 1 else f" (mean of {len(self.dates)} dates)"

    @property
    def featured(self) -> str | None:
        """The method shown in detail: the default settings if they were tried."""
        wished = [method for method in ("default", "paper", RERANKER) if method in self.methods]
        return next(iter([*wished, *self.rivals[-1:]]), None)

    @property
    def headlined(self) -> list[str]:
        """The methods of the headline: the featured one, and the reranker if it was tried."""
        wished = [self.featured, RERANKER if RERANKER in self.methods else None]
        return [method for method in dict.fromkeys(wished) if method is not None]

    @property
    def learned(self) -> list[str]:
        """The methods that learn; all except the engine alone if none of them is known."""
        return [method for method in LEARNING_KINDS if method in self.methods] or self.rivals

    def judged(self, **wanted: str | Collection[str]) -> list[Row]:
        """Return lifts with these values, each learned method by the metric it learned for."""
        return where((r for r in self.lifts if r["objective"] in ("", r["metric"])), **wanted)

    def shown_dates(self) -> list[str]:
        """Return the dates shown in detail: all if few, else the best, the worst and the last."""
        if self.few or self.featured is None:
            return self.dates[:FEW_DATES]
        rows = self.judged(engine=self.engine, method=self.featured, metric=self.metric)
        known = sorted((row["lift"], row["date"]) for row in rows if is_number(row["lift"]))
        return sorted({self.dates[-1], *(date for _, date in (known[:1] + known[-1:]))})

    def has(self, name: str) -> bool:
        """Return whether a table has rows."""
        return bool(self.results.table(name).num_rows)

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
                found.append(make_record(method, dated))
        sellers = [record for record in found if record.method in SELLERS]
        best = max(sellers, key=lambda record: record.mean, default=None)
        return [record for record in found if record is best or record not in sellers]

    def ranked(self, engine: str, metric: str | None = None) -> list[Record]:
        """Return the records of all methods on an engine, highest mean lift first."""
        found = self.records(engine, self.rivals, metric)
        return sorted(found, key=lambda record: -record.mean)

    def decide(self, engine: str) -> Decision:
        """Return what to switch on for an engine."""
        own, others = (self.records(engine, m) for m in (self.own_methods, self.other_methods))
        return decide(own, others)


def _put_in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    found = dict.fromkeys(names)
    return [name for name in order if name in found] + [name for name in found if name not in order]


def _read_lift(row: Row) -> DatedLift:
    low, high = (row[end] if is_number(row[end]) else None for end in ("lift_low", "lift_high"))
    return DatedLift(row["lift"], low, high)
