"""The sections about history: best sellers by month, and how much history an engine needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from trimtab.checks import METRICS
from trimtab.report import charts, words
from trimtab.report.backtest.overview import Overview, Row, mean_by
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.words import count, decimal, month, training_days

_COLOURS = ("blue", "orange", "green", "pink", "ochre", "violet", "teal", "wine", "olive", "indigo")
_Means = dict[tuple[str, str, int], float]


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
    items = {item: names[item] for item in sorted(buyers, key=lambda item: (-buyers[item], item))}
    marks = [
        Mark(f"{n}  {words.shorten(name, 60)}", _COLOURS[(n - 1) % len(_COLOURS)])
        for n, name in enumerate(items.values(), 1)
    ]
    spec = charts.rank_chart(_rank_points(rows, items))
    chart = Chart("", "Rank of each best seller by month, one line per item.", spec)
    panels = Panels("Rank among all items, by buyers in the month", [chart], marks)
    blocks: list[Block] = [panels, _rank_table(rows, items)]
    sentence = describe_sellers(rows, items)
    return Section("sellers", "How best sellers come and go", [sentence], blocks)


def _rank_points(rows: Sequence[Row], items: Mapping[str, str]) -> list[charts.ChartRow]:
    points: list[charts.ChartRow] = []
    for place, (item, name) in enumerate(items.items()):
        own = {row["month"]: row["rank"] for row in rows if row["item_id"] == item}
        colour = charts.css_colour(_COLOURS[place % len(_COLOURS)])
        points += [
            {
                "x": month(when), "key": when, "y": rank, "series": item, "colour": colour,
                "number": str(place + 1), "end": when in (min(own), max(own)),
                "tip": f"{name}, {month(when)}: rank {count(rank)}",
            }
            for when, rank in own.items()
        ]  # fmt: skip
    return sorted(points, key=lambda point: str(point["key"]))


def describe_sellers(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """Return how many best sellers stayed on top, and which one moved most."""
    ranks: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        ranks.setdefault(row["item_id"], []).append((row["rank"], row["month"]))
    steady = sum(max(own)[0] <= len(ranks) for own in ranks.values())
    widest = max(ranks, key=lambda item: (max(ranks[item])[0] / max(1, min(ranks[item])[0]), item))
    (high, high_month), (low, low_month) = min(ranks[widest]), max(ranks[widest])
    return (
        f"{steady} of the {len(ranks)} best sellers of the whole log stayed in the top "
        f"{len(ranks)} every month; {names[widest]} moved most, between rank {count(high)} "
        f"({month(high_month)}) and rank {count(low)} ({month(low_month)})."
    )


def _rank_table(rows: Sequence[Row], items: Mapping[str, str]) -> Table:
    months = sorted({row["month"] for row in rows})
    ranks = {(row["item_id"], row["month"]): row["rank"] for row in rows}
    body = [
        [name_cell(name), *(Cell(count(ranks.get((item, when)))) for when in months)]
        for item, name in items.items()
    ]
    columns = ["item", *(month(when) for when in months)]
    return Table("Rank of each item by month", columns, body, folded=True)


def windows_section(view: Overview) -> Section | None:
    """Return engines trained on the last days only, relative to the shortest window."""
    table = view.results.table("windows").to_pylist()
    rows = [row for row in table if words.is_number(row["relative"])]
    if not rows:
        return None
    lengths = sorted({row["days"] for row in rows}, key=sort_key)
    metrics = [name for name in METRICS if any(row["metric"] == name for row in rows)]
    colours = words.engine_colours(list(dict.fromkeys(row["engine"] for row in rows)))
    marks = charts.line_marks({engine: (engine, colour) for engine, colour in colours.items()})
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
            str(days) if days else "all", value, mark,
            f"{engine}, {training_days(days)}: {decimal(value, 3)} times the shortest",
        )
        for days in lengths for engine, mark in marks.items()
        if (value := means.get((engine, metric, days))) is not None
    ]  # fmt: skip
    y = charts.number_axis("times the shortest", "~r", zero=False)
    spec = charts.line_chart(points, charts.name_axis("days of training"), y)
    name = view.name_metric(metric)
    return Chart(name, f"{name} by days of training, relative to the shortest window.", spec)
