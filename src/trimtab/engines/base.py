"""The base class of engines: it reads events, refuses future events and writes lists.

An engine object holds its settings; `fit` learns and returns the engine; `recommend` returns scored
lists. `window_days` limits what is learned about items to the last days before `as_of`; a user's
profile comes from all the user's events. `decay_days` (β) weights each event by exp(-age / β).
`Repeat` learns nothing about items, so it applies both to the profile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Floats, Ints, Lists, find_positions
from trimtab.checks import (
    MOST_DAYS,
    require_fitted,
    require_no_nulls,
    require_positive,
    require_whole,
)
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER
from trimtab.tables.frames import Table, id_values, read_frame, write_frame
from trimtab.tables.times import DAY, as_datetime, microseconds, read_instant, require_before
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column, take_ids


class Events(NamedTuple):
    """Events as codes, all before `as_of`, the training instant."""

    users: Codes
    items: Codes
    times: Ints  # microseconds since 1970
    n_users: int
    n_items: int
    as_of: int

    def since(self, days: float | None) -> Events:
        """Return the events of the last days; all for None."""
        if days is None:
            return self
        keep = self.times >= self.as_of - round(days * DAY)
        return self._replace(users=self.users[keep], items=self.items[keep], times=self.times[keep])

    def weights(self, decay_days: float | None) -> Floats:
        """Return exp(-age / β) of each event; 1 without decay."""
        if decay_days is None:
            return np.ones(len(self.times))
        weights: Floats = np.exp((self.times - self.as_of) / (decay_days * DAY))
        return weights


class _Fitted(NamedTuple):
    sample: Table
    user_ids: Any
    item_ids: Any
    model: Any


@dataclass(kw_only=True)
class Engine(ABC):
    """The settings of all engines.

    Args:
        window_days: days before `as_of` to learn about items from; None for all events.
        decay_days: weight events by exp(-age / decay_days); None for equal weights.
    """

    window_days: float | None = None
    decay_days: float | None = None
    _fitted: _Fitted | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("window_days", "decay_days"):
            value = getattr(self, name)
            if value is not None:
                require_positive(name, value, MOST_DAYS)

    def fit(self, events: Any, as_of: Any) -> Self:
        """Learn from events before an instant, replace what was learned before, and return self.

        Args:
            events: user_id, item_id, timestamp (with a time zone), in any order.
            as_of: a datetime with a time zone; events at or after it are an error.
        """
        table = read_frame(events, "events", USER, ITEM, TIMESTAMP)
        instant = read_instant("as_of", as_of)
        times = _read_times(table)
        require_before(times, instant)
        user_ids, (users,) = encode_ids([table.ids(USER)])
        item_ids, (items,) = encode_ids([table.ids(ITEM)])
        coded = Events(users, items, times, len(user_ids), len(item_ids), instant)
        self._require_window(len(coded.since(self.window_days).times), instant)
        model = self._learn(coded, item_ids)
        sample = Table(table.name, table.columns.slice(0, 0), table.sample, table.lazy)
        self._fitted = _Fitted(sample, user_ids, item_ids, model)
        return self

    def recommend(self, users: Any | None = None, n: int = 50) -> Any:
        """Return each user's n best items: user_id, item_id, score, best first, users by id.

        Args:
            users: ids, or a frame with user_id; None for all users of the events. Unknown users
                get no rows, except from `Popularity`.
            n: longest list; shorter if fewer items have a score above 0.

        Returns:
            The same type of frame as the events. Ties go to the smaller item id.
        """
        require_whole("n", n, 1)
        require_fitted(self, self._fitted is not None)
        assert self._fitted is not None
        wanted, codes = self._code_users(users)
        lists = self._score(self._fitted.model, codes, int(n))
        rows = np.repeat(np.arange(len(codes), dtype=np.int32), np.diff(lists.indptr))
        columns = {
            USER: take_ids(wanted, rows),
            ITEM: take_ids(self._fitted.item_ids, lists.items),
            SCORE: lists.scores,
        }
        return write_frame(columns, self._fitted.sample)

    def _require_window(self, n_events: int, instant: int) -> None:
        """Raise if the window has no events."""
        if self.window_days is not None and n_events == 0:
            raise DataError(
                f"window_days={self.window_days:g}: there are no events in the window before "
                f"{as_datetime(instant):%Y-%m-%d}; use a longer window"
            )

    @abstractmethod
    def _learn(self, events: Events, item_ids: Any) -> Any:
        """Return the model learned from the events."""

    @abstractmethod
    def _score(self, model: Any, users: Codes, n: int) -> Lists:
        """Return the top n of each user, best first, scores above 0; code -1 is an unknown user."""

    def _code_users(self, users: Any | None) -> tuple[Any, Codes]:
        """Return the distinct ids of the given users, ascending, and their codes or -1."""
        assert self._fitted is not None
        known = self._fitted.user_ids
        if users is None:
            return known, np.arange(len(known), dtype=np.int32)
        column = id_values(users, "users", USER)
        if len(column) == 0:
            return known[:0], np.empty(0, np.int32)
        ours = as_id_column("events", USER, known)
        ids, (our_codes, their_codes) = encode_ids([ours, id_column("users", USER, column)])
        wanted = np.unique(their_codes)
        return take_ids(ids, wanted), find_positions(our_codes, wanted)


def _read_times(table: Table) -> Ints:
    column = table.columns[TIMESTAMP]
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise DataError(
            f"column '{TIMESTAMP}' of events holds {column.type}: engines need timestamps with a "
            f"time zone; use trimtab.datasets.make_log(events, tz=...).events"
        )
    require_no_nulls("events", TIMESTAMP, column)
    return microseconds(column)
