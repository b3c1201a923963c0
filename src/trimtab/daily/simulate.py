"""A month in one go: the daily job replayed over a log, day by day, and judged on each day.

Every night the engine makes lists from what lies before the day; every morning the job refreshes a
store for real, from files; the re-ranked lists are judged by what is bought that day. The ascent
runs until nothing changes, once from nothing (cold) and once from the day before (warm).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.checks import METRICS, require_choice, require_whole
from trimtab.daily.dated_lists import TRAINED_UNTIL
from trimtab.daily.refresh import Refresh
from trimtab.daily.simulated_month import (
    COLD,
    DEFAULT,
    SCHEMA,
    WARM,
    Month,
    begin,
    compare,
    store_name,
)
from trimtab.daily.windows import Window, recent_windows
from trimtab.engines import Engine
from trimtab.errors import DataError, RefusedError, SettingError, TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.metrics.evaluation import judge_units
from trimtab.metrics.per_user import mean_metrics
from trimtab.tables.columns import TIMESTAMP
from trimtab.tables.files import read_table, write_table
from trimtab.tables.log import Log
from trimtab.tables.timestamps import as_datetime, local_day, microseconds

Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What to replay; `run` does it.

    Args:
        log: purchases; the last `days` of it that can be judged are replayed. Its catalogue is
            taken as it stands at the end.
        engine: makes the lists, every night.
        days: how many mornings.
        k: places.
        metric: what is learned for and judged by.
        n_listed: length of the lists.
        recent_days: length of the window.
        retrain_every: nights between two trainings of the engine; in between, lists stay as they
            are.
    """

    log: Log
    engine: Engine
    days: int = 30
    k: int = 10
    metric: str = "ndcg"
    n_listed: int = 50
    recent_days: int = 3
    retrain_every: int = 1

    def __post_init__(self) -> None:
        for name in ("days", "k", "n_listed", "recent_days", "retrain_every"):
            require_whole(name, getattr(self, name), 1)
        require_choice("metric", self.metric, METRICS)
        if self.n_listed < self.k:
            raise SettingError(f"n_listed={self.n_listed}: must be at least k={self.k}")

    @property
    def learners(self) -> Mapping[str, BiasLearner]:
        """The learner of each job."""
        ascent = BiasLearner(k=self.k, metric=self.metric, method="ascent", max_cycles=None)
        default = BiasLearner(k=self.k, metric=self.metric)
        return {DEFAULT: default, COLD: ascent, WARM: ascent}

    def mornings(self) -> list[date]:
        """The days that are judged: the last ones of the log that are whole."""
        times = microseconds(self.log.events[TIMESTAMP])
        first, last = (local_day(times[place], self.log.tz) for place in (0, -1))
        if (last - first).days <= self.days + self.recent_days:
            raise DataError(
                f"days={self.days}: the log has {(last - first).days + 1} days, {first} to {last}, "
                f"of which the last is not judged; it needs {self.recent_days} more for the first "
                f"window and some before those; replay fewer days"
            )
        mornings = [last - timedelta(back) for back in range(self.days, 0, -1)]
        for day in mornings:
            self._require_purchases(day)
        return mornings

    def _require_purchases(self, day: date) -> None:
        """Refuse a day that there is nothing to learn for."""
        window = Window.of(day - timedelta(self.recent_days), self.recent_days, self.log.tz)
        if window.events(self.log).num_rows == 0:
            raise DataError(
                f"recent_days={self.recent_days}: nothing was bought in the window before {day}; "
                f"take a longer one"
            )

    @property
    def n_steps(self) -> int:
        """How often `run` tells of its progress."""
        return len(self._nights(self.mornings())) + self.days * len(self.learners)

    def run(self, folder: Path, step: Step) -> Month:
        """Replay in a folder: lists, stores and results are kept there.

        Args:
            folder: a new or empty one, or that of an earlier run, which is replaced.
            step: called before each piece of work with a few words on it.

        Raises:
            DataError: the log is too short, or has a window without any purchase.
            StoreError: the folder holds something else.
        """
        mornings = self.mornings()
        begin(folder)
        write_table(self.log.events, folder / "events.parquet")
        write_table(self.log.items, folder / "items.parquet")
        nights = self._nights(mornings)
        for day in nights[: -len(mornings)]:
            self._make_lists(day, nights[0], folder, step)
        rows: list[dict[str, Any]] = []
        earlier: dict[str, ItemBias | None] = {}
        for day in mornings:
            lists = self._make_lists(day, nights[0], folder, step)
            for name, learner in self.learners.items():
                step(f"{day}, {name}")
                row, earlier[name] = self._morning(day, name, learner, lists, folder, earlier)
                rows.append(row)
        month = Month(self._about(mornings), pa.Table.from_pylist(rows, SCHEMA))
        month.save(folder)
        return month

    def _nights(self, mornings: list[date]) -> list[date]:
        """The days that lists are made for: from the first day on that the first morning needs."""
        windows = recent_windows(self.log, mornings[0], self.recent_days, None)
        before = (mornings[0] - windows[-1].first).days
        return [mornings[0] - timedelta(back) for back in range(before, 0, -1)] + mornings

    def _make_lists(self, day: date, first: date, folder: Path, step: Step) -> Path:
        """Tonight's lists; the engine is trained on what lies before the day."""
        step(f"{day}, lists")
        path = folder / "lists" / f"{day}.parquet"
        age = (day - first).days % self.retrain_every
        if age:
            write_table(read_table(path.with_name(f"{day - timedelta(age)}.parquet")), path)
            return path
        window = Window.of(day, 1, self.log.tz)
        self.engine.fit(window.history(self.log), as_datetime(window.start))
        lists = self.engine.recommend(n=self.n_listed)
        until = pa.scalar(window.start, pa.timestamp("us", tz="UTC"))
        write_table(lists.append_column(TRAINED_UNTIL, pa.repeat(until, lists.num_rows)), path)
        return path

    def _morning(
        self, day: date, name: str, learner: BiasLearner, lists: Path, folder: Path,
        earlier: Mapping[str, ItemBias | None],
    ) -> tuple[dict[str, Any], ItemBias | None]:  # fmt: skip
        """One refresh, judged on its day; if it is refused, by what stays served."""
        job = Refresh(
            lists=folder / "lists", events=folder / "events.parquet",
            items=folder / "items.parquet", store=folder / store_name(name), learner=learner,
            recent_days=self.recent_days, rerank=True, keep=self.days, tz=self.log.tz,
            warm=name != COLD,
        )  # fmt: skip
        listed = read_table(lists)
        baseline, n_users = self._judge(listed, day)
        judged = {"day": str(day), "job": name, "baseline": baseline, "n_users": n_users}
        served = earlier.get(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TrimtabWarning)  # they are in the manifest
                done = job.run(day)
        except RefusedError as error:
            top = listed if served is None else served.apply(listed, self.k)
            value, _ = self._judge(top, day)
            row = {**judged, "value": value, "n_biases": _biases(served), "refused": str(error)}
            return row, served
        value, _ = self._judge(done.version.top(), day)
        changed, moved = compare(served, done.bias)
        summary = done.bias.summary
        return {
            **judged, "value": value, "n_biases": _biases(done.bias),
            "seconds": done.version.manifest["seconds"], "cycles": summary.cycles,
            "objective": summary.objective_after, "forecast": summary.forecast,
            "changed": changed, "moved": moved,
        }, done.bias  # fmt: skip

    def _judge(self, lists: pa.Table, day: date) -> tuple[float | None, int]:
        """The metric by what was bought that day, and by how many; None if by nobody."""
        truth = Window.of(day, 1, self.log.tz).events(self.log)
        if truth.num_rows == 0:
            return None, 0
        means = mean_metrics(judge_units(lists, truth, self.k).metrics)
        return means[self.metric], int(means["n_users"])

    def _about(self, mornings: list[date]) -> dict[str, Any]:
        """What a page says of how it came about."""
        from trimtab.version import __version__

        return {
            "version": __version__,
            "log": self.log.name, "tz": self.log.tz, "engine": type(self.engine).__name__,
            "first": str(mornings[0]), "last": str(mornings[-1]), "days": self.days, "k": self.k,
            "metric": self.metric, "n_listed": self.n_listed, "recent_days": self.recent_days,
            "retrain_every": self.retrain_every,
        }  # fmt: skip


def _biases(bias: ItemBias | None) -> int:
    return 0 if bias is None else int(np.count_nonzero(bias.bias))
