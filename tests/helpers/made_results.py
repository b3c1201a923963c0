"""Made-up results in the format of a backtest."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pyarrow as pa

from trimtab.replay.results import SCHEMAS, Results
from trimtab.report.overview import Overview

METRICS = ("acc", "map", "ndcg")
ENGINES = ("markov", "category", "factorization")
METHODS = (
    "long", "truncate", "decay", "distrdiff", "ratio", "bestsellers-1", "bestsellers-3",
    "bestsellers-7", "paper", "default", "reranker",
)  # fmt: skip
LEARNED = ("paper", "default", "reranker")
DEMO_DATES = ("2017-11-01", "2017-12-11")
HOSTILE = "</script><img src=x onerror=alert(1)>"
_GAIN = {"truncate": -0.06, "decay": 0.01, "distrdiff": 0.05, "ratio": 0.03,
         "bestsellers-1": -0.2, "bestsellers-3": -0.1, "bestsellers-7": -0.15, "paper": -0.08,
         "default": 0.035, "reranker": 0.9}  # fmt: skip
_PARTS = {"trend": 0.035, "personal": 0.5, "trending": 0.0, "own": 0.37}
_COVERED = {"default": 0.08, "paper": 0.14, "reranker": 0.2}
_CLOSER = {"default": 0.5, "paper": 0.9, "reranker": 1.2}
_LONGER = {7: 0.0, 30: 0.18, 91: 0.27, 182: 0.31, 0: 0.3}
_BASE = {"acc": 0.081, "map": 0.052, "ndcg": 0.121}
_GOODS = (
    "FLUID MILK WHITE ONLY 1 gallon", "BANANAS", "SOFT DRINKS 12/18&15PK CAN CAR 12 oz",
    "CHOICE BEEF", "STRAWBERRIES", "SHREDDED CHEESE 8 oz", "MAINSTREAM WHITE BREAD 20 oz",
    "EGGS - LARGE 1 dozen", "HAMS-WHOLE/HALF SMOKED SPIRAL SLICED", "PUMPKINS", "POTATO CHIPS",
    "GIFT-WRAP ROLLS FOIL ASSORTED", "TURKEY FROZEN WHOLE 10-14 lb", "CANDY CANES", "EGG NOG",
    "CRANBERRIES FRESH 12 oz", "YOGURT NOT MULTI-PACKS 6 oz", "SUGAR COOKIE DOUGH",
)  # fmt: skip
ABOUT = {
    "log": "Complete Journey", "tz": "America/New_York", "k": 10, "n_listed": 50,
    "window": "3d", "test": "7d", "n_users": 2469, "n_items": 68509, "n_events": 1469307,
    "first_day": "2017-01-01", "last_day": "2017-12-31", "version": "0.2.0",
}  # fmt: skip


def table(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as a table of a backtest; missing columns are null."""
    schema = SCHEMAS[name]
    full = [{column: row.get(column) for column in schema.names} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


def make_results(
    dates: Sequence[str] = DEMO_DATES,
    engines: Sequence[str] = ENGINES,
    methods: Sequence[str] = METHODS,
    goods: Sequence[str] = _GOODS,
    about: dict[str, Any] | None = None,
) -> Results:
    """Return every table, with drift of a believable size."""
    chance = random.Random(7)
    cases = [(date, engine) for date in dates for engine in engines]
    shown = [
        {"date": date, "engine": engine, "method": method, "objective": objective}
        for date, engine in cases for method in methods for objective in _objectives(method)
    ]  # fmt: skip
    learned = [row for row in shown if row["objective"]]
    items = _items(goods)
    tables = {
        "results": _results(chance, cases, methods),
        "coverage": [
            {**row, "size": size, "covered": round(size * min(1, covered))}
            for row in shown
            for size in (10, 20, 50, 100, 200, 500, 1000)
            if (covered := 0.42 + _COVERED.get(row["method"], 0) + chance.uniform(-0.05, 0.05))
        ],
        "divergence": [
            {**row, "kl": 2.9 - _CLOSER.get(row["method"], 0) + chance.uniform(-0.1, 0.1)}
            for row in shown
        ],
        "fits": [
            {**row, "n_biases": chance.randint(300, 2400),
             "n_excluded": 41000 if row["method"] == "paper" else 0}
            for row in learned if row["method"] != "reranker"
        ],
        "forecasts": [_forecast(chance, row) for row in learned],
        "parts": [
            _part(chance, row, part)
            for row in shown if row["method"] == "reranker" for part in _PARTS
        ],
        "overlap": [
            {"date": date, "engine": engine, "method": method, "first": first, "second": second,
             "share": chance.uniform(0.4, 0.8)}
            for date, engine in cases for method in methods if method in LEARNED[:2]
            for first, second in combinations(METRICS, 2)
        ],
        "biases": [
            _bias(chance, row, *item)
            for row in shown if row["method"] in LEARNED[:2] and row["objective"] == "ndcg"
            and row["engine"] == cases[0][1] for item in items
        ],
        "windows": [
            {"date": date, "engine": engine, "days": days, "metric": metric,
             "value": _BASE[metric] * relative / 1.3, "relative": relative}
            for date, engine in cases for metric in METRICS for days, more in _LONGER.items()
            if (relative := 1 + more * (0.6 + 0.03 * len(engine) + chance.uniform(0, 0.2)))
        ],
        "sellers": _sellers(chance, items[:10]),
    }  # fmt: skip
    made = {name: table(name, rows) for name, rows in tables.items() if name in SCHEMAS}
    return Results(ABOUT if about is None else about, made)


def weekly_dates(n: int) -> list[str]:
    first = datetime.date(2017, 5, 1)
    return [(first + datetime.timedelta(weeks=week)).isoformat() for week in range(n)]


def _items(goods: Sequence[str]) -> list[tuple[str, str]]:
    extra = [f"{good} {size}" for size in ("SMALL", "FAMILY PACK") for good in goods]
    return [(str(800_000 + 17 * place), name) for place, name in enumerate([*goods, *extra])]


def _objectives(method: str) -> Sequence[str]:
    return METRICS if method in LEARNED else ("",)


def _results(chance: random.Random, cases: Any, methods: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for date, engine in cases:
        swing = chance.gauss(0.02, 0.03)
        base = {metric: value * chance.uniform(0.8, 1.1) for metric, value in _BASE.items()}
        for method in methods:
            for objective in _objectives(method):
                for metric in METRICS:
                    rows.append(_result(chance, method, objective, metric, base[metric], swing))
                    rows[-1].update(date=date, engine=engine)
    return rows


def _result(
    chance: random.Random, method: str, objective: str, metric: str, base: float, swing: float
) -> dict[str, Any]:
    lift = 0.0 if method == "long" else _GAIN.get(method, 0.0) + swing + chance.gauss(0, 0.01)
    lift -= 0.008 * (objective not in ("", metric))
    half = 0.0 if method == "long" else chance.uniform(0.012, 0.03)
    return {
        "method": method, "objective": objective, "metric": metric, "value": base * (1 + lift),
        "baseline": base, "lift": lift, "lift_low": lift - half, "lift_high": lift + half,
        "n_users": 1200,
    }  # fmt: skip


def _forecast(chance: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    forecast = _GAIN.get(row["method"], 0.0) + chance.gauss(0.02, 0.03)
    figures = {"forecast": forecast, "forecast_low": forecast - 0.06,
               "forecast_high": forecast + 0.06}  # fmt: skip
    return row if row["method"] == "paper" else {**row, **figures}


def _part(chance: random.Random, row: dict[str, Any], part: str) -> dict[str, Any]:
    mean = _PARTS[part]
    gain, half = mean * chance.uniform(0.8, 1.2), 0.02 * (mean > 0)
    figures = {"gain": gain, "gain_low": gain - half, "gain_high": gain + half}
    return {**row, "part": part, "used": mean > 0, **figures}


def _bias(chance: random.Random, row: dict[str, Any], item_id: str, name: str) -> dict[str, Any]:
    bias = chance.gauss(0, 0.02 if row["method"] == "default" else 0.35)
    before = chance.lognormvariate(3, 1)
    after = before * (1 + chance.uniform(0, 3) * (bias > 0) - 0.5 * (bias < 0))
    return {**row, "item_id": item_id, "name": name, "bias": bias, "sales_before": round(before),
            "sales_recent": (before + after) / 2, "sales_after": round(after)}  # fmt: skip


def _sellers(chance: random.Random, items: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    rows = []
    for place, (item_id, name) in enumerate(items, 1):
        for at in range(1, 13):
            wander = chance.lognormvariate(0, 0.25 if place < 5 else 0.9)
            rank = max(1, round(place * wander * (1 if place < 5 else 2)))
            rows.append({"month": f"2017-{at:02d}", "item_id": item_id, "name": name,
                         "rank": rank, "buyers": 900 - 5 * rank})  # fmt: skip
    return rows


def one_row() -> Results:
    """Return one date and one method with a baseline of 0, and no other table."""
    row = {
        "date": "2020-01-06", "engine": "mine", "method": "default", "objective": "ndcg",
        "metric": "ndcg", "value": 0.1, "baseline": 0.0, "lift": float("nan"), "n_users": 3,
    }  # fmt: skip
    return Results({}, {"results": table("results", [row])})


def hostile() -> Results:
    """Return results whose names try to be markup."""
    return make_results(
        engines=[f"engine{HOSTILE}", "other\u2028'\"&"],
        methods=["long", f"method{HOSTILE}", "paper", "default", "reranker"],
        goods=[HOSTILE, f"b{HOSTILE}", "c\u2028d", "&amp;", "{{ 7 * 7 }}", "datum.x"],
        about={"log": HOSTILE, "tz": HOSTILE, "version": HOSTILE, "k": 10},
    )


def lifts(*values: Any, method: str = "default") -> list[dict[str, Any]]:
    """Return one NDCG lift per date from 2020-01-01; a tuple also has the interval."""
    rows = []
    for place, value in enumerate(values, 1):
        lift, low, high = value if isinstance(value, tuple) else (value, None, None)
        rows.append({"date": f"2020-01-{place:02d}", "engine": "markov", "method": method,
                     "objective": "ndcg", "metric": "ndcg", "value": 0.2, "baseline": 0.1,
                     "lift": lift, "lift_low": low, "lift_high": high})  # fmt: skip
    return rows


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def view_of(rows: list[dict[str, Any]], **others: list[dict[str, Any]]) -> Overview:
    tables = {"results": rows, **others}
    return Overview(Results({"k": 10}, {name: table(name, own) for name, own in tables.items()}))


KINDS: Mapping[str, Callable[[], Results]] = {
    "demo": make_results,
    "many": lambda: make_results(weekly_dates(26)),
    "one": one_row,
    "loss": lambda: make_results(weekly_dates(8), ["mine"], ["long", "paper"]),
    "hostile": hostile,
}


def cells(section: Any, place: int = 0) -> list[list[str]]:
    """Return the texts and notes of a table."""
    rows = section.blocks[place].rows
    return [[plain(f"{cell.text} {cell.note}").strip() for cell in row] for row in rows]
