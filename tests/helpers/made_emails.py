"""A small A/B test by email: eight users in each bucket, and raw logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

BOTH = ["control"] * 8 + ["treatment"] * 8
USER_OPENS = [1, 2, 1, 3, 1, 2, 1, 4] * 2
USER_CLICKS = [0, 1, 0, 1, 0, 0, 1, 1, *[1, 1, 0, 2, 0, 1, 1, 2]]
USER_ORDERS = [0, 0, 0, 1, 0, 0, 0, 0, *[0, 1, 0, 1, 0, 0, 0, 0]]
SMALL = pa.table(
    {"bucket": BOTH, "opens": USER_OPENS, "clicks": USER_CLICKS, "orders": USER_ORDERS}
)

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def at(*minutes):
    return pa.array([NOON + timedelta(minutes=m) for m in minutes], pa.timestamp("us", "UTC"))


EMAILS = pa.table(
    {
        "email_id": [1, 2, 3, 4],
        "user_id": ["ann", "ann", "bob", "cid"],
        "bucket": ["control", "control", "treatment", "treatment"],
    }
)
OPENS = pa.table({"email_id": [1, 1, 2, 3]})
CLICKS = pa.table({"email_id": [1, 2, 3], "timestamp": at(0, 5, 0)})
ORDERS = pa.table(
    {
        # ann: after both clicks, so the second email's; 40 minutes later, still one session as the
        # order before it kept it alive; two hours later, another session. bob: before the click.
        # cid: never clicked. dan: never got an email.
        "user_id": ["ann", "ann", "ann", "bob", "bob", "cid", "dan"],
        "timestamp": at(10, 38, 160, -1, 0, 3, 3),
        "revenue": [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0],
    }
)
