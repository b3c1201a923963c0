"""Charts as Vega-Lite specifications, and what stands around them.

Rows carry the colour of their mark as a CSS variable, which lets one drawing serve light, dark and
print, and `tip`, the text shown on hover. page.js sets widths, fonts and text colours.

Names appear in data only, never in a list to sort by, because Vega-Lite turns those into
expressions. An axis of names uses the order in which the names first appear in the rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

Spec = dict[str, Any]
ChartRow = Mapping[str, Any]
Domain = tuple[float, float]
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10000)
_LIFT_TICKS = (-0.9, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
_OUTSIDE = {"right": "triangle-right", "left": "triangle-left"}
_INK, _FAINT, _GROUND = "var(--ink)", "var(--line)", "var(--ground)"
_LIFT = "+~%"
_TIP = {"field": "tip", "type": "nominal"}
_SPREAD_LABELS = {"labelOverlap": "greedy", "labelSeparation": 6}


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


def css_colour(colour: str) -> str:
    """Return a colour of page.css for a chart."""
    return f"var(--{colour})"


# Dots with intervals ----------------------------------------------------------------------------


def dot(label: str, x: float, colour: str, tip: str, **more: Any) -> Spec:
    """Return a row of `dot_chart`: `low`, `high`, `filled` and `offset` are in `more`.

    An end of the interval that is unknown is None. A dot is filled unless its interval includes 0.
    """
    low, high = more.get("low"), more.get("high")
    filled = low is not None and high is not None and not low <= 0 <= high
    base = {"label": label, "offset": "", "x": x, "low": None, "high": None, "filled": filled}
    return {**base, **more, "colour": css_colour(colour), "tip": tip}


def dot_panels(
    title: str, dots: Mapping[str, Sequence[ChartRow]], about: str, legend: Sequence[Mark],
    domain: Domain | None = None, style: str = _LIFT,
) -> list[Panels]:  # fmt: skip
    """Return one chart per name on the same scale; nothing without dots.

    Args:
        title: title of all of them.
        dots: rows of `dot_chart` by the name of their chart.
        about: description of each chart, after its name.
        legend: what symbols and colours mean.
        domain: ends of the scale; those of most dots if left out.
        style: d3 format of numbers.
    """
    rows = [row for own in dots.values() for row in own]
    ends = domain or find_main_domain(rows)
    made = [
        Chart(name, f"{name}{', ' if name else ''}{about}", dot_chart(own, ends, style))
        for name, own in dots.items()
        if own
    ]
    beyond = [Mark("beyond the scale, with its value", kind=k) for k in shapes_outside(rows, ends)]
    return [Panels(title, made, [*legend, *beyond])] if made else []


def find_domain(rows: Iterable[ChartRow], fields: Sequence[str]) -> Domain:
    """Return the range of several fields and 0, with a little room at both ends."""
    values = [row[name] for row in rows for name in fields if row.get(name) is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    room = 0.06 * (high - low) or 0.01
    return low - room * (low < 0), high + room


def find_main_domain(rows: Sequence[ChartRow]) -> Domain:
    """Return the range of lifts without the few that would squeeze all others.

    A dot is left out if it is beyond 50 % and over four times as far out as the next one; so is
    every dot farther out. Most dots always stay inside.
    """
    ends = ("x", "low", "high")

    def reach(own: Sequence[ChartRow]) -> float:
        return max(abs(float(row[name])) for row in own for name in ends if row[name] is not None)

    dots: dict[tuple[str, str], list[ChartRow]] = {}
    for row in rows:
        dots.setdefault((row["label"], row["offset"]), []).append(row)
    order = sorted(dots.values(), key=reach)
    for place in range(len(order) // 2 + 1, len(order)):
        if reach(order[place]) > max(0.5, 4 * reach(order[place - 1])):
            order = order[:place]
            break
    return find_domain([row for own in order for row in own], ends)


def shapes_outside(rows: Iterable[ChartRow], domain: Domain) -> list[str]:
    """Return the shapes of dots beyond the scale, of each at most once."""
    sides = {_side(row, domain) for row in rows}
    return [shape for side, shape in _OUTSIDE.items() if side in sides]


def _side(row: ChartRow, domain: Domain) -> str:
    """Return the side of the domain that a dot is beyond; empty if it is inside."""
    return "right" if row["x"] > domain[1] else "left" if row["x"] < domain[0] else ""


def dot_chart(rows: Sequence[ChartRow], domain: Domain, style: str = _LIFT) -> Spec:
    """Return dots with intervals, one line per label and `offset`.

    A dot beyond the domain becomes a triangle at its edge, with its value beside it.
    """
    drawn = [_styled_dot(row, domain) for row in rows]
    n_labels, n_offsets = (len({row[name] for row in rows}) for name in ("label", "offset"))
    shared = {"y": _names("label", labelPadding=10)}
    if n_offsets > 1:
        shared["yOffset"] = {"field": "offset", "type": "nominal", "sort": None}
    axis = _axis(None, style, tickCount=4, **_SPREAD_LABELS)
    x = _number("x", axis, domain=list(domain), nice=False, clamp=True)
    look = {**shared, "stroke": _raw("colour"), "tooltip": _TIP}
    layers = [
        _zero_rule("x"),
        _layer("rule", {**look, "x": _number("low"), "x2": {"field": "high"}},
               strokeWidth=2, opacity=0.75),
        _layer("point", {**look, "x": x, "fill": _raw("fill"), "shape": _raw("shape")},
               size=64, strokeWidth=2, opacity=1),
    ]  # fmt: skip
    above = -8 if any(row["beyond"] and row["crossed"] for row in drawn) else 0
    value = {**_number("x"), "format": style.replace("~", ",.0")}
    for align, dx in (("right", -10), ("left", 10)) if shapes_outside(rows, domain) else ():
        text = {**shared, "x": x, "text": value, "fill": _raw("colour")}
        made = _layer("text", text, fontSize=12, dy=above, align=align, dx=dx)
        layers.append({**made, "transform": [{"filter": f"datum.beyond === '{align}'"}]})
    return _spec(layers, 26 * n_labels * max(1.0, 0.75 * n_offsets), drawn)


def _styled_dot(row: ChartRow, domain: Domain) -> ChartRow:
    """Return the row with its fill and shape; an unknown end of the interval is at the dot.

    The value beside a dot beyond the scale is `crossed` by an interval that reaches back into it.
    """
    low, high = (row["x"] if row[end] is None else row[end] for end in ("low", "high"))
    side = _side(row, domain)
    return {
        **row, "low": low, "high": high, "fill": row["colour"] if row["filled"] else _GROUND,
        "shape": _OUTSIDE.get(side, "circle"), "beyond": side,
        "crossed": low < domain[1] and high > domain[0],
    }  # fmt: skip


# Lines ------------------------------------------------------------------------------------------


def line_marks(series: Mapping[str, tuple[str, str]]) -> dict[str, Mark]:
    """Return a legend entry with its own symbol for each series, from its label and colour."""
    return {
        key: Mark(*own, _SYMBOLS[n % len(_SYMBOLS)]) for n, (key, own) in enumerate(series.items())
    }


def line_point(x: str | int, y: float, mark: Mark, tip: str = "", **more: Any) -> Spec:
    """Return a row of `line_chart`; the label of the mark is the series.

    All rows of a chart or none have the `width` of their line and the `size` of their point.
    """
    colour = css_colour(mark.colour)
    point = {"x": x, "y": y, "series": mark.label, "colour": colour, "symbol": mark.kind}
    return {**point, "tip": tip, **more}


def line_chart(
    rows: Sequence[ChartRow], x: Spec, y: Spec, height: int = 220, points: bool = True,
    zero: bool = False, levels: Sequence[ChartRow] = (),
) -> Spec:  # fmt: skip
    """Return one line per `series`; each of `levels` is a dashed line across at its `y`."""
    base = {"x": x, "y": y, "detail": {"field": "series", "type": "nominal"}}
    base["stroke"] = _raw("colour")
    sized = bool(rows) and "width" in rows[0]
    width, size = (
        {channel: {"field": name, "type": "quantitative", "scale": None}} if sized else {}
        for channel, name in (("strokeWidth", "width"), ("size", "size"))
    )
    layers = [_layer("line", {**base, **width}, strokeWidth=2)]
    if zero:
        layers.insert(0, _zero_rule("y"))
    if levels:
        across = {"y": _number("y"), "stroke": _raw("colour"), "tooltip": _TIP}
        rule = _layer("rule", across, strokeDash=[5, 4], strokeWidth=1.5)
        layers.insert(0, {**rule, "data": {"values": list(levels)}})
    if points:
        look = {"fill": _raw("colour"), "shape": _raw("symbol"), "tooltip": _TIP}
        layers.append(
            _layer("point", {**base, **look, **size}, size=50, opacity=1, strokeWidth=1.5)
        )
    return _spec(layers, height, rows)


def number_axis(title: str | None, style: str = "", **scale: Any) -> Spec:
    """Return a vertical axis of numbers."""
    return _number("y", _axis(title, style, tickCount=5), **scale)


def is_far_beyond(rows: Iterable[ChartRow]) -> bool:
    """Return whether one line is far beyond most others."""
    usual, farthest = _find_reaches(rows)
    return farthest >= max(0.5, 4 * usual)


def _find_reaches(rows: Iterable[ChartRow]) -> tuple[float, float]:
    """Return how far out the median line is, and the farthest."""
    reaches: dict[str, float] = {}
    for row in rows:
        reaches[row["series"]] = max(reaches.get(row["series"], 0.0), abs(row["y"]))
    return statistics.median_low(reaches.values()), max(reaches.values())


def lift_axis(rows: Sequence[ChartRow]) -> Spec:
    """Return a vertical axis of lifts.

    If one line is far beyond most others, the axis is compressed away from 0, so that these are not
    squeezed together.
    """
    if not is_far_beyond(rows):
        return number_axis(None, _LIFT)
    low, high = find_domain(rows, ("y",))
    ticks = [tick for tick in _LIFT_TICKS if low <= tick <= high]
    axis = _axis(None, _LIFT, values=ticks, labelOverlap="greedy", labelSeparation=4)
    constant = max(0.02, _find_reaches(rows)[0] / 2)
    return _number("y", axis, type="symlog", constant=constant, domain=[low, high], nice=False)


def name_axis(title: str | None) -> Spec:
    """Return a horizontal axis of names."""
    axis = _names("x", title=title, labelAngle=0, labelOverlap=True)
    return {**axis, "scale": {"type": "point", "padding": 0.4}}


def count_axis(title: str | None) -> Spec:
    """Return a horizontal axis of whole numbers."""
    axis = {"title": title, "format": ",d", "tickCount": 5, "labelOverlap": True}
    return _number("x", axis, zero=False, nice=False)


def date_axis(dates: Sequence[str], style: str = "%-d %b %y") -> Spec:
    """Return a horizontal axis of dates in UTC, with about six labels at equal steps."""
    known = [date.fromisoformat(text) for text in sorted(set(dates))]
    values = [
        {"year": day.year, "month": day.month, "date": day.day, "utc": True}
        for day in known[:: math.ceil(len(known) / 6)]
    ]
    axis = {
        "title": None, "format": style, "values": values, "labelOverlap": "parity",
        "labelSeparation": 6, "labelFlush": 12,  # more than the padding: labels stay inside
    }  # fmt: skip
    return {"field": "x", "type": "temporal", "axis": axis, "scale": {"type": "utc", "padding": 8}}


# Sales ------------------------------------------------------------------------------------------


def rank_axis(rows: Sequence[ChartRow]) -> Spec:
    """Return a vertical axis of ranks, the best on top, on a log scale."""
    deepest = max(10, *(row["y"] for row in rows))
    axis = {"title": "rank", "format": ",d", "values": [r for r in _RANKS if r <= deepest]}
    return _number("y", axis, type="log", domain=[deepest * 1.15, 0.85], nice=False)


def sales_chart(rows: Sequence[ChartRow], highest: float) -> Spec:
    """Return a line per label from `before` to `after`, with a tick at `recent`."""
    axis = {"title": "buyers per week", "format": ",d", "tickCount": 5, **_SPREAD_LABELS}
    base = {"y": _names("label", labelPadding=11), "tooltip": _TIP}
    before = {**base, "x": _number("before", axis, type="sqrt", domain=[0, highest], nice=True)}
    after, recent = ({**base, "x": _number(name)} for name in ("after", "recent"))
    circle = {"size": 60, "stroke": _INK, "opacity": 1}
    layers = [
        _layer("rule", {**before, "x2": {"field": "after"}}, strokeWidth=3, color=_FAINT),
        _layer("tick", recent, thickness=2, size=13, color=css_colour("ochre")),
        _layer("point", before, fill=_GROUND, **circle),
        _layer("point", after, fill=_INK, **circle),
    ]
    return _spec(layers, 22 * len(rows), rows)


# Parts of a specification -----------------------------------------------------------------------


def _spec(layers: Sequence[Spec], height: float, rows: Sequence[ChartRow]) -> Spec:
    """Return layers that share rows, in which NaN and infinity become null."""

    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    values = [{key: clean(value) for key, value in row.items()} for row in rows]
    return {"data": {"values": values}, "layer": list(layers), "height": height}


def _layer(kind: str, encoding: Spec, **mark: Any) -> Spec:
    return {"mark": {"type": kind, **mark}, "encoding": encoding}


def _zero_rule(channel: str) -> Spec:
    """Return a line at 0."""
    layer = _layer("rule", {channel: {"datum": 0}}, color=_INK, opacity=0.6)
    return {**layer, "data": {"values": [{}]}}


def _raw(field: str) -> Spec:
    """Return an encoding whose values are CSS colours or symbol names already."""
    return {"field": field, "type": "nominal", "scale": None}


def _names(field: str, **axis: Any) -> Spec:
    return {"field": field, "type": "nominal", "sort": None, "axis": {"title": None, **axis}}


def _number(field: str, axis: Spec | None = None, **scale: Any) -> Spec:
    made: Spec = {"field": field, "type": "quantitative"}
    return made if axis is None else {**made, "axis": axis, "scale": scale}


def _axis(title: str | None, style: str, **more: Any) -> Spec:
    """Return an axis that writes 0 without a sign."""
    plain_zero = "datum.value === 0 ? '0' : datum.label"
    return {"title": title, "format": style, "labelExpr": plain_zero, **more}
