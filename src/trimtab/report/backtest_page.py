"""The page of a backtest: what to switch on, why, and all the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from trimtab.errors import DataError
from trimtab.replay.judge import PARTS
from trimtab.replay.results import Results
from trimtab.report import charts
from trimtab.report.charts import INTERVAL_MARKS, Chart, Mark, Panels
from trimtab.report.decision import DO_NOT, SWITCH_ON, Record
from trimtab.report.overview import SELLERS, TEXT, Overview, Row, group_by, mean_by, where
from trimtab.report.page import (
    Block,
    Fold,
    Section,
    Table,
    fold,
    render,
    require_libraries,
    write_page,
)
from trimtab.report.words import NOTHING, compact, day, decimal, interval, is_number, percent

N_MOVED = 15
_N_TILES = 3
_HOLE = Mark("date with far fewer events than usual on some day", kind="square")
_SALES_LEGEND = (
    Mark("week before", kind="hollow"),
    Mark("in the window", "ochre", "tick"),
    Mark("in the test", kind="full"),
)


def write_report(results: Results, path: Path, *, all_tables: bool = False) -> None:
    """Write the page of a backtest to a file.

    Args:
        results: results of the backtest.
        path: file to write.
        all_tables: also show what only the paper's experiments need, like the demo's page.
    """
    write_page(build_page(results, all_tables=all_tables), path)


def build_page(results: Results, *, all_tables: bool = False) -> str:
    """Return the page as HTML; the same results give the same bytes.

    Raises:
        TrimtabError: a library that draws is missing, or the table `results` is empty.
    """
    require_libraries()
    view = Overview(results)
    sections = make_sections(view, all_tables)
    title, about = TEXT.say("title", view), TEXT.say("about", view)
    return render(title, results.about.get("version"), sections, about)


def make_sections(view: Overview, all_tables: bool) -> list[Section]:
    """Return the sections that have rows: what to do and why, then the details, folded."""
    if not view.lifts:
        raise DataError("the table 'results' has no rows; run the backtest again")
    terms = TEXT.terms("terms", view, all_tables)
    guide = Section("guide", TEXT.paragraphs("guide", view), terms=terms)
    opened = (make(view) for make in _OPENED)
    details = [make(view) for make in (*_DETAILS, *(_OF_THE_PAPER if all_tables else ()))]
    return [*filter(None, opened), *fold([*details, guide])]


# What was judged --------------------------------------------------------------------------------


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
        chart_by_date(view), TEXT.markup("tiles", view, tiles),
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
    for record in reversed(records):  # the best is drawn last, on top of the others
        name = view.names[record.method]
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
    names = ((view.names[record.method], record.mean) for record in records)
    legend = [Mark(f"{name.short} {percent(mean)}", name.colour) for name, mean in names]
    legend += [_HOLE] if view.marked_dates else []
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


# What was learned: parts of a reranker, forecasts, and the items raised and lowered most ---------


def parts_section(view: Overview) -> Section | None:
    """Return what each part of each reranker adds on every engine, and all parts together."""
    rows = view.select("parts", objective=view.objective_of("parts"))
    rows = where(rows, part=PARTS, method=view.names)
    if not rows:
        return None
    objective, methods = rows[0]["objective"], dict.fromkeys(row["method"] for row in rows)
    engines = [engine for engine in view.engines if where(rows, engine=engine)]
    names = {"gain": "lift", "gain_low": "lift_low", "gain_high": "lift_high"}
    rows += [
        {**row, "part": "all", "used": True, **{gain: row[own] for gain, own in names.items()}}
        for row in view.judged(method=methods, metric=objective)
    ]
    gains, metric = (
        group_by(rows, ("method", "engine", "part"), "gain"),
        view.name_metric(objective),
    )
    made = [TEXT.table("parts_table", view, gains, own, engines, metric) for own in methods]
    text = TEXT.paragraphs("parts", view, gains, next(iter(methods)), engines[0], metric)
    return Section("parts", text, made)


def forecast_section(view: Overview) -> Section | None:
    """Return the forecast of each method beside the lift that came, as means over dates."""
    metric, keys = view.objective_of("forecasts"), ("date", "engine", "method")
    lifts = view.judged_by(*keys, metric=metric)
    found = []
    for row in view.select("forecasts", objective=metric):
        lift = lifts.get(itemgetter(*keys)(row), {"lift": None})["lift"]
        low, high = row["forecast_low"], row["forecast_high"]
        if all(map(is_number, (lift, row["forecast"], low, high))):
            found.append({**row, "lift": lift, "inside": int(low <= lift <= high)})
    if not found:
        return None
    by_method = group_by(found, ("engine", "method"), "lift")
    order = [(engine, method) for engine in view.engines for method in view.names]
    shown = {key: by_method[key] for key in order if key in by_method}
    text = TEXT.paragraphs("forecasts", sum(row["inside"] for row in found), len(found))
    return Section("forecasts", text, [TEXT.table("forecast_table", view, metric, shown)])


def holes_section(view: Overview) -> Section | None:
    """Return all days with far fewer events than usual; None if there are none."""
    if not view.holes:
        return None
    return Section("holes", TEXT.paragraphs("holes"), [TEXT.table("holes_table", view)])


class Moved(NamedTuple):
    """The items that a fit raised and lowered most, those moved most first."""

    title: str
    raised: list[Row]
    lowered: list[Row]

    def draw(self) -> Panels:
        """Return their sales before, in and after the window."""
        kinds = {"Raised most": self.raised, "Lowered most": self.lowered}
        about = f"{self.title}: buyers per week before, in the window and after, by item."
        made = [
            Chart(kind, f"{kind}, {about}", charts.sales_chart(_sales_rows(rows)))
            for kind, rows in kinds.items()
            if rows
        ]
        return Panels(self.title, made, _SALES_LEGEND)


def moved_items(view: Overview) -> list[Moved]:
    """Return the items moved on the first engine, on the dates and for the metric shown."""
    objective, found = view.objective_of("biases"), []
    for date in view.shown_dates():
        known = view.select("biases", engine=view.engine, date=date, objective=objective)
        rows = [row for row in known if is_number(row["bias"])]
        rows.sort(key=lambda row: (-row["bias"], row["item_id"]))
        for method in view.own_methods or view.rivals:
            own, name = where(rows, method=method), view.names[method]
            raised = [row for row in own[:N_MOVED] if row["bias"] > 0]
            lowered = [row for row in reversed(own[-N_MOVED:]) if row["bias"] < 0]
            if raised or lowered:
                found.append(Moved(f"{name.short}, {day(date)}", raised, lowered))
    return found


def moved_section(view: Overview) -> Section | None:
    """Return the items raised and lowered most, with their sales before and after."""
    found = moved_items(view)
    if not found:
        return None
    pairs = ((own.draw(), TEXT.table("moved_table", own, folded=True)) for own in found)
    blocks: list[Block] = [block for pair in pairs for block in pair]
    return Section("moved", TEXT.paragraphs("moved", view, found), blocks)


def _sales_rows(rows: Sequence[Row]) -> list[charts.ChartRow]:
    names = [row["name"] or row["item_id"] for row in rows]
    made: list[charts.ChartRow] = []
    for name, row in zip(names, rows, strict=True):
        label = name if names.count(name) == 1 else f"{row['item_id']} {name}"
        sales = {time: row[f"sales_{time}"] for time in ("before", "recent", "after")}
        texts = " → ".join(decimal(value, 0) for value in sales.values())
        tip = f"{name}: bias {compact(row['bias'])}, buyers per week {texts}"
        made.append({"label": label, "tip": tip, **sales})
    return made


# What only the paper's experiments need; how much history an engine needs, if a plan asked -------


def windows_section(view: Overview) -> Section | None:
    """Return engines trained on the last days only, relative to the shortest window."""
    rows = view.rows("windows")
    metric = view.metric if where(rows, metric=view.metric) else (rows or [{}])[0].get("metric")
    means = mean_by(where(rows, metric=metric or ""), ("engine", "days"), "relative")
    if not means:
        return None
    engines = {engine: engine for engine, _ in means}
    lengths = sorted({days for _, days in means}, key=lambda days: days or float("inf"))
    best = []
    for engine in engines:
        known = [(engine, days) for days in lengths if (engine, days) in means]
        longest = max(known, key=means.__getitem__)
        best.append((*longest, means[longest]))
    table = TEXT.table("windows_table", view, engines, lengths, means)
    return Section("windows", TEXT.paragraphs("windows", metric, best), [table])


def coverage_section(view: Overview) -> Section | None:
    """Return how many best sellers are recommended, and the KL divergence from purchases."""
    tables = []
    for name, column, value in (("coverage", "size", "covered"), ("divergence", "engine", "kl")):
        objective = ("", view.objective_of(name))
        rows = [row for row in view.select(name) if (row["objective"] or "") in objective]
        if name == "coverage":
            rows = where(rows, engine=view.engine)
        if rows:
            columns = sorted({row[column] for row in rows})
            means = mean_by(rows, ("method", column), value)
            names = _name_methods(view, rows)
            tables.append(TEXT.table(f"{name}_table", view, names, columns, means))
    return Section("coverage", TEXT.paragraphs("coverage", view), tables) if tables else None


def _name_methods(view: Overview, rows: Iterable[Row]) -> dict[str, str]:
    """Return the names of the methods of some rows; of best sellers, only those that are ranked."""
    found = {row["method"] for row in rows}
    found -= set(SELLERS) - {record.method for record in view.ranked(view.engine)}
    return {method: name.short for method, name in view.names.items() if method in found}


def objectives_section(view: Overview) -> Section | None:
    """Return lifts by the metric that was learned for and the metric that judges."""
    learned = [row for row in where(view.lifts, engine=view.engine) if row["objective"]]
    if all(row["objective"] == row["metric"] for row in learned):
        return None
    metrics = {metric: view.name_metric(metric) for metric in view.metrics}
    tables = []
    for method in _name_methods(view, learned):
        means = mean_by(where(learned, method=method), ("objective", "metric"), "lift")
        tables.append(TEXT.table("objectives_table", view, method, metrics, means))
    return Section("objectives", TEXT.paragraphs("objectives", view), tables)


def sellers_section(view: Overview) -> Section | None:
    """Return the ranks of the best sellers by month."""
    rows = view.rows("sellers")
    ranks = mean_by(rows, ("item_id", "month"), "rank")
    if not ranks:
        return None
    names = {row["item_id"]: row["name"] or row["item_id"] for row in rows}
    months = sorted({row["month"] for row in rows})
    table = TEXT.table("sellers_table", names, months, ranks, folded=True)
    return Section("sellers", TEXT.paragraphs("sellers"), [table])


_Make = Callable[[Overview], Section | None]
_OPENED: tuple[_Make, ...] = (headline, methods_section, engines_section)
_DETAILS: tuple[_Make, ...] = (
    parts_section, forecast_section, holes_section, moved_section, windows_section,
)  # fmt: skip
_OF_THE_PAPER: tuple[_Make, ...] = (coverage_section, objectives_section, sellers_section)
