"""Lifts as charts and tables: of each date if there are few, otherwise of their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.replay.results import BASELINE
from trimtab.report import blocks, charts
from trimtab.report.backtest.overview import DateGroup, Lift, Overview, find_spread, mean_by
from trimtab.report.blocks import Cell, Chart, Mark, Panels, Table
from trimtab.report.charts import ChartRow
from trimtab.report.words import NOTHING, capitalize, day, decimal, interval, percent, share

Part = Panels | Table
MEAN_MARK = Mark("mean over dates; the line runs from the worst date to the best", kind="full")
_HOLE = Mark("date with far fewer events than usual on some day", kind="square")
_BEYOND = "beyond the scale, with its value"


@dataclass(frozen=True)
class Case:
    """A method on an engine: a row of a table, and a dot of a chart at `label` and `offset`."""

    engine: str
    method: str
    headings: Sequence[Cell]
    label: str
    offset: str = ""


def method_cases(view: Overview, engine: str) -> list[Case]:
    """Return every method on one engine."""
    names = view.names.items()
    return [Case(engine, key, [blocks.method_cell(name)], name.short) for key, name in names]


def engine_cases(view: Overview) -> list[Case]:
    """Return the methods that learn, on every engine."""
    names = [(method, view.names[method]) for method in view.methods if method in view.learned]
    return [
        Case(engine, key, [Cell(engine), blocks.method_cell(name)], engine, name.short)
        for engine in view.engines
        for key, name in names
    ]


def lift_blocks(view: Overview, cases: Sequence[Case], columns: Sequence[str]) -> list[Part]:
    """Return a chart and a table of lifts for each date, or for the mean of many dates."""
    made: list[Part] = []
    for group in view.date_groups:
        made += _make_panels(view, cases, group)
        made.append(_make_table(view, cases, columns, group))
    return made


def _find_lifts(view: Overview, case: Case, metric: str, group: DateGroup) -> list[Lift]:
    rows = view.judged(engine=case.engine, method=case.method, metric=metric)
    return [row for row in rows if row.date in group.dates]


def _make_panels(view: Overview, cases: Sequence[Case], group: DateGroup) -> list[Panels]:
    drawn = [case for case in cases if case.method != BASELINE]
    points = {
        view.name_metric(metric): [
            point for case in drawn if (point := _make_point(view, case, metric, group))
        ]
        for metric in view.metrics
    }
    everything = [row for rows in points.values() for row in rows]
    domain = charts.find_main_domain(everything)
    about = f"{group.title}; the table below has the numbers."
    made = [
        Chart(name, f"Lift in {name}, {about}", charts.dot_chart(rows, domain))
        for name, rows in points.items()
        if rows
    ]
    used = [view.names[method] for method in dict.fromkeys(case.method for case in drawn)]
    legend = [Mark(name.long, name.colour) for name in used if drawn[0].offset]
    legend += blocks.INTERVAL_MARKS if view.few else [MEAN_MARK]
    legend += [Mark(_BEYOND, kind=kind) for kind in charts.shapes_outside(everything, domain)]
    return blocks.drawn_panels(f"Lift, {group.title}", made, legend)


def _make_point(view: Overview, case: Case, metric: str, group: DateGroup) -> ChartRow | None:
    rows = _find_lifts(view, case, metric, group)
    found = find_spread(rows)
    if found is None:
        return None
    name = view.names[case.method]
    point = {"x": found.mean, "label": case.label, "offset": case.offset,
             "colour": charts.css_colour(name.colour)}  # fmt: skip
    start = f"{name.long}, {case.engine}: {percent(found.mean)}"
    if view.few:
        low, high = rows[0].low, rows[0].high
        tip = f"{start} ({interval(low, high) or NOTHING})"
        return {**point, "low": low, "high": high, "filled": rows[0].sign, "tip": tip}
    tip = f"{start} on average, worst {percent(found.worst)} on {day(found.worst_date)}"
    return {**point, "low": found.worst, "high": found.best, "filled": True, "tip": tip}


def _make_table(
    view: Overview, cases: Sequence[Case], columns: Sequence[str], group: DateGroup
) -> Table:
    each = ["value", "lift"] if view.few else ["mean", "worst", "≥ −0.5 %"]
    about = "mean lift, worst date, and share of dates at or above −0.5 %"
    if view.few:
        about = "value, lift and 95 % interval (▲ ▼ if it excludes 0)"
    make_cells = _date_cells if view.few else _mean_cells
    body = []
    for case in cases:
        if view.few or case.method != BASELINE:
            lifts = [_find_lifts(view, case, metric, group) for metric in view.metrics]
            body.append([*case.headings, *(cell for rows in lifts for cell in make_cells(rows))])
    spans = [("", len(columns)), *((view.name_metric(m), len(each)) for m in view.metrics)]
    titles = [*columns, *(each * len(view.metrics))]
    caption = f"{capitalize(group.title)}: {about}"
    return Table(caption, titles, body, n_headings=len(columns), groups=spans)


def _date_cells(rows: Sequence[Lift]) -> list[Cell]:
    """Return the value and the lift with its interval; no lift for the engine alone."""
    if not rows:
        return [Cell(NOTHING), Cell(NOTHING)]
    row = rows[0]
    text = percent(row.lift) + {1: " ▲", -1: " ▼", 0: ""}[row.sign]
    lift = Cell(text, interval(row.low, row.high), blocks.sign_class(row.sign))
    return [Cell(decimal(row.value)), Cell("") if row.method == BASELINE else lift]


def _mean_cells(rows: Sequence[Lift]) -> list[Cell]:
    found = find_spread(rows)
    if found is None:
        return [Cell(NOTHING)] * 3
    worst = Cell(percent(found.worst), day(found.worst_date))
    return [Cell(percent(found.mean)), worst, Cell(share(found.harmless))]


def engines_table(view: Overview) -> Table:
    """Return the metrics of each engine alone."""
    rows = [vars(row) for row in view.judged(method=BASELINE)]
    groups, metrics = view.date_groups, view.metrics
    means = [
        mean_by([row for row in rows if row["date"] in group.dates], ("engine", "metric"), "value")
        for group in groups
    ]
    body = [
        [Cell(engine), *(Cell(decimal(own.get((engine, m)))) for own in means for m in metrics)]
        for engine in view.all_engines
    ]
    spans = [("", 1), *((group.title, len(metrics)) for group in groups)]
    columns = ["engine", *[view.name_metric(metric) for metric in metrics] * len(groups)]
    return Table("Each engine alone", columns, body, groups=spans)


def lifts_by_date(view: Overview, engine: str) -> list[Panels]:
    """Return lines of lifts over the dates, one panel per metric, for methods that learn."""
    marks = {key: Mark(view.names[key].long, view.names[key].colour) for key in view.learned}
    made = []
    for metric in view.metrics:
        points = [
            _date_point(row.lift, row.date, marks[row.method], row.date in view.marked_dates)
            for row in view.judged(engine=engine, metric=metric)
            if row.method in marks and row.lift is not None
        ]
        if points:
            x, y = charts.date_axis(view.dates, "%-d %b %y"), charts.number_axis(None, "+~%")
            spec = charts.line_chart(points, x, y, zero=True)
            name = view.name_metric(metric)
            made.append(Chart(name, f"Lift in {name} by date, one line per method.", spec))
    legend = [*marks.values(), *([_HOLE] if view.marked_dates else [])]
    return blocks.drawn_panels("Lift by date", made, legend)


def _date_point(lift: float, date: str, mark: Mark, has_hole: bool) -> ChartRow:
    """Return a point of a line; a square on a date with a hole in the log."""
    tip = f"{mark.label}, {day(date)}: {percent(lift)}"
    if not has_hole:
        return charts.line_point(date, lift, mark, tip)
    tip = f"{tip}; {_HOLE.label}"
    return {**charts.line_point(date, lift, mark, tip), "symbol": _HOLE.kind}
