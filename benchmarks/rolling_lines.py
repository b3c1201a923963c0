"""Methods of the rolling benchmark over the dates of a pair, gathered from its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rolling_cells import Cell
from rolling_parts import METRICS, N_DRAWS, REFITS

HARMLESS = -0.005


@dataclass(frozen=True)
class Line:
    """One method over the dates of a pair; arrays by metric, one entry a date."""

    kind: str
    setting: str
    lifts: dict[str, np.ndarray]
    highs: dict[str, np.ndarray]  # upper ends of each date's own interval over users
    pooled: dict[str, float]

    @property
    def name(self) -> str:
        """Kind and setting."""
        return f"{self.kind}, {self.setting}" if self.setting else self.kind

    @property
    def mean(self) -> float:
        """Mean NDCG lift over the dates."""
        return float(self.lifts["ndcg"].mean())

    @property
    def harmless(self) -> float:
        """Share of dates at or above -0.5 %."""
        return self.at_least(HARMLESS)

    def at_least(self, bound: float) -> float:
        """Share of dates at or above a bound."""
        return float((self.lifts["ndcg"] >= bound).mean())

    def clearly_below(self, bound: float) -> int:
        """Dates whose own interval lies below a bound."""
        return int((self.highs["ndcg"] < bound).sum())

    def interval(self, metric: str) -> tuple[float, float]:
        """95 % interval of the mean lift, by bootstrap over dates."""
        lifts = self.lifts[metric]
        draws = np.random.default_rng(0).integers(0, len(lifts), (N_DRAWS, len(lifts)))
        low, high = np.quantile(lifts[draws].mean(axis=1), [0.025, 0.975])
        return float(low), float(high)


class Pair(NamedTuple):
    """A log and an engine over the dates."""

    name: str
    cells: list[Cell]
    lines: list[Line]  # every setting of every method

    def best(self, kind: str) -> Line:
        """The setting with the best mean NDCG lift on these very dates."""
        return max((line for line in self.lines if line.kind == kind), key=lambda line: line.mean)

    def forecasts(self, kind: str) -> np.ndarray:
        """Forecast, its low and high end, and the lift that came: one row a date.

        Args:
            kind: a learner; the part of that name has its forecast.
        """
        came = self.best(kind).lifts["ndcg"]
        said = [cell.read(kind)["forecast"] for cell in self.cells]
        rows = [[*f.values(), c] for f, c in zip(said, came, strict=True)]
        return np.array(rows, float)  # nan: no forecast


def gather_pairs(
    planned: dict[str, list[Cell]], *parts: str, metrics: Sequence[str] = METRICS
) -> list[Pair]:
    """The pairs with the dates on which all these parts are there; none without such a date."""
    found = {name: having(cells, *parts) for name, cells in planned.items()}
    return [gather_pair(name, cells, metrics) for name, cells in found.items() if cells]


def planned_refits(planned: dict[str, list[Cell]]) -> list[str]:
    """Parts of engines that are trained anew; a quick run has fewer."""
    parts = {part for cells in planned.values() for cell in cells for part in cell.parts}
    return [part for part in REFITS if part in parts]


def having(cells: list[Cell], *parts: str) -> list[Cell]:
    """Those cells that have all these parts, limited to them."""
    planned = [cell for cell in cells if set(parts) <= set(cell.parts)]
    limited = [cell._replace(parts=parts) for cell in planned]
    return [cell for cell in limited if not cell.missing()]


def gather_pair(name: str, cells: list[Cell], metrics: Sequence[str] = METRICS) -> Pair:
    """Lines of all methods from the cells of a pair, which must be done.

    Args:
        name: of the pair.
        cells: its cells, in order of their dates.
        metrics: that all methods of these cells are judged by.
    """
    own: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for cell in cells:
        for row in cell.rows():
            by_metric = own.setdefault((row["kind"], row["setting"]), {m: [] for m in METRICS})
            by_metric[row["metric"]].append(row)
    lines = [
        Line(
            *key,
            *(
                {m: np.array([row[c] for row in rows[m]]) for m in metrics}
                for c in ("lift", "high")
            ),
            {m: _pooled(rows[m]) for m in metrics},
        )
        for key, rows in own.items()
    ]
    return Pair(name, cells, lines)


def _pooled(rows: list[dict[str, Any]]) -> float:
    users, after, before = (
        np.array([row[column] for row in rows], float)
        for column in ("n_users", "value", "baseline")
    )
    return float(users @ after / (users @ before) - 1)
