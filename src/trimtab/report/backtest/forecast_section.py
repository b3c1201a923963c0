"""The section about forecasts: the lift that was expected, and the lift that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.report.backtest.overview import Overview, choose_objective, select_rows
from trimtab.report.blocks import Cell, Section, Table, method_cell
from trimtab.report.words import interval, is_number, percent


@dataclass(frozen=True)
class Outcome:
    """A forecast, the bounds of its 90 % interval, and the lift that came."""

    date: str
    engine: str
    method: str
    forecast: float
    low: float
    high: float
    lift: float

    @property
    def is_inside(self) -> bool:
        """Whether the lift is inside the interval."""
        return self.low <= self.lift <= self.high


def find_outcomes(view: Overview) -> list[Outcome]:
    """Return the forecasts of the metric shown whose lift is known."""
    table = view.results.table("forecasts")
    metric = choose_objective(table, view.metric)
    lifts = {(r.date, r.engine, r.method): r.lift for r in view.judged(metric=metric)}
    found = []
    for row in select_rows(table, objective=metric):
        key = (row["date"], row["engine"], row["method"])
        forecast, low, high = (row[f"forecast{end}"] for end in ("", "_low", "_high"))
        lift = lifts.get(key)
        if lift is not None and all(map(is_number, (forecast, low, high))):
            found.append(Outcome(*key, forecast, low, high, lift))
    return found


def forecast_section(view: Overview) -> Section | None:
    """Return each forecast beside its lift, or their means over many dates."""
    found = find_outcomes(view)
    if not found:
        return None
    metric = view.name_metric(choose_objective(view.results.table("forecasts"), view.metric))
    title = "The forecast and the lift that came"
    return Section("forecasts", title, [describe_forecasts(found)], _tables(view, found, metric))


def describe_forecasts(found: Sequence[Outcome]) -> str:
    """Return how many lifts were inside the intervals."""
    n_inside = sum(own.is_inside for own in found)
    return (
        f"{n_inside} of {len(found)} lifts are inside the 90 % interval of their forecast, which "
        f"was made before the test. A method that found no gain makes no forecast."
    )


def _tables(view: Overview, found: Sequence[Outcome], metric: str) -> list[Table]:
    """Return a table for each date, or one of means over many dates."""
    tables = []
    for group in view.date_groups:
        body = []
        for engine in view.engines:
            for method in view.methods:
                own = [each for each in found if (each.engine, each.method) == (engine, method)]
                own = [each for each in own if each.date in group.dates]
                heads = [Cell(engine), method_cell(view.names[method])]
                body += [[*heads, *(_date_cells if view.few else _mean_cells)(own)]] if own else []
        each = ["forecast", "lift", "inside"]
        about = "forecast with its 90 % interval, and lift"
        if not view.few:
            about = "means over the dates with a forecast, and lifts inside the 90 % interval"
        caption = f"{metric}, {group.title}: {about}"
        tables.append(Table(caption, ["engine", "method", *each], body, n_headings=2))
    return [table for table in tables if table.rows]


def _date_cells(found: Sequence[Outcome]) -> list[Cell]:
    own = found[0]
    forecast = Cell(percent(own.forecast), interval(own.low, own.high))
    return [forecast, Cell(percent(own.lift)), Cell("yes" if own.is_inside else "no")]


def _mean_cells(found: Sequence[Outcome]) -> list[Cell]:
    n, n_inside = len(found), sum(own.is_inside for own in found)
    forecast, lift = sum(own.forecast for own in found) / n, sum(own.lift for own in found) / n
    return [Cell(percent(forecast)), Cell(percent(lift)), Cell(f"{n_inside} of {n}")]
