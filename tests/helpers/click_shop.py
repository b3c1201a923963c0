"""A shop whose customers click on other things than they order."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

import trimtab as tt
from made_lists import best_lists, in_window

WEIGHTS = {"click": 0.05, "order": 1.0}
START = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
_RISE = 0.8  # standard deviation, in logs
W, WINDOWS = 3, 4  # days of a window, and windows to learn from


class ClickShop:
    """Lists, and clicks and orders of their users in windows of three days.

    Each item has a rise in orders and a rise in clicks, whose correlation is the agreement. If it
    is below 0, what is clicked most is not what sells. The engine knows the tastes of users, but
    no rise.

    Attributes:
        recs: user_id, item_id, score, window.
        recent: user_id, item_id, timestamp, window, kind.
        history: user_id, item_id, timestamp, kind; before the rise.
        tonight: lists of the days that follow.
        orders: what is ordered on those days: user_id, item_id.
    """

    def __init__(
        self, n_users: int = 600, n_items: int = 120, agreement: float = -0.8, seed: int = 0
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._n_users, self._n_items, self._n_listed = n_users, n_items, 30
        self._taste = self._random.normal(size=(n_users, n_items))
        ordered = self._random.normal(size=n_items)
        other = np.sqrt(1.0 - agreement**2) * self._random.normal(size=n_items)
        self._rise = {"order": _RISE * ordered, "click": _RISE * (agreement * ordered + other)}
        self.recs, self.recent = (pa.concat_tables(parts) for parts in zip(
            *(self._window(number) for number in range(WINDOWS)), strict=True
        ))  # fmt: skip
        self.history = pa.concat_tables(
            [self._events(day, kind, 0.0) for day in range(-27, 0, 3) for kind in WEIGHTS]
        )
        self.tonight = self._lists()
        self.orders = self._events(WINDOWS * W, "order", 1.0).select(["user_id", "item_id"])

    def _lists(self) -> pa.Table:
        noise = self._random.normal(size=self._taste.shape)
        scores = np.exp(self._taste + 0.5 * noise)
        return best_lists(np.arange(self._n_users), scores, self._n_listed)

    def _window(self, number: int) -> tuple[pa.Table, pa.Table]:
        day = number * W
        events = pa.concat_tables([self._events(day, kind, 1.0) for kind in WEIGHTS])
        return in_window(self._lists(), f"w{number}"), in_window(events, f"w{number}")

    def _events(self, day: int, kind: str, share: float) -> pa.Table:
        """Five clicks or one order of each user, in the three days from one on."""
        n = 5 if kind == "click" else 1
        utility = self._taste + share * self._rise[kind]
        # The n best after adding such noise are n draws without replacement.
        drawn = utility + self._random.gumbel(size=utility.shape)
        items = np.argsort(-drawn, axis=1)[:, :n].ravel()
        users = np.repeat(np.arange(self._n_users), n)
        seconds = self._random.integers(0, W * 86_400, len(users))
        times = [START + dt.timedelta(days=day, seconds=int(second)) for second in seconds]
        kinds = pa.repeat(pa.scalar(kind), len(users))
        return pa.table({"user_id": users, "item_id": items, "timestamp": times, "kind": kinds})

    def lift(self, top: pa.Table) -> float:
        """The lift in NDCG@10 of the orders of the days that follow."""
        return tt.evaluate(top, self.orders, baseline=self.tonight)["ndcg_lift"]


def weigh(events: pa.Table, weights: dict[str, float] = WEIGHTS) -> pa.Table:
    """Events with a weight by their kind."""
    return events.append_column(
        "weight", pa.array([weights[k] for k in events["kind"].to_pylist()])
    )
