"""A generated shop whose engine knows every user's taste, but neither drift nor repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import trimtab as tt
from made_lists import best_lists, in_window, stamps

START, DAYS, W, LATER_DAYS = datetime(2026, 1, 1, tzinfo=UTC), 60, 3, 7
NOW = START + timedelta(DAYS)


class RepeatShop:
    """Purchases by taste, of which a share repeats one of the user's last purchases.

    Args:
        repeats: share of purchases that repeat one of the last five.
        drift: spread of how much items gain or lose until now, as logs; the engine knows nothing
            of it.
        lists_own: whether lists hold what the user already has.
        n_users: number of users.
        n_items: number of items.
        n_listed: length of the lists.
        n_windows: windows of three days, the newest last.
        seed: of everything random.
    """

    def __init__(
        self, repeats: float, drift: float = 0.0, lists_own: bool = True, n_users: int = 600,
        n_items: int = 120, n_listed: int = 20, n_windows: int = 3, seed: int = 0,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        tastes = random.normal(size=n_items) + 0.7 * random.normal(size=(n_users, n_items))
        chances = np.exp(tastes)
        self.chances = chances / chances.sum(axis=1, keepdims=True)
        self.n_listed, self.lists_own = n_listed, lists_own
        self.log = _draw_log(random, self.chances, repeats, drift)
        starts = [NOW - timedelta(W * back) for back in range(n_windows, 0, -1)]
        self.recs, self.recent = (
            pa.concat_tables([in_window(rows(start, W), str(start.date())) for start in starts])
            for rows in (self.lists, self.events)
        )
        self.history = self.events(START, DAYS - W)
        self.known = self.events(START, DAYS)  # up to now
        self.tonight, self.later = self.lists(NOW, LATER_DAYS), self.events(NOW, LATER_DAYS)

    def events(self, first: datetime, days: int) -> pa.Table:
        times, stop = self.log["timestamp"], first + timedelta(days)
        return self.log.filter(pc.and_(pc.greater_equal(times, first), pc.less(times, stop)))

    def lists(self, first: datetime, days: int) -> pa.Table:
        """Lists made just before some days, for the users who buy in them."""
        users = np.unique(self.events(first, days)["user_id"].to_numpy())
        scores = self.chances[users].copy()
        if not self.lists_own:
            before = self.events(START, (first - START).days)
            owned = np.zeros(self.chances.shape, bool)
            owned[before["user_id"].to_numpy(), before["item_id"].to_numpy()] = True
            scores[owned[users]] = 0.0
        return best_lists(users, scores + 1e-9, self.n_listed)

    def lift(self, top: pa.Table) -> float:
        """The lift of NDCG over the engine in the days after now."""
        before = tt.evaluate(self.tonight, self.later)["ndcg"]
        return tt.evaluate(top, self.later)["ndcg"] / before - 1


def _draw_log(
    random: np.random.Generator, chances: np.ndarray, repeats: float, drift: float
) -> pa.Table:
    """Thirty purchases of each user, in time order."""
    n_users, each = len(chances), 30
    users, trends = np.arange(n_users), drift * random.normal(size=chances.shape[1])
    seconds = np.sort(random.integers(0, (DAYS + LATER_DAYS) * 86_400, (n_users, each)), axis=1)
    items = np.empty((n_users, each), np.int64)
    for place in range(each):
        passed = seconds[:, place, None] / (DAYS * 86_400)
        sums = (chances * np.exp(trends * passed)).cumsum(axis=1)
        draws = random.random((n_users, 1)) * sums[:, -1:]
        items[:, place] = (sums < draws).sum(axis=1)
        again = np.flatnonzero(random.random(n_users) < (repeats if place else 0.0))
        earlier = place - 1 - random.integers(0, max(min(place, 5), 1), n_users)
        items[again, place] = items[again, earlier[again]]
    order = np.argsort(seconds.ravel(), kind="stable")
    return pa.table(
        {
            "user_id": np.repeat(users, each)[order],
            "item_id": items.ravel()[order],
            "timestamp": stamps(START.timestamp() + seconds.ravel()[order]),
        }
    )
