"""What was judged: what to do and why, every method by date, and all methods and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.replay.results import BASELINE
from trimtab.replay.rivals import RERANKER
from trimtab.replay.windows import HOLE
from trimtab.report import charts, page
from trimtab.report.backtest.overview import (
    SELLERS,
    Overview,
    Row,
    find_spread,
    mean_by,
    sign_of,
)
from trimtab.report.charts import INTERVAL_MARKS, Chart, Mark, Panels
from trimtab.report.decision import DO_NOT, FEW_DATES, MOST_BELOW, SWITCH_ON, WORTH, Record
from trimtab.report.page import Block, Cell, Fold, Section, Table, Text, Tile
from trimtab.report.words import (
    NOTHING,
    SPACE,
    Name,
    counted,
    day,
    decimal,
    interval,
    is_number,
    percent,
)

TEXT = Text(
    "backtest.jinja", few_dates=FEW_DATES, hole=HOLE, most_below=MOST_BELOW, reranker=RERANKER,
    best_sellers=SELLERS, worth=WORTH,
)  # fmt: skip
MEAN_MARK = Mark("mean over dates; the line runs from the worst date to the best", kind="full")
_HOLE = Mark("date with far fewer events than usual on some day", kind="square")
_N_TILES = 3


# What to do -------------------------------------------------------------------------------------


def headline(view: Overview) -> Section:
    """Return the decision on the first engine, with the chart that shows why."""
    decision = view.decide(view.engine)
    first, *others = (engine_action(view, engine) for engine in view.engines)
    found = dict(zip(view.engines[1:], others, strict=True))
    alike = [engine for engine, action in found.items() if action == first]
    different = {engine: action for engine, action in found.items() if action != first}
    moods = {SWITCH_ON: "mixed" if decision.is_beaten else "gain", DO_NOT: "loss"}
    shown = [record.method for record in (decision.chosen, decision.rival) if record is not None]
    tiles = view.records(view.engine, list(dict.fromkeys([*shown, *view.headlined]))[:_N_TILES])
    tiles.sort(key=lambda record: -record.mean)
    return Section(
        "headline", TEXT.paragraphs("headline", view, decision, alike, different),
        chart_by_date(view, view.metric), [_make_tile(view, record) for record in tiles],
        mood=moods.get(decision.action, ""),
    )  # fmt: skip


def engine_action(view: Overview, engine: str) -> str:
    """Return what to do on an engine, in a few words."""
    return TEXT.say("action", view.decide(engine), view)


def _make_tile(view: Overview, record: Record) -> Tile:
    """Return a mean lift and the lift on the worst date, each in its colour."""
    label = f"{view.names[record.method].short}, {view.name_metric()}"
    kind = page.range_class(record.mean, record.worst)
    if record.n_dates == 1:
        note = f"95 % interval {interval(record.low, record.high) or NOTHING}"
        return Tile(label, percent(record.mean), note, kind if record.is_sure else "muted")
    note = f"{record.n_below} of {counted(record.n_dates, 'date')} below 0"
    worst = f"worst date {percent(record.worst)}"
    sign = "loss" if record.n_below else "gain" if record.worst > 0 else "muted"
    return Tile(label, percent(record.mean), note, kind, worst, sign)


def chart_by_date(view: Overview, metric: str) -> list[Panels]:
    """Return the lift of every method on the first engine by date, the best mean first.

    Few dates have a panel each, with intervals; many dates are lines.
    """
    records = view.ranked(view.engine, metric)
    title = f"Lift in {view.name_metric(metric)} over {view.engine} alone, by date"
    if not records:
        return []
    if not view.few:
        return [_date_lines(view, records, title)]
    dots: dict[str, list[charts.ChartRow]] = {}
    for date in view.dates:
        for record in (own for own in records if date in own.lifts):
            row = view.judged(engine=view.engine, method=record.method, metric=metric, date=date)
            dots.setdefault(day(date), []).extend(make_dots(row, view.names[record.method]))
    about = "lift of each method; a table has the means."
    return charts.dot_panels(title, dots, about, INTERVAL_MARKS)


def make_dots(
    rows: Sequence[Row], name: Name, column: str = "lift", write: Callable[[object], str] = percent
) -> list[charts.ChartRow]:
    """Return the dot of one date with its interval, or of a mean from the worst date to the best.

    Args:
        rows: one row per date.
        name: names and colours the dot.
        column: column with the numbers; `column`_low and _high have intervals.
        write: writes a number.
    """
    found = find_spread(rows, column)
    if found is None:
        return []
    if len(rows) > 1:
        tip = f"{name.long}: {write(found.mean)} on average, worst {write(found.worst)}"
        ends = {"low": found.worst, "high": found.best, "filled": True}
    else:
        low, high = (rows[0][f"{column}_{end}"] for end in ("low", "high"))
        ends = {"low": low, "high": high} if is_number(low) and is_number(high) else {}
        unit = f"{SPACE}%" if write is percent else ""
        tip = f"{name.long}: {write(found.mean)} ({interval(low, high, unit) or NOTHING})"
    return [charts.dot(name.short, found.mean, name.colour, tip, **ends)]


def _date_lines(view: Overview, records: Sequence[Record], title: str) -> Panels:
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
            look = {"width": 3 if is_chosen else 1.5, "size": 40 if is_chosen or has_hole else 14}
            rows.append(charts.line_point(date, lift, mark, tip, **look))
    x, y = charts.date_axis(view.dates), charts.lift_axis(rows)
    spec = charts.line_chart(rows, x, y, 250, zero=True)
    about = "One line per method, one point per date; a table has the means."
    scale = "; the scale is compressed far from 0" if charts.is_far_beyond(rows) else ""
    legend = [*marks, *([_HOLE] if view.marked_dates else [])]
    return Panels(f"{title}, with the mean{scale}", [Chart("", about, spec)], legend)


# Methods and engines ----------------------------------------------------------------------------


def methods_section(view: Overview) -> Section | None:
    """Return the record of each method on the first engine, and all metrics on demand."""
    if not view.rivals:
        return None
    ranked = view.ranked(view.engine)
    ends = [(view.names[own.method].short, own.mean) for own in (*ranked[:1], *ranked[1:][-1:])]
    shown: list[Block] = [records_table(view, view.metric)]
    detail: list[Panels | Table] = []
    for metric in view.metrics:
        if metric != view.metric:
            detail += [records_table(view, metric), *chart_by_date(view, metric)]
        if view.few and len(view.dates) > 1:
            detail.append(_dates_table(view, metric))
    shown += [Fold(TEXT.say("all_metrics", view), detail)] if detail else []
    return Section("methods", TEXT.paragraphs("methods", view, ends), shown)


def engines_section(view: Overview) -> Section | None:
    """Return what to do on every engine, in each metric; None if there is only one."""
    if len(view.all_engines) == 1:
        return None
    first, *others = sorted(view.metrics, key=lambda metric: metric != view.metric)
    made: list[Block] = [engines_table(view, first)]
    made += [Fold("All metrics", [engines_table(view, own) for own in others])] if others else []
    ends = sorted(
        ((f"{view.names[own.method].short} on {engine}", own.mean) for engine in view.engines
         for own in view.records(engine, view.learned)),
        key=lambda found: -found[1],
    )  # fmt: skip
    text = TEXT.paragraphs("engines", view, [*ends[:1], *ends[1:][-1:]])
    return Section("engines", text, made)


def records_table(view: Overview, metric: str) -> Table:
    """Return one row per method on the first engine, best first; those without a lift below."""
    values = mean_by(view.judged(metric=metric, engine=view.engine), ["method"], "value")
    ranked, several = view.ranked(view.engine, metric), len(view.dates) > 1
    cells = {record.method: _record_cells(record) for record in ranked}
    for method in (own for own in view.methods if own not in SELLERS and (own,) in values):
        lift = "" if method == BASELINE else NOTHING
        cells.setdefault(method, [lift, *[""] * (4 if several else 2)])
    body = [
        [_name_cell(view, method), *own, decimal(values.get((method,)))]
        for method, own in cells.items()
    ]
    by_date = ["worst date", "dates below 0"] if several else []
    spans = [("", 1), ("mean", 2), ("single dates", 2), ("", 2)] if several else []
    name = view.name_metric(metric)
    columns = ["method", "lift", "95 % interval", *by_date, "sure gain", name]
    return Table(f"Lift in {name} on {view.engine}{view.mean_note}", columns, body, groups=spans)


def _name_cell(view: Overview, method: str) -> Cell:
    return Cell(view.names[method].short, kind="name", colour=view.names[method].colour)


def _record_cells(record: Record) -> list[Cell | str]:
    ends = interval(record.low, record.high) or NOTHING
    sure = "yes" if record.is_gain else "no: too many dates below 0" if record.is_sure else "no"
    if record.n_dates == 1:
        kind = page.sign_class(record.mean) if record.is_sure or record.high < 0 else ""
        return [Cell(percent(record.mean), kind=kind), ends, sure]
    mean = Cell(percent(record.mean), kind=page.range_class(record.mean, record.worst))
    worst = f"{percent(record.worst)}, {day(record.worst_date)}"
    return [mean, ends, worst, f"{record.n_below} of {record.n_dates}", sure]


def _dates_table(view: Overview, metric: str) -> Table:
    """Return the lift and the interval of each method on each date."""
    body = []
    for record in view.ranked(view.engine, metric):
        rows = view.judged(engine=view.engine, method=record.method, metric=metric)
        lifts = {
            row["date"]: Cell(percent(row["lift"]), interval(row["lift_low"], row["lift_high"]),
                              page.sign_class(sign_of(row)))
            for row in rows
        }  # fmt: skip
        cells = (lifts.get(date, NOTHING) for date in view.dates)
        body.append([_name_cell(view, record.method), *cells])
    caption = f"Lift in {view.name_metric(metric)} on {view.engine}, date by date"
    return Table(caption, ["method", *map(day, view.dates)], body)


def engines_table(view: Overview, metric: str) -> Table:
    """Return one row per engine: alone, with Trimtab's methods, and what to switch on."""
    methods = view.own_methods
    values = mean_by(view.judged(metric=metric, method=BASELINE), ["engine"], "value")
    decides = metric == view.metric
    body = []
    for engine in view.all_engines:
        records = {own.method: own for own in view.records(engine, methods, metric)}
        cells = [_short_cell(records.get(method)) for method in methods]
        action = engine_action(view, engine) if engine in view.engines else NOTHING
        body.append([engine, decimal(values.get((engine,))), *cells, *([action] * decides)])
    names = [view.names[method].short for method in methods]
    caption = f"{view.name_metric(metric)} and lifts by engine{view.mean_note}"
    return Table(caption, ["engine", "alone", *names, *(["what to do"] * decides)], body)


def _short_cell(record: Record | None) -> Cell:
    if record is None:
        return Cell(NOTHING)
    worst = f"worst {percent(record.worst)}" if record.n_dates > 1 else ""
    return Cell(percent(record.mean), worst, page.range_class(record.mean, record.worst))
