"""The section about forecasts: the lift that was expected, and the lift that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.report.backtest.overview import Overview, choose_objective, select_rows
from trimtab.report.blocks import Cell, Section, Table, method_cell
from trimtab.report.words import day, interval, is_number, percent


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
    table = (_dates_table if view.few else _means_table)(view, found, metric)
    title = "The forecast and the lift that came"
    return Section("forecasts", title, [describe_forecasts(found)], [table])


def describe_forecasts(found: Sequence[Outcome]) -> str:
    """Return how many lifts were inside the intervals."""
    n_inside = sum(own.is_inside for own in found)
    return (
        f"{n_inside} of {len(found)} lifts are inside the 90 % interval of their forecast, which "
        f"was made before the test. A method that found no gain makes no forecast."
    )


def _dates_table(view: Overview, found: Sequence[Outcome], metric: str) -> Table:
    order = {method: place for place, method in enumerate(view.methods)}
    body = [
        [Cell(day(own.date)), Cell(own.engine), method_cell(view.names[own.method]),
         Cell(percent(own.forecast)), Cell(interval(own.low, own.high)), Cell(percent(own.lift)),
         Cell("yes" if own.is_inside else "no")]
        for own in sorted(found, key=lambda own: (own.date, view.engines.index(own.engine),
                                                  order[own.method]))
    ]  # fmt: skip
    columns = ["date", "engine", "method", "forecast", "90 % interval", "lift", "inside"]
    return Table(f"Forecast and lift, {metric}", columns, body, n_headings=3)


def _means_table(view: Overview, found: Sequence[Outcome], metric: str) -> Table:
    body = []
    for engine in view.engines:
        for method in view.methods:
            own = [each for each in found if (each.engine, each.method) == (engine, method)]
            if own:
                means = [sum(values) / len(own) for values in
                         ([o.forecast for o in own], [o.lift for o in own])]  # fmt: skip
                inside = f"{sum(each.is_inside for each in own)} of {len(own)}"
                heads = [Cell(engine), method_cell(view.names[method])]
                body.append([*heads, *(Cell(percent(mean)) for mean in means), Cell(inside)])
    columns = ["engine", "method", "mean forecast", "mean lift", "inside the interval"]
    return Table(f"Forecast and lift, {metric}: means over dates with a forecast", columns, body,
                 n_headings=2)  # fmt: skip
