"""Events as one row per user and item: first and last time, and summed weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.engines.base import Events


class Purchases(NamedTuple):
    """One row per (user, item), ordered by user, then item."""

    users: Codes
    items: Codes
    first: Ints
    last: Ints
    weights: Floats  # summed over the events
    n_users: int
    n_items: int

    def by_item(self) -> tuple[Ints, Codes, Ints]:
        """Return the buyers of each item, users ascending: pointers, users, first times."""
        order = np.argsort(self.items, kind="stable")
        return pointers(self.items, self.n_items), self.users[order], self.first[order]

    def latest_first(self) -> Ints:
        """Return the order of rows by user, latest purchase first, then item."""
        order: Ints = np.lexsort((self.items, -self.last, self.users))
        return order


def gather_purchases(events: Events, weights: Floats) -> Purchases:
    """Return the distinct purchases of each user."""
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


def pointers(codes: Codes, n: int) -> Ints:
    """Return where the rows of each code begin once rows are grouped by code."""
    counts = np.bincount(codes, minlength=n)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
