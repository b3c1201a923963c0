"""Tables of lists made from scores, and of rows of one window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def best_lists(users: np.ndarray, scores: np.ndarray, n: int) -> pa.Table:
    """The n items of each user with the highest scores, by [user, item]."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    return pa.table(
        {
            "user_id": np.repeat(users, n), "item_id": best.ravel(),
            "score": np.take_along_axis(scores, best, axis=1).ravel(),
        }
    )  # fmt: skip


def in_window(table: pa.Table, window: Any) -> pa.Table:
    """The table with a window, the same in all rows."""
    return table.append_column("window", pa.repeat(pa.scalar(window), table.num_rows))


def stamps(seconds: Any) -> pa.Array:
    """Seconds since 1970 as timestamps of UTC."""
    return pa.array((np.asarray(seconds) * 1_000_000).astype(np.int64)).cast(
        pa.timestamp("us", tz="UTC")
    )
