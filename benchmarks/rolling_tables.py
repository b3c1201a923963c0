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

from rolling_lines import HARMLESS, Pair
from rolling_parts import DEFAULT, KNOBS, LAMBDAMART, LEARNERS, METRICS

HARMFUL = -0.03
ENOUGH = 0.95  # share of dates that must be harmless
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


def pair_sheet(pair: Pair) -> Sheet:
    """Rivals at their best and learners, in all metrics."""
    headers = [
        "method", *(text for m in METRICS for text in (f"{m.upper()}: mean (95 %)", "pooled")),
        "worst date", "≥ −0.5 %", "clearly < −0.5 %", "clearly < −3 %",
    ]  # fmt: skip
    rows = []
    for line in (pair.best(kind) for kind in (*RIVALS, *LEARNERS)):
        row = [f"**{line.name}**" if line.kind == "default" else line.name]
        for metric in METRICS:
            low, high = line.interval(metric)
            row.append(f"{percent(line.lifts[metric].mean())} ({number(low)} to {number(high)})")
            row.append(percent(line.pooled[metric]))
        row += [percent(line.lifts["ndcg"].min()), f"{line.harmless:.0%}"]
        row += [str(line.clearly_below(bound)) for bound in (HARMLESS, HARMFUL)]
        rows.append(row)
    return Sheet(f"{pair.name}: {len(pair.cells)} dates", headers, rows)


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


def settings_sheet(
    pairs: list[Pair], rivals: Sequence[str] = RIVALS, whose: str = "the default"
) -> Sheet:
    """Mean NDCG lift of every setting of every rival."""
    found = [{line.name: line.mean for line in pair.lines} for pair in pairs]
    names = [line.name for line in pairs[0].lines if line.kind in rivals]
    rows = [[name, *(percent(means[name]) for means in found)] for name in names]
    title = f"Mean NDCG lift of every setting of the rivals of {whose}"
    return Sheet(title, ["setting", *(pair.name for pair in pairs)], rows)


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


def verdict_sheet(pairs: list[Pair]) -> Sheet:
    """What holds of the default, pair by pair."""
    headers = [
        "pair", "default", "best rival", "paper", "above every rival", "above paper",
        "ACC, MAP, NDCG: interval above 0", "≥ 95 % of dates ≥ −0.5 %", "no date clearly < −3 %",
    ]  # fmt: skip
    rows = []
    for pair in pairs:
        default, paper = pair.best("default"), pair.best("paper")
        rival = max((pair.best(kind) for kind in RIVALS), key=lambda line: line.mean)
        holds = [
            default.mean > rival.mean,
            default.mean > paper.mean,
            all(default.interval(metric)[0] > 0 for metric in METRICS),
            default.harmless >= ENOUGH,
            default.clearly_below(HARMFUL) == 0,
        ]
        means = [
            percent(default.mean),
            f"{percent(rival.mean)} ({rival.name})",
            percent(paper.mean),
        ]
        rows.append([pair.name, *means, *("yes" if held else "**no**" for held in holds)])
    return Sheet("Verdict: mean NDCG lift", headers, rows)


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
