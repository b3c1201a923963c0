"""Sales of items around a date and by month, as numbers of distinct buyers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Ints
from trimtab.replay.results import SCHEMAS
from trimtab.replay.timeline import Split
from trimtab.tables.columns import ITEM, NAME, TIMESTAMP, USER
from trimtab.tables.log import Log
from trimtab.tables.times import DAY, microseconds
from trimtab.tables.vocabulary import Vocabulary, id_column

_WEEK = 7 * DAY


class WeeklySales:
    """Buyers per week of each item: in the week before the window, in the window, in the test.

    A user counts once per item and period.
    """

    def __init__(self, log: Log, split: Split) -> None:
        self._log = log
        self._ids, (self._items,) = Vocabulary.encode(id_column("events", ITEM, log.events[ITEM]))
        _, (self._users,) = Vocabulary.encode(id_column("events", USER, log.events[USER]))
        self._times = microseconds(log.events[TIMESTAMP])
        self._counts = {
            "sales_before": self._weekly(split.recent_from - _WEEK, split.recent_from),
            "sales_recent": self._weekly(split.recent_from, split.test_from),
            "sales_after": self._weekly(split.test_from, split.test_to),
        }
        self._names = log.items[NAME].to_pylist()

    def rows(self, item_ids: Any, positions: Ints) -> list[dict[str, Any]]:
        """Return the id, name and sales of the items at the given positions of `item_ids`."""
        wanted = Vocabulary(item_ids).take(positions.astype(np.int32))
        places = self._ids.codes(Vocabulary(wanted, "biases", ITEM).column).tolist()
        return [
            {"item_id": str(item_id), **self._row(str(item_id), place)}
            for item_id, place in zip(pa.array(wanted).to_pylist(), places, strict=True)
        ]

    def _row(self, item_id: str, place: int) -> dict[str, Any]:
        """Return name and sales; of an item without sales (place -1) the id, and zeros."""
        name = item_id if place < 0 else self._names[place]
        sales = {
            column: 0.0 if place < 0 else float(counts[place])
            for column, counts in self._counts.items()
        }
        return {"name": name, **sales}

    def _weekly(self, start: int, stop: int) -> Floats:
        inside = slice(*np.searchsorted(self._times, [start, stop]))
        counts = count_buyers(self._users[inside], self._items[inside], len(self._ids))
        weekly: Floats = counts * np.float64(_WEEK / (stop - start))
        return weekly


def count_buyers(users: Codes, items: Codes, n_items: int) -> Ints:
    """Return the number of distinct buyers of each item."""
    pairs = np.unique(users.astype(np.int64) * n_items + items)
    return np.bincount(pairs % n_items, minlength=n_items)


def rank_sellers(log: Log, n_sellers: int = 10) -> pa.Table:
    """Return the items with the most buyers over all months, and their rank in each month.

    A user counts once per item and month. Ranks are among all items, from 1; ties go to the smaller
    id. An item has no row for a month without buyers.
    """
    _, (users,) = Vocabulary.encode(id_column("events", USER, log.events[USER]))
    ids, (items,) = Vocabulary.encode(id_column("events", ITEM, log.events[ITEM]))
    stamps = _local_months(microseconds(log.events[TIMESTAMP]), log.tz).dictionary_encode()
    month_codes, months = stamps.indices.to_numpy(), stamps.dictionary.to_pylist()
    buyers = np.stack(
        [
            count_buyers(users[month_codes == month], items[month_codes == month], len(ids))
            for month in range(len(months))
        ]
    )
    best = np.argsort(-buyers.sum(axis=0), kind="stable")[:n_sellers]
    rows = []
    for month in np.argsort(months):
        rows += _month_rows(str(months[month]), buyers[month], best, log)
    return pa.Table.from_pylist(rows, schema=SCHEMAS["sellers"])


def _month_rows(month: str, buyers: Ints, best: Ints, log: Log) -> list[dict[str, Any]]:
    ranks = np.empty(len(buyers), np.int64)
    ranks[np.argsort(-buyers, kind="stable")] = np.arange(1, len(buyers) + 1)
    return [
        {
            "month": month,
            "item_id": str(log.items[ITEM][item].as_py()),
            "name": log.items[NAME][item].as_py(),
            "rank": int(ranks[item]),
            "buyers": int(buyers[item]),
        }
        for item in best.tolist()
        if buyers[item]
    ]


def _local_months(instants: Ints, tz: str) -> Any:
    """Return the month of each instant, as text like 2017-03."""
    stamps = pa.array(np.asarray(instants)).cast(pa.timestamp("us", tz="UTC"))
    local = pc.local_timestamp(stamps.cast(pa.timestamp("us", tz=tz)))
    return pc.strftime(local, format="%Y-%m")
