"""The section that compares what is recommended with what is bought."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.replay.results import BASELINE
from trimtab.report import charts
from trimtab.report.backtest.judged_methods import rank_records
from trimtab.report.backtest.overview import SELLERS, Overview, Row, choose_objective, mean_by
from trimtab.report.blocks import Block, Cell, Chart, Panels, Section, Table, method_cell
from trimtab.report.words import capitalize, count, decimal, join_words


def coverage_section(view: Overview) -> Section | None:
    """Return how many best sellers are recommended, and the KL divergence from purchases."""
    coverage, divergence = (_find_rows(view, name) for name in ("coverage", "divergence"))
    blocks: list[Block] = []
    if coverage:
        blocks += [_coverage_panels(view, coverage), *_coverage_tables(view, coverage)]
    if divergence:
        blocks += [_divergence_panels(view, divergence), _divergence_table(view, divergence)]
    if not blocks:
        return None
    sentence = describe_coverage(view, coverage)
    return Section("coverage", "Recommended and bought items", [sentence], blocks)


def _find_rows(view: Overview, name: str) -> list[Row]:
    """Return rows of known methods, learned ones for the objective that is shown.

    Best sellers are shown with the number of days that they are ranked with.
    """
    table = view.results.table(name)
    if not table.num_rows:
        return []
    objective = choose_objective(table, view.metric)
    rows = [row for row in table.to_pylist() if (row["objective"] or "") in ("", objective)]
    ranked = {record.method for record in rank_records(view, view.engines[0])}
    known = [name for name in view.names if name in ranked or name not in SELLERS]
    rows = [row for row in rows if row["method"] in known and row["date"] in view.dates]
    return rows if _select(rows, view.engines[0]) else []


def _select(rows: Sequence[Row], engine: str, dates: Sequence[str] | None = None) -> list[Row]:
    own = [row for row in rows if row["engine"] == engine]
    return own if dates is None else [row for row in own if row["date"] in dates]


def describe_coverage(view: Overview, rows: Sequence[Row]) -> str:
    """Return the best sellers that the headlined methods and the engine alone recommend."""
    means = mean_by(_select(rows, view.engines[0]), ("method", "size"), "covered")
    sizes = [size for method, size in sorted(means) if method == BASELINE]
    both = [size for size in sizes if (view.featured, size) in means]
    if not both:
        return "How close recommended items are to bought items."
    size = both[min(len(both) - 1, 3)]
    shown = [method for method in (*view.headlined, BASELINE) if (method, size) in means]
    texts = [
        f"{decimal(means[method, size], 0)} by {view.names[method].in_text}" for method in shown
    ]
    covered = f"Covered of the {count(size)} best sellers of the test"
    return f"{covered}: {join_words(texts)} ({view.engines[0]})."


def _coverage_panels(view: Overview, rows: Sequence[Row]) -> Panels:
    present = {row["method"] for row in _select(rows, view.engines[0])}
    series = {key: (name.long, name.colour) for key, name in view.names.items() if key in present}
    marks = charts.line_marks(series)
    made = []
    for group in view.date_groups:
        own = _select(rows, view.engines[0], group.dates)
        means = mean_by(own, ("method", "size"), "covered")
        points = [
            charts.line_point(count(size), covered / size, marks[method],
                              f"{marks[method].label}: {decimal(covered, 0)} of {count(size)}")
            for (method, size), covered in sorted(means.items(), key=lambda entry: entry[0][1])
        ]  # fmt: skip
        if points:
            y = charts.number_axis("share covered", "~%", zero=True)
            spec = charts.line_chart(points, charts.name_axis("best sellers"), y)
            about = "Share of the best sellers among the most recommended items."
            made.append(Chart(capitalize(group.title), about, spec))
    return Panels(f"Coverage of best sellers ({view.engines[0]})", made, list(marks.values()))


def _coverage_tables(view: Overview, rows: Sequence[Row]) -> list[Table]:
    """Return one table per engine and date; those of other engines than the first are folded."""
    sizes = sorted({row["size"] for row in rows})
    columns = ["method", *(f"of {count(size)}" for size in sizes)]
    tables = []
    for place, engine in enumerate(view.engines):
        for group in view.date_groups:
            own = _select(rows, engine, group.dates)
            means = mean_by(own, ("method", "size"), "covered")
            digits = int(len(group.dates) > 1)
            body = [
                [method_cell(name), *(Cell(decimal(means.get((key, n)), digits)) for n in sizes)]
                for key, name in view.names.items() if any(row["method"] == key for row in own)
            ]  # fmt: skip
            caption = f"Best sellers covered, {engine}, {group.title}"
            tables.append(Table(caption, columns, body, folded=place > 0))
    return [table for table in tables if table.rows]


def _divergence_panels(view: Overview, rows: Sequence[Row]) -> Panels:
    points = {}
    for group in view.date_groups:
        means = mean_by(_select(rows, view.engines[0], group.dates), ("method",), "kl")
        points[group.title] = [
            {
                "label": name.short, "x": means[method,], "low": 0, "high": means[method,],
                "colour": charts.css_colour(name.colour), "filled": True,
                "tip": f"{name.long}: {decimal(means[method,], 3)} nats",
            }
            for method, name in view.names.items() if (method,) in means
        ]  # fmt: skip
    domain = charts.find_domain([row for dots in points.values() for row in dots], ("x",))
    about = "KL divergence of what is recommended from what is bought, by method."
    made = [
        Chart(capitalize(title), about, charts.dot_chart(dots, domain, style="~r"))
        for title, dots in points.items() if dots
    ]  # fmt: skip
    return Panels(f"KL divergence in nats, lower is closer ({view.engines[0]})", made)


def _divergence_table(view: Overview, rows: Sequence[Row]) -> Table:
    engines = [engine for engine in view.engines if _select(rows, engine)]
    columns = [
        mean_by(_select(rows, engine, group.dates), ("method",), "kl")
        for group in view.date_groups for engine in engines
    ]  # fmt: skip
    body = [
        [method_cell(name), *(Cell(decimal(own.get((method,)), 3)) for own in columns)]
        for method, name in view.names.items() if any(row["method"] == method for row in rows)
    ]  # fmt: skip
    groups = [("", 1), *((group.title, len(engines)) for group in view.date_groups)]
    titles = ["method", *engines * len(view.date_groups)]
    return Table("KL(bought ‖ recommended) in nats; 0 if equal", titles, body, groups=groups)
