"""A small shop: a log of events, and lists made every night."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.daily import Refresh
from trimtab.daily.windows import Window
from trimtab.datasets import generate_log, make_log
from trimtab.engines import Markov
from trimtab.tables.log import Log
from trimtab.tables.timestamps import as_datetime

N_ITEMS = 120
FIRST = date(2026, 2, 12)  # of the lists; the log has 5 January to 24 February
NIGHTS = 12
AS_OF = date(2026, 2, 20)


@dataclass(frozen=True)
class Shop:
    """Where its files lie."""

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

    def job(self, **settings) -> Refresh:
        given = {"lists": self.lists, "events": self.events, "store": self.store}
        return Refresh(**{**given, **settings})

    def arguments(self, *more: object) -> list[object]:
        return [
            "refresh", "--lists", self.lists, "--events", self.events, "--store", self.store, *more,
        ]  # fmt: skip


def make_shop(folder: Path) -> Shop:
    """Write a shop's files."""
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
        window = Window.of(day, 1, "UTC")
        engine = Markov(min_support=1).fit(window.history(log), as_datetime(window.start))
        pq.write_table(engine.recommend(n=30), folder / "lists" / f"{day}.parquet")
    return Shop(folder, log)
