"""A shop whose best sellers are always new, so that its engine never lists them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from made_lists import best_lists, in_window, stamps

START, W, BLOCKS = datetime(2026, 1, 1, tzinfo=UTC), 3, 14
NOW = START + timedelta(W * (BLOCKS - 1))
N_OLD, N_NEW, N_LISTED = 60, 6, 20


def new_items(block: int) -> list[int]:
    """The items that come out with a block of three days, the best seller first."""
    return [1_000 + N_NEW * block + place for place in range(N_NEW)]


class NoveltyShop:
    """Six new items every three days, each of which sells half as much as the one before.

    They sell for two blocks; half of all purchases are of items that have always been there.
    The lists hold only the latter. The last block comes after now.
    """

    def __init__(self, n_users: int = 400, n_windows: int = 4) -> None:
        self._random, self.n_users = np.random.default_rng(0), n_users
        log = pa.concat_tables([self._sales(block) for block in range(BLOCKS)])
        block_of = np.concatenate([np.full(2 * n_users, block) for block in range(BLOCKS)])
        self.later = log.filter(pa.array(block_of == BLOCKS - 1))
        self.known = log.filter(pa.array(block_of < BLOCKS - 1))
        self.history = log.filter(pa.array(block_of < BLOCKS - 2))
        taught = range(BLOCKS - 1 - n_windows, BLOCKS - 1)
        self.recs = pa.concat_tables([in_window(self.lists(), block) for block in taught])
        self.recent = pa.concat_tables(
            [in_window(log.filter(pa.array(block_of == block)), block) for block in taught]
        )
        self.tonight = self.lists()

    def _sales(self, block: int) -> pa.Table:
        """Two purchases of each user in a block."""
        n = 2 * self.n_users
        old = self._random.integers(0, N_OLD, n)
        place = np.minimum(self._random.geometric(0.5, n) - 1, N_NEW - 1)
        out = block - self._random.integers(0, 2, n)
        fresh = self._random.random(n) < 0.5
        seconds = np.sort(self._random.integers(0, W * 86_400, n)) + W * 86_400 * block
        return pa.table(
            {
                "user_id": np.tile(np.arange(self.n_users), 2),
                "item_id": np.where(fresh, 1_000 + N_NEW * out + place, old),
                "timestamp": stamps(START.timestamp() + seconds),
            }
        )

    def lists(self) -> pa.Table:
        scores = self._random.random((self.n_users, N_OLD)) + 0.1
        return best_lists(np.arange(self.n_users), scores, N_LISTED)
