"""Months as a simulation would give them, made up: nothing here was measured."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from made_results import HOSTILE
from trimtab.daily.simulated_month import COLD, DEFAULT, JOBS, SCHEMA, WARM, Month

FIRST = datetime.date(2017, 12, 1)
_GAIN = {DEFAULT: 0.18, COLD: 0.12, WARM: 0.115}
_SECONDS = {DEFAULT: 0.4, COLD: 0.11, WARM: 0.05}
_CYCLES = {DEFAULT: 1, COLD: 12, WARM: 6}
_N_BIASES = {DEFAULT: 22_600, COLD: 34, WARM: 32}


def make_month(n_days: int = 30, log: str = "Complete Journey", **more: Any) -> Month:
    """Every day and job, with gains of a believable size."""
    chance = random.Random(n_days)
    rows = [row for place in range(n_days) for row in _day(chance, place)]
    about = {
        "version": "0.2.0", "log": log, "tz": "America/New_York", "engine": "Markov",
        "first": str(FIRST), "last": rows[-1]["day"], "days": n_days, "k": 10, "metric": "ndcg",
        "n_listed": 50, "recent_days": 3, "retrain_every": 1, **more,
    }  # fmt: skip
    return Month(about, pa.Table.from_pylist(rows, SCHEMA))


def _day(chance: random.Random, place: int) -> list[dict[str, Any]]:
    day, base = str(FIRST + datetime.timedelta(place)), chance.gauss(0.09, 0.01)
    shared, reached, n_users = chance.gauss(0, 0.06), chance.gauss(60, 8), chance.randint(180, 420)
    return [
        {
            "day": day, "job": job, "baseline": base, "n_users": n_users,
            "value": base * (1 + _GAIN[job] + shared + chance.gauss(0, 0.03)),
            "seconds": round(_SECONDS[job] * chance.uniform(0.7, 1.3), 3),
            "cycles": _CYCLES[job], "n_biases": _N_BIASES[job],
            "objective": reached * (1 + (job == WARM) * bool(place) * chance.gauss(0, 0.01)),
            "forecast": 0.2 if job == DEFAULT else None,
            "changed": chance.uniform(0.8, 1) if place else None,
            "moved": chance.uniform(0.1, 0.8) if place else None,
        }
        for job in JOBS
    ]  # fmt: skip


def _hostile() -> Month:
    """Names that try to be more than text."""
    return make_month(5, log=HOSTILE, engine="{{ 7 * 7 }}<b>", tz="'\"><i>")


def _closed() -> Month:
    """A shop that sold nothing on one day, and an engine that hit nothing on another."""
    month = make_month(4, retrain_every=7)
    rows: list[dict[str, Any]] = month.days.to_pylist()
    for row in rows[3:6]:
        row.update(value=None, baseline=None, n_users=0)
    for row in rows[6:9]:
        row.update(value=0.0, baseline=0.0)
    return Month(month.about, pa.Table.from_pylist(rows, SCHEMA))


def _idle() -> Month:
    """Biases of 0 all along, over an engine that never hits."""
    month = make_month(3)
    zero = {"value": 0.0, "baseline": 0.0, "n_biases": 0, "changed": 0.0, "moved": 0.0,
            "objective": 0.0}  # fmt: skip
    rows = [{**row, **zero} for row in month.days.to_pylist()]
    return Month(month.about, pa.Table.from_pylist(rows, SCHEMA))


MONTHS: Mapping[str, Callable[[], Month]] = {
    "thirty": make_month,
    "two": lambda: make_month(2),
    "one": lambda: make_month(1),
    "hostile": _hostile,
    "closed": _closed,
    "idle": _idle,
}
