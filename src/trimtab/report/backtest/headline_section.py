"""The first screen: what to do, why, and every method by date."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report import blocks, charts
from trimtab.report.backtest.decision_words import give_reasons, mood_of, write_title
from trimtab.report.backtest.holes_section import describe_holes
from trimtab.report.backtest.judged_methods import decide_engine, find_records, rank_records
from trimtab.report.backtest.overview import Lift, Overview
from trimtab.report.blocks import Chart, Mark, Panels, Section, Tile
from trimtab.report.decision import Record
from trimtab.report.words import NOTHING, counted, day, interval, percent

_HOLE = Mark("date with far fewer events than usual on some day", kind="square")
_BEYOND = "beyond the scale, with its value"
_N_TILES = 3


def headline(view: Overview) -> Section:
    """Return the decision on the first engine, with the chart that shows why."""
    decision = decide_engine(view, view.engines[0])
    sentences = give_reasons(view, decision)
    if view.marked_dates:
        sentences.append(describe_holes(view))
    title, tiles = write_title(view, decision), _make_tiles(view)
    return Section("headline", title, sentences, chart_by_date(view), tiles, mood=mood_of(decision))


def _make_tiles(view: Overview) -> list[Tile]:
    """Return the chosen method, the best of the other kind, the bias and the reranker."""
    engine = view.engines[0]
    decision = decide_engine(view, engine)
    first = [record.method for record in (decision.chosen, decision.other) if record is not None]
    wished = list(dict.fromkeys([*first, *view.headlined]))[:_N_TILES]
    found = find_records(view, engine, wished)
    return [_make_tile(view, record) for record in sorted(found, key=lambda own: -own.mean)]


def _make_tile(view: Overview, record: Record) -> Tile:
    """Return a mean lift and the lift on the worst date, each in its colour."""
    label = f"{view.names[record.method].short}, {view.name_metric(view.metric)}"
    kind = blocks.range_class(record.mean, record.worst)
    ends = interval(record.low, record.high)
    if record.n_dates == 1:
        kind = kind if record.is_sure else "muted"
        return Tile(label, percent(record.mean), f"95 % interval {ends or NOTHING}", kind)
    note = f"{record.n_below} of {counted(record.n_dates, 'date')} below 0"
    worst = f"worst date {percent(record.worst)}"
    sign = "loss" if record.n_below else "gain" if record.worst > 0 else "muted"
    return Tile(label, percent(record.mean), note, kind, worst, sign)


def chart_by_date(view: Overview) -> list[Panels]:
    """Return the lift of every method on the first engine by date, in the metric shown.

    Few dates have a panel each, with intervals; many dates are lines. The best mean comes first.
    """
    records = rank_records(view, view.engines[0])
    title = f"Lift in {view.name_metric(view.metric)} over {view.engines[0]} alone, by date"
    if not records:
        return []
    return _date_panels(view, records, title) if view.few else _date_lines(view, records, title)


def _date_panels(view: Overview, records: Sequence[Record], title: str) -> list[Panels]:
    engine, metric = view.engines[0], view.metric
    lifts = {(r.method, r.date): r for r in view.judged(engine=engine, metric=metric)}
    points = {
        date: [_make_dot(view, lifts[record.method, date]) for record in records
               if date in record.lifts]
        for date in view.dates
    }  # fmt: skip
    everything = [row for rows in points.values() for row in rows]
    domain = charts.find_main_domain(everything)
    made = [
        Chart(day(date), f"Lift of each method on {day(date)}; the table below has the means.",
              charts.dot_chart(rows, domain))
        for date, rows in points.items() if rows
    ]  # fmt: skip
    legend = list(blocks.INTERVAL_MARKS)
    legend += [Mark(_BEYOND, kind=kind) for kind in charts.shapes_outside(everything, domain)]
    return blocks.drawn_panels(title, made, legend)


def _make_dot(view: Overview, row: Lift) -> charts.ChartRow:
    name = view.names[row.method]
    tip = f"{name.long}: {percent(row.lift)} ({interval(row.low, row.high) or NOTHING})"
    return {
        "label": name.short, "offset": "", "x": row.lift, "low": row.low, "high": row.high,
        "colour": charts.css_colour(name.colour), "filled": row.sign, "tip": tip,
    }  # fmt: skip


def _date_lines(view: Overview, records: Sequence[Record], title: str) -> list[Panels]:
    chosen = decide_engine(view, view.engines[0]).chosen
    rows: list[charts.ChartRow] = []
    marks = []
    for record in reversed(records):  # the best is drawn last, on top of the others
        name = view.names[record.method]
        mark = Mark(name.short, name.colour)
        marks.append(Mark(f"{name.short} {percent(record.mean)}", name.colour))
        thick = chosen is not None and record.method == chosen.method
        rows += [_make_point(view, record, date, mark, thick) for date in record.lifts]
    x, y = charts.date_axis(view.dates, "%-d %b %y"), charts.lift_axis(rows)
    spec = charts.line_chart(rows, x, y, 250, zero=True)
    about = "One line per method, one point per date; the table below has the means."
    legend = [*reversed(marks), *([_HOLE] if view.marked_dates else [])]
    scale = "" if charts.find_usual_reach(rows) is None else "; the scale is compressed far from 0"
    return [Panels(f"{title}, with the mean{scale}", [Chart("", about, spec)], legend)]


def _make_point(
    view: Overview, record: Record, date: str, mark: Mark, thick: bool
) -> charts.ChartRow:
    lift = record.lifts[date]
    tip = f"{mark.label}, {day(date)}: {percent(lift)}"
    width, size, symbol = (3, 40, mark.kind) if thick else (1.5, 14, mark.kind)
    if date in view.marked_dates:
        tip, size, symbol = f"{tip}; {_HOLE.label}", 40, _HOLE.kind
    point = charts.line_point(date, lift, mark, tip)
    return {**point, "symbol": symbol, "width": width, "size": size}
