"""A small A/B test by email: eight users in each bucket."""

from __future__ import annotations

import pyarrow as pa

BOTH = ["control"] * 8 + ["treatment"] * 8
USER_OPENS = [1, 2, 1, 3, 1, 2, 1, 4] * 2
USER_CLICKS = [0, 1, 0, 1, 0, 0, 1, 1, *[1, 1, 0, 2, 0, 1, 1, 2]]
USER_ORDERS = [0, 0, 0, 1, 0, 0, 0, 0, *[0, 1, 0, 1, 0, 0, 0, 0]]
SMALL = pa.table(
    {"bucket": BOTH, "opens": USER_OPENS, "clicks": USER_CLICKS, "orders": USER_ORDERS}
)
