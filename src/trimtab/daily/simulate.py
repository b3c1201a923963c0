"""A month in one go: the daily job replayed over a log, day by day, and judged on each day.

Every night the engine makes lists from what lies before the day; every morning the job refreshes a
store for real, from files; the re-ranked lists are judged by what is bought that day. The ascent
runs until nothing changes, once from nothing (cold) and once from the day before (warm).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.bias import ItemBias
from trimtab.daily.lists import TRAINED_UNTIL
from trimtab.daily.refresh import ACCEPTABLE, Refresh
from trimtab.daily.windows import Window
from trimtab.datasets.logs import Log
from trimtab.engines import Engine
from trimtab.errors import DataError, SettingError, StoreError, TrimtabWarning
from trimtab.evaluation import evaluate
from trimtab.files import publish, read_table, write_table
from trimtab.frames import known_ids
from trimtab.ids import encode_ids
from trimtab.instants import as_datetime, local_day, microseconds
from trimtab.learn import BiasLearner
from trimtab.schema import ITEM, METRICS, TIMESTAMP, require_whole

DEFAULT, COLD, WARM = "default", "ascent, cold", "ascent, warm"
DAYS = "days.parquet"
ABOUT = "month.json"
FORMAT = "trimtab-month"
MOVED = 0.1  # of a unit: a bias that moved by more has moved to speak of
Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What to replay; `run` does it.

    Args:
        log: purchases; the last `days` of it that can be judged are replayed.
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
        if self.metric not in METRICS:
            raise SettingError(f"metric={self.metric!r}: must be one of {', '.join(METRICS)}")

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
        begin = last - timedelta(self.days)
        if begin - timedelta(self.recent_days) <= first:
            raise DataError(
                f"days={self.days}: the log has {(last - first).days + 1} days, {first} to {last}; "
                f"it needs {self.recent_days} more for the first window and some before those; "
                f"replay fewer days"
            )
        return [begin + timedelta(back) for back in range(self.days)]

    @property
    def n_steps(self) -> int:
        """How often `run` tells of its progress."""
        return self.days * (len(self.learners) + 1) + self.recent_days

    def run(self, folder: Path, step: Step) -> Month:
        """Replay in a folder: lists, stores and results are kept there.

        Args:
            folder: a new or empty one, or that of an earlier run, which is replaced.
            step: called before each piece of work with a few words on it.
        """
        mornings = self.mornings()
        write_table(self.log.events, folder / "events.parquet")
        write_table(self.log.items, folder / "items.parquet")
        for back in range(self.recent_days, 0, -1):
            self._make_lists(mornings[0] - timedelta(back), mornings[0], folder, step)
        rows: list[dict[str, Any]] = []
        earlier: dict[str, ItemBias] = {}
        for day in mornings:
            lists = self._make_lists(day, mornings[0], folder, step)
            for name, learner in self.learners.items():
                step(f"{day}, {name}")
                row, earlier[name] = self._morning(day, name, learner, lists, folder, earlier)
                rows.append(row)
        month = Month(self._about(mornings), pa.Table.from_pylist(rows, SCHEMA))
        month.save(folder)
        return month

    def _make_lists(self, day: date, begin: date, folder: Path, step: Step) -> Path:
        """Tonight's lists; the engine is trained on what lies before the day."""
        step(f"{day}, lists")
        path = folder / "lists" / f"{day}.parquet"
        nights = (day - begin).days % self.retrain_every
        trained = path.with_name(f"{day - timedelta(nights)}.parquet")
        if nights and trained.exists():
            write_table(read_table(trained), path)
            return path
        window = Window.of(day, 1, self.log.tz)
        self.engine.fit(window.history(self.log), as_datetime(window.start))
        lists = self.engine.recommend(n=self.n_listed)
        until = pa.scalar(window.start, pa.timestamp("us", tz="UTC"))
        write_table(lists.append_column(TRAINED_UNTIL, pa.repeat(until, lists.num_rows)), path)
        return path

    def _morning(
        self, day: date, name: str, learner: BiasLearner, lists: Path, folder: Path,
        earlier: Mapping[str, ItemBias],
    ) -> tuple[dict[str, Any], ItemBias]:  # fmt: skip
        """One refresh, judged on its day."""
        job = Refresh(
            lists=folder / "lists", events=folder / "events.parquet",
            items=folder / "items.parquet", store=folder / f"store-{name.replace(', ', '-')}",
            learner=learner, recent_days=self.recent_days, rerank=True, keep=self.days,
            tz=self.log.tz, accept=ACCEPTABLE, warm=name != COLD,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrimtabWarning)  # they are in the manifest
            done = job.run(day)
        truth = Window.of(day, 1, self.log.tz).events(self.log)
        alone = evaluate(read_table(lists), truth, self.k)
        biased = evaluate(done.version.top(), truth, self.k)
        summary = done.bias.summary
        changed, moved = compare(earlier.get(name), done.bias)
        row = {
            "day": str(day), "job": name, "value": biased[self.metric],
            "baseline": alone[self.metric], "n_users": alone["n_users"],
            "seconds": done.version.manifest["seconds"], "cycles": summary.cycles,
            "objective": summary.objective_after, "forecast": summary.forecast,
            "n_biases": int(np.count_nonzero(done.bias.bias)),
            "changed": changed, "moved": moved,
        }  # fmt: skip
        return row, done.bias

    def _about(self, mornings: list[date]) -> dict[str, Any]:
        return {
            "log": self.log.name, "tz": self.log.tz, "engine": type(self.engine).__name__,
            "first": str(mornings[0]), "last": str(mornings[-1]), "days": self.days, "k": self.k,
            "metric": self.metric, "n_listed": self.n_listed, "recent_days": self.recent_days,
            "retrain_every": self.retrain_every,
        }  # fmt: skip


SCHEMA = pa.schema(
    [
        ("day", pa.string()), ("job", pa.string()),
        # The metric on the day by the re-ranked lists, and by the engine's own.
        ("value", pa.float64()), ("baseline", pa.float64()), ("n_users", pa.int64()),
        # Of learning; cycles and what was reached, where it is the ascent.
        ("seconds", pa.float64()), ("cycles", pa.int64()), ("objective", pa.float64()),
        ("forecast", pa.float64()), ("n_biases", pa.int64()),
        # Of the items with a bias on this day or the day before: the share whose bias is another
        # one, and whose bias is more than a tenth of a unit away; null on the first day.
        ("changed", pa.float64()), ("moved", pa.float64()),
    ]
)  # fmt: skip


def compare(before: ItemBias | None, after: ItemBias) -> tuple[float | None, float | None]:
    """Shares of biases that changed, and that moved by more than a tenth of a unit."""
    if before is None or before.scale != after.scale:
        return None, None
    ids, codes = encode_ids([known_ids("biases", ITEM, bias.item_ids) for bias in (before, after)])
    both = np.zeros((2, len(ids)))
    for row, (bias, own) in enumerate(zip((before, after), codes, strict=True)):
        both[row, own] = bias.bias
    both = both[:, (both != 0).any(axis=0)]
    if both.shape[1] == 0:
        return 0.0, 0.0
    moves = np.abs(both[1] - both[0])
    return float(np.mean(moves > 0)), float(np.mean(moves > MOVED * after.summary.unit))


@dataclass(frozen=True)
class Month:
    """What a simulation found: one row a day and job (`SCHEMA`), and what it was about."""

    about: Mapping[str, Any]
    days: pa.Table = field(repr=False)

    def of(self, job: str) -> list[dict[str, Any]]:
        """The days of one job."""
        return [row for row in self.days.to_pylist() if row["job"] == job]

    def lift(self, job: str) -> float:
        """Lift over all days together, each user who bought counting once a day."""
        rows = self.of(job)
        gained = sum(row["value"] * row["n_users"] for row in rows)
        base = sum(row["baseline"] * row["n_users"] for row in rows)
        return gained / base - 1 if base else float("nan")

    def time_ratio(self) -> float:
        """Seconds of warm starts over those of cold ones, from the second day on."""
        warm, cold = (sum(row["seconds"] for row in self.of(job)[1:]) for job in (WARM, COLD))
        return warm / cold if cold else float("nan")

    def objective_ratio(self) -> float:
        """What warm starts reach over what cold ones do, summed, less 1."""
        warm, cold = (sum(row["objective"] for row in self.of(job)[1:]) for job in (WARM, COLD))
        return warm / cold - 1 if cold else float("nan")

    def save(self, folder: Path) -> None:
        """Write the table, and about it last."""
        write_table(self.days, folder / DAYS)
        with publish(folder / ABOUT) as file:
            file.write(json.dumps({"format": FORMAT, **self.about}, indent=1).encode())

    @staticmethod
    def load(folder: Path) -> Month:
        """Read what `save` wrote."""
        try:
            about = json.loads((folder / ABOUT).read_bytes())
            if about.pop("format") != FORMAT:
                raise ValueError("another format")
            return Month(about, read_table(folder / DAYS).cast(SCHEMA))
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise StoreError(
                f"{folder} holds no finished simulation ({error}); run trimtab simulate"
            ) from error
