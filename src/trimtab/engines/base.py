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

from trimtab.arrays import Codes, Floats, Ints, Lists, entries_of, pointers
from trimtab.checks import (
    MOST_DAYS,
    require_fitted,
    require_no_nulls,
    require_positive,
    require_whole,
)
from trimtab.errors import DataError
from trimtab.metrics.per_user import rank_each
from trimtab.tables.columns import (
    ITEM,
    SCORE,
    TIMESTAMP,
    USER,
    Table,
    read_frame,
    read_ids,
    write_frame,
)
from trimtab.tables.times import DAY, as_datetime, microseconds, read_instant, require_before
from trimtab.tables.vocabulary import Vocabulary, id_column


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
        return np.exp((self.times - self.as_of) / (decay_days * DAY))


class Purchases(NamedTuple):
    """Events as one row per user and item, ordered by user, then item."""

    users: Codes
    items: Codes
    first: Ints  # times
    last: Ints
    weights: Floats  # summed over the events
    n_users: int
    n_items: int


def gather_purchases(events: Events, weights: Floats) -> Purchases:
    """Return the distinct purchases of each user; weights are those of the events."""
    key = events.users.astype(np.int64) * events.n_items + events.items
    order = np.lexsort((events.times, key))
    key, times = key[order], events.times[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    ends = np.append(starts[1:], len(key)) - 1
    users, items = np.divmod(key[starts], events.n_items)
    return Purchases(
        users.astype(np.int32), items.astype(np.int32), times[starts], times[ends],
        np.add.reduceat(weights[order], starts), events.n_users, events.n_items,
    )  # fmt: skip


class Sparse(NamedTuple):
    """A matrix in CSR form: scores of items by row, weights of rows by user, times by state."""

    indptr: Ints
    columns: Codes
    values: Any

    def take(self, rows: Codes) -> Sparse:
        """Return the given rows; an empty one for -1."""
        indptr, entries = entries_of(self.indptr, rows)
        return Sparse(indptr, self.columns[entries], self.values[entries])


def mix_lists(weights: Sparse, rows: Sparse, n_items: int, n: int) -> Lists:
    """Return the n best items of each user, by the weighted sum of rows, ties by item."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.engines import mix_rows

    n_users, n = len(weights.indptr) - 1, min(n, n_items)
    with compile_notice():
        return rank_each(mix_rows, n_users, n, n_items, *weights, *rows)


def sum_entries(
    rows: Codes | Ints, columns: Codes | Ints, values: Floats, n_rows: int, n_columns: int
) -> Sparse:
    """Return a matrix from entries in any order, repeated ones summed."""
    key = rows.astype(np.int64) * n_columns + columns
    order = np.lexsort((values, key))  # sums do not depend on the order of entries
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    sums = np.add.reduceat(values[order], starts) if len(starts) else np.empty(0)
    row, column = np.divmod(key[starts], n_columns)
    return Sparse(pointers(row, n_rows), column.astype(np.int32), sums)


def share_rows(
    groups: Codes, members: Codes, weights: Floats, n_groups: int, n_members: int
) -> Sparse:
    """Return each member's share of its group's weight, by group, members ascending."""
    sums = sum_entries(groups, members, weights, n_groups, n_members)
    group = np.repeat(np.arange(n_groups), np.diff(sums.indptr))
    totals = np.bincount(group, sums.values, minlength=n_groups)[group]
    shares = np.divide(sums.values, totals, out=np.zeros(len(totals)), where=sums.values > 0)
    return sums._replace(values=shares)


class _Fitted(NamedTuple):
    sample: Table
    users: Vocabulary
    items: Vocabulary
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
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name), MOST_DAYS)

    def fit(self, events: Any, as_of: Any) -> Self:
        """Learn from events before an instant, replace what was learned before, and return self.

        Args:
            events: user_id, item_id, timestamp (with a time zone), in any order.
            as_of: a datetime with a time zone; events at or after it are an error.
        """
        table = read_frame(events, "events", USER, ITEM, TIMESTAMP)
        instant = read_instant("as_of", as_of)
        column = table.columns[TIMESTAMP]
        if not pa.types.is_timestamp(column.type) or column.type.tz is None:
            raise DataError(
                f"column '{TIMESTAMP}' of events holds {column.type}: engines need timestamps with "
                f"a time zone; use trimtab.datasets.make_log(events, tz=...).events"
            )
        require_no_nulls("events", TIMESTAMP, column)
        times = microseconds(column)
        require_before(times, instant)
        users, (user_codes,) = Vocabulary.encode(table.ids(USER))
        items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
        coded = Events(user_codes, item_codes, times, len(users), len(items), instant)
        if self.window_days is not None and len(coded.since(self.window_days).times) == 0:
            raise DataError(
                f"window_days={self.window_days:g}: there are no events in the window before "
                f"{as_datetime(instant):%Y-%m-%d}; use a longer window"
            )
        sample = Table(table.name, table.columns.slice(0, 0), table.sample, table.lazy)
        self._fitted = _Fitted(sample, users, items, self._learn(coded, items))
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
        wanted, codes = code_users(users, self._fitted.users)
        lists = self._score(self._fitted.model, codes, int(n))
        rows = np.repeat(np.arange(len(codes), dtype=np.int32), np.diff(lists.indptr))
        columns = {
            USER: wanted.take(rows),
            ITEM: self._fitted.items.take(lists.items),
            SCORE: lists.scores,
        }
        return write_frame(columns, self._fitted.sample)

    @abstractmethod
    def _learn(self, events: Events, items: Vocabulary) -> Any:
        """Return the model learned from the events."""

    @abstractmethod
    def _score(self, model: Any, users: Codes, n: int) -> Lists:
        """Return the top n of each user, best first, scores above 0; code -1 is an unknown user."""


def code_users(users: Any | None, known: Vocabulary) -> tuple[Vocabulary, Codes]:
    """Return the distinct ids of the given users, and their codes among known users, or -1."""
    if users is None:
        return known, np.arange(len(known), dtype=np.int32)
    column = read_ids(users, "users", USER)
    if len(column) == 0:
        return known, np.empty(0, np.int32)
    wanted, _ = Vocabulary.encode(id_column("users", USER, column))
    return wanted, known.codes(wanted.column)
