"""Tables of the rolling benchmark, for the terminal and as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from rolling_cells import Cell
from rolling_lines import HARMLESS, Pair
from rolling_parts import DEFAULT, KNOBS, LAMBDAMART, METHOD_FORECASTS, RERANKER
from trimtab.daily.method_choice import AUTO, BIAS, ForecastOf, choose_method

HARMFUL = -0.03
RIVALS = (*KNOBS, LAMBDAMART)


class Sheet(NamedTuple):
    """A table as text."""

    title: str
    headers: Sequence[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table under its title."""
        lines = [self.headers, ["---"] * len(self.headers), *self.rows]
        return "\n".join([f"### {self.title}", "", *(f"| {' | '.join(row)} |" for row in lines)])

    def show(self, console: Console) -> None:
        """Print the table."""
        table = Table(title=self.title, title_justify="left")
        for place, header in enumerate(self.headers):
            table.add_column(header, no_wrap=place == 0)
        for row in self.rows:
            table.add_row(*(text.replace("**", "") for text in row))
        console.print(table)


def default_sheet(pairs: list[Pair]) -> Sheet:
    """The default on two dates a week."""
    headers = [
        "pair", "dates", "mean (95 %)", "worst date", "≥ −0.5 %", "clearly < −0.5 %",
        "clearly < −3 %", "fits that converged",
    ]  # fmt: skip
    rows = []
    for pair in pairs:
        line = pair.best("default")
        low, high = line.interval("ndcg")
        converged = sum(cell.read(DEFAULT)["converged"] for cell in pair.cells)
        rows.append(
            [
                pair.name, str(len(pair.cells)),
                f"{percent(line.mean)} ({number(low)} to {number(high)})",
                percent(line.lifts["ndcg"].min()), f"{line.harmless:.0%}",
                *(str(line.clearly_below(bound)) for bound in (HARMLESS, HARMFUL)), str(converged),
            ]
        )  # fmt: skip
    return Sheet("The default's NDCG lift on two dates a week", headers, rows)


def settings_sheet(pairs: list[Pair], rivals: Sequence[str]) -> Sheet:
    """Mean NDCG lift of every setting of every rival."""
    found = [{line.name: line.mean for line in pair.lines} for pair in pairs]
    names = [line.name for line in pairs[0].lines if line.kind in rivals]
    rows = [[name, *(percent(means[name]) for means in found)] for name in names]
    return Sheet(
        "Mean NDCG lift of every setting of the rivals",
        ["setting", *(pair.name for pair in pairs)],
        rows,
    )


def forecast_sheet(pairs: list[Pair], kind: str = DEFAULT, who: str = "default") -> Sheet:
    """How the forecasts of a learner compare with the lifts that came."""
    found = {pair.name: pair.forecasts(kind) for pair in pairs}
    found["all"] = np.concatenate(list(found.values()))
    rows = []
    for name, values in found.items():
        forecast, low, high, came = values[np.isfinite(values).all(axis=1)].T
        inside = ((low <= came) & (came <= high)).mean() if len(came) else np.nan
        means = [percent(column.mean()) if len(column) else "–" for column in (forecast, came)]
        correlation = _rank_correlation(forecast, came)
        rows.append(
            [name, str(len(came)), *means, f"{correlation:+.2f}".replace("-", "−"), f"{inside:.0%}"]
        )
    headers = ["pair", "dates", "mean forecast", "mean lift", "rank correlation", "in 90 %"]
    return Sheet(f"The {who}'s NDCG forecast and the lift that came", headers, rows)


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.stats import spearmanr

    varied = len(first) > 1 and np.ptp(first) > 0 and np.ptp(second) > 0
    return float(spearmanr(first, second).statistic) if varied else float("nan")


def times_sheet(pairs: list[Pair]) -> Sheet:
    """Time of the default's fit over that of a plain ascent of 2 cycles."""
    rows = []
    for pair in pairs:
        timed = [cell.read("times") for cell in pair.cells]
        default, ascent = (np.array([t[name] for t in timed]) for name in ("default", "ascent"))
        medians = [f"{1000 * np.median(seconds):.0f} ms" for seconds in (default, ascent)]
        rows.append([pair.name, *medians, f"{np.median(default / ascent):.1f}", str(len(timed))])
    headers = ["pair", "default", "ascent, 2 cycles", "median ratio", "dates timed"]
    return Sheet("Time to fit for NDCG, one thread", headers, rows)


def write_markdown(place: Path, sheets: Sequence[Sheet], about: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([about, *(sheet.markdown() for sheet in sheets)])
    place.write_text(text + "\n")


def describe_run() -> str:
    """The day and the machine."""
    models = [
        line.partition(":")[2].strip()
        for info in [Path("/proc/cpuinfo")]
        if info.exists()
        for line in info.read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0] if models else platform.processor() or platform.machine()
    cores = os.cpu_count()
    return f"{date.today()}; {cores} cores, {model}; Python {platform.python_version()}."


def number(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def percent(value: float) -> str:
    return f"{number(value)} %"


# `refresh --method auto` against each method alone -----------------------------------------------
# The choice is made date by date as the daily job makes it, from the forecasts of that date and the
# method chosen on the date before.


class MethodsAt(NamedTuple):
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


def _read_date(cell: Cell) -> MethodsAt:
    methods, reranker = cell.read(METHOD_FORECASTS), cell.read(RERANKER)
    lifts = {row["kind"]: row["lift"] for row in (*methods["rows"], *reranker["rows"])}
    forecasts = {name: ForecastOf(*figures) for name, figures in methods["forecasts"].items()}
    if reranker["kept"]:
        told = reranker["forecast"]
        forecasts[RERANKER] = ForecastOf(told["lift"], told["low"], told["high"])
    return MethodsAt(lifts, forecasts)


def _describe(dates: list[MethodsAt]) -> list[str]:
    served, used, gained = None, [], []
    for at in dates:
        served = choose_method(at.forecasts, served).method
        used.append(served)
        gained.append(at.lifts.get(served, 0.0))  # nothing is changed without a gain
    alone = {name: [at.lifts[name] for at in dates] for name in (BIAS, RERANKER)}
    best = max(np.mean(lifts) for lifts in alone.values())
    counts = ", ".join(f"{name} {used.count(name)}" for name in dict.fromkeys(used))
    shown = [_figures(lifts) for lifts in (*alone.values(), gained)]
    return [*shown, f"{100 * (np.mean(gained) - best):+.1f}", counts]


def _figures(lifts: list[float]) -> str:
    return f"{percent(np.mean(lifts))}, {percent(min(lifts))}, {sum(x < 0 for x in lifts)}"
