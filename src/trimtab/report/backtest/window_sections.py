"""The section about training windows: what an engine is worth that saw only the last days."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report.backtest import item_sentences
from trimtab.report.backtest.figures import Overview, Row, mean_by
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table
from trimtab.report.charts import SYMBOLS, ChartRow, ink, line_chart, places, quantity
from trimtab.report.words import (  # fmt: skip
    METRICS,
    decimal,
    engine_colours,
    is_number,
    metric_name,
    window,
)


def windows_section(view: Overview) -> Section | None:
    """Engines trained on the last days only, relative to the shortest window."""
    rows = [row for row in view.results.table("windows").to_pylist() if is_number(row["relative"])]
    if not rows:
        return None
    lengths = sorted({row["days"] for row in rows}, key=length_key)
    metrics = [name for name in METRICS if any(row["metric"] == name for row in rows)]
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    charts = [_chart(view, rows, metric, engines, lengths) for metric in metrics]
    colours = engine_colours(engines)
    marks = [Mark(name, colours[name], _symbol(engines, name)) for name in engines]
    title = f"Quality relative to {window(lengths[0])} of training{_note(view)}"
    blocks: list[Block] = [
        Panels(title, charts, marks),
        _table(view, rows, metrics, engines, lengths),
    ]
    sentence = item_sentences.windows(rows, lengths, view.metric)
    return Section("windows", "How much history an engine needs", sentence, blocks)


def length_key(days: int) -> float:
    """Windows from short to long: 0 stands for everything."""
    return days or float("inf")


def _note(view: Overview) -> str:
    return "" if len(view.dates) == 1 else ", mean over dates"


def _symbol(engines: Sequence[str], engine: str) -> str:
    return SYMBOLS[engines.index(engine) % len(SYMBOLS)]


def _chart(
    view: Overview,
    rows: Sequence[Row],
    metric: str,
    engines: Sequence[str],
    lengths: Sequence[int],
) -> Chart:
    own = [row for row in rows if row["metric"] == metric]
    means = mean_by(own, ("engine", "days"), "relative")
    points = [
        _point(engine, days, means[engine, days], engines)
        for days in lengths for engine in engines if (engine, days) in means
    ]  # fmt: skip
    y = quantity("times the shortest", "~r", zero=False)
    spec = line_chart(points, places("days of training"), y)
    name = metric_name(metric, view.cutoff)
    return Chart(name, f"{name} by days of training, relative to the shortest window.", spec)


def _tick(days: int) -> str:
    return str(days) if days else "all"


def _point(engine: str, days: int, relative: float, engines: Sequence[str]) -> ChartRow:
    colour = ink(engine_colours(engines)[engine])
    tip = f"{engine}, {window(days)}: {decimal(relative, 3)} times the shortest window"
    return {
        "x": _tick(days), "y": relative, "series": engine, "colour": colour,
        "symbol": _symbol(engines, engine), "tip": tip,
    }  # fmt: skip


def _table(
    view: Overview,
    rows: Sequence[Row],
    metrics: Sequence[str],
    engines: Sequence[str],
    lengths: Sequence[int],
) -> Table:
    values = mean_by(rows, ("engine", "metric", "days"), "value")
    relative = mean_by(rows, ("engine", "metric", "days"), "relative")
    body = []
    for engine in engines:
        for metric in metrics:
            keys = [(engine, metric, days) for days in lengths]
            cells = [Cell(engine), Cell(metric_name(metric, view.cutoff))]
            cells += [Cell(decimal(relative.get(k), 3), decimal(values.get(k))) for k in keys]
            body.append(cells)
    caption = f"Relative to the shortest window, and the value itself{_note(view)}"
    columns = ["engine", "metric", *(window(days) for days in lengths)]
    return Table(caption, columns, body, n_headings=2)
