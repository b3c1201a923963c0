"""Generated A/B tests of every kind, small: those of tests/abtest/golden.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

BUCKETS = np.array(["control", "treatment"])
TOTALS = (
    {"emails": 400_000, "opens": 60_000, "clicks": 9_000, "orders": 12},
    {"emails": 400_000, "opens": 60_120, "clicks": 9_320, "orders": 21},
)


def emails(n: int = 800, n_treated: int = 400, lift: float = 0.07) -> pa.Table:
    """A table by email: users differ in opens, clicks and spending."""
    random = np.random.default_rng(n + n_treated)
    treated = random.permutation(n) < n_treated
    opens = 1 + random.poisson(0.8, n)
    before = random.poisson(2.0, n)
    orders = random.poisson(0.2 * opens)
    return pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "user_id": np.arange(n), "opens": opens,
            "clicks": random.binomial(opens, 0.1 + 0.05 * np.minimum(before, 5) + lift * treated),
            "orders": orders, "revenue": np.round(orders * random.lognormal(3, 1, n), 2),
            "pre_clicks": before,
            "date": [f"2026-11-{2 + place:02}" for place in random.integers(0, 3, n)],
        }
    )  # fmt: skip


def ramp(n: int = 900, growth: float = 0.3) -> pa.Table:
    """Users without a difference, more of them treated from date to date."""
    random = np.random.default_rng(5)
    date = np.arange(n) % 3
    treated = random.random(n) < np.array([0.05, 0.15, 0.4])[date]
    orders = random.poisson(0.5 * (1 + growth) ** date)
    return pa.table(
        {
            "bucket": BUCKETS[treated.astype(int)], "date": date, "orders": orders,
            "revenue": np.round(orders * random.lognormal(3, 1, n), 2),
        }
    )  # fmt: skip


def treatments(n: int = 900, names: Sequence[str] = ("old", "red", "blue")) -> pa.Table:
    """Users in several buckets; the second one gets more clicks."""
    random = np.random.default_rng(2)
    place = np.arange(n) % len(names)
    impressions = 5 + random.poisson(20.0, n)
    return pa.table(
        {
            "bucket": np.array(names)[place], "impressions": impressions,
            "clicks": random.binomial(impressions, 0.06 + 0.02 * (place == 1)),
            "orders": random.poisson(0.2, n),
        }
    )  # fmt: skip


def five(value: Any) -> Any:
    """A number with five digits."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
