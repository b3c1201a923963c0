"""A small shop: a log of events, lists made every night, and commands run on it."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import trimtab as tt
from trimtab.cli import app, guarded
from trimtab.daily import Refresh
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.replay.windows import Window
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, Moment, as_datetime

N_ITEMS = 120
FIRST = Moment(2026, 2, 12)  # first lists; the log covers 5 January to 24 February
NIGHTS = 12
AS_OF = Moment(2026, 2, 20)
TONIGHT = AS_OF - timedelta(1)  # of the newest lists that have not seen the day


@dataclass(frozen=True)
class Shop:
    """A shop's files, and its log."""

    folder: Path
    log: Log

    @property
    def lists(self) -> Path:
        return self.folder / "lists"

    @property
    def events(self) -> Path:
        return self.folder / "events.parquet"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def of(self, day: object) -> pa.Table:
        """The lists of a day."""
        return pq.read_table(self.lists / f"{day}.parquet")

    def change(self, day: object, change: Callable[[pa.Table], pa.Table]) -> None:
        """Write the lists of a day again, changed."""
        pq.write_table(change(self.of(day)), self.lists / f"{day}.parquet")

    def days(self) -> list[str]:
        """The days with lists, in order."""
        return sorted(path.stem for path in self.lists.iterdir())

    def job(self, **settings) -> Refresh:
        given = {"lists": self.lists, "events": self.events, "store": self.store}
        return Refresh(**{**given, **settings})

    def arguments(self, *more: object) -> list[object]:
        return [
            "refresh", "--lists", self.lists, "--events", self.events, "--store", self.store, *more,
        ]  # fmt: skip


def retyped(table: pa.Table, column: str, kind: Any) -> pa.Table:
    """A table with a column of another type."""
    return table.set_column(table.column_names.index(column), column, table[column].cast(kind))


def trained_until(until: Any) -> Callable[[pa.Table], pa.Table]:
    """Adds the column that says what an engine has seen."""
    return lambda table: table.append_column("trained_until", pa.array([until] * table.num_rows))


def labelled(tables: Iterable[pa.Table], starts: Iterable[date]) -> pa.Table:
    """The tables of several windows as one, with a column that names the window."""
    return pa.concat_tables(
        table.append_column("window", pa.array([str(start)] * table.num_rows))
        for table, start in zip(tables, starts, strict=True)
    )


def make_shop(folder: Path) -> Shop:
    """Write the files of a shop."""
    events = generate_log(
        n_users=1_500, n_items=N_ITEMS, days=51, purchases_per_user=25, drift=1.0, seed=2
    )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(events, folder / "events.parquet")
    names = pa.table(
        {
            "item_id": range(N_ITEMS),
            "name": [f"article {item}" for item in range(N_ITEMS)],
            "category": [f"c{item % 7}" for item in range(N_ITEMS)],
        }
    )
    pq.write_table(names, folder / "items.parquet")
    log = make_log(events, "UTC")
    (folder / "lists").mkdir(exist_ok=True)
    for night in range(NIGHTS):
        day = FIRST + timedelta(night)
        window = Window.of(day, DAY, "UTC")
        engine = Markov(min_support=1).fit(window.history(log), as_datetime(window.start))
        pq.write_table(engine.recommend(n=30), folder / "lists" / f"{day}.parquet")
    return Shop(folder, log)


def doubt(learner: type, monkeypatch: Any) -> None:
    """Let fits of a learner warn, as if the guard had found something."""
    learn = learner.fit

    def fit(self: Any, *tables: Any, **options: Any) -> Any:
        warnings.warn("the guard has a doubt", tt.GuardWarning, stacklevel=2)
        return learn(self, *tables, **options)

    monkeypatch.setattr(learner, "fit", fit)


class Ran(NamedTuple):
    """A command that ran in this process: its exit status and what it printed."""

    returncode: int
    stdout: str
    stderr: str


@functools.cache
def _command() -> Any:
    """The command line, made once: that takes longer than many a command."""
    return typer.main.get_command(app)


def run_in_process(*arguments: object) -> Ran:
    """Run the command line in this process, where a process of its own is not the point."""
    out, err = io.StringIO(), io.StringIO()
    words = [str(argument) for argument in arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = guarded(lambda: _command()(words, standalone_mode=False))
    return Ran(status, out.getvalue(), err.getvalue())
