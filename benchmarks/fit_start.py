"""Seconds of this process's imports and of its first two fits of a small table, for `fit.py`."""

from __future__ import annotations

import json
import time
from typing import Any


def tables() -> tuple[Any, Any]:
    """40 users with lists of 10 of 30 items and 2 purchases, made without compiled code."""
    import pyarrow as pa

    rows = [(u, (7 * u + 3 * p) % 30, 1 / (1 + p)) for u in range(40) for p in range(10)]
    users, items, scores = zip(*rows, strict=True)
    bought = [(u, (u + step) % 30) for u in range(40) for step in (0, 11)]
    recs = pa.table({"user_id": users, "item_id": items, "score": scores})
    recent = pa.table(dict(zip(("user_id", "item_id"), zip(*bought, strict=True), strict=True)))
    return recs, recent


def main() -> None:
    seconds = {}
    clock = time.perf_counter()
    recs, recent = tables()
    seconds["import pyarrow"] = time.perf_counter() - clock
    clock = time.perf_counter()
    import trimtab as tt

    seconds["import trimtab"] = time.perf_counter() - clock
    for name in ("first fit", "second fit"):
        clock = time.perf_counter()
        tt.BiasLearner.paper(k=5, metric="acc").fit(recs, recent, progress=False)
        seconds[name] = time.perf_counter() - clock
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
