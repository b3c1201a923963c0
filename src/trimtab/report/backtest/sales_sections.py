"""Sections about what sells: coverage of best sellers, their ranks, and training windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trimtab.report.backtest import item_sentences, sentences
from trimtab.report.backtest.figures import Overview, Row, mean_by, objective_of
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.charts import (  # fmt: skip
    SYMBOLS,
    ChartRow,
    bump_chart,
    domain_of,
    dot_chart,
    ink,
    line_chart,
    places,
    quantity,
)
from trimtab.report.words import (  # fmt: skip
    capital,
    count,
    day,
    decimal,
    is_number,
    listed,
    month,
    shortened,
)

_LINES = ("blue", "orange", "green", "pink", "ochre", "violet", "teal", "wine", "olive", "indigo")


def coverage_section(view: Overview) -> Section | None:
    """How many best sellers are among the most recommended, and how far the two are apart."""
    coverage, divergence = (_shown(view, name) for name in ("coverage", "divergence"))
    blocks: list[Block] = []
    if coverage:
        blocks += [_coverage_panels(view, coverage), *_coverage_tables(view, coverage)]
    if divergence:
        blocks += [_divergence_panels(view, divergence), _divergence_table(view, divergence)]
    if not blocks:
        return None
    sentence = sentences.coverage(view, coverage, divergence)
    return Section("coverage", "What is shown against what is bought", sentence, blocks)


def _shown(view: Overview, name: str) -> list[Row]:
    """Rows of methods that do not learn, and of learned ones for the one objective shown."""
    table = view.results.table(name)
    if not table.num_rows:
        return []
    objective = objective_of(table, view.metric)
    rows = [row for row in table.to_pylist() if (row["objective"] or "") in ("", objective)]
    rows = [row for row in rows if row["method"] in view.names and row["date"] in view.dates]
    return rows if any(row["engine"] == view.engines[0] for row in rows) else []


def _dates(view: Overview) -> list[list[str]]:
    """Each date by itself if there are few, all of them together otherwise."""
    return [[date] for date in view.dates] if view.few else [view.dates]


def _when(view: Overview, dates: Sequence[str]) -> str:
    return day(dates[0]) if len(dates) == 1 else f"mean of {len(view.dates)} dates"


def _coverage_panels(view: Overview, rows: Sequence[Row]) -> Panels:
    own = [row for row in rows if row["engine"] == view.engines[0]]
    charts = []
    for dates in _dates(view):
        dated = [row for row in own if row["date"] in dates]
        if not dated:
            continue
        y = quantity("share covered", "~%", zero=True)
        spec = line_chart(_coverage_points(view, dated), places("best sellers"), y)
        about = "Share of the best sellers among the most recommended, by how many are counted."
        charts.append(Chart(capital(_when(view, dates)), about, spec))
    methods = [method for method in view.methods if any(row["method"] == method for row in own)]
    marks = [_method_mark(view, method) for method in methods]
    return Panels(f"Coverage of best sellers ({view.engines[0]})", charts, marks)


def _method_mark(view: Overview, method: str) -> Mark:
    name = view.names[method]
    return Mark(name.long, name.colour, _symbol(view, method))


def _symbol(view: Overview, method: str) -> str:
    return SYMBOLS[view.methods.index(method) % len(SYMBOLS)]


def _coverage_points(view: Overview, rows: Sequence[Row]) -> list[ChartRow]:
    means = mean_by(rows, ("method", "size"), "covered")
    return [
        {
            "x": count(size), "y": covered / size, "series": method,
            "colour": ink(view.names[method].colour), "symbol": _symbol(view, method),
            "tip": f"{view.names[method].long}: {decimal(covered, 0)} of {count(size)}",
        }
        for (method, size), covered in sorted(means.items(), key=lambda entry: entry[0][1])
    ]  # fmt: skip


def _coverage_tables(view: Overview, rows: Sequence[Row]) -> list[Table]:
    """The first engine's in sight, a table a date; those of the others folded."""
    first, *others = view.engines
    about = "how many of the best sellers of the test are among as many most recommended"
    tables = []
    for dates in _dates(view):
        caption = f"{capital(_when(view, dates))}, {first}: {about}"
        tables.append(_coverage_table(view, rows, [dates], [first], caption))
    if any(row["engine"] in others for row in rows):
        named = f"coverage for {listed(others)}"
        table = _coverage_table(view, rows, _dates(view), others, named)
        tables.append(replace(table, folded=True))
    return tables


def _coverage_table(
    view: Overview,
    rows: Sequence[Row],
    groups: Sequence[Sequence[str]],
    engines: Sequence[str],
    caption: str,
) -> Table:
    """Rows are named by what varies: a date and an engine only where there are several."""
    sizes = sorted({row["size"] for row in rows})
    columns = ["date"] * (len(groups) > 1) + ["engine"] * (len(engines) > 1) + ["method"]
    body = []
    for dates in groups:
        dated = [row for row in rows if row["date"] in dates]
        means = mean_by(dated, ("engine", "method", "size"), "covered")
        for engine, method in _present(view, dated, engines):
            name = view.names[method]
            headings = {"date": Cell(_when(view, dates)), "engine": Cell(engine)}
            headings["method"] = name_cell(name.long, name.colour)
            values = [means.get((engine, method, size)) for size in sizes]
            cells = [Cell(decimal(value, int(len(dates) > 1))) for value in values]
            body.append([*(headings[column] for column in columns), *cells])
    titles = [*columns, *(f"of {count(size)}" for size in sizes)]
    return Table(caption, titles, body, n_headings=len(columns))


def _present(view: Overview, rows: Sequence[Row], engines: Sequence[str]) -> list[tuple[str, str]]:
    found = {(row["engine"], row["method"]) for row in rows}
    pairs = [(engine, method) for engine in engines for method in view.methods]
    return [pair for pair in pairs if pair in found]


def _divergence_panels(view: Overview, rows: Sequence[Row]) -> Panels:
    own = [row for row in rows if row["engine"] == view.engines[0]]
    points = {tuple(dates): _divergence_points(view, own, dates) for dates in _dates(view)}
    domain = domain_of([row for dots in points.values() for row in dots], ("x",))
    about = "Divergence of what is recommended from what is bought, by method."
    charts = [
        Chart(capital(_when(view, dates)), about, dot_chart(dots, domain, style="~r"))
        for dates, dots in points.items() if dots
    ]  # fmt: skip
    return Panels(f"KL divergence in nats, less is closer ({view.engines[0]})", charts)


def _divergence_points(view: Overview, rows: Sequence[Row], dates: Sequence[str]) -> list[ChartRow]:
    means = mean_by([row for row in rows if row["date"] in dates], ("method",), "kl")
    methods = [method for method in view.methods if (method,) in means]
    return [_divergence_point(view, method, means[(method,)]) for method in methods]


def _divergence_point(view: Overview, method: str, kl: float) -> ChartRow:
    name = view.names[method]
    tip = f"{name.long}: {decimal(kl, 3)} nats"
    colour = ink(name.colour)
    return {"label": name.short, "x": kl, "low": 0, "high": kl, "colour": colour,
            "filled": True, "tip": tip}  # fmt: skip


def _divergence_table(view: Overview, rows: Sequence[Row]) -> Table:
    engines = [engine for engine in view.engines if any(row["engine"] == engine for row in rows)]
    methods = [method for method in view.methods if any(row["method"] == method for row in rows)]
    columns = [
        mean_by([row for row in rows if row["date"] in dates and row["engine"] == engine],
                ("method",), "kl")
        for dates in _dates(view) for engine in engines
    ]  # fmt: skip
    body = [
        [name_cell(view.names[method].long, view.names[method].colour),
         *(Cell(decimal(means.get((method,)), 3)) for means in columns)]
        for method in methods
    ]  # fmt: skip
    caption = "KL(bought ‖ recommended) in nats; 0 where both are alike"
    groups = [("", 1), *((_when(view, dates), len(engines)) for dates in _dates(view))]
    titles = ["method", *engines * len(_dates(view))]
    return Table(caption, titles, body, groups=groups)


def sellers_section(view: Overview) -> Section | None:
    """The ranks of the best sellers, month by month."""
    rows = [row for row in view.results.table("sellers").to_pylist() if is_number(row["rank"])]
    if not rows:
        return None
    months = sorted({row["month"] for row in rows})
    items = _best_first(rows)
    numbers = {item: str(place) for place, item in enumerate(items, 1)}
    names = {row["item_id"]: row["name"] or row["item_id"] for row in rows}
    points = [_rank_point(row, numbers, rows) for row in rows]
    points.sort(key=lambda point: (point["key"], int(point["number"])))
    spec = bump_chart(points)
    chart = Chart("", "Rank of each best seller by month, a line an item.", spec)
    marks = [
        Mark(f"{numbers[item]}  {shortened(names[item], 60)}", _line_colour(numbers[item]))
        for item in items
    ]
    blocks: list[Block] = [
        Panels("Rank among all items, by buyers in the month", [chart], marks),
        _ranks_table(rows, months, items, names),
    ]
    sentence = item_sentences.sellers(rows, names)
    return Section("sellers", "How best sellers come and go", sentence, blocks)


def _best_first(rows: Sequence[Row]) -> list[str]:
    """Items by how many bought them, all months together."""
    buyers: dict[str, int] = {}
    for row in rows:
        buyers[row["item_id"]] = buyers.get(row["item_id"], 0) + (row["buyers"] or 0)
    return sorted(buyers, key=lambda item: (-buyers[item], item))


def _line_colour(number: str) -> str:
    return _LINES[(int(number) - 1) % len(_LINES)]


def _rank_point(row: Row, numbers: dict[str, str], rows: Sequence[Row]) -> dict[str, Any]:
    own = [other["month"] for other in rows if other["item_id"] == row["item_id"]]
    number = numbers[row["item_id"]]
    tip = f"{row['name'] or row['item_id']}, {month(row['month'])}: rank {count(row['rank'])}"
    return {
        "x": month(row["month"]), "key": row["month"], "y": row["rank"], "series": number,
        "number": number, "end": row["month"] in (min(own), max(own)),
        "colour": ink(_line_colour(number)), "tip": tip,
    }  # fmt: skip


def _ranks_table(
    rows: Sequence[Row], months: Sequence[str], items: Sequence[str], names: dict[str, str]
) -> Table:
    ranks = {(row["item_id"], row["month"]): row["rank"] for row in rows}
    body = [
        [Cell(names[item], kind="name"), *(Cell(count(ranks.get((item, at)))) for at in months)]
        for item in items
    ]
    caption = "Rank of each item by month"
    return Table(caption, ["item", *(month(text) for text in months)], body, folded=True)
