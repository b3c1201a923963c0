"""Users who buy a few favourites again and again, for benchmarks of Rerankers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

FAVOURITES = 8
REPEATS = 0.3  # of recent purchases


@dataclass(frozen=True)
class Favourites:
    """The favourites of every user: listed items for half of the users, any for the others.

    Args:
        listed: items by [user, place].
        n_items: in the catalogue.
        random: draws.
    """

    listed: Any
    n_items: int
    random: np.random.Generator

    def draw(self, users: Any) -> Any:
        """Return one favourite of each user."""
        which = self.random.integers(0, FAVOURITES, len(users))
        of_list = self.listed[users, which * (self.listed.shape[1] // FAVOURITES)]
        return np.where(users % 2 == 0, of_list, (users * 7919 + which * 104_729) % self.n_items)

    def repeat(self, users: Any, bought: Any) -> Any:
        """Return purchases of users, some of them replaced by favourites."""
        again = self.random.random(len(users)) < REPEATS
        return np.where(again, self.draw(users), bought)


def to_events(users: Any, items: Any, times: Any, tz: str | None = None) -> pa.Table:
    """Return events as a table; times are in microseconds."""
    stamps = pa.array(times).cast(pa.timestamp("us", tz=tz))
    return pa.table({"user_id": users, "item_id": items.astype(np.int64), "timestamp": stamps})
