"""The results of a backtest as plain data: what was judged, and how lifts vary over dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.checks import METRICS
from trimtab.replay.methods import BEST_SELLERS, LEARNING_KINDS, RERANKER, standard_methods
from trimtab.replay.results import BASELINE, EARLIER, Results
from trimtab.report.decision import FEW_DATES  # up to this many, each is shown by itself
from trimtab.report.words import METHODS, Name, day, is_number, method_names, metric_name

SELLERS = tuple(method.name for method in standard_methods(BEST_SELLERS))
HARMLESS = -0.005  # a lift at or above this counts as harmless
Row = dict[str, Any]
_NAMES = ("date", "engine", "method", "objective", "metric")
_NUMBERS = ("value", "lift", "lift_low", "lift_high")


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
        """1 or -1 if the whole interval is on one side of 0, otherwise 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True)
class Spread:
    """Lifts of several dates: mean, worst and best date, share of harmless dates."""

    mean: float
    worst: float
    worst_date: str
    best: float
    harmless: float
    n_dates: int


def find_spread(lifts: Iterable[Lift]) -> Spread | None:
    """Return how lifts vary over dates; None if none of them is a number."""
    known = [(row.lift, row.date) for row in lifts if row.lift is not None]
    if not known:
        return None
    values, n = [value for value, _ in known], len(known)
    harmless = sum(value >= HARMLESS for value in values) / n
    return Spread(sum(values) / n, *min(known), max(values), harmless, n)


class DateGroup(NamedTuple):
    """Dates that are shown together: one date, or all of them as a mean."""

    title: str
    dates: Sequence[str]


@dataclass(frozen=True)
class Overview:
    """What all sections share: dates, engines, methods, metrics and all lifts."""

    results: Results
    lifts: Sequence[Lift]

    @cached_property
    def dates(self) -> list[str]:
        """All dates, in order."""
        return sorted({row.date for row in self.lifts})

    @cached_property
    def engines(self) -> list[str]:
        """Engines that methods were tried on; most sections show the first one."""
        tried = {row.engine for row in self.lifts if row.method != BASELINE}
        return [engine for engine in self.all_engines if engine in tried] or self.all_engines

    @cached_property
    def all_engines(self) -> list[str]:
        """All engines, including those judged alone only, in order of appearance."""
        return list(dict.fromkeys(row.engine for row in self.lifts))

    @cached_property
    def methods(self) -> list[str]:
        """All methods: the known ones in the paper's order, then the others."""
        return _put_in_order((row.method for row in self.lifts), METHODS)

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
        known = self.results.about.get("methods")
        own = known.get(method) if isinstance(known, Mapping) else None
        return str(own.get("kind", method)) if isinstance(own, Mapping) else method

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics: ACC, MAP, NDCG, then others."""
        return _put_in_order((row.metric for row in self.lifts), METRICS)

    @cached_property
    def names(self) -> dict[str, Name]:
        """Names and colours of the methods."""
        return method_names(self.methods)

    @cached_property
    def holes(self) -> list[Row]:
        """Days with far fewer events than usual in a window around a date."""
        rows: list[Row] = self.results.table("holes").to_pylist()
        return [row for row in rows if row["date"] in self.dates]

    @cached_property
    def marked_dates(self) -> list[str]:
        """Dates with such a day in the test or in the recent window, in order."""
        return sorted({row["date"] for row in self.holes if row["window"] != EARLIER})

    @property
    def few(self) -> bool:
        """Whether each date is shown by itself."""
        return len(self.dates) <= FEW_DATES

    @property
    def date_groups(self) -> list[DateGroup]:
        """Each date by itself if there are few, otherwise all of them together."""
        if self.few:
            return [DateGroup(day(date), [date]) for date in self.dates]
        return [DateGroup(f"mean of {len(self.dates)} dates", self.dates)]

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

    @property
    def metric(self) -> str:
        """The metric of sections that show one: NDCG, or else the last."""
        return "ndcg" if "ndcg" in self.metrics else self.metrics[-1]

    def name_metric(self, metric: str) -> str:
        """Return 'NDCG@10'."""
        return metric_name(metric, self.results.about.get("k"))

    def judged(self, **wanted: str) -> list[Lift]:
        """Return lifts with these values, each learned method by the metric it learned for."""
        own = (row for row in self.lifts if row.objective in ("", row.metric))
        return [row for row in own if all(getattr(row, key) == wanted[key] for key in wanted)]

    def shown_dates(self) -> list[str]:
        """Return the dates shown in detail: all if few, else the best, the worst and the last."""
        if self.few or self.featured is None:
            return self.dates[:FEW_DATES]
        rows = self.judged(engine=self.engines[0], method=self.featured, metric=self.metric)
        known = sorted((row.lift, row.date) for row in rows if row.lift is not None)
        return sorted({self.dates[-1], *(date for _, date in (known[:1] + known[-1:]))})


def _put_in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    found = dict.fromkeys(names)
    return [name for name in order if name in found] + [name for name in found if name not in order]


def make_overview(results: Results) -> Overview:
    """Return the results of a backtest, ready to be shown."""
    return Overview(results, [_read_lift(row) for row in results.table("results").to_pylist()])


def _read_lift(row: Row) -> Lift:
    values: list[Any] = [row[name] or "" for name in _NAMES]
    return Lift(*values, *(row[name] if is_number(row[name]) else None for name in _NUMBERS))


def select_rows(table: pa.Table, **wanted: str) -> list[Row]:
    """Return the rows of a table that have these values."""
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], pa.scalar(value, pa.string())))
    rows: list[Row] = table.to_pylist()
    return rows


def choose_objective(table: pa.Table, wished: str) -> str:
    """Return the objective to show: the wished one, or else the first."""
    found = sorted(name for name in table["objective"].unique().to_pylist() if name)
    return wished if wished in found or not found else found[0]


def mean_by(rows: Iterable[Row], keys: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    """Return the mean of a column for each combination of keys, over rows with a number."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if is_number(row[value]):
            groups.setdefault(tuple(row[key] for key in keys), []).append(row[value])
    return {key: sum(values) / len(values) for key, values in groups.items()}
