"""What was judged: what to do and why, every method by date, and all methods and engines."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report import charts
from trimtab.report.backtest.overview import TEXT, Overview
from trimtab.report.charts import INTERVAL_MARKS, Chart, Mark, Panels
from trimtab.report.decision import DO_NOT, SWITCH_ON, Record
from trimtab.report.page import Block, Fold, Section, Table
from trimtab.report.words import NOTHING, day, interval, percent

_HOLE = Mark("date with far fewer events than usual on some day", kind="square")
_N_TILES = 3


def headline(view: Overview) -> Section:
    """Return the decision on the first engine, with the chart that shows why."""
    decision = view.decide(view.engine)
    actions = {own: TEXT.say("action", view.decide(own), view) for own in view.engines}
    moods = {SWITCH_ON: "mixed" if decision.is_beaten else "gain", DO_NOT: "loss"}
    named = [record.method for record in (decision.chosen, decision.rival) if record is not None]
    shown = dict.fromkeys([*named, *view.own_methods[:1], *view.own_methods[-1:]])
    tiles = view.records(view.engine, list(shown)[:_N_TILES])
    tiles.sort(key=lambda record: -record.mean)
    return Section(
        "headline", TEXT.paragraphs("headline", view, decision, actions),
        chart_by_date(view), TEXT.tiles("tiles", view, tiles),
        mood=moods.get(decision.action, ""),
    )  # fmt: skip


def chart_by_date(view: Overview) -> list[Panels]:
    """Return the lift of every method on the first engine by date, the best mean first.

    Few dates have a panel each, with intervals; many dates are lines.
    """
    records = view.ranked(view.engine)
    title = f"Lift in {view.name_metric()} over {view.engine} alone, by date"
    return [(_draw_dates if view.few else _draw_lines)(view, records, title)] if records else []


def _draw_dates(view: Overview, records: Sequence[Record], title: str) -> Panels:
    found = view.judged_by("date", "method", engine=view.engine, metric=view.metric)
    dots: dict[str, list[charts.ChartRow]] = {date: [] for date in view.dates}
    for record in records:
        name = view.names[record.method]
        for date, lift in record.lifts.items():
            low, high = (found[date, record.method][f"lift_{end}"] for end in ("low", "high"))
            span = interval(low, high)
            tip = f"{name.in_text}: {percent(lift)} ({span or NOTHING})"
            ends = {"low": low, "high": high} if span else {}
            dots[date].append(charts.dot(name.short, lift, name.colour, tip, **ends))
    rows = [row for own in dots.values() for row in own]
    domain = charts.find_main_domain(rows)
    made = [
        Chart(day(date), f"{day(date)}, lift of each method; a table has the means.",
              charts.dot_chart(own, domain))
        for date, own in dots.items() if own
    ]  # fmt: skip
    return Panels(title, made, [*INTERVAL_MARKS, *charts.marks_outside(rows, domain)])


def _draw_lines(view: Overview, records: Sequence[Record], title: str) -> Panels:
    chosen = view.decide(view.engine).chosen
    rows: list[charts.ChartRow] = []
    marks: list[Mark] = []
    for record in reversed(records):  # the best is drawn last, on top of the others
        name = view.names[record.method]
        marks.insert(0, Mark(f"{name.short} {percent(record.mean)}", name.colour))
        is_chosen = chosen is not None and record.method == chosen.method
        for date, lift in record.lifts.items():
            has_hole = date in view.marked_dates
            mark = Mark(name.short, name.colour, _HOLE.kind if has_hole else "circle")
            tip = f"{name.short}, {day(date)}: {percent(lift)}"
            tip = f"{tip}; {_HOLE.label}" if has_hole else tip
            width, size = 3 if is_chosen else 1.5, 40 if is_chosen or has_hole else 14
            rows.append(charts.line_point(date, lift, mark, tip, width, size))
    compression = charts.find_compression(rows)
    spec = charts.line_chart(rows, view.dates, compression=compression)
    about = "One line per method, one point per date; a table has the means."
    scale = "; the scale is compressed far from 0" if compression else ""
    legend = [*marks, *([_HOLE] if view.marked_dates else [])]
    return Panels(f"{title}, with the mean{scale}", [Chart("", about, spec)], legend)


def methods_section(view: Overview) -> Section | None:
    """Return the record of each method on the first engine, and all metrics on demand."""
    if not view.rivals:
        return None
    detail: list[Panels | Table] = []
    for metric in view.metrics:
        if metric != view.metric:
            detail.append(TEXT.table("records_table", view, metric))
        if view.few and len(view.dates) > 1:
            detail.append(TEXT.table("dates_table", view, metric))
    shown: list[Block] = [TEXT.table("records_table", view, view.metric)]
    shown += [Fold(TEXT.say("all_metrics", view), detail)] if detail else []
    return Section("methods", TEXT.paragraphs("methods", view), shown)


def engines_section(view: Overview) -> Section | None:
    """Return what to do on every engine; None if there is only one."""
    if len(view.all_engines) == 1:
        return None
    return Section("engines", TEXT.paragraphs("engines", view), [TEXT.table("engines_table", view)])
