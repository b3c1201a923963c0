"""Made-up months in the format of a simulation."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from made_results import HOSTILE
from trimtab.daily.simulate import SCHEMA, Month

FIRST = datetime.date(2017, 12, 1)


def make_month(n_days: int = 30, log: str = "Complete Journey", **more: Any) -> Month:
    """Return a month with gains of a believable size."""
    chance = random.Random(n_days)
    rows = [_make_day(chance, place) for place in range(n_days)]
    about = {
        "version": "0.2.0", "log": log, "tz": "America/New_York", "engine": "Markov",
        "first": str(FIRST), "last": rows[-1]["day"], "days": n_days, "k": 10, "metric": "ndcg",
        "n_listed": 50, "window": "3d", "retrain_every": 1, **more,
    }  # fmt: skip
    return Month(about, pa.Table.from_pylist(rows, SCHEMA))


def _make_day(chance: random.Random, place: int) -> dict[str, Any]:
    base = chance.gauss(0.09, 0.01)
    return {
        "day": str(FIRST + datetime.timedelta(place)), "baseline": base,
        "n_users": chance.randint(180, 420), "value": base * chance.gauss(1.18, 0.07),
        "seconds": chance.uniform(0.3, 0.5), "n_biases": 22_600, "forecast": 0.2,
    }  # fmt: skip


def _change(month: Month, changes: Mapping[int, Mapping[str, Any]]) -> Month:
    """Return the month with some days changed."""
    rows = [{**row, **changes.get(place, {})} for place, row in enumerate(month.rows)]
    return Month(month.about, pa.Table.from_pylist(rows, SCHEMA))


def _hostile() -> Month:
    """Return a month whose names try to be markup."""
    month = make_month(5, log=HOSTILE, engine="{{ 7 * 7 }}<b>", tz="'\"><i>")
    return _change(month, {2: {"refused": f"{HOSTILE}<b>", "seconds": None, "forecast": None}})


def _closed() -> Month:
    """Return a day without sales, a refused one, and one on which the engine hit nothing."""
    return _change(
        make_month(4, retrain_every=7),
        {
            1: {"value": None, "baseline": None, "n_users": 0},
            2: {"refused": "2017-12-02 looks incomplete: 0 events", "seconds": None},
            3: {"value": 0.0, "baseline": 0.0},
        },
    )


def _idle() -> Month:
    """Return a month with biases of 0 and an engine that never hits."""
    zero = {"value": 0.0, "baseline": 0.0, "n_biases": 0}
    return _change(make_month(3), dict.fromkeys(range(3), zero))


MONTHS: Mapping[str, Callable[[], Month]] = {
    "thirty": make_month,
    "two": lambda: make_month(2),
    "one": lambda: make_month(1),
    "hostile": _hostile,
    "closed": _closed,
    "idle": _idle,
}
