"""The section about training windows: how good an engine is that saw only the last days."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.report import charts, words
from trimtab.report.backtest.overview import Overview, Row, mean_by
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table
from trimtab.report.words import decimal, training_days

_Means = dict[tuple[str, str, int], float]


def windows_section(view: Overview) -> Section | None:
    """Return engines trained on the last days only, relative to the shortest window."""
    table = view.results.table("windows").to_pylist()
    rows = [row for row in table if words.is_number(row["relative"])]
    if not rows:
        return None
    lengths = sorted({row["days"] for row in rows}, key=sort_key)
    metrics = [name for name in words.METRICS if any(row["metric"] == name for row in rows)]
    marks = {
        engine: Mark(engine, colour, charts.SYMBOLS[place % len(charts.SYMBOLS)])
        for place, (engine, colour) in enumerate(
            words.engine_colours(list(dict.fromkeys(row["engine"] for row in rows))).items()
        )
    }
    relative = mean_by(rows, ("engine", "metric", "days"), "relative")
    made = [_make_chart(view, relative, metric, marks, lengths) for metric in metrics]
    title = f"Quality relative to {training_days(lengths[0])} of training{view.mean_note}"
    values = mean_by(rows, ("engine", "metric", "days"), "value")
    body = [
        [Cell(engine), Cell(view.name_metric(metric)),
         *(Cell(decimal(relative.get((engine, metric, n)), 3),
                decimal(values.get((engine, metric, n)))) for n in lengths)]
        for engine in marks for metric in metrics
    ]  # fmt: skip
    caption = f"Relative to the shortest window, and the value itself{view.mean_note}"
    columns = ["engine", "metric", *(training_days(days) for days in lengths)]
    panels = Panels(title, made, list(marks.values()))
    blocks: list[Block] = [panels, Table(caption, columns, body, n_headings=2)]
    sentence = describe_windows(rows, view.metric)
    return Section("windows", "How much history an engine needs", [sentence], blocks)


def sort_key(days: int) -> float:
    """Return a key that sorts windows from short to long; 0 means all days."""
    return days or float("inf")


def describe_windows(rows: Sequence[Row], metric: str) -> str:
    """Return which training window is best for each engine."""
    shown = metric if any(row["metric"] == metric for row in rows) else rows[0]["metric"]
    means = mean_by([row for row in rows if row["metric"] == shown], ("engine", "days"), "relative")
    parts = []
    for engine in dict.fromkeys(engine for engine, _ in means):
        own = {days: mean for (name, days), mean in means.items() if name == engine}
        best = max(sorted(own, key=sort_key), key=lambda days: own[days])
        parts.append(f"{training_days(best)} for {engine} ({decimal(own[best], 2)} times)")
    return f"Best window by {words.metric_name(shown)}: {words.join_words(parts)}."


def _make_chart(
    view: Overview, means: _Means, metric: str, marks: dict[str, Mark], lengths: Sequence[int]
) -> Chart:
    points = [
        charts.line_point(
            str(days) if days else "all", value, engine, mark.colour,
            f"{engine}, {training_days(days)}: {decimal(value, 3)} times the shortest", mark.kind,
        )
        for days in lengths for engine, mark in marks.items()
        if (value := means.get((engine, metric, days))) is not None
    ]  # fmt: skip
    y = charts.number_axis("times the shortest", "~r", zero=False)
    spec = charts.line_chart(points, charts.name_axis("days of training"), y)
    name = view.name_metric(metric)
    return Chart(name, f"{name} by days of training, relative to the shortest window.", spec)
