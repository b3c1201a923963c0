"""The numbers behind the lifts, as plain data: what was judged, and how lifts spread over dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.experiments.results import BASELINE, Results
from trimtab.report.words import METHODS, METRICS, Name, is_number, method_names

FEW_DATES = 4  # up to this many, each date is shown by itself
HARMLESS = -0.005  # a lift at or above this does no harm worth speaking of
Row = dict[str, Any]
_NAMES = ("date", "engine", "method", "objective", "metric")
_NUMBERS = {"value": "value", "lift": "lift", "low": "lift_low", "high": "lift_high"}


@dataclass(frozen=True)
class Lift:
    """One row of the table of results."""

    date: str
    engine: str
    method: str
    objective: str
    metric: str
    value: float | None
    lift: float | None
    low: float | None
    high: float | None

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval is on one side of 0, otherwise 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True)
class Spread:
    """Lifts of several dates: their mean, the worst and best date, the share that is harmless."""

    mean: float
    worst: float
    worst_date: str
    best: float
    harmless: float
    n_dates: int


def spread(lifts: Iterable[Lift]) -> Spread | None:
    """How lifts spread over dates; None if none of them is a number."""
    known = [(row.lift, row.date) for row in lifts if row.lift is not None]
    if not known:
        return None
    values = [value for value, _ in known]
    worst, worst_date = min(known)
    harmless = sum(value >= HARMLESS for value in values) / len(values)
    mean = sum(values) / len(values)
    return Spread(mean, worst, worst_date, max(values), harmless, len(values))


@dataclass(frozen=True)
class Overview:
    """What every section starts from: which dates, engines, methods and metrics, and all lifts."""

    results: Results
    lifts: Sequence[Lift]

    @property
    def about(self) -> Mapping[str, Any]:
        """What is known about how the results came to be."""
        return self.results.about

    @cached_property
    def dates(self) -> list[str]:
        """All dates, in order."""
        return sorted({row.date for row in self.lifts})

    @cached_property
    def engines(self) -> list[str]:
        """Engines that methods were tried on, in order; the first is the one most sections show."""
        tried = {row.engine for row in self.lifts if row.method != BASELINE}
        return [engine for engine in self.all_engines if engine in tried] or self.all_engines

    @cached_property
    def all_engines(self) -> list[str]:
        """Those, and engines that were judged by themselves only, as they first appear."""
        return list(dict.fromkeys(row.engine for row in self.lifts))

    @cached_property
    def methods(self) -> list[str]:
        """All methods: the known ones in the paper's order, then the others."""
        return _in_order((row.method for row in self.lifts), METHODS)

    @cached_property
    def rivals(self) -> list[str]:
        """All methods but the engine alone."""
        return [method for method in self.methods if method != BASELINE]

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics: ACC, MAP, NDCG, then others."""
        return _in_order((row.metric for row in self.lifts), METRICS)

    @cached_property
    def names(self) -> dict[str, Name]:
        """What methods are called, and their colours."""
        return method_names(self.methods)

    @property
    def few(self) -> bool:
        """Whether there is room to show each date by itself."""
        return len(self.dates) <= FEW_DATES

    @property
    def featured(self) -> str | None:
        """The method that the headline is about: the default settings, if they were tried."""
        wished = [method for method in ("default", "paper") if method in self.methods]
        return next(iter([*wished, *self.rivals[-1:]]), None)

    @property
    def biased(self) -> list[str]:
        """The methods that learn a bias; all but the engine alone if neither is known."""
        return [method for method in ("paper", "default") if method in self.methods] or self.rivals

    @property
    def metric(self) -> str:
        """The metric to show where there is room for one: NDCG, or else the last."""
        return "ndcg" if "ndcg" in self.metrics else self.metrics[-1]

    @property
    def cutoff(self) -> object:
        """How many places a list has, if known."""
        return self.about.get("k")

    def judged(self, **wanted: str) -> list[Lift]:
        """Lifts with these values; learned methods only where judged by what they learned for."""
        own = (row for row in self.lifts if row.objective in ("", row.metric))
        return [row for row in own if _matches(row, wanted)]

    def shown_dates(self) -> list[str]:
        """The dates to go into details of: all if few, else the best, the worst and the last."""
        if self.few or self.featured is None:
            return self.dates[:FEW_DATES]
        rows = self.judged(engine=self.engines[0], method=self.featured, metric=self.metric)
        known = sorted((row.lift, row.date) for row in rows if row.lift is not None)
        return sorted({self.dates[-1], *(date for _, date in (known[:1] + known[-1:]))})


def _matches(row: Lift, wanted: Mapping[str, str]) -> bool:
    return all(getattr(row, name) == value for name, value in wanted.items())


def _in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    found = dict.fromkeys(names)
    return [name for name in order if name in found] + [name for name in found if name not in order]


def overview(results: Results) -> Overview:
    """The results of a backtest, ready to be told."""
    return Overview(results, [_lift(row) for row in results.table("results").to_pylist()])


def _lift(row: Row) -> Lift:
    names: Row = {name: row[name] or "" for name in _NAMES}
    numbers: Row = {
        name: row[column] if is_number(row[column]) else None for name, column in _NUMBERS.items()
    }
    return Lift(**names, **numbers)


def select(table: pa.Table, **wanted: str) -> list[Row]:
    """The rows of a table that have these values."""
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], pa.scalar(value, pa.string())))
    rows: list[Row] = table.to_pylist()
    return rows


def objective_of(table: pa.Table, wished: str) -> str:
    """The objective to show where there is room for one: the wished one, or else the first."""
    found = sorted(name for name in table["objective"].unique().to_pylist() if name)
    return wished if wished in found or not found else found[0]


def mean_by(rows: Iterable[Row], keys: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    """The mean of a column for each combination of keys, over rows where it is a number."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if is_number(row[value]):
            groups.setdefault(tuple(row[key] for key in keys), []).append(row[value])
    return {key: sum(values) / len(values) for key, values in groups.items()}
