"""What all engines share: reading events, refusing what they must not see, and writing lists.

An engine is its settings; `fit` learns and returns the engine itself; `recommend` gives lists of
scores. `window_days` limits what is learned about items to the last days before `as_of`, while a
user's own profile is taken from all that is known of the user. `decay_days` (β) weighs each event
by exp(-age / β). `Repeat`, which learns nothing about items, cuts and weighs the profile itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.checks import require_number, require_whole
from trimtab.errors import DataError, SettingError, TrimtabError
from trimtab.tables.columns import ITEM, SCORE, TIMESTAMP, USER
from trimtab.tables.frames import Table, known_ids, read_frame, take_ids, write_frame
from trimtab.tables.id_labels import id_values
from trimtab.tables.ids import encode_ids, id_column
from trimtab.tables.timestamps import DAY, as_datetime, microseconds, read_instant, require_before

_MOST_DAYS = 36_500


class Events(NamedTuple):
    """Events as codes, all before the instant the engine is trained at."""

    users: Codes
    items: Codes
    times: Ints  # microseconds since 1970
    n_users: int
    n_items: int
    as_of: int

    def since(self, days: float | None) -> Events:
        """Only those of the last days; all for None."""
        if days is None:
            return self
        keep = self.times >= self.as_of - round(days * DAY)
        return self._replace(users=self.users[keep], items=self.items[keep], times=self.times[keep])

    def weights(self, decay_days: float | None) -> Floats:
        """exp(-age / β) of each event; 1 without decay."""
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
    """Settings common to all engines.

    Args:
        window_days: learn about items from the last so many days; None: from everything.
        decay_days: weigh events by exp(-age / decay_days); None: all the same.
    """

    window_days: float | None = None
    decay_days: float | None = None
    _fitted: _Fitted | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("window_days", "decay_days"):
            value = getattr(self, name)
            if value is not None:
                require_number(name, value, 0, _MOST_DAYS)
                if value == 0:
                    raise SettingError(f"{name}=0: must be above 0, or None")

    def fit(self, events: Any, as_of: Any) -> Self:
        """Learn from events before an instant; what was learned before is forgotten.

        Args:
            events: user_id, item_id, timestamp (with a time zone), in any order.
            as_of: a datetime with its time zone; events at or after it are refused.
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
        """Each user's n best items: user_id, item_id, score, best first, users by id.

        Args:
            users: ids, or a frame with user_id; None: all users that the engine knows. Users it
                does not know get no rows (those of `Popularity` get what is popular).
            n: longest list; fewer where fewer items have a score above 0.

        Returns:
            The same kind of frame as the events that the engine was fitted on. Ties go to the
            smaller item id.
        """
        require_whole("n", n, 1)
        if self._fitted is None:
            raise TrimtabError(f"this {type(self).__name__} has learned nothing yet: call fit")
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
        """Refuse a window without events."""
        if self.window_days is not None and n_events == 0:
            raise DataError(
                f"window_days={self.window_days:g}: no event lies in the last days before "
                f"{as_datetime(instant):%Y-%m-%d}; choose a longer window"
            )

    @abstractmethod
    def _learn(self, events: Events, item_ids: Any) -> Any:
        """What is kept of the events."""

    @abstractmethod
    def _score(self, model: Any, users: Codes, n: int) -> Lists:
        """The top n of each user, best first, scores above 0; code -1 is a user not known."""

    def _code_users(self, users: Any | None) -> tuple[Any, Codes]:
        """The different users asked for, by id, and their codes; -1 for those not known."""
        assert self._fitted is not None
        known = self._fitted.user_ids
        if users is None:
            return known, np.arange(len(known), dtype=np.int32)
        column = id_values(users, "users", USER)
        if len(column) == 0:
            return known[:0], np.empty(0, np.int32)
        ours = known_ids("events", USER, known)
        ids, (our_codes, their_codes) = encode_ids([ours, id_column("users", USER, column)])
        back = np.full(len(ids), -1, np.int32)
        back[our_codes] = np.arange(len(our_codes), dtype=np.int32)
        asked = np.unique(their_codes)
        return take_ids(ids, asked), back[asked]


def _read_times(table: Table) -> Ints:
    column = table.columns[TIMESTAMP]
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise DataError(
            f"column '{TIMESTAMP}' of events holds {column.type}: engines need timestamps with a "
            f"time zone; trimtab.datasets.make_log(events, tz=...) gives them"
        )
    if column.null_count:
        raise DataError(
            f"column '{TIMESTAMP}' of events lacks a value in {column.null_count} of {len(table)} "
            f"rows; drop those rows"
        )
    return microseconds(column)
