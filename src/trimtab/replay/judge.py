"""One cell of a backtest: an engine at a date with every method, as rows of `Results`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.errors import DataError, TrimtabError, warn
from trimtab.metrics.evaluation import UnitEvaluation
from trimtab.metrics.intervals import Interval, lift_intervals
from trimtab.metrics.per_user import coverage, kl_divergence, lift
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.widening import SOURCES
from trimtab.replay.dated_folder import DatedFolder
from trimtab.replay.item_sales import WeeklySales
from trimtab.replay.leaked_lists import LeakedListsError
from trimtab.replay.methods import Case, DatedCase, ListMaker, Method
from trimtab.replay.outcome import judge
from trimtab.replay.plan import Plan
from trimtab.replay.results import LEVEL, SCHEMAS, Results
from trimtab.replay.timeline import Split, earlier_windows
from trimtab.tables.log import Log

Step = Callable[[str], None]
_ALL_DAYS = 0  # in the table `windows`: an engine trained on all events


@dataclass(frozen=True)
class Cell:
    """One engine at one date; a baseline is judged without other methods."""

    plan: Plan
    log: Log
    split: Split
    name: str
    engine: ListMaker

    @property
    def is_baseline(self) -> bool:
        """Whether it is judged without other methods."""
        return self.name not in self.plan.engines

    def __str__(self) -> str:
        return f"{self.split.as_of} {self.name}"

    def count_steps(self) -> int:
        """Return how often `run` calls `step`."""
        return count_steps(self.plan, self.is_baseline)

    def run(self, step: Step) -> Results:
        """Return all tables.

        Raises:
            LeakedListsError: the lists of this date seem to have seen what they are learned from,
                or judged by.
        """
        run = _CellRun(self, step)
        for method in self.plan.methods[:1] if self.is_baseline else self.plan.methods:
            try:
                run.run_method(method)
            except LeakedListsError:
                raise
            except TrimtabError as error:
                where = f"{self.split.as_of}, engine {self.name}, method {method.name}"
                raise DataError(f"{where}: {error}") from error
        run.add_comparisons()
        if not self.is_baseline and self.plan.training_windows:
            run.run_training_windows()
        return run.results()


def count_steps(plan: Plan, is_baseline: bool) -> int:
    """Return how often a cell calls `step`."""
    if is_baseline:
        return 1
    n_fits = sum(len(plan.metrics) if method.learns else 1 for method in plan.methods)
    return n_fits + len(plan.training_windows)


class _CellRun:
    """Runs methods one after the other and collects the rows of the results."""

    def __init__(self, cell: Cell, step: Step) -> None:
        plan, log, split = cell.plan, cell.log, cell.split
        self._cell, self._plan, self._split = cell, plan, split
        earlier = earlier_windows(log, split, plan.recent_days, plan.windows)
        make = DatedCase if isinstance(cell.engine, DatedFolder) else Case
        self._case = make(cell.engine, log, split, plan.n_listed, plan.k, earlier)
        self._sales = WeeklySales(log, split)
        self._key = {"date": str(split.as_of), "engine": cell.name}
        self._call_step = step
        self._evaluated: dict[tuple[str, str], UnitEvaluation] = {}
        self._biases: dict[tuple[str, str], ItemBias] = {}
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def _step(self, text: str) -> None:
        self._call_step(f"{self._cell}: {text}")

    def run_method(self, method: Method) -> None:
        """Evaluate one method, once per metric if it learns."""
        if not method.learns:
            self._step(method.name)
            self._evaluated[method.name, ""] = self._evaluate(method.lists(self._case))
            return
        reason = method.reason_to_skip(self._case)
        if reason is not None:
            where = f"{self._key['date']}, engine {self._key['engine']}"
            warn(f"{where}: {method.name} is skipped: {reason}")
        for metric in self._plan.metrics:
            self._step(f"{method.name}, for {metric.upper()}")
            if reason is not None:
                continue
            model = method.learn(self._case, metric)
            self._evaluated[method.name, metric] = self._evaluate(self._case.rank(model))
            key = {**self._key, "method": method.name, "objective": metric}
            self._rows["forecasts"].append({**key, **model.forecast._asdict()})
            if model.needs_events:
                self._add_parts(key, metric, model)
            else:
                self._biases[method.name, metric] = model.item_bias

    def add_comparisons(self) -> None:
        """Add rows that compare each method with the engine alone."""
        self._add_results()
        for (method, objective), evaluation in self._evaluated.items():
            key = {**self._key, "method": method, "objective": objective}
            self._add_item_distribution(key, evaluation)
        for (method, objective), bias in self._biases.items():
            self._add_biases({**self._key, "method": method, "objective": objective}, bias)
        self._add_overlap()

    def run_training_windows(self) -> None:
        """Evaluate the engine trained on each training window, and on all events."""
        evaluated, engine = {}, self._case.trained()
        for days in sorted(self._plan.training_windows):
            self._step(f"trained on {days:g} days")
            try:
                lists = self._case.lists_of(replace(engine, window_days=days))
                evaluated[days] = self._evaluate(lists)
            except DataError:  # no sales in such a short window
                continue
        whole = self._case.lists
        if engine.window_days is not None:
            whole = self._case.lists_of(replace(engine, window_days=None))
        evaluated[_ALL_DAYS] = self._evaluate(whole)
        means = {days: found.means() for days, found in evaluated.items()}
        shortest = means.get(min(self._plan.training_windows), {})
        for days, figures in means.items():
            for metric in self._plan.metrics:
                value, base = figures[metric], shortest.get(metric, np.nan)
                row = {"days": days, "metric": metric, "value": value}
                row["relative"] = lift(value, base) + 1
                self._rows["windows"].append({**self._key, **row})

    def results(self) -> Results:
        """Return all collected rows."""
        tables = {
            name: pa.Table.from_pylist(rows, schema=SCHEMAS[name])
            for name, rows in self._rows.items()
        }
        return Results({}, tables)

    def _evaluate(self, lists: Any) -> UnitEvaluation:
        return judge(lists, self._split.test, self._plan.k)

    def _buyer_metrics(self, evaluation: UnitEvaluation) -> Floats:
        """Return one row per buyer of the test, one column per metric."""
        return np.stack([evaluation.weighted_buyers(each) for each in self._plan.metrics], axis=1)

    def _add_results(self) -> None:
        values = [self._buyer_metrics(evaluation) for evaluation in self._evaluated.values()]
        base = values[0]
        seed = self._plan.seed
        together, alone = np.concatenate(values, axis=1), np.tile(base, len(values))
        found = lift_intervals(together, alone, self._plan.n_draws, seed, LEVEL)
        keys = [(key, metric) for key in self._evaluated for metric in self._plan.metrics]
        figures = [evaluation.means() for evaluation in self._evaluated.values()]
        means = [own[metric] for own in figures for metric in self._plan.metrics]
        baselines = means[: len(self._plan.metrics)] * len(values)
        for ((method, objective), metric), interval, value, baseline in zip(
            keys, found, means, baselines, strict=True
        ):
            self._rows["results"].append(
                {
                    **self._key, "method": method, "objective": objective, "metric": metric,
                    "value": value, "baseline": baseline,
                    "lift": interval.lift,
                    "lift_low": interval.low, "lift_high": interval.high,
                    "n_users": len(base),
                }
            )  # fmt: skip

    def _add_parts(self, key: dict[str, str], metric: str, model: Any) -> None:
        """Add what each part gains in the metric that was learned for."""

        def judge_parts(other: Model) -> Floats:
            return self._evaluate(self._case.rank(other)).weighted_buyers(metric)

        alone = next(iter(self._evaluated.values())).weighted_buyers(metric)
        for part, used, gain in find_gains(
            model, judge_parts, alone, self._plan.n_draws, self._plan.seed
        ):
            figures = {"gain": gain.lift, "gain_low": gain.low, "gain_high": gain.high}
            self._rows["parts"].append({**key, "part": part, "used": used, **figures})

    def _add_item_distribution(self, key: dict[str, str], evaluation: UnitEvaluation) -> None:
        shown = evaluation.shown
        bought = evaluation.bought.items
        for size, covered in coverage(shown, bought, evaluation.n_items).items():
            self._rows["coverage"].append({**key, "size": size, "covered": covered})
        kl = kl_divergence(bought, shown, evaluation.n_items)
        self._rows["divergence"].append({**key, "kl": kl})

    def _add_biases(self, key: dict[str, str], bias: ItemBias) -> None:
        moved = np.flatnonzero(bias.at_work)
        counts = {"n_biases": len(moved), "n_excluded": int(bias.excluded.sum())}
        self._rows["fits"].append({**key, **counts})
        self._rows["biases"] += [
            {**key, "bias": float(bias.bias[place]), **sales}
            for place, sales in zip(moved, self._sales.rows(bias.item_ids, moved), strict=True)
        ]

    def _add_overlap(self) -> None:
        for method in dict.fromkeys(name for name, _ in self._biases):
            for first, second in combinations(self._plan.metrics, 2):
                one, two = (self._biases[method, m].at_work for m in (first, second))
                either = np.count_nonzero(one | two)
                share = np.count_nonzero(one & two) / either if either else None
                pair = {"method": method, "first": first, "second": second, "share": share}
                self._rows["overlap"].append({**self._key, **pair})


TREND, PERSONAL = "trend", "personal"
PARTS = (TREND, PERSONAL, *SOURCES)


class PartGain(NamedTuple):
    """What a part adds to the lift over the engine alone."""

    part: str
    used: bool  # whether the reranker has learned it
    gain: Interval


def find_gains(
    reranker: Reranker, judge: Callable[[Reranker], Floats], alone: Floats, n_draws: int, seed: int
) -> list[PartGain]:
    """Return what each of `PARTS` gains.

    Args:
        reranker: the whole.
        judge: returns the metric of every buyer with the lists of a reranker.
        alone: the same buyers' metric with the engine alone.
        n_draws: bootstrap samples.
        seed: random seed of the bootstrap.
    """
    sources = reranker.summary.sources
    whole, trend = judge(reranker), judge(reranker.without(PERSONAL))
    listed = judge(reduce(Reranker.without, sources, reranker)) if sources else whole
    pairs = {TREND: (alone, trend), PERSONAL: (trend, listed)}
    for name in SOURCES:
        pairs[name] = (judge(reranker.without(name)) if name in sources else whole, whole)
    changed = np.stack([alone + (after - before) for before, after in pairs.values()], axis=1)
    base = np.tile(alone[:, None], len(pairs))
    used = {TREND: bool(reranker.bias.bias.any()), PERSONAL: bool(reranker.learned)}
    return [
        PartGain(part, used.get(part, part in sources), gain)
        for part, gain in zip(
            pairs, lift_intervals(changed, base, n_draws, seed, LEVEL), strict=True
        )
    ]
