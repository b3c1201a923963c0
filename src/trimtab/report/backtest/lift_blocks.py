"""Lifts as tables and charts: of each date if there are few, of their mean otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trimtab.experiments.results import BASELINE
from trimtab.report.backtest.figures import Lift, Overview, mean_by, spread
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Table, lift_cell, name_cell
from trimtab.report.charts import (  # fmt: skip
    ChartRow,
    days,
    dot_chart,
    ink,
    line_chart,
    main_domain,
    outside,
    quantity,
)
from trimtab.report.words import (  # fmt: skip
    NOTHING,
    counted,
    day,
    decimal,
    interval,
    metric_name,
    percent,
    share,
)

_FILLED = (Mark("95 % interval excludes 0", kind="full"), Mark("it does not", kind="hollow"))
_BEYOND = Mark("beyond the scale: see the table", kind="triangle-left")
_RANGE = (Mark("mean over dates; the line runs from the worst date to the best", kind="full"),)


@dataclass(frozen=True)
class Case:
    """A method over an engine: a row of a table and a dot of a chart.

    `label` is its place in the chart; where several cases share one, `offset` tells them apart.
    """

    engine: str
    method: str
    headings: Sequence[Cell]
    label: str
    offset: str = ""


def method_cases(view: Overview, engine: str) -> list[Case]:
    """Every method over one engine."""
    return [
        Case(engine, method, [name_cell(name.long, name.colour)], name.short)
        for method, name in view.names.items()
    ]


def engine_cases(view: Overview) -> list[Case]:
    """The methods that learn a bias, over every engine."""
    return [
        Case(engine, method, [Cell(engine), name_cell(name.long, name.colour)], engine, name.short)
        for engine in view.engines
        for method, name in view.names.items()
        if method in view.biased
    ]


def lift_blocks(view: Overview, cases: Sequence[Case], columns: Sequence[str]) -> list[Block]:
    """Charts and tables of lifts; with many dates, of the mean, and a chart by date."""
    blocks: list[Block] = []
    if not view.few:
        blocks = [_mean_panels(view, cases), _mean_table(view, cases, columns)]
    for date in view.dates if view.few else ():
        blocks += [_date_panels(view, cases, date), _date_table(view, cases, columns, date)]
    return [block for block in blocks if not isinstance(block, Panels) or block.charts]


def _date_panels(view: Overview, cases: Sequence[Case], date: str) -> Panels:
    def point(case: Case, metric: str) -> ChartRow | None:
        row = find(view, case, metric, date)
        if row is None or row.lift is None:
            return None
        name = view.names[case.method].long
        tip = f"{name}, {case.engine}: {percent(row.lift)} ({interval(row.low, row.high) or '–'})"
        return {"x": row.lift, "low": row.low, "high": row.high, "filled": row.sign, "tip": tip}

    return _panels(view, cases, f"Lift on {day(date)}", point, _FILLED)


def _mean_panels(view: Overview, cases: Sequence[Case]) -> Panels:
    def point(case: Case, metric: str) -> ChartRow | None:
        found = spread(_lifts(view, case, metric))
        if found is None:
            return None
        name = view.names[case.method].long
        worst = f"worst {percent(found.worst)} on {day(found.worst_date)}"
        tip = f"{name}, {case.engine}: mean {percent(found.mean)}, {worst}"
        ends = {"low": found.worst, "high": found.best}
        return {"x": found.mean, **ends, "filled": True, "tip": tip}

    title = f"Mean lift of {counted(len(view.dates), 'date')}"
    return _panels(view, cases, title, point, _RANGE)


def _panels(
    view: Overview,
    cases: Sequence[Case],
    title: str,
    point: Callable[[Case, str], ChartRow | None],
    legend: Sequence[Mark],
) -> Panels:
    drawn = [case for case in cases if case.method != BASELINE]
    points = {metric: _points(view, drawn, metric, point) for metric in view.metrics}
    everything = [row for rows in points.values() for row in rows]
    domain = main_domain(everything)
    beyond = [_BEYOND] if outside(everything, domain) else []
    offsets = {case.offset for case in drawn if case.offset}
    charts = [
        Chart(
            metric_name(metric, view.cutoff),
            f"{title} in {metric_name(metric)}, by {'engine' if offsets else 'method'}: dots with "
            f"lines; the table below has the numbers.",
            dot_chart(rows, domain, n_offsets=len(offsets)),
        )
        for metric, rows in points.items() if rows
    ]  # fmt: skip
    return Panels(title, charts, [*(_key(view, drawn) if offsets else ()), *legend, *beyond])


def _key(view: Overview, cases: Sequence[Case]) -> list[Mark]:
    methods = dict.fromkeys(case.method for case in cases)
    return [Mark(view.names[method].long, view.names[method].colour) for method in methods]


def _points(
    view: Overview,
    cases: Sequence[Case],
    metric: str,
    point: Callable[[Case, str], ChartRow | None],
) -> list[ChartRow]:
    rows: list[ChartRow] = []
    for case in cases:
        found = point(case, metric)
        if found is not None:
            colour = ink(view.names[case.method].colour)
            rows.append({**found, "label": case.label, "offset": case.offset, "colour": colour})
    return rows


def _lifts(view: Overview, case: Case, metric: str) -> list[Lift]:
    return view.judged(engine=case.engine, method=case.method, metric=metric)


def find(view: Overview, case: Case, metric: str, date: str) -> Lift | None:
    """The lift of one case on one date, if it was judged."""
    return next((row for row in _lifts(view, case, metric) if row.date == date), None)


def _date_table(view: Overview, cases: Sequence[Case], columns: Sequence[str], date: str) -> Table:
    body = []
    for case in cases:
        cells = list(case.headings)
        for metric in view.metrics:
            row = find(view, case, metric, date)
            cells.append(Cell(decimal(row.value if row else None)))
            cells.append(Cell("") if case.method == BASELINE else lift_cell(row))
        body.append(cells)
    caption = f"{day(date)}: value, lift and 95 % interval (▲ ▼ where it excludes 0)"
    return _table(view, caption, columns, ["value", "lift"], body)


def _mean_table(view: Overview, cases: Sequence[Case], columns: Sequence[str]) -> Table:
    body = []
    for case in cases:
        if case.method != BASELINE:
            cells = [_spread_cells(view, case, metric) for metric in view.metrics]
            body.append([*case.headings, *(cell for group in cells for cell in group)])
    caption = (
        f"{counted(len(view.dates), 'date')}: mean lift, worst date, and share of dates at or "
        f"above −0.5 %"
    )
    return _table(view, caption, columns, ["mean", "worst", "≥ −0.5 %"], body)


def alone_table(view: Overview) -> Table:
    """What each engine is worth by itself, on each date if there are few."""
    groups = [[date] for date in view.dates] if view.few else [view.dates]
    body = []
    for engine in view.all_engines:
        rows = [vars(row) for row in view.judged(engine=engine, method=BASELINE)]
        cells = [Cell(engine)]
        for dates in groups:
            means = mean_by([r for r in rows if r["date"] in dates], ("metric",), "value")
            cells += [Cell(decimal(means.get((metric,)))) for metric in view.metrics]
        body.append(cells)
    columns = ["engine", *[metric_name(m, view.cutoff) for m in view.metrics] * len(groups)]
    titles = (
        [day(date) for date in view.dates] if view.few else [f"mean of {len(view.dates)} dates"]
    )
    spans = [("", 1), *((title, len(view.metrics)) for title in titles)]
    return Table("Each engine alone", columns, body, groups=spans)


def _spread_cells(view: Overview, case: Case, metric: str) -> list[Cell]:
    found = spread(_lifts(view, case, metric))
    if found is None:
        return [Cell(NOTHING)] * 3
    worst = Cell(percent(found.worst), day(found.worst_date))
    return [Cell(percent(found.mean)), worst, Cell(share(found.harmless))]


def _table(
    view: Overview,
    caption: str,
    columns: Sequence[str],
    each: Sequence[str],
    body: Sequence[Sequence[Cell]],
) -> Table:
    groups = [("", len(columns))]
    groups += [(metric_name(metric, view.cutoff), len(each)) for metric in view.metrics]
    titles = [*columns, *(list(each) * len(view.metrics))]
    return Table(caption, titles, body, n_headings=len(columns), groups=groups)


def by_date(view: Overview, engine: str) -> list[Panels]:
    """Lines of lifts over the dates, one panel a metric, for the methods that learn a bias."""
    charts = []
    for metric in view.metrics:
        rows = [
            _dated(view, row)
            for row in view.judged(engine=engine, metric=metric)
            if row.method in view.biased and row.lift is not None
        ]
        if rows:
            name = metric_name(metric, view.cutoff)
            spec = line_chart(rows, days(), quantity(None, "+~%"), zero=True)
            charts.append(Chart(name, f"Lift in {name} of each date, a line a method.", spec))
    marks = [Mark(view.names[name].long, view.names[name].colour, "line") for name in view.biased]
    return [Panels("Lift date by date", charts, marks)] if charts else []


def _dated(view: Overview, row: Lift) -> ChartRow:
    name = view.names[row.method]
    tip = f"{name.long}, {day(row.date)}: {percent(row.lift)}"
    return {
        "x": row.date, "y": row.lift, "series": row.method, "colour": ink(name.colour),
        "symbol": "circle", "tip": tip,
    }  # fmt: skip
