"""A shop where people buy the same things again and again, which its best sellers do not show."""

from __future__ import annotations

import random

import pyarrow as pa

from trimtab.datasets import make_log
from trimtab.tables.log import Log

N_ITEMS = 60
CHANGE = 24
DAY = 86_400_000_000
START = 1_767_571_200_000_000  # 5 January 2026


def habit_log(n_users: int = 240, days: int = 45) -> Log:
    """Return a log: each user has three habits, and also buys what sells well.

    What sells well is something else from day `CHANGE` on.
    """
    chance, rows = random.Random(5), []
    for user in range(n_users):
        habits = chance.sample(range(N_ITEMS), 3)
        every = chance.randint(3, 6)
        for day in range(chance.randrange(every), days, every):
            kept = [item for item in habits if chance.random() < 0.7]
            popular = int(N_ITEMS * chance.random() ** 3) + (20 if day >= CHANGE else 0)
            bought = {*kept, popular % N_ITEMS}
            at = START + day * DAY + chance.randrange(DAY)
            rows += [(user, item, at) for item in sorted(bought)]
    users, items, times = zip(*sorted(rows, key=lambda row: row[2]), strict=True)
    stamps = pa.array(times).cast(pa.timestamp("us", tz="UTC"))
    return make_log(pa.table({"user_id": users, "item_id": items, "timestamp": stamps}))
