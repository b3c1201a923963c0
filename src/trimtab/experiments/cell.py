"""One cell of a backtest: an engine at a date under every method, as rows of `Results`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.bias import ItemBias
from trimtab.engines.base import Engine
from trimtab.errors import DataError, TrimtabError
from trimtab.experiments.item_sales import SalesCounter
from trimtab.experiments.methods import Case, Method
from trimtab.experiments.plan import Plan
from trimtab.experiments.results import SCHEMAS, Results
from trimtab.experiments.timeline import Split
from trimtab.metrics.bootstrap import lift_intervals
from trimtab.metrics.evaluation import Judged, judge_units
from trimtab.metrics.per_user import coverage, kl_divergence, lift, mean_metrics
from trimtab.tables.log import Log

Step = Callable[[str], None]
_ALL_DAYS = 0  # how `windows` writes an engine trained on everything


def judge_cell(
    plan: Plan, log: Log, split: Split, name: str, engine: Engine, alone: bool, step: Step
) -> Results:
    """All tables of one engine at one date; of the engine by itself only, if `alone`."""
    cell = _Cell(plan, log, split, name, engine, step)
    for method in plan.methods[:1] if alone else plan.methods:
        try:
            cell.judge(method)
        except TrimtabError as error:
            where = f"{split.as_of}, engine {name}, method {method.name}"
            raise DataError(f"{where}: {error}") from error
    cell.compare()
    if not alone and plan.training_windows:
        cell.judge_windows()
    return cell.results()


def count_steps(plan: Plan, alone: bool) -> int:
    """How often `judge_cell` calls `step`."""
    if alone:
        return 1
    n_fits = sum(len(plan.metrics) if method.learns else 1 for method in plan.methods)
    return n_fits + len(plan.training_windows)


class _Cell:
    """Collects rows while methods are judged one after the other."""

    def __init__(
        self, plan: Plan, log: Log, split: Split, name: str, engine: Engine, step: Step
    ) -> None:
        self._plan, self._split, self._engine = plan, split, engine
        self._case = Case(engine, split, plan.n_listed, plan.k, log.catalogue())
        self._sales = SalesCounter(log, split)
        self._key = {"date": str(split.as_of), "engine": name}
        self._report = step
        self._judged: dict[tuple[str, str], Judged] = {}
        self._learned: dict[tuple[str, str], ItemBias] = {}
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def _step(self, text: str) -> None:
        self._report(f"{self._key['date']} {self._key['engine']}: {text}")

    def judge(self, method: Method) -> None:
        """Judge one method, once for each metric if it learns."""
        if not method.learns:
            self._step(method.name)
            self._add(method.name, "", method.lists(self._case))
            return
        for metric in self._plan.metrics:
            self._step(f"{method.name}, for {metric.upper()}")
            bias = method.learn(self._case, metric)
            self._learned[method.name, metric] = bias
            self._add(method.name, metric, bias.apply(self._case.lists, self._plan.k))

    def compare(self) -> None:
        """Rows of what was judged and learned, against the engine alone."""
        self._add_results()
        for (method, objective), judged in self._judged.items():
            self._add_reach({**self._key, "method": method, "objective": objective}, judged)
        for (method, objective), bias in self._learned.items():
            self._add_biases({**self._key, "method": method, "objective": objective}, bias)
        self._add_overlap()

    def judge_windows(self) -> None:
        """The engine trained on the last days only, for each training window, and on everything."""
        values = {}
        for days in sorted(self._plan.training_windows):
            self._step(f"trained on {days:g} days")
            try:
                lists = self._case.lists_of(replace(self._engine, window_days=days))
                values[days] = judge_units(lists, self._split.test, self._plan.k)
            except DataError:  # nothing was sold in so short a time
                continue
        whole = self._case.lists
        if self._engine.window_days is not None:
            whole = self._case.lists_of(replace(self._engine, window_days=None))
        values[_ALL_DAYS] = judge_units(whole, self._split.test, self._plan.k)
        means = {days: mean_metrics(judged.metrics) for days, judged in values.items()}
        shortest = means.get(min(self._plan.training_windows), {})
        for days, figures in means.items():
            for metric in self._plan.metrics:
                value, base = figures[metric], shortest.get(metric, np.nan)
                row = {"days": days, "metric": metric, "value": value}
                row["relative"] = lift(value, base) + 1
                self._rows["windows"].append({**self._key, **row})

    def results(self) -> Results:
        """Everything collected."""
        tables = {
            name: pa.Table.from_pylist(rows, schema=SCHEMAS[name])
            for name, rows in self._rows.items()
        }
        return Results({}, tables)

    def _add(self, method: str, objective: str, lists: Any) -> None:
        self._judged[method, objective] = judge_units(lists, self._split.test, self._plan.k)

    def _values(self, judged: Judged) -> Floats:
        """One row a buyer of the test, one column a metric."""
        buyers = judged.buyers()
        return np.stack([getattr(buyers, metric) for metric in self._plan.metrics], axis=1)

    def _add_results(self) -> None:
        values = [self._values(judged) for judged in self._judged.values()]
        base = values[0]
        seed = self._plan.seed
        found = lift_intervals(
            np.concatenate(values, axis=1), np.tile(base, len(values)), self._plan.n_draws, seed
        )
        keys = [(key, metric) for key in self._judged for metric in self._plan.metrics]
        means = np.concatenate([value.mean(axis=0) for value in values])
        baselines = np.tile(base.mean(axis=0), len(values))
        for ((method, objective), metric), interval, value, baseline in zip(
            keys, found, means, baselines, strict=True
        ):
            self._rows["results"].append(
                {
                    **self._key, "method": method, "objective": objective, "metric": metric,
                    "value": float(value), "baseline": float(baseline),
                    "lift": interval.lift,
                    "lift_low": interval.low, "lift_high": interval.high,
                    "n_users": len(base),
                }
            )  # fmt: skip

    def _add_reach(self, key: dict[str, str], judged: Judged) -> None:
        shown = judged.shown_to_buyers()
        bought = judged.bought.items
        for size, covered in coverage(shown, bought, judged.n_items).items():
            self._rows["coverage"].append({**key, "size": size, "covered": covered})
        kl = kl_divergence(bought, shown, judged.n_items)
        self._rows["divergence"].append({**key, "kl": kl})

    def _add_biases(self, key: dict[str, str], bias: ItemBias) -> None:
        moved = np.flatnonzero(bias.at_work)
        counts = {"n_biases": len(moved), "n_excluded": int(bias.excluded.sum())}
        self._rows["fits"].append({**key, **counts})
        self._rows["biases"] += [
            {**key, "bias": float(bias.bias[place]), **sales}
            for place, sales in zip(moved, self._sales.describe(bias.item_ids, moved), strict=True)
        ]

    def _add_overlap(self) -> None:
        for method in dict.fromkeys(name for name, _ in self._learned):
            for first, second in combinations(self._plan.metrics, 2):
                one, two = (self._learned[method, m].at_work for m in (first, second))
                either = np.count_nonzero(one | two)
                share = np.count_nonzero(one & two) / either if either else None
                pair = {"method": method, "first": first, "second": second, "share": share}
                self._rows["overlap"].append({**self._key, **pair})
