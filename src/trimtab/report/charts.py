"""Charts: the rows they are drawn from, and what stands around them.

What a chart looks like is in templates/charts.jinja. Rows carry the colour of their mark as a CSS
variable, which lets one drawing serve light, dark and print, and `tip`, the text shown on hover.
page.js sets widths, fonts and text colours.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.words import environment

Spec = dict[str, Any]
ChartRow = Mapping[str, Any]
Domain = tuple[float, float]
_LIFT_TICKS = (-0.9, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
_OUTSIDE = {"right": "triangle-right", "left": "triangle-left"}


@dataclass(frozen=True)
class Mark:
    """A legend entry; `kind` is the symbol."""

    label: str
    colour: str = ""
    kind: str = "circle"


@dataclass(frozen=True)
class Chart:
    """A chart, its title, and a description for readers who cannot see it."""

    title: str
    description: str
    spec: Spec


@dataclass(frozen=True)
class Panels:
    """Charts side by side that belong together."""

    title: str
    charts: Sequence[Chart]
    legend: Sequence[Mark] = ()


INTERVAL_MARKS = (
    Mark("interval excludes 0", kind="full"),
    Mark("interval includes 0", kind="hollow"),
)


def _draw(kind: str, rows: Iterable[ChartRow], **settings: Any) -> Spec:
    """Return a chart of the template with its rows, in which NaN and infinity become null."""

    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    template = environment().get_template("charts.jinja").module
    spec: Spec = json.loads(str(getattr(template, kind)(**settings)))
    values = [{key: clean(value) for key, value in row.items()} for row in rows]
    return {"data": {"values": values}, **spec}


# Dots with intervals ----------------------------------------------------------------------------


def dot(label: str, x: float, colour: str, tip: str, **more: Any) -> Spec:
    """Return a row of `dot_chart`: `low`, `high`, `filled` and `offset` are in `more`.

    An end of the interval that is unknown is None. A dot is filled unless its interval includes 0.
    """
    low, high = more.get("low"), more.get("high")
    filled = low is not None and high is not None and not low <= 0 <= high
    base = {"label": label, "offset": "", "x": x, "low": None, "high": None, "filled": filled}
    return {**base, **more, "colour": f"var(--{colour})", "tip": tip}


def find_main_domain(
    rows: Sequence[ChartRow], ends: Sequence[str] = ("x", "low", "high"),
    names: Sequence[str] = ("label", "offset"),
) -> Domain:  # fmt: skip
    """Return the range of several fields and 0, without marks that would squeeze the others.

    A mark, all rows of some names, is left out if it is beyond 50 % and over four times as far out
    as the next one; so is every mark farther out. Most marks always stay inside. There is a little
    room at both ends.
    """
    marks: dict[Any, list[float]] = {}
    for row in rows:
        known = [float(row[end]) for end in ends if row[end] is not None]
        marks.setdefault(tuple(row[name] for name in names), []).extend(known)
    order = sorted(marks.values(), key=_reach)
    for place in range(len(order) // 2 + 1, len(order)):
        if _reach(order[place]) > max(0.5, 4 * _reach(order[place - 1])):
            order = order[:place]
            break
    low, high = (end([0.0, *(value for own in order for value in own)]) for end in (min, max))
    room = 0.06 * (high - low) or 0.01
    return low - room * (low < 0), high + room


def _reach(values: Iterable[float]) -> float:
    return max(map(abs, values))


def marks_outside(rows: Iterable[ChartRow], domain: Domain) -> list[Mark]:
    """Return the legend of dots beyond the scale, one entry for each shape."""
    sides = {_side(row, domain) for row in rows}
    shapes = [shape for side, shape in _OUTSIDE.items() if side in sides]
    return [Mark("beyond the scale, with its value", kind=shape) for shape in shapes]


def _side(row: ChartRow, domain: Domain) -> str:
    """Return the side of the domain that a dot is beyond; empty if it is inside."""
    return "right" if row["x"] > domain[1] else "left" if row["x"] < domain[0] else ""


def dot_chart(rows: Sequence[ChartRow], domain: Domain) -> Spec:
    """Return dots with intervals, one line per label and `offset`.

    A dot beyond the domain becomes a triangle at its edge, with its value beside it.
    """
    drawn = []
    for row in rows:
        low, high = (row["x"] if row[end] is None else row[end] for end in ("low", "high"))
        side = _side(row, domain)
        drawn.append({
            **row, "low": low, "high": high, "beyond": side,
            "fill": row["colour"] if row["filled"] else "var(--ground)",
            "shape": _OUTSIDE.get(side, "circle"),
        })  # fmt: skip
    n_labels, n_offsets = (len({row[name] for row in rows}) for name in ("label", "offset"))
    # An interval that reaches back into the scale would cross the value beside its dot.
    is_crossed = any(r["beyond"] and r["low"] < domain[1] and r["high"] > domain[0] for r in drawn)
    return _draw(
        "dots", drawn, height=26 * n_labels * max(1.0, 0.75 * n_offsets), domain=domain,
        has_offsets=n_offsets > 1, above=-8 if is_crossed else 0,
        sides=[side for side in _OUTSIDE if any(row["beyond"] == side for row in drawn)],
    )  # fmt: skip


# Lines ------------------------------------------------------------------------------------------


def line_point(day: str, y: float, mark: Mark, tip: str, width: float, size: float) -> Spec:
    """Return a row of `line_chart`: a point of the line named by the mark, and their sizes."""
    look = {"colour": f"var(--{mark.colour})", "shape": mark.kind, "width": width, "size": size}
    return {"x": day, "y": y, "series": mark.label, "tip": tip, **look}


def line_chart(
    rows: Sequence[ChartRow], dates: Iterable[str], style: str = "%-d %b %y",
    level: ChartRow | None = None, compression: float = 0.0,
) -> Spec:  # fmt: skip
    """Return one line per mark over dates, labelled at about six equal steps.

    Args:
        rows: rows of `line_point`.
        dates: all dates, those without a point too.
        style: d3 format of dates.
        level: row that gets a dashed line across, at its `y`.
        compression: as from `find_compression`: the scale is compressed away from 0, so that one
            line far beyond most others does not squeeze these together.
    """
    days = sorted(set(dates))
    labelled = days[:: math.ceil(len(days) / 6)]
    scale: Spec = {}
    ticks: list[float] = []
    if compression:
        low, high = find_main_domain(rows, ("y",), ())
        scale = {"type": "symlog", "constant": compression, "domain": [low, high], "nice": False}
        ticks = [tick for tick in _LIFT_TICKS if low <= tick <= high]
    return _draw("lines", rows, dates=labelled, style=style, scale=scale, ticks=ticks, level=level)


def find_compression(rows: Iterable[ChartRow]) -> float:
    """Return the width of the middle of a scale that is compressed farther out.

    It is 0 unless one line is far beyond most others.
    """
    reaches: dict[str, float] = {}
    for row in rows:
        reaches[row["series"]] = max(reaches.get(row["series"], 0.0), abs(row["y"]))
    usual, farthest = statistics.median_low(reaches.values()), max(reaches.values())
    return max(0.02, usual / 2) if farthest >= max(0.5, 4 * usual) else 0.0


# Sales ------------------------------------------------------------------------------------------


def sales_chart(rows: Sequence[ChartRow]) -> Spec:
    """Return a line per label from `before` to `after`, with a tick at `recent`."""
    return _draw("sales", rows, height=22 * len(rows))
