"""The daily job replayed over a log, day by day.

An engine makes lists for each night from the events before the day, or the dated lists of your own
engine are there. Every morning the job refreshes a store from files, as in production. The
re-ranked lists are judged by the day's purchases.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.checks import require_whole
from trimtab.daily.method_choice import BIAS
from trimtab.daily.refresh import Refresh
from trimtab.engines import Engine
from trimtab.errors import DataError, RefusedError, SettingError, StoreError, TrimtabWarning
from trimtab.learn import BiasLearner
from trimtab.models import Model
from trimtab.replay.outcome import DatedFolder, open_lists
from trimtab.replay.python_engines import OwnEngine, describe_engine, make_lists
from trimtab.replay.results import INCOMPLETE, Done, Pace
from trimtab.replay.training import judge, rank_as_of
from trimtab.replay.windows import Window, log_days, recent_windows
from trimtab.tables.columns import TRAINED_UNTIL, WEIGHT
from trimtab.tables.files import read_table, write_atomically, write_table
from trimtab.tables.folders import parse_json
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment, duration_name, read_duration, spoken_duration

Step = Callable[[str], None]
DAYS, ABOUT, PAGE = "days.parquet", "month.json", "month.html"
LISTS, STORE = "lists", "store"
FORMAT, UNFINISHED = "trimtab-month", "trimtab-month, unfinished"
SCHEMA = pa.schema(
    [
        ("day", pa.string()),
        # The metric on the day for the re-ranked lists and for the engine's own lists; null if
        # nobody bought anything.
        ("value", pa.float64()), ("baseline", pa.float64()), ("n_users", pa.int64()),
        ("n_biases", pa.int64()),
        # Seconds of learning, and the lift that the learner expected; null if it was refused.
        ("seconds", pa.float64()), ("forecast", pa.float64()),
        # Why the job published nothing and the earlier version stayed; null if it published.
        ("refused", pa.string()),
    ]
)  # fmt: skip
BIASES_ALONE = "biases_alone"  # with a reranker: the metric for the lists re-ranked by its biases
WITH_RERANKER = SCHEMA.append(pa.field(BIASES_ALONE, pa.float64()))
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The settings of a simulation; `run` replays it.

    Args:
        log: purchases; its last `days` whole days are replayed. The catalogue is used as it is at
            the end.
        engine: makes the lists every night, unless `supplied` gives them.
        supplied: dated lists of another engine, and the same log; the last mornings that they
            cover are replayed, at most `days`.
        days: days to simulate, the last of the log or as many as lists cover.
        every: how often the job runs, like "1d" or "1h"; it is judged until it runs again.
        n_listed: length of the engine's lists.
        retrain_every: nights between two trainings of the engine; the lists stay the same in
            between.
        learner: the learner of the daily job; days are judged by its metric at its k.
        settings: other settings of the daily job, as for `Refresh`, like {"method": "reranker"}.
    """

    log: Log
    engine: Engine | OwnEngine | None = None
    supplied: DatedFolder | None = None
    days: int = 30
    every: str = "1d"
    n_listed: int = 50
    retrain_every: int = 1
    learner: BiasLearner = field(default_factory=BiasLearner)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("days", "n_listed", "retrain_every"):
            require_whole(name, getattr(self, name), 1)
        k = self.learner.k
        if self.engine is not None and self.n_listed < k:
            raise SettingError(f"n_listed={self.n_listed}: must be at least k={k}")
        if (self.engine is None) == (self.supplied is None):
            raise SettingError("engine and supplied: give one of them")
        _ = self.job(Path())  # refuses its settings

    def job(self, folder: Path) -> Refresh:
        """Return the daily job, with its store in a folder."""
        files = self._files(folder) if self.supplied is None else self.supplied.source
        given = {"keep": self.days, **self.settings, "learner": self.learner}
        return Refresh(**{**given, **files}, store=folder / STORE, finish_lists=True)

    def _files(self, folder: Path) -> dict[str, Any]:
        """Return the files that lists of an engine are replayed from."""
        names = {"lists": LISTS, "events": "events.parquet", "items": "items.parquet"}
        return {**{name: folder / own for name, own in names.items()}, "tz": self.log.tz}

    def mornings(self) -> list[Moment]:
        """Return the days, or times of day, to judge: the last ones of the log."""
        length = self.job(Path()).length
        if self.supplied is None:
            mornings = self._last_mornings(length)
        else:
            most = max(1, self.days * DAY // self._apart)
            mornings = self.supplied.mornings(most, length, self._apart)
        for day in mornings:
            if Window.before(day, length, self.log.tz).events(self.log).num_rows == 0:
                raise DataError(
                    f"window={duration_name(length)}: nothing was bought in the window before "
                    f"{day}; use a longer window"
                )
        return mornings

    @property
    def _apart(self) -> int:
        return read_duration("every", self.every)

    def _last_mornings(self, length: int) -> list[Moment]:
        first, last = log_days(self.log)
        if (last - first).days <= self.days + length // DAY:
            raise DataError(
                f"days={self.days}: too many for a log of {(last - first).days + 1} days, {first} "
                f"to {last}, with a window of {spoken_duration(length)}; replay fewer days"
            )
        apart = timedelta(microseconds=self._apart)
        n = timedelta(days=self.days) // apart
        return [last - back * apart for back in range(n, 0, -1)]

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
        mornings, job = self.mornings(), self.job(folder)
        prepare_folder(folder)
        supplied = self.supplied or self._make_lists(self._nights(mornings), folder, step)
        rows: list[dict[str, Any]] = []
        served: Model | None = None
        pace = Pace(["morning"] * len(mornings), [False] * len(mornings))
        try:
            for day in mornings:
                began = time.monotonic()
                step(f"{day}, refresh")
                row, served = self._run_morning(day, supplied, job, served)
                rows.append(row)
                done(pace.finish(str(day), time.monotonic() - began))
        finally:  # also of an interrupted run
            schema = SCHEMA if job.method == BIAS else WITH_RERANKER
            about = self._about(job, mornings[: len(rows)] or mornings)
            if len(rows) < len(mornings):
                about[INCOMPLETE] = {"done": len(rows), "total": len(mornings)}
            month = Month(about, pa.Table.from_pylist(rows, schema))
            if rows:
                month.save(folder)
        return month

    def _nights(self, mornings: list[Moment]) -> list[Moment]:
        """Return the days to make lists for, starting with the first that the job needs."""
        if self.supplied is not None:
            return []
        job = self.job(Path())
        windows = recent_windows(self.log, mornings[0], job.length, job.windows)
        night, nights = Moment.of(windows[-1].first.date()), list[Moment]()
        while night <= mornings[-1]:
            nights.append(night)
            night += timedelta(days=1)
        return nights

    def _make_lists(self, nights: list[Moment], folder: Path, step: Step) -> DatedFolder:
        """Write the log and the engine's lists of each night, and open them."""
        files, engine = self._files(folder), self.engine
        assert engine is not None
        write_table(self.log.events, files["events"])
        write_table(self.log.items, files["items"])
        for n, day in enumerate(nights):
            step(f"{day}, lists")
            if n % self.retrain_every == 0:
                window = Window.of(day, DAY, self.log.tz)
                known = window.history(self.log)
                lists = make_lists(engine, known, window.start, None, self.n_listed)
                until = pa.scalar(window.start, pa.timestamp("us", tz="UTC"))
                lists = lists.append_column(TRAINED_UNTIL, pa.repeat(until, lists.num_rows))
            write_table(lists, files["lists"] / f"{day}.parquet")
        return open_lists(**files)

    def _run_morning(
        self, day: Moment, supplied: DatedFolder, job: Refresh, served: Model | None
    ) -> tuple[dict[str, Any], Model | None]:
        """Refresh once and judge the day; after a refusal, judge what stays served."""
        window, k = Window.of(day, self._apart, self.log.tz), self.learner.k
        known, bought = window.history(self.log), window.events(self.log)
        listed = supplied.find(window.start, day, None)

        def rank(model: Model | None) -> pa.Table:
            if model is None:
                return listed
            with warnings.catch_warnings(action="ignore", category=TrimtabWarning):
                return rank_as_of(model, listed, k, known, window.start).top

        def value(lists: pa.Table) -> tuple[float | None, int]:
            """Return the metric by the day's purchases, and the number of buyers; None if 0."""
            weighted = WEIGHT in bought.column_names
            if bought.num_rows == 0 or (weighted and not any(bought[WEIGHT].to_pylist())):
                return None, 0
            means = judge(lists, bought, k).means()
            return means[self.learner.metric], int(means["n_users"])

        baseline, n_users = value(listed)
        row: dict[str, Any] = {"day": str(day), "baseline": baseline, "n_users": n_users}
        top = None
        try:
            with warnings.catch_warnings(action="ignore", category=TrimtabWarning):
                done = job.run(day)  # the manifest keeps its warnings
        except RefusedError as error:
            row["refused"] = str(error)
        else:
            served, version = done.model, done.version
            top = version.top() if job.method == BIAS else version.lists()
            row["seconds"], row["forecast"] = version.manifest["seconds"], served.forecast.forecast
        row["value"], _ = value(rank(served) if top is None else top)
        biases = None if served is None else served.item_bias
        if job.method != BIAS:
            row[BIASES_ALONE], _ = value(rank(biases))
        row["n_biases"] = 0 if biases is None else int(np.count_nonzero(biases.bias))
        return row, served

    def _about(self, job: Refresh, mornings: list[Moment]) -> dict[str, Any]:
        """Return the settings that the page shows."""
        from trimtab.version import __version__

        about: dict[str, Any] = {"version": __version__, "log": self.log.name, "tz": self.log.tz}
        if self.supplied is not None:
            about["lists"] = self.supplied.describe()
        if self.engine is not None:
            about["engine"] = describe_engine(self.engine)["kind"]
            about |= {"n_listed": self.n_listed, "retrain_every": self.retrain_every}
        return {
            **about, "first": str(mornings[0]), "last": str(mornings[-1]), "days": len(mornings),
            "k": self.learner.k, "metric": self.learner.metric, "window": job.window,
            **({} if job.method == BIAS else {"reranker": True}),
        }  # fmt: skip


# The month --------------------------------------------------------------------------------------


def lift_of(row: Row, of: str = "value") -> float | None:
    """Return a day's lift over the engine alone; None without buyers or a baseline of 0.

    Args:
        row: the day.
        of: column of the metric.
    """
    value, baseline = row[of], row["baseline"]
    return value / baseline - 1 if value is not None and baseline else None


@dataclass(frozen=True)
class Month:
    """The result of a simulation: one row per day (`SCHEMA`), and the settings it ran with.

    With a reranker, `value` is that of the finished lists, and there is a column more.
    """

    about: Mapping[str, Any]
    days: pa.Table = field(repr=False)

    @cached_property
    def rows(self) -> list[Row]:
        """All days, in order."""
        rows: list[Row] = self.days.to_pylist()
        return rows

    def lift(self, of: str = "value") -> float:
        """Return the lift over all days; each buyer counts once per day. NaN if undefined.

        Args:
            of: column of the metric.
        """
        rows = [row for row in self.rows if row[of] is not None]
        value = sum(row[of] * row["n_users"] for row in rows)
        baseline = sum(row["baseline"] * row["n_users"] for row in rows)
        return value / baseline - 1 if baseline else float("nan")

    def days_above(self) -> tuple[int, int]:
        """Return the number of days above the engine alone, and the number of days judged."""
        rows = [row for row in self.rows if row["value"] is not None]
        return sum(row["value"] > row["baseline"] for row in rows), len(rows)

    def save(self, folder: Path) -> None:
        """Write the table first and the settings last."""
        write_table(self.days, folder / DAYS)
        _write_about(folder, {"format": FORMAT, **self.about})

    @staticmethod
    def load(folder: Path) -> Month:
        """Return the month that `save` wrote."""
        try:
            about = parse_json((folder / ABOUT).read_bytes())
            if about.pop("format") != FORMAT:
                raise ValueError("unfinished, or another format")
            days = read_table(folder / DAYS)
            schema = WITH_RERANKER if BIASES_ALONE in days.column_names else SCHEMA
            return Month(about, days.cast(schema))
        except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder}: no finished simulation here ({error}); run trimtab simulate"
            ) from error


def require_free(folder: Path) -> None:
    """Refuse a folder that holds anything but a simulation, finished or not."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        kind = parse_json((folder / ABOUT).read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = None
    if kind not in (FORMAT, UNFINISHED):
        raise StoreError(f"{folder} has files that are not from a simulation; choose a new folder")


def prepare_folder(folder: Path) -> None:
    """Make a folder ready for a simulation and remove what an earlier one left."""
    require_free(folder)
    _write_about(folder, {"format": UNFINISHED})
    for name in (LISTS, STORE):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (DAYS, PAGE):
        (folder / name).unlink(missing_ok=True)


def _write_about(folder: Path, about: Mapping[str, Any]) -> None:
    with write_atomically(folder / ABOUT) as file:
        file.write(json.dumps(about, indent=1).encode())
