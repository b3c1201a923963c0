"""The charts of an A/B test: lifts as dots, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.abtest.readings import Reading
from trimtab.report import blocks, charts
from trimtab.report.blocks import Block, Chart, Mark
from trimtab.report.words import interval, is_number, percent

_COLOURS = {"one look": "blue", "every look": "violet"}
_CUT = Mark("line cut off at the edge: see the table", kind="line")


def make_dots(
    label: str, reading: Reading, sequence: tuple[float, float] | None
) -> list[charts.ChartRow]:
    """Return a dot with its interval, and one below it with the interval for every look."""
    if not is_number(reading.relative):
        return []
    spans = {"one look": (reading.relative_low, reading.relative_high)}
    if sequence is not None:
        spans["every look"] = sequence
    return [
        {
            "label": label, "offset": name, "x": reading.relative,
            "low": low if is_number(low) else None, "high": high if is_number(high) else None,
            "colour": charts.css_colour(_COLOURS[name]),
            "filled": is_number(low) and not low <= 0 <= high,
            "tip": f"{label}: {percent(reading.relative)}, for {name} "
                   f"{interval(low, high) or 'unbounded'}",
        }
        for name, (low, high) in spans.items()
    ]  # fmt: skip


def make_panels(title: str, dots: Mapping[str, Sequence[charts.ChartRow]]) -> list[Block]:
    """Return one chart per name as one block; none without a dot."""
    drawn = {name: rows for name, rows in dots.items() if rows}
    made = []
    cut = False
    for name, rows in drawn.items():
        low, high = domain = _find_domain(rows)
        ends = [(row["low"], row["high"]) for row in rows]
        cut |= any(a is None or b is None or a < low or b > high for a, b in ends)
        spec = charts.dot_chart(rows, domain)
        about = f"{title}, {name.lower() or 'all metrics'}; the table has the numbers."
        made.append(Chart(name, about, spec))
    legend = list(blocks.INTERVAL_MARKS)
    if any(row["offset"] == "every look" for rows in drawn.values() for row in rows):
        legend += [Mark(f"for {name}", colour) for name, colour in _COLOURS.items()]
    return [*blocks.drawn_panels(title, made, [*legend, _CUT] if cut else legend)]


def _find_domain(rows: Sequence[charts.ChartRow]) -> charts.Domain:
    """Return the range of an axis, at least -100 % and not so wide that dots crowd at its start."""
    low, high = charts.find_main_domain(rows)
    farthest = max((abs(float(row["x"])) for row in rows), default=0.0)
    return max(low, -1.0), min(high, max(1.0, 2.5 * farthest))
