"""Tables of the rolling benchmark, from its cells: lifts, forecasts, rivals, parts left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

import rolling_parts as parts
from reranker_rivals import KINDS
from rolling_cells import Cell
from rolling_parts import DEFAULT, PAPER, RERANKER, TERMS_LAMBDAMART
from trimtab.daily.method_choice import AUTO, BIAS, ForecastOf, choose_method

BELOW = -0.01
RIVALS = (*parts.KNOBS, parts.LAMBDAMART)
ALL_RIVALS = (*RIVALS, TERMS_LAMBDAMART, *KINDS)
NAMES = {
    RERANKER: "Reranker",
    DEFAULT: "bias",
    "bias": "bias",
    PAPER: "the paper's method",
    TERMS_LAMBDAMART: "LambdaMART on the Reranker's features",
    "lambdamart": "LambdaMART on recency and popularity",
    "times": "score × (1 + times bought)^γ",
    "repeat": "own items, most and last",
    "popular": "best sellers",
    "truncate": "engine trained on the last days",
    "decay": "engine trained with decay",
    "distrdiff": "difference in shares",
    "ratio": "ratio of shares",
    "recent": "recent sales",
}


class Line(NamedTuple):
    """One method over the dates of a pair: arrays by metric, one entry a date."""

    kind: str
    setting: str
    lifts: dict[str, np.ndarray]
    highs: np.ndarray  # upper ends of each date's own interval over users, of NDCG

    @property
    def mean(self) -> float:
        """Mean NDCG lift over the dates."""
        return float(self.lifts["ndcg"].mean())


class Pair(NamedTuple):
    """A log and an engine over the dates."""

    name: str
    cells: list[Cell]
    lines: list[Line]  # every setting of every method

    def best(self, kind: str) -> Line:
        """The setting with the best mean NDCG lift on these very dates."""
        return max((line for line in self.lines if line.kind == kind), key=lambda line: line.mean)


def gather(planned: dict[str, list[Cell]], *names: str) -> list[Pair]:
    """The pairs with the dates on which all these parts are there; none without such a date."""
    found = []
    for pair, cells in planned.items():
        own = [cell._replace(parts=names) for cell in cells if set(names) <= set(cell.parts)]
        own = [cell for cell in own if not cell.missing()]
        lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in (row for cell in own for row in cell.rows()):
            lines.setdefault((row["kind"], row["setting"]), []).append(row)
        if own:
            found.append(Pair(pair, own, [make_line(*key, rows) for key, rows in lines.items()]))
    return found


def make_line(kind: str, setting: str, rows: list[dict[str, Any]]) -> Line:
    """A method from its rows, in order of their dates."""
    lifts = {
        metric: np.array([row["lift"] for row in rows if row["metric"] == metric])
        for metric in parts.METRICS
    }
    highs = np.array([row["high"] for row in rows if row["metric"] == "ndcg"])
    return Line(kind, setting, lifts, highs)


# Tables -----------------------------------------------------------------------------------------


def show_all(planned: dict[str, list[Cell]]) -> None:
    """Print all tables for which there is a date."""
    refits = {part for cells in planned.values() for cell in cells for part in cell.parts}
    refits &= set(parts.REFITS)  # a quick run has fewer
    rivals = gather(planned, *refits, "rescores", parts.SIMPLE_RIVALS, TERMS_LAMBDAMART, PAPER,
                    RERANKER, parts.OTHER_METRICS)  # fmt: skip
    simple = gather(planned, parts.SIMPLE_RIVALS, RERANKER)
    if rivals:
        show_rivals(rivals)
    for kind in (RERANKER, "bias") if simple else ():
        show_gap(simple, ("popular",), "best sellers for everyone", kind)
    for part, kind in ((DEFAULT, "default"), (RERANKER, "bias"), (RERANKER, RERANKER)):
        show_lifts(gather(planned, part), kind)
    show_lifts(gather(planned, parts.OTHER_METRICS), RERANKER, ("map", "acc"))
    for part in (DEFAULT, RERANKER):
        show_forecasts(gather(planned, part), part)
    show_fits(gather(planned, RERANKER))
    show_ablation(gather(planned, parts.ABLATION))
    show_methods(gather(planned, DEFAULT, RERANKER))


def show(title: str, headers: Sequence[str], rows: list[list[Any]]) -> None:
    """Print a table, unless it has no rows."""
    table = Table(*headers, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(str, row))
    if rows:
        Console(width=220).print(table)


def show_rivals(pairs: list[Pair]) -> None:
    """The Reranker and the bias against rivals, on the dates on which all are judged."""
    names = [f"{pair.name} ({len(pair.cells)} dates)" for pair in pairs]
    rows = []
    for kind in (*ALL_RIVALS, PAPER, "bias", RERANKER):
        lifts = [pair.best(kind).lifts for pair in pairs]
        means = ([number(own[m].mean()) for m in parts.METRICS[::-1]] for own in lifts)
        rows.append([NAMES[kind], *map(", ".join, means)])
    show("Mean lift of NDCG, MAP and ACC in %, rivals at their best", ["method", *names], rows)
    settings = [(line.kind, line.setting) for line in pairs[0].lines if line.kind in ALL_RIVALS]
    means = [{own[:2]: number(own.mean) for own in pair.lines} for pair in pairs]
    rows = [[", ".join(key), *(own[key] for own in means)] for key in settings]
    show("Mean NDCG lift of every setting of the rivals in %", ["setting", *names], rows)
    show_gap(pairs, ALL_RIVALS, "all rivals", RERANKER)
    show_gap(pairs, RIVALS, "rivals that know the lists and what sold", "bias")


def show_gap(pairs: list[Pair], rivals: tuple[str, ...], who: str, kind: str) -> None:
    """A learner against the best rival of each pair."""
    rows = []
    for pair in pairs:
        line = pair.best(kind)
        ranked = sorted((pair.best(rival) for rival in rivals), key=lambda own: -own.mean)
        gap = line.lifts["ndcg"] - ranked[0].lifts["ndcg"]
        best = [f"{number(own.mean)} ({own.kind}, {own.setting})" for own in ranked[:2]]
        ahead = f"{(gap > 0).sum()} dates"
        rows.append(
            [pair.name, len(pair.cells), number(line.mean), with_interval(gap), ahead, *best]
        )
    headers = ["pair", "dates", kind, "points above (95 %)", "ahead on", "best rival", "second"]
    show(f"{NAMES[kind]} against {who}: mean NDCG lift in %", headers, rows)


def show_lifts(pairs: list[Pair], kind: str, metrics: tuple[str, ...] = ("ndcg",)) -> None:
    """A learner on all dates; "clearly" below is a date whose own interval is."""
    rows = []
    for pair in pairs:
        line = next(line for line in pair.lines if line.kind == kind)
        for metric in metrics:
            lifts = line.lifts[metric]
            clearly = (line.highs < BELOW).sum() if metric == "ndcg" else ""
            rows.append([pair.name, metric.upper(), len(lifts), with_interval(lifts),
                         number(lifts.min()), f"{(lifts >= 0).mean():.0%}", clearly])  # fmt: skip
    headers = ["pair", "metric", "dates", "mean (95 %)", "worst", "≥ 0", "clearly < −1 %"]
    show(f"{NAMES[kind]} on two dates a week: lift in %", headers, rows)


def show_forecasts(pairs: list[Pair], part: str) -> None:
    """How the forecasts of a learner compare with the lifts that came."""
    found = {pair.name: forecasts_of(pair, part) for pair in pairs}
    if len(found) > 1:
        found["all"] = np.concatenate(list(found.values()))
    rows = []
    for name, values in found.items():
        told, low, high, came = values[np.isfinite(values).all(axis=1)].T
        if len(came) > 1:
            inside = f"{((low <= came) & (came <= high)).mean():.0%}"
            correlation = f"{spearmanr(told, came).statistic:+.2f}"
            means = (number(column.mean()) for column in (told, came))
            rows.append([name, len(came), *means, correlation, inside])
    headers = ["pair", "dates", "mean forecast", "mean lift", "rank correlation", "in 90 %"]
    show(f"{NAMES[part]}: NDCG forecast and the lift that came in %", headers, rows)


def forecasts_of(pair: Pair, part: str) -> np.ndarray:
    """Forecast, its low and high end, and the lift that came: one row a date; nan if none."""
    told = [list(cell.read(part)["forecast"].values()) for cell in pair.cells]
    return np.column_stack([np.array(told, float), pair.best(part).lifts["ndcg"]])


def show_fits(pairs: list[Pair]) -> None:
    """What the fits of the Reranker chose."""
    rows = []
    for pair in pairs:
        fits = [cell.read(RERANKER) for cell in pair.cells]
        added = [np.mean([name in fit["sources"] for fit in fits]) for name in ("own", "trending")]
        kept, users = (np.array([fit[name] for fit in fits]) for name in ("kept", "n_users"))
        shown = (f"{kept.mean():.2f}", f"{kept.min():.2f}", f"{users.mean():.0f}")
        rows.append([pair.name, *(f"{share:.0%} of dates" for share in added), *shown])
    headers = ["pair", "own items added", "trending", "mean kept", "least", "users with purchases"]
    show("What the Reranker learned", headers, rows)


def show_ablation(pairs: list[Pair]) -> None:
    """The NDCG lift of the whole Reranker, and what leaving out each part takes away."""
    found = [{line.setting: line.lifts["ndcg"] for line in pair.lines} for pair in pairs]
    rows = []
    for name in found[0] if found else ():
        lost = [own[name] - own["whole"] if name != "whole" else own[name] for own in found]
        rows.append([name, *map(with_interval, lost)])
    headers = ["left out", *(f"{pair.name} ({len(pair.cells)} dates)" for pair in pairs)]
    show("Reranker with parts left out: NDCG lift in %, and points lost (95 %)", headers, rows)


def show_methods(pairs: list[Pair]) -> None:
    """`refresh --method auto` against each method alone: it chooses by each date's forecasts."""
    rows = []
    for pair in pairs:
        served, used, gained = None, [], []
        alone = {BIAS: pair.best("default"), RERANKER: pair.best(RERANKER)}
        for place, cell in enumerate(pair.cells):
            told = {BIAS: cell.read(DEFAULT)["forecast"]}
            if cell.read(RERANKER)["kept"]:
                told[RERANKER] = cell.read(RERANKER)["forecast"]
            forecasts = {name: ForecastOf(*own.values()) for name, own in told.items()}
            served = choose_method(forecasts, served).method
            used.append(served)  # nothing is changed without a gain
            gained.append(alone[served].lifts["ndcg"][place] if served in alone else 0.0)
        each = [*(line.lifts["ndcg"] for line in alone.values()), np.array(gained)]
        shown = [f"{number(x.mean())}, {number(x.min())}, {(x < 0).sum()}" for x in each]
        less = number(each[2].mean() - max(own.mean() for own in each[:2]))
        counts = ", ".join(f"{name} {used.count(name)}" for name in dict.fromkeys(used))
        rows.append([pair.name, len(used), *shown, less, counts])
    headers = [
        "pair",
        "dates",
        f"{BIAS}: mean, worst, < 0",
        RERANKER,
        AUTO,
        "less the best",
        "used",
    ]
    show("refresh --method auto, and each method alone: NDCG lift in %", headers, rows)


def with_interval(values: np.ndarray) -> str:
    """A mean over dates and its 95 % interval, by bootstrap over dates."""
    draws = np.random.default_rng(0).integers(0, len(values), (parts.N_DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return f"{number(values.mean())} ({number(low)} to {number(high)})"


def number(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:+.1f}".replace("-", "−")
