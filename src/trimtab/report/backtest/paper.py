"""What only the paper's experiments need: on the page of the demo.

What is recommended against what is bought, the metric to learn for, and best sellers by month; and
how much history an engine needs, on any page whose plan asked for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trimtab.checks import METRICS
from trimtab.replay.results import BASELINE
from trimtab.report import charts, words
from trimtab.report.backtest.judged import TEXT
from trimtab.report.backtest.overview import SELLERS, Overview, Row, mean_by, where
from trimtab.report.charts import Chart, Panels
from trimtab.report.page import Block, Cell, Section, Table, name_cell
from trimtab.report.words import (
    count,
    decimal,
    metric_name,
    month,
    percent,
    training_days,
)

_FAINTEST = 0.005  # a smaller lift gets no tint
_COLOURS = ("blue", "orange", "green", "pink", "ochre", "violet", "teal", "wine", "olive", "indigo")


# Recommended and bought items -------------------------------------------------------------------


def coverage_section(view: Overview) -> Section | None:
    """Return how many best sellers are recommended, and the KL divergence from purchases."""
    coverage, divergence = (_shown_rows(view, name) for name in ("coverage", "divergence"))
    if not coverage and not divergence:
        return None
    blocks: list[Block] = []
    blocks += _coverage_blocks(view, coverage) if coverage else []
    blocks += _divergence_blocks(view, divergence) if divergence else []
    means = mean_by(where(coverage, engine=view.engine), ("method", "size"), "covered")
    sizes = [size for method, size in sorted(means) if method == BASELINE]
    both = [size for size in sizes if (view.featured, size) in means]
    size = both[min(len(both) - 1, 3)] if both else None
    shown = [(view.names[own].in_text, means[own, size])
             for own in (*view.headlined, BASELINE) if (own, size) in means]  # fmt: skip
    return Section("coverage", TEXT.paragraphs("coverage", view, size, shown), blocks)


def _shown_rows(view: Overview, name: str) -> list[Row]:
    """Return rows of known methods, learned ones for the objective that is shown.

    Best sellers are shown with the number of days that they are ranked with.
    """
    ranked = {record.method for record in view.ranked(view.engine)}
    known = [method for method in view.names if method in ranked or method not in SELLERS]
    objective = view.objective_of(name)
    rows = [row for row in view.select(name) if (row["objective"] or "") in ("", objective)]
    rows = where(rows, method=known)
    return rows if where(rows, engine=view.engine) else []


def _coverage_blocks(view: Overview, rows: Sequence[Row]) -> list[Block]:
    """Return a chart of the first engine, and a table per engine; all but the first folded."""
    sizes = sorted({row["size"] for row in rows})
    columns = ["method", *(f"of {count(size)}" for size in sizes)]
    digits = int(len(view.dates) > 1)
    points: list[charts.ChartRow] = []
    tables: list[Block] = []
    methods = {row["method"] for row in where(rows, engine=view.engine)}
    series = {own: (name.long, name.colour) for own, name in view.names.items() if own in methods}
    marks = charts.line_marks(series)
    for engine in view.engines:
        own = where(rows, engine=engine)
        means = mean_by(own, ("method", "size"), "covered")
        body = [
            [name_cell(name), *(decimal(means.get((key, size)), digits) for size in sizes)]
            for key, name in view.names.items() if where(own, method=key)
        ]  # fmt: skip
        caption = f"Best sellers covered, {engine}{view.mean_note}"
        tables += [Table(caption, columns, body, folded=engine != view.engine)] if body else []
        for (method, size), covered in sorted(means.items(), key=lambda entry: entry[0][1]):
            if engine == view.engine:
                tip = f"{marks[method].label}: {decimal(covered, digits)} of {count(size)}"
                points.append(charts.line_point(count(size), covered / size, marks[method], tip))
    y = charts.number_axis("share covered", "~%", zero=True)
    spec = charts.line_chart(points, charts.name_axis("best sellers"), y)
    chart = Chart("", "Share of the best sellers among the most recommended items.", spec)
    title = f"Coverage of best sellers ({view.engine}){view.mean_note}"
    return [Panels(title, [chart], list(marks.values())), *tables]


def _divergence_blocks(view: Overview, rows: Sequence[Row]) -> list[Block]:
    means = mean_by(rows, ("engine", "method"), "kl")
    engines = [engine for engine in view.engines if where(rows, engine=engine)]
    dots = [
        charts.dot(name.short, kl, name.colour, f"{name.long}: {decimal(kl, 3)} nats",
                   low=0, high=kl, filled=True)
        for method, name in view.names.items()
        if (kl := means.get((view.engine, method))) is not None
    ]  # fmt: skip
    title = f"KL divergence in nats, lower is closer ({view.engine}){view.mean_note}"
    about = "KL divergence of what is recommended from what is bought, by method."
    shown = charts.dot_panels(title, {"": dots}, about, [], charts.find_domain(dots, ("x",)), "~r")
    body = [
        [name_cell(name), *(decimal(means.get((engine, method)), 3) for engine in engines)]
        for method, name in view.names.items() if where(rows, method=method)
    ]  # fmt: skip
    caption = f"KL(bought ‖ recommended) in nats; 0 if equal{view.mean_note}"
    return [*shown, Table(caption, ["method", *engines], body)]


# The metric to learn for ------------------------------------------------------------------------


def objectives_section(view: Overview) -> Section | None:
    """Return lifts by the metric that was learned for and the metric that judges."""
    learned = [row for row in where(view.lifts, engine=view.engine) if row["objective"]]
    if all(row["objective"] == row["metric"] for row in learned):
        return None
    methods = dict.fromkeys(row["method"] for row in learned)
    tables = [_objectives_table(view, own, where(learned, method=own)) for own in methods]
    means = mean_by(learned, ("method", "metric", "objective"), "lift")
    ranks = []
    for (method, metric, objective), mean in means.items():
        others = [own for key, own in means.items() if key[:2] == (method, metric)]
        if objective == metric and len(others) > 1:
            ranks.append(sum(own > mean for own in others))
    return Section("objectives", TEXT.paragraphs("objectives", view, ranks), tables)


def _objectives_table(view: Overview, method: str, rows: Sequence[Row]) -> Table:
    means = mean_by(rows, ("objective", "metric"), "lift")
    largest = max(map(abs, means.values()), default=0.0)
    body = [
        [metric_name(objective),
         *(Cell(percent(lift), kind=choose_tint(lift, largest))
           for lift in (means.get((objective, metric)) for metric in view.metrics))]
        for objective in view.metrics
    ]  # fmt: skip
    columns = ["learned for", *map(view.name_metric, view.metrics)]
    groups = [("", 1), ("judged by", len(view.metrics))]
    caption = f"{view.names[method].long}: lift{view.mean_note}"
    return Table(caption, columns, body, groups=groups, kind="small")


def choose_tint(lift: float | None, largest: float) -> str:
    """Return the class of a cell by its share of the table's largest lift."""
    if lift is None or abs(lift) < _FAINTEST:
        return "heat"
    level = min(3, 1 + int(3 * abs(lift) / largest))
    return f"heat {'up' if lift > 0 else 'down'}-{level}"


# Best sellers and training windows -------------------------------------------------------------


def sellers_section(view: Overview) -> Section | None:
    """Return the ranks of the best sellers by month."""
    table = view.results.table("sellers").to_pylist()
    rows = [row for row in table if words.is_number(row["rank"])]
    if not rows:
        return None
    buyers: Counter[str] = Counter()
    for row in rows:
        buyers[row["item_id"]] += row["buyers"] or 0
    names = {row["item_id"]: str(row["name"] or row["item_id"]) for row in rows}
    ranks = {item: {row["month"]: row["rank"] for row in where(rows, item_id=item)}
             for item in sorted(buyers, key=lambda item: (-buyers[item], item))}  # fmt: skip
    marks = charts.line_marks(
        {item: (words.shorten(names[item], 60), _COLOURS[n % len(_COLOURS)])
         for n, item in enumerate(ranks)}
    )  # fmt: skip
    months = sorted({row["month"] for row in rows})
    points = [
        charts.line_point(month(when), ranks[item][when], mark,
                          f"{names[item]}, {month(when)}: rank {count(ranks[item][when])}")
        for when in months for item, mark in marks.items() if when in ranks[item]
    ]  # fmt: skip
    y = charts.rank_axis(points)
    spec = charts.line_chart(points, charts.name_axis(None), y, 400)
    chart = Chart("", "Rank of each best seller by month, one line per item.", spec)
    panels = Panels("Rank among all items, by buyers in the month", [chart], list(marks.values()))
    body = [[name_cell(names[item]), *(count(own.get(when)) for when in months)]
            for item, own in ranks.items()]  # fmt: skip
    table = Table("Rank of each item by month", ["item", *map(month, months)], body, folded=True)
    steady = sum(max(own.values()) <= len(ranks) for own in ranks.values())
    widest = max(ranks, key=lambda item: (_width(ranks[item]), item))
    ends = [pick((rank, when) for when, rank in ranks[widest].items()) for pick in (min, max)]
    text = TEXT.paragraphs("sellers", steady, len(ranks), names[widest], ends)
    return Section("sellers", text, [panels, table])


def _width(ranks: dict[str, int]) -> float:
    return max(ranks.values()) / max(1, min(ranks.values()))


def windows_section(view: Overview) -> Section | None:
    """Return engines trained on the last days only, relative to the shortest window."""
    table = view.results.table("windows").to_pylist()
    rows = [row for row in table if words.is_number(row["relative"])]
    if not rows:
        return None
    lengths = sorted({row["days"] for row in rows}, key=lambda days: days or float("inf"))
    metrics = [name for name in METRICS if where(rows, metric=name)]
    colours = words.engine_colours(list(dict.fromkeys(row["engine"] for row in rows)))
    marks = charts.line_marks({engine: (engine, colour) for engine, colour in colours.items()})
    keys = ("engine", "metric", "days")
    relative, values = (mean_by(rows, keys, column) for column in ("relative", "value"))
    made = []
    for metric in metrics:
        points = [
            charts.line_point(str(days) if days else "all", relative[engine, metric, days], mark,
                              f"{engine}, {training_days(days)}: "
                              f"{decimal(relative[engine, metric, days], 3)} times the shortest")
            for days in lengths for engine, mark in marks.items()
            if (engine, metric, days) in relative
        ]  # fmt: skip
        y = charts.number_axis("times the shortest", "~r", zero=False)
        spec = charts.line_chart(points, charts.name_axis("days of training"), y)
        name = view.name_metric(metric)
        about = f"{name} by days of training, relative to the shortest window."
        made.append(Chart(name, about, spec))
    title = f"Quality relative to {training_days(lengths[0])} of training{view.mean_note}"
    body = [
        [engine, view.name_metric(metric),
         *(Cell(decimal(relative.get((engine, metric, n)), 3),
                decimal(values.get((engine, metric, n)))) for n in lengths)]
        for engine in marks for metric in metrics
    ]  # fmt: skip
    caption = f"Relative to the shortest window, and the value itself{view.mean_note}"
    columns = ["engine", "metric", *map(training_days, lengths)]
    shown = view.metric if view.metric in metrics else rows[0]["metric"]
    best = []
    for engine in marks:
        own = {n: relative[engine, shown, n] for n in lengths if (engine, shown, n) in relative}
        best += [(engine, n, own[n]) for n in own if n == max(own, key=own.__getitem__)]
    panels = Panels(title, made, list(marks.values()))
    text = TEXT.paragraphs("windows", shown, best)
    return Section("windows", text, [panels, Table(caption, columns, body, n_headings=2)])
