"""The events that a Reranker ranks by, of one part of the users after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Ints
from trimtab.parquet.event_columns import check_weights, drop_weightless
from trimtab.models.model import LeftOut
from trimtab.models.reranker import Reranker
from trimtab.models.events import choose_instant, latest_by_day
from trimtab.tables.columns import own_names
from trimtab.tables.columns import TIMESTAMP, WEIGHT
from trimtab.tables.rows import Rows
from trimtab.tables.times import as_datetime, as_utc, microseconds


@dataclass(frozen=True)
class PartEvents:
    """How the events of a part are read: as if those of all users were read together.

    Args:
        as_of: the instant that lists are for, as `Reranker.apply` takes it.
        instant: the same, in microseconds of UTC.
        tz: time zone of timestamps that have none; None to leave them as they are.
    """

    as_of: Any
    instant: int
    tz: str | None

    @staticmethod
    def prepare(history: Rows, reranker: Reranker, as_of: Any, tz: str | None) -> PartEvents:
        """Check the weights of all events, and find the instant that follows from their times."""
        if WEIGHT in history.schema.names and history.n_rows:
            check_weights("history", history, WEIGHT)
        if as_of is not None:
            return PartEvents(as_of, choose_instant(as_of, np.empty(0, np.int64), reranker), tz)
        times, counts = _latest_by_day(history, tz)
        instant = choose_instant(None, times, reranker, counts)
        moment = as_datetime(instant)
        moment = moment if reranker.has_zone else moment.replace(tzinfo=None)
        return PartEvents(moment, instant, tz)

    def read(self, history: pa.Table) -> pa.Table:
        """Return the events of a part that count, in the time zone that was given."""
        used = _drop_weightless(history)
        if self.tz is None or used.num_rows == 0:
            return used
        own = own_names(history).get(TIMESTAMP, TIMESTAMP)
        stamps, _ = as_utc(used[TIMESTAMP], self.tz, "history", own)
        return used.set_column(used.column_names.index(TIMESTAMP), TIMESTAMP, stamps)

    def count_without_lists(self, history: pa.Table) -> LeftOut:
        """Return the events that are left out if none of a part's users has a list."""
        used = self.read(history)
        if used.num_rows == 0:
            return LeftOut(0, 0, 0)
        later = int(np.count_nonzero(_times_of(used, self.tz) >= self.instant))
        return LeftOut(later, used.num_rows - later, 0)


def _drop_weightless(history: pa.Table) -> pa.Table:
    if WEIGHT not in history.column_names:
        return history
    return drop_weightless(history, WEIGHT).drop_columns([WEIGHT])


def _latest_by_day(history: Rows, tz: str | None) -> tuple[Ints, Ints]:
    """Return what `latest_by_day` returns for each batch, together."""
    columns = [name for name in (TIMESTAMP, WEIGHT) if name in history.schema.names]
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for batch in history.batches(columns=[history.source_of(name) for name in columns]):
        found.append(latest_by_day(_times_of(_drop_weightless(batch.rename_columns(columns)), tz)))
    times, counts = (np.concatenate(own) for own in zip(*found, strict=True))
    return times, counts


def _times_of(events: pa.Table, tz: str | None) -> Ints:
    if events.num_rows == 0:
        return np.empty(0, np.int64)
    return microseconds(as_utc(events[TIMESTAMP], tz or "UTC", "history")[0])
