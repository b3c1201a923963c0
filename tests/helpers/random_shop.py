"""A shop where there is nothing to learn: random lists, and random purchases at random times."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from made_lists import best_lists, in_window, stamps

N_USERS, N_ITEMS, N_LISTED, DAYS, W = 500, 100, 20, 40, 3
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def draw_shop(seed: int, n_windows: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Lists and purchases by window, and everything bought before the newest window."""
    random, n_events = np.random.default_rng(seed), 6 * N_USERS
    days = np.sort(random.uniform(0, DAYS, n_events))
    log = pa.table(
        {
            "user_id": random.integers(0, N_USERS, n_events),
            "item_id": random.integers(0, N_ITEMS, n_events),
            "timestamp": stamps(START + days * 86_400),
        }
    )
    recs, recent = [], []
    for back in range(n_windows, 0, -1):
        first = DAYS - W * back
        window = log.filter(pa.array((days >= first) & (days < first + W)))
        recs.append(in_window(draw_lists(random), -back))
        recent.append(in_window(window, -back))
    before = log.filter(pa.array(days < DAYS - W))
    return pa.concat_tables(recs), pa.concat_tables(recent), before


def draw_lists(random: np.random.Generator) -> pa.Table:
    return best_lists(np.arange(N_USERS), random.random((N_USERS, N_ITEMS)), N_LISTED)
