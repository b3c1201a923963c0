"""Backtests: dates x engines x methods x metrics, judged by the days after each date.

Each (date, engine) is one cell, saved when it is done, so an interrupted run continues with the
next cell. Cells are merged at the end.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats
from trimtab.errors import DataError, TrimtabError, warn
from trimtab.metrics.evaluation import UnitEvaluation
from trimtab.metrics.intervals import Interval, lift_intervals
from trimtab.metrics.per_user import coverage, kl_divergence, lift
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.widening import SOURCES
from trimtab.replay import results as stored
from trimtab.replay.outcome import Case, DatedCase, DatedFolder
from trimtab.replay.plan import ListMaker, Plan
from trimtab.replay.python_engines import describe_engine
from trimtab.replay.results import LEVEL, Done, Pace, Results
from trimtab.replay.rivals import Method, trained_engine
from trimtab.replay.training import LeakedListsError, judge
from trimtab.replay.windows import (
    HOLE,
    Split,
    Window,
    earlier_windows,
    find_holes,
    log_days,
    recent_windows,
    split_log,
)
from trimtab.tables.columns import ITEM, NAME, TIMESTAMP, USER, WEIGHT
from trimtab.tables.files import require_writable_folder
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment

Step = Callable[[str], None]
TREND, PERSONAL = "trend", "personal"
PARTS = (TREND, PERSONAL, *SOURCES)
_ALL_DAYS = 0  # in the table `windows`: an engine trained on all events
_WEEK = 7 * DAY
_N_SELLERS = 10
_SEED = 0  # of bootstraps


def run_backtest(
    plan: Plan,
    log: Log,
    folder: Path,
    step: Step = lambda text: None,
    done: Done = lambda cell: None,
) -> Results:
    """Run every cell that is not finished, save the merged results in a folder and return them.

    If the run is interrupted, `load_results` returns what is finished.

    Args:
        plan: what to compare.
        log: log to split by date.
        folder: folder for the results; cells finished by an earlier run are read from it.
        step: called with a short text before each step; see `total_steps`.
        done: called after each cell, with an estimate of the time left.
    """
    require_writable_folder(folder)
    splits = [split_log(log, day, plan.window, plan.test) for day in plan.dates]
    holes = [row for split in splits for row in _find_holes_around(plan, log, split)]
    makers, about, log_hash = {**plan.engines, **plan.baselines}, _about(plan, log), _hash_log(log)
    pairs = [(split, name) for split in splits for name in makers]
    keys = [_key(plan, split.as_of, name, makers[name], log_hash) for split, name in pairs]
    stored.note_run(folder, about, keys, holes)
    pace = Pace([name for _, name in pairs], [stored.is_stored(folder, key) for key in keys])
    cells = []
    for (split, name), key in zip(pairs, keys, strict=True):
        cell, seconds = Cell(plan, log, split, name, makers[name], step), None
        found = stored.load_cell(folder, key)
        if found is not None:
            cell.skip()
        else:
            began = time.monotonic()
            try:
                found = cell.run()
                found.save(folder / stored.CELLS / key)
            except LeakedListsError as error:
                warn(f"{split.as_of} is left out: {error}")
            seconds = time.monotonic() - began
        cells += [] if found is None else [found]
        done(pace.finish(cell.title, seconds))
    if not cells:
        raise DataError(
            "no date can be judged: all lists seem to have seen what comes after them; make lists "
            "of days in the past from the events before these days only"
        )
    of_log = Results.of(about, {"sellers": rank_sellers(log), "holes": holes})
    made = Results(about, {**stored.merge_cells(cells), **of_log.tables})
    made.save(folder)
    (folder / stored.NOTE).unlink(missing_ok=True)
    return made


def total_steps(plan: Plan) -> int:
    """Return how often `run_backtest` calls `step`."""
    makers = {**plan.engines, **plan.baselines}
    return len(plan.dates) * sum(_count_steps(plan, name) for name in makers)


def _count_steps(plan: Plan, name: str) -> int:
    """Return how often a cell calls `step`; a baseline is judged without other methods."""
    if name not in plan.engines:
        return 1
    n_fits = sum(len(plan.metrics) if method.learns else 1 for method in plan.methods)
    return n_fits + len(plan.training_windows)


def _find_holes_around(plan: Plan, log: Log, split: Split) -> list[dict[str, Any]]:
    """Return the days with far fewer events than usual around a date, and warn of each.

    Windows to learn from are looked at with the events before the date, as in the daily job; the
    test with the whole log, except its last day, which may not be complete.
    """
    day, rows = str(split.as_of), []
    recent, *earlier = recent_windows(log, split.as_of, plan.length, plan.windows)
    looked_at = [(stored.TEST, split.test_window), (stored.RECENT, recent)]
    for kind, window in [*looked_at, *((stored.EARLIER, own) for own in earlier)]:
        until = log_days(log)[1] if kind == stored.TEST else split.as_of
        for hole in find_holes(log, window, until):
            where = stored.HOLE_WINDOWS[kind]
            warn(f"{day}: in {where}, {hole}: {HOLE}")
            found = {"day": str(hole.window.first), "events": hole.events, "usual": hole.usual}
            rows.append({"date": day, "window": kind, **found})
    return rows


def _about(plan: Plan, log: Log) -> dict[str, Any]:
    """Return the facts that the page shows."""
    from trimtab.version import __version__

    first, last = log_days(log)
    names = ("k", "window", "windows", "test", "n_draws")
    return {
        "log": log.name, "tz": log.tz, "n_events": log.events.num_rows,
        "n_users": log.count(USER), "n_items": log.count(ITEM),
        "first_day": str(first), "last_day": str(last),
        **{name: getattr(plan, name) for name in names},
        **({} if plan.is_of_lists else {"n_listed": plan.n_listed}),
        **({"weighted": True} if WEIGHT in log.events.column_names else {}),
        "engines": {name: _describe(maker) for name, maker in plan.engines.items()},
        "methods": {m.name: {"kind": m.kind, **m.settings} for m in plan.methods},
        "version": __version__,
    }  # fmt: skip


def _describe(maker: ListMaker, day: Moment | None = None) -> dict[str, Any]:
    """Return what lists depend on, besides the events; of dated lists those up to a day."""
    return maker.describe(day) if isinstance(maker, DatedFolder) else describe_engine(maker)


def _key(plan: Plan, day: Moment, name: str, maker: ListMaker, log_hash: str) -> str:
    """Return a folder name that changes with everything the cell's results depend on."""
    from trimtab.version import __version__

    numbers = {name: value for name, value in vars(plan).items() if isinstance(value, int)}
    methods = [[m.name, m.kind, dict(m.settings)] for m in plan.methods]
    told = [
        __version__, log_hash, name, _describe(maker, day), name in plan.engines, methods,
        plan.metrics, plan.training_windows, numbers,
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    safe = "".join(c if c.isalnum() else "_" for c in name)
    return f"{day}-{safe[:40]}-{digest[:12]}"


def _hash_log(log: Log) -> str:
    """Return a hash of the events and the catalogue."""
    digest = hashlib.sha256(log.tz.encode())
    for table in (log.events, log.items):
        digest.update(str(table.schema).encode())
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()


@dataclass
class Cell:
    """One engine at one date with every method, as rows of `Results`."""

    plan: Plan
    log: Log
    split: Split
    name: str
    maker: ListMaker
    call_step: Step
    _evaluated: dict[tuple[str, str], UnitEvaluation] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def title(self) -> str:
        """Date and engine."""
        return f"{self.split.as_of} {self.name}"

    def skip(self) -> None:
        """Report the steps of a cell that an earlier run has finished."""
        for _ in range(_count_steps(self.plan, self.name)):
            self._step("already done")

    @cached_property
    def _case(self) -> Case:
        plan, log, split = self.plan, self.log, self.split
        earlier = earlier_windows(log, split, plan.length, plan.windows)
        make = DatedCase if isinstance(self.maker, DatedFolder) else Case
        return make(self.maker, log, split, plan.n_listed, plan.k, earlier)

    @cached_property
    def _sales(self) -> Callable[[Any], dict[str, Any]]:
        return sales_around(self.log, self.split)

    def run(self) -> Results:
        """Return all tables.

        Raises:
            LeakedListsError: the lists of this date seem to have seen what they are learned from,
                or judged by.
        """
        is_baseline = self.name not in self.plan.engines
        for method in self.plan.methods[:1] if is_baseline else self.plan.methods:
            try:
                self._run_method(method)
            except LeakedListsError:
                raise
            except TrimtabError as error:
                where = f"{self.split.as_of}, engine {self.name}, method {method.name}"
                raise DataError(f"{where}: {error}") from error
        self._add_results()
        if not is_baseline and self.plan.training_windows:
            self._run_training_windows()
        return Results.of({}, self._rows)

    def _step(self, text: str) -> None:
        self.call_step(f"{self.title}: {text}")

    def _add(self, table: str, **values: Any) -> None:
        key = {"date": str(self.split.as_of), "engine": self.name}
        self._rows[table].append({**key, **values})

    def _evaluate(self, lists: Any) -> UnitEvaluation:
        return judge(lists, self.split.test, self.plan.k)

    def _run_method(self, method: Method) -> None:
        """Evaluate one method, once per metric if it learns."""
        reason = method.reason_to_skip(self._case)
        if reason is not None:
            where = f"{self.split.as_of}, engine {self.name}"
            warn(f"{where}: {method.name} is skipped: {reason}")
        if not method.learns:
            self._step(method.name)
            if reason is None:
                self._evaluated[method.name, ""] = self._evaluate(method.lists(self._case))
            return
        for metric in self.plan.metrics:
            self._step(f"{method.name}, for {metric.upper()}")
            if reason is not None:
                continue
            model = method.learn(self._case, metric)
            self._evaluated[method.name, metric] = self._evaluate(self._case.rank(model))
            key = {"method": method.name, "objective": metric}
            self._add("forecasts", **key, **model.forecast._asdict())
            if model.needs_events:
                self._add_parts(key, metric, model)
            else:
                self._add_biases(key, model.item_bias)

    def _add_parts(self, key: Mapping[str, str], metric: str, model: Any) -> None:
        """Add what each part gains in the metric that was learned for."""

        def judge_parts(other: Model) -> Floats:
            return self._evaluate(self._case.rank(other)).weighted_buyers(metric)

        alone = next(iter(self._evaluated.values())).weighted_buyers(metric)
        found = find_gains(model, judge_parts, alone, self.plan.n_draws)
        for part, (used, gain) in found.items():
            figures = {"gain": gain.lift, "gain_low": gain.low, "gain_high": gain.high}
            self._add("parts", **key, part=part, used=used, **figures)

    def _add_biases(self, key: Mapping[str, str], bias: ItemBias) -> None:
        self._rows["biases"] += []  # the table is there without rows, too
        moved = np.flatnonzero(bias.at_work)
        item_ids = pa.array(bias.item_ids).take(pa.array(moved)).to_pylist()
        for item_id, value in zip(item_ids, bias.bias[moved].tolist(), strict=True):
            self._add("biases", **key, bias=value, **self._sales(item_id))

    def _add_results(self) -> None:
        """Add the lift of each method over the engine alone, and how far it shows what sells."""
        metrics, every = self.plan.metrics, self._evaluated
        values = [
            np.stack([own.weighted_buyers(metric) for metric in metrics], axis=1)
            for own in every.values()
        ]
        alone, together = np.tile(values[0], len(values)), np.concatenate(values, axis=1)
        lifts = iter(lift_intervals(together, alone, self.plan.n_draws, _SEED, LEVEL))
        baseline = next(iter(every.values())).means()
        for (method, objective), found in every.items():
            key, means = {"method": method, "objective": objective}, found.means()
            for metric, own in zip(metrics, lifts, strict=False):
                self._add(
                    "results", **key, metric=metric, value=means[metric], baseline=baseline[metric],
                    lift=own.lift, lift_low=own.low, lift_high=own.high, n_users=len(alone),
                )  # fmt: skip
            bought = found.bought.items
            for size, covered in coverage(found.shown, bought, found.n_items).items():
                self._add("coverage", **key, size=size, covered=covered)
            self._add("divergence", **key, kl=kl_divergence(bought, found.shown, found.n_items))

    def _run_training_windows(self) -> None:
        """Evaluate the engine trained on each training window, and on all events."""
        means, engine = {}, trained_engine(self._case)
        for days in sorted(self.plan.training_windows):
            self._step(f"trained on {days:g} days")
            try:
                lists = self._case.lists_of(replace(engine, window_days=days))
                means[days] = self._evaluate(lists).means()
            except DataError:  # no sales in such a short window
                continue
        whole = self._case.lists
        if engine.window_days is not None:
            whole = self._case.lists_of(replace(engine, window_days=None))
        means[_ALL_DAYS] = self._evaluate(whole).means()
        shortest = means.get(min(self.plan.training_windows), {})
        for days, figures in means.items():
            for metric in self.plan.metrics:
                value = figures[metric]
                relative = lift(value, shortest.get(metric, np.nan)) + 1
                self._add("windows", days=days, metric=metric, value=value, relative=relative)


# Parts of a Reranker ----------------------------------------------------------------------------


def find_gains(
    reranker: Reranker, judge: Callable[[Reranker], Floats], alone: Floats, n_draws: int
) -> dict[str, tuple[bool, Interval]]:
    """Return of each of `PARTS` whether the reranker uses it, and what it adds to the lift.

    Args:
        reranker: the whole.
        judge: returns the metric of every buyer with the lists of a reranker.
        alone: the same buyers' metric with the engine alone.
        n_draws: bootstrap samples.
    """
    sources = reranker.summary.sources
    whole, trend = judge(reranker), judge(reranker.without(PERSONAL))
    listed = judge(reduce(Reranker.without, sources, reranker)) if sources else whole
    pairs = {TREND: (alone, trend), PERSONAL: (trend, listed)}
    for name in SOURCES:
        pairs[name] = (judge(reranker.without(name)) if name in sources else whole, whole)
    changed = np.stack([alone + (after - before) for before, after in pairs.values()], axis=1)
    base = np.tile(alone[:, None], len(pairs))
    used = [bool(reranker.bias.bias.any()), bool(reranker.learned)]
    used += [name in sources for name in SOURCES]
    gains = lift_intervals(changed, base, n_draws, _SEED, LEVEL)
    return dict(zip(PARTS, zip(used, gains, strict=True), strict=True))


# Sales of items, as numbers of distinct buyers --------------------------------------------------


def sales_around(log: Log, split: Split) -> Callable[[Any], dict[str, Any]]:
    """Return a function of an item: its id, name, and buyers per week around a date.

    They are counted in the week before the window, in the window and in the test; 0 without sales.
    """
    before = Window.before(split.window.first, _WEEK, log.tz)
    windows = {"before": before, "recent": split.window, "after": split.test_window}
    counted = {
        f"sales_{name}": (
            _to_dict(_count_buyers(own.events(log), ITEM), ITEM, "buyers"),
            _WEEK / (own.stop - own.start),
        )
        for name, own in windows.items()
    }
    names = _to_dict(log.items, ITEM, NAME)

    def find(item_id: Any) -> dict[str, Any]:
        sales = {name: sold.get(item_id, 0) * scale for name, (sold, scale) in counted.items()}
        return {"item_id": str(item_id), "name": names.get(item_id, str(item_id)), **sales}

    return find


def _count_buyers(events: pa.Table, *keys: str) -> pa.Table:
    """Return the number of distinct users as `buyers`, by item or by other keys."""
    counted = events.group_by(list(keys)).aggregate([(USER, "count_distinct")])
    return counted.select([*keys, f"{USER}_count_distinct"]).rename_columns([*keys, "buyers"])


def _to_dict(table: pa.Table, key: str, value: str) -> dict[Any, Any]:
    return dict(zip(table[key].to_pylist(), table[value].to_pylist(), strict=True))


def rank_sellers(log: Log) -> list[dict[str, Any]]:
    """Return the items with the most buyers over all months, and their rank in each month.

    A user counts once per item and month. Ranks are among all items, from 1; ties go to the smaller
    id. An item has no row for a month without buyers.
    """
    zoned = log.events[TIMESTAMP].cast(pa.timestamp("us", tz=log.tz))
    months = pc.strftime(pc.local_timestamp(zoned), format="%Y-%m")
    buyers = _count_buyers(log.events.append_column("month", months), "month", ITEM)
    order = [("buyers", "descending"), (ITEM, "ascending")]
    summed = buyers.group_by(ITEM).aggregate([("buyers", "sum")])
    summed = summed.rename_columns([ITEM, "buyers"]).sort_by(order)
    names, rows = _to_dict(log.items, ITEM, NAME), []
    for month in sorted(buyers["month"].unique().to_pylist()):
        own = buyers.filter(pc.equal(buyers["month"], month)).sort_by(order)
        ranks = {item: rank for rank, item in enumerate(own[ITEM].to_pylist(), 1)}
        for item in summed[ITEM][:_N_SELLERS].to_pylist():
            if rank := ranks.get(item):
                sold = own["buyers"][rank - 1].as_py()
                row = {"month": month, "item_id": str(item), "name": names[item]}
                rows.append({**row, "rank": rank, "buyers": sold})
    return rows
