"""The daily job replayed over a log, day by day.

Every night the engine makes lists from the events before the day, or the lists of your own engine
are there. Every morning the job refreshes a store from files, as in production. The re-ranked lists
are judged by the day's purchases.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import METRICS, require_choice, require_whole
from trimtab.daily.refresh import Refresh
from trimtab.daily.simulated_month import (
    BIASES_ALONE,
    LISTS,
    STORE,
    Month,
    prepare_folder,
    schema_of,
)
from trimtab.engines import Engine
from trimtab.errors import DataError, RefusedError, SettingError, TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.models import Model
from trimtab.replay.outcome import DatedFolder, judge, rank_as_of
from trimtab.replay.python_engines import OwnEngine, describe_engine, make_lists
from trimtab.replay.results import INCOMPLETE, Done, Pace
from trimtab.replay.windows import Window, event_times, recent_windows
from trimtab.tables.columns import TRAINED_UNTIL, WEIGHT
from trimtab.tables.files import read_table, write_table
from trimtab.tables.log import Log
from trimtab.tables.times import local_day

Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The settings of a simulation; `run` replays it.

    Args:
        log: purchases; its last `days` whole days are replayed. The catalogue is used as it is at
            the end.
        engine: makes the lists every night, unless `supplied` gives them.
        supplied: dated lists of another engine, and the same log; the last mornings that they
            cover are replayed, at most `days`.
        days: number of mornings.
        k: number of slots.
        metric: metric to learn for and to judge by.
        n_listed: length of the engine's lists.
        recent_days: length of the window.
        retrain_every: nights between two trainings of the engine; the lists stay the same in
            between.
        reranker: also learn a reranker every morning, and judge the lists that it finishes.
    """

    log: Log
    engine: Engine | OwnEngine | None = None
    supplied: DatedFolder | None = None
    days: int = 30
    k: int = 10
    metric: str = "ndcg"
    n_listed: int = 50
    recent_days: int = 3
    retrain_every: int = 1
    reranker: bool = False

    def __post_init__(self) -> None:
        for name in ("days", "k", "n_listed", "recent_days", "retrain_every"):
            require_whole(name, getattr(self, name), 1)
        require_choice("metric", self.metric, METRICS)
        if self.engine is not None and self.n_listed < self.k:
            raise SettingError(f"n_listed={self.n_listed}: must be at least k={self.k}")
        if (self.engine is None) == (self.supplied is None):
            raise SettingError("engine and supplied: give one of them")

    def mornings(self) -> list[date]:
        """Return the days to judge: the last whole days of the log."""
        if self.supplied is None:
            mornings = self._last_days()
        else:
            mornings = self.supplied.mornings(self.days, self.recent_days)
        for day in mornings:
            self._require_purchases(day)
        return mornings

    def _last_days(self) -> list[date]:
        times = event_times(self.log)
        first, last = (local_day(times[place], self.log.tz) for place in (0, -1))
        if (last - first).days <= self.days + self.recent_days:
            raise DataError(
                f"days={self.days}: too many for a log of {(last - first).days + 1} days, {first} "
                f"to {last}, with a window of {self.recent_days} days; replay fewer days"
            )
        return [last - timedelta(back) for back in range(self.days, 0, -1)]

    def _require_purchases(self, day: date) -> None:
        """Refuse a day with an empty window."""
        window = Window.of(day - timedelta(self.recent_days), self.recent_days, self.log.tz)
        if window.events(self.log).num_rows == 0:
            raise DataError(
                f"recent_days={self.recent_days}: nothing was bought in the window before {day}; "
                f"use a longer window"
            )

    @property
    def n_steps(self) -> int:
        """How often `run` reports progress."""
        mornings = self.mornings()
        return len(self._nights(mornings)) + len(mornings)

    def run(self, folder: Path, step: Step, done: Done = lambda cell: None) -> Month:
        """Replay the days in a folder, which keeps the lists, the store and the results.

        Args:
            folder: new, empty, or the folder of an earlier run, which is replaced. After an
                interruption, it has the mornings that were replayed.
            step: called before each piece of work with a short description.
            done: called after each morning, with an estimate of the time left.

        Raises:
            DataError: the log is too short, or a window has no purchases.
            StoreError: the folder holds something else.
        """
        mornings = self.mornings()
        prepare_folder(folder)
        if self.supplied is None:
            write_table(self.log.events, folder / "events.parquet")
            write_table(self.log.items, folder / "items.parquet")
        nights = self._nights(mornings)
        for day in nights[: -len(mornings)]:
            self._make_lists(day, nights[0], folder, step)
        rows: list[dict[str, Any]] = []
        served: Model | None = None
        pace = Pace(["morning"] * len(mornings), [False] * len(mornings))
        try:
            for day in mornings:
                began = time.monotonic()
                listed = self._make_lists(day, nights[0], folder, step)
                step(f"{day}, refresh")
                row, served = self._run_morning(day, listed, folder, served)
                rows.append(row)
                done(pace.finish(str(day), time.monotonic() - began))
        finally:  # also of an interrupted run
            month = self._month(mornings, rows)
            if rows:
                month.save(folder)
        return month

    def _month(self, mornings: list[date], rows: list[dict[str, Any]]) -> Month:
        """Return the month so far."""
        days = pa.Table.from_pylist(rows, schema_of(self.reranker))
        about = self._about(mornings[: len(rows)] or mornings)
        if len(rows) < len(mornings):
            about[INCOMPLETE] = {"done": len(rows), "total": len(mornings)}
        return Month(about, days)

    def lists_on(self, day: date, folder: Path) -> pa.Table:
        """Return the engine's lists of a morning that was replayed in this folder."""
        if self.supplied is not None:
            return self.supplied.find(Window.of(day, 1, self.log.tz).start, day, None)
        return read_table(folder / LISTS / f"{day}.parquet")

    def _nights(self, mornings: list[date]) -> list[date]:
        """Return the days to make lists for, starting with the first that the job needs."""
        if self.supplied is not None:
            return mornings
        windows = recent_windows(self.log, mornings[0], self.recent_days, Refresh.windows)
        before = (mornings[0] - windows[-1].first).days
        return [mornings[0] - timedelta(back) for back in range(before, 0, -1)] + mornings

    def _make_lists(self, day: date, first: date, folder: Path, step: Step) -> pa.Table:
        """Put the lists for a day into the job's folder if they are not made yet; return them."""
        step(f"{day}, lists")
        if self.supplied is not None:
            return self.lists_on(day, folder)
        path = folder / LISTS / f"{day}.parquet"
        age = (day - first).days % self.retrain_every
        if age:
            lists = read_table(path.with_name(f"{day - timedelta(age)}.parquet"))
        else:
            lists = self._train(day)
        write_table(lists, path)
        return lists

    def _train(self, day: date) -> pa.Table:
        """Return the lists of the engine, trained on the events before a day."""
        assert self.engine is not None
        window = Window.of(day, 1, self.log.tz)
        known = window.history(self.log)
        lists = make_lists(self.engine, known, window.start, None, self.n_listed)
        until = pa.scalar(window.start, pa.timestamp("us", tz="UTC"))
        return lists.append_column(TRAINED_UNTIL, pa.repeat(until, lists.num_rows))

    def _run_morning(
        self, day: date, listed: pa.Table, folder: Path, served: Model | None
    ) -> tuple[dict[str, Any], Model | None]:
        """Refresh once and judge the day; after a refusal, judge what stays served."""
        files: Any = {
            "lists": folder / LISTS, "events": folder / "events.parquet",
            "items": folder / "items.parquet", "tz": self.log.tz,
        }  # fmt: skip
        if self.supplied is not None:
            files = self.supplied.source
        job = Refresh(
            **files, store=folder / STORE, learner=BiasLearner(k=self.k, metric=self.metric),
            recent_days=self.recent_days, rerank=True, keep=self.days, reranker=self.reranker,
        )  # fmt: skip
        baseline, n_users = self._judge(listed, day)
        row: dict[str, Any] = {"day": str(day), "baseline": baseline, "n_users": n_users}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TrimtabWarning)  # the manifest keeps them
                done = job.run(day)
        except RefusedError as error:
            top, by_bias = self._apply(served, listed, day)
            row["refused"] = str(error)
        else:
            served, by_bias = done.model, done.version.top()
            top = done.version.lists() if self.reranker else by_bias
            row["seconds"] = done.version.manifest["seconds"]
            row["forecast"] = served.summary.forecast
        row["value"], _ = self._judge(top, day)
        if self.reranker:
            row[BIASES_ALONE], _ = self._judge(by_bias, day)
        row["n_biases"] = 0 if served is None else int(np.count_nonzero(served.item_bias.bias))
        return row, served

    def _apply(
        self, served: Model | None, listed: pa.Table, day: date
    ) -> tuple[pa.Table, pa.Table]:
        """Return lists by what stays served, and by its biases alone."""
        if served is None:
            return listed, listed
        window = Window.of(day, 1, self.log.tz)
        top, by_bias = (
            rank_as_of(model, listed, self.k, window.history(self.log), window.start).top
            for model in (served, served.item_bias)
        )
        return top, by_bias

    def _judge(self, lists: pa.Table, day: date) -> tuple[float | None, int]:
        """Return the metric by the day's purchases, and the number of buyers; None if 0."""
        truth = Window.of(day, 1, self.log.tz).events(self.log)
        weights = truth[WEIGHT].unique().to_pylist() if WEIGHT in truth.column_names else None
        if truth.num_rows == 0 or weights == [0]:
            return None, 0
        means = judge(lists, truth, self.k).means()
        return means[self.metric], int(means["n_users"])

    def _about(self, mornings: list[date]) -> dict[str, Any]:
        """Return the settings that the page shows."""
        from trimtab.version import __version__

        return {
            "version": __version__,
            "log": self.log.name, "tz": self.log.tz, **self._about_lists(),
            "first": str(mornings[0]), "last": str(mornings[-1]), "days": len(mornings),
            "k": self.k, "metric": self.metric, "recent_days": self.recent_days,
            **({"reranker": True} if self.reranker else {}),
        }  # fmt: skip

    def _about_lists(self) -> dict[str, Any]:
        """Return what the page shows of the engine, or of the supplied lists."""
        if self.supplied is not None:
            return {"lists": self.supplied.describe()}
        assert self.engine is not None
        return {
            "engine": describe_engine(self.engine)["kind"],
            "n_listed": self.n_listed,
            "retrain_every": self.retrain_every,
        }
