"""TIFU-KNN: recommend what a user, and users with similar baskets, bought often and lately.

After Hu, He, Gao and Zhang, "Modeling Personalized Item Frequency Information for Next-basket
Recommendation" (SIGIR 2020). A basket is what a user bought on one day of the shop, each item once.
A user's baskets are split into at most `n_groups` groups of consecutive baskets, as equal as
possible, newer ones larger by one. The user's vector is

    v(i) = mean over groups of group_decay^a · g(i)
    g(i) = mean over the group's baskets of basket_decay^b if i is in the basket, else 0

where a is the number of newer groups, and b that of newer baskets in the group. The neighbours of a
user are the other users whose vectors are nearest, by Euclidean distance. The score of an item is
alpha · v(i) + (1 - alpha) · the mean of v(i) over the neighbours.

For distances vectors are rounded to whole quanta: sums are exact, so that equal distances are equal
and ties go to the smaller user id. The nearest users v of u have the highest 2·u·v - |v|², which is
a sum of rows like the scores of other engines; no matrix of users by users is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Floats, Lists
from trimtab.checks import require_number, require_whole
from trimtab.engines.base import Engine, Events, Sparse, mix_lists, sum_entries
from trimtab.models.list_ranking import join_lists
from trimtab.tables.times import DAY, require_zone
from trimtab.tables.vocabulary import Vocabulary

_QUANTA = 2.0**18  # sums of their products stay below 2^53
_BLOCK = 8192  # users whose neighbours are in memory


class _Model(NamedTuple):
    near: Sparse  # vectors of users in quanta, with a last column of 1
    rows: Sparse  # by item, then one for the last column: what adds up to the nearness of users
    vectors: Sparse  # of users; then those of the last days
    n_users: int
    n_items: int


@dataclass(kw_only=True)
class TifuKNN(Engine):
    """Engine from time-decayed frequencies in the baskets of a user and of similar users.

    Args:
        n_neighbours: users to take the mean of.
        n_groups: most groups of a user's baskets.
        basket_decay: weight of a basket over that of the next newer one in its group.
        group_decay: weight of a group over that of the next newer one.
        alpha: weight of the user's own vector; the neighbours have the rest.
        tz: the shop's time zone, in which a day begins.
    """

    n_neighbours: int = 300
    n_groups: int = 7
    basket_decay: float = 0.9
    group_decay: float = 0.7
    alpha: float = 0.7
    tz: str = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_neighbours", "n_groups"):
            require_whole(name, getattr(self, name), 1)
        for name in ("basket_decay", "group_decay", "alpha"):
            require_number(name, getattr(self, name), 0, 1)
        require_zone(self.tz)

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        vectors = self._vectors(events)
        size = events.n_users, events.n_items + 1
        everyone = np.arange(events.n_users, dtype=np.int32)
        users = np.append(np.repeat(everyone, np.diff(vectors.indptr)), everyone)
        columns = np.append(vectors.columns, np.full_like(everyone, events.n_items))
        quanta = np.rint(vectors.values * _QUANTA)
        squares = np.bincount(users[: len(quanta)], quanta**2)
        near = sum_entries(users, columns, np.append(quanta, np.ones(events.n_users)), *size)
        added = np.append(2 * quanta, squares.max() + 1 - squares)  # above 0, as rows must be
        rows = sum_entries(columns, users, added, *size[::-1])
        recent = (
            vectors if self.window_days is None else self._vectors(events.since(self.window_days))
        )
        both = Sparse(
            np.append(vectors.indptr, vectors.indptr[-1] + recent.indptr[1:]),
            np.append(vectors.columns, recent.columns), np.append(vectors.values, recent.values),
        )  # fmt: skip
        return _Model(near, rows, both, events.n_users, events.n_items)

    def _vectors(self, events: Events) -> Sparse:
        """Return the decayed frequency of each user's items."""
        clock = pc.local_timestamp(pa.array(events.times, pa.timestamp("us", self.tz)))
        days = clock.cast(pa.int64()).to_numpy() // DAY
        order = np.lexsort((events.times, events.items, days, events.users))
        users, days, items = events.users[order], days[order], events.items[order]
        starts = (np.diff(users, prepend=-1) != 0) | (np.diff(days, prepend=0) != 0)
        baskets = np.cumsum(starts) - 1
        last = np.diff(baskets * events.n_items + items, append=-1) != 0  # of an item in a basket
        weights = events.weights(self.decay_days)[order] * self._weigh(users[starts])[baskets]
        size = events.n_users, events.n_items
        return sum_entries(users[last], items[last], weights[last], *size)

    def _weigh(self, users: Codes) -> Floats:
        """Return the weight of each basket from the users of baskets, in order of user and day."""
        counts = np.bincount(users)
        place = np.cumsum(counts)[users] - 1 - np.arange(len(users))  # 0 is the newest
        n_groups = np.minimum(counts[users], self.n_groups)
        size, n_larger = np.divmod(counts[users], n_groups)
        group = np.maximum(place // (size + 1), (place - n_larger) // size)
        place -= group * size + np.minimum(group, n_larger)
        decayed = self.group_decay**group * self.basket_decay**place
        weights: Floats = decayed / (n_groups * (size + (group < n_larger)))
        return weights

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        starts = range(0, len(users), _BLOCK)
        blocks = [np.arange(start, min(start + _BLOCK, len(users))) for start in starts]
        parts = [(block, self._score_block(model, users[block], n)) for block in blocks]
        return join_lists(parts, len(users))

    def _score_block(self, model: _Model, users: Codes, n: int) -> Lists:
        near, rows, vectors, n_users, n_items = model
        found = mix_lists(near.take(users), rows, n_users, self.n_neighbours + 1)
        unit = np.repeat(np.arange(len(users)), np.diff(found.indptr))
        other = found.items != users[unit]
        before = np.append(0, np.cumsum(other))
        kept = other & (before[:-1] - before[found.indptr[unit]] < self.n_neighbours)
        known = np.flatnonzero(users >= 0)
        of_each = (1 - self.alpha) / max(1, min(self.n_neighbours, n_users - 1))
        weights = sum_entries(
            np.append(known, unit[kept]),
            np.append(users[known], n_users + found.items[kept]),
            np.append(np.full(len(known), self.alpha), np.full(np.count_nonzero(kept), of_each)),
            len(users), 2 * n_users,
        )  # fmt: skip
        return mix_lists(weights, vectors, n_items, n)
