"""A table of the rolling benchmark: `refresh --method auto` against each method alone.

The choice is made date by date as the daily job makes it, from the forecasts of that date and the
method chosen on the date before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rolling_cells import Cell
from rolling_parts import METHOD_FORECASTS, RERANKER
from rolling_tables import Sheet, percent
from trimtab.daily.method_choice import AUTO, BIAS, ForecastOf, choose_method


class Date(NamedTuple):
    """What each method gains at a date, and what it was expected to gain."""

    lifts: dict[str, float]
    forecasts: dict[str, ForecastOf]


def method_sheets(planned: dict[str, list[Cell]]) -> list[Sheet]:
    """The table, of the pairs for which there is a date."""
    headers = [
        "pair", "dates", f"{BIAS}: mean, worst, < 0", RERANKER, AUTO, "auto less the best",
        "methods used",
    ]  # fmt: skip
    rows = []
    for name, cells in planned.items():
        dates = [_read_date(cell) for cell in cells if _is_there(cell)]
        if dates:
            rows.append([name, str(len(dates)), *_describe(dates)])
    return [Sheet("refresh --method auto, and each method alone", headers, rows)] if rows else []


def _is_there(cell: Cell) -> bool:
    return all(cell.place(part).exists() for part in (METHOD_FORECASTS, RERANKER))


def _read_date(cell: Cell) -> Date:
    methods, reranker = cell.read(METHOD_FORECASTS), cell.read(RERANKER)
    lifts = {row["kind"]: row["lift"] for row in (*methods["rows"], *reranker["rows"])}
    forecasts = {name: ForecastOf(*figures) for name, figures in methods["forecasts"].items()}
    if reranker["kept"]:
        told = reranker["forecast"]
        forecasts[RERANKER] = ForecastOf(told["lift"], told["low"], told["high"])
    return Date(lifts, forecasts)


def _describe(dates: list[Date]) -> list[str]:
    served, used, gained = None, [], []
    for date in dates:
        served = choose_method(date.forecasts, served).method
        used.append(served)
        gained.append(date.lifts[served])
    alone = {name: [date.lifts[name] for date in dates] for name in (BIAS, RERANKER)}
    best = max(np.mean(lifts) for lifts in alone.values())
    counts = ", ".join(f"{name} {used.count(name)}" for name in dict.fromkeys(used))
    shown = [_figures(lifts) for lifts in (*alone.values(), gained)]
    return [*shown, f"{100 * (np.mean(gained) - best):+.1f}", counts]


def _figures(lifts: list[float]) -> str:
    return f"{percent(np.mean(lifts))}, {percent(min(lifts))}, {sum(x < 0 for x in lifts)}"
