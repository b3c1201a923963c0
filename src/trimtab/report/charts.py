"""Charts as Vega-Lite specifications.

Rows carry the colour of their mark as a CSS variable, which lets one drawing serve light, dark and
print, and `tip`, the text shown on hover. page.js sets widths, fonts and text colours.

Names appear in data only, never in a list to sort by, because Vega-Lite turns those into
expressions. An axis of names uses the order in which the names first appear in the rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from trimtab.report.blocks import Mark, Spec

if TYPE_CHECKING:
    import altair as alt

ChartRow = Mapping[str, Any]
Domain = tuple[float, float]
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_ROW_HEIGHT = 26
_ENDS = ("x", "low", "high")
_RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10000)
_LIFT_TICKS = (-0.9, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)
_SHAPES = {"": "circle", "right": "triangle-right", "left": "triangle-left"}
_BEYOND: tuple[dict[str, Any], ...] = ({"align": "right", "dx": -10}, {"align": "left", "dx": 10})
_PLAIN_ZERO = "datum.value === 0 ? '0' : datum.label"


def css_colour(colour: str) -> str:
    """Return a colour of page.css for a chart."""
    return f"var(--{colour})"


_INK, _FAINT, _GROUND = map(css_colour, ("ink", "line", "ground"))


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
    dots: dict[tuple[str, str], list[ChartRow]] = {}
    for row in rows:
        dots.setdefault((row["label"], row["offset"]), []).append(row)
    order = sorted(dots.values(), key=_find_reach)
    for place in range(len(order) // 2 + 1, len(order)):
        if _find_reach(order[place]) > max(0.5, 4 * _find_reach(order[place - 1])):
            order = order[:place]
            break
    return find_domain([row for own in order for row in own], _ENDS)


def _find_reach(rows: Sequence[ChartRow]) -> float:
    return max(abs(float(row[name])) for row in rows for name in _ENDS if row[name] is not None)


def has_dot_outside(rows: Iterable[ChartRow], domain: Domain) -> bool:
    """Return whether a dot is beyond the scale."""
    return bool(shapes_outside(rows, domain))


def shapes_outside(rows: Iterable[ChartRow], domain: Domain) -> list[str]:
    """Return the shapes of dots beyond the scale, of each at most once."""
    sides = {_side(row, domain) for row in rows}
    return [shape for side, shape in _SHAPES.items() if side and side in sides]


def _side(row: ChartRow, domain: Domain) -> str:
    """Return the side of the domain that a dot is beyond; empty if it is inside."""
    return "right" if row["x"] > domain[1] else "left" if row["x"] < domain[0] else ""


def dot_chart(rows: Sequence[ChartRow], domain: Domain, style: str = "+~%") -> Spec:
    """Return dots with intervals, one line per label and `offset`.

    Rows have `label`, `x`, `low`, `high`, `colour`, `filled`, and `offset` if several rows share a
    label. A dot beyond the domain becomes a triangle at its edge, with its value beside it.
    """
    import altair as alt

    names = alt.Axis(title=None, labelPadding=10)
    place: dict[str, Any] = {"y": alt.Y("label:N", sort=None, axis=names)}
    n_offsets = len({row.get("offset") for row in rows})
    if n_offsets > 1:
        place["yOffset"] = alt.YOffset("offset:N", sort=None)
    axis = alt.Axis(
        format=style, tickCount=4, title=None, labelExpr=_PLAIN_ZERO, labelOverlap="greedy",
        labelSeparation=6,
    )  # fmt: skip
    x = alt.X("x:Q", scale=alt.Scale(domain=list(domain), nice=False, clamp=True), axis=axis)
    base = alt.Chart(_data([_styled_dot(row, domain) for row in rows])).encode(x, **place)
    zero = alt.Chart(_data([{"zero": 0}])).mark_rule(color=_INK, opacity=0.6).encode(x="zero:Q")
    stroke, fill, shape = _raw("Stroke", "colour"), _raw("Fill", "fill"), _raw("Shape", "shape")
    spans = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x="low:Q", x2="high:Q", stroke=stroke, tooltip="tip:N"
    )
    points = base.mark_point(size=64, strokeWidth=2, opacity=1).encode(
        stroke=stroke, fill=fill, shape=shape, tooltip="tip:N"
    )
    value = alt.Text("x:Q", format=style.replace("~", ",.0"))
    above = -8 if any(_is_crossed(row, domain) for row in rows) else 0
    texts = [
        base.transform_filter(f"datum.beyond === '{mark['align']}'")
        .mark_text(fontSize=12, dy=above, **mark)
        .encode(text=value, fill=stroke)
        for mark in _BEYOND
        if has_dot_outside(rows, domain)
    ]
    n_labels = len({row["label"] for row in rows})
    height = _ROW_HEIGHT * n_labels * max(1.0, 0.75 * n_offsets)
    return _spec(alt.layer(zero, spans, points, *texts), height)


def _is_crossed(row: ChartRow, domain: Domain) -> bool:
    """Return whether the interval of a dot beyond the domain would cross the value beside it."""
    low, high = (row["x"] if row[end] is None else row[end] for end in ("low", "high"))
    return bool(_side(row, domain) and low < domain[1] and high > domain[0])


def _styled_dot(row: ChartRow, domain: Domain) -> ChartRow:
    """Return the row with its fill and shape; an unknown end of the interval is at the dot."""
    fill = row["colour"] if row["filled"] else _GROUND
    ends = {end: row["x"] if row[end] is None else row[end] for end in ("low", "high")}
    side = _side(row, domain)
    return {**row, **ends, "fill": fill, "shape": _SHAPES[side], "beyond": side}


def line_marks(series: Mapping[str, tuple[str, str]]) -> dict[str, Mark]:
    """Return a legend entry with its own symbol for each series, from its label and colour."""
    return {
        key: Mark(*own, _SYMBOLS[n % len(_SYMBOLS)]) for n, (key, own) in enumerate(series.items())
    }


def line_point(x: str | int, y: float, mark: Mark, tip: str = "") -> ChartRow:
    """Return a row of `line_chart`; the label of the mark is the series."""
    colour = css_colour(mark.colour)
    return {
        "x": x, "y": y, "series": mark.label, "colour": colour, "symbol": mark.kind, "tip": tip,
    }  # fmt: skip


def line_chart(
    rows: Sequence[ChartRow],
    x: alt.X,
    y: alt.Y,
    height: int = 220,
    points: bool = True,
    zero: bool = False,
    levels: Sequence[ChartRow] = (),
) -> Spec:
    """Return one line per `series`; each of `levels` is a dashed line across at its `y`.

    Rows may have a `width` of their line and a `size` of their point.
    """
    import altair as alt

    stroke = _raw("Stroke", "colour")
    base = alt.Chart(_data(rows)).encode(x=x, y=y, detail="series:N", stroke=stroke)
    sized = bool(rows) and "width" in rows[0]
    width = {"strokeWidth": alt.StrokeWidth("width:Q", scale=None)} if sized else {}
    layers = [base.mark_line(strokeWidth=2).encode(**width)]
    if zero:
        rule = alt.Chart(_data([{"zero": 0}])).mark_rule(color=_INK, opacity=0.6)
        layers.insert(0, rule.encode(y="zero:Q"))
    if levels:
        across = alt.Chart(_data(levels)).mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
        layers.insert(0, across.encode(y="y:Q", stroke=stroke, tooltip="tip:N"))
    if points:
        fill, shape = _raw("Fill", "colour"), _raw("Shape", "symbol")
        marks = base.mark_point(size=50, opacity=1, strokeWidth=1.5)
        size = {"size": alt.Size("size:Q", scale=None)} if sized else {}
        layers.append(marks.encode(fill=fill, shape=shape, tooltip="tip:N", **size))
    return _spec(alt.layer(*layers), height)


def _raw(channel: str, field: str) -> Any:
    """Return an encoding whose values are CSS colours or symbol names already."""
    import altair as alt

    return getattr(alt, channel)(f"{field}:N", scale=None)


def number_axis(title: str | None, style: str = "", **scale: Any) -> alt.Y:
    """Return a vertical axis of numbers."""
    import altair as alt

    axis = alt.Axis(format=style, tickCount=5, title=title, labelExpr=_PLAIN_ZERO)
    return alt.Y("y:Q", scale=alt.Scale(**scale), axis=axis)


def find_usual_reach(rows: Iterable[ChartRow]) -> float | None:
    """Return how far out most lines are if one of them is far beyond the others; otherwise None."""
    reaches: dict[str, float] = {}
    for row in rows:
        reaches[row["series"]] = max(reaches.get(row["series"], 0.0), abs(row["y"]))
    usual, farthest = statistics.median_low(reaches.values()), max(reaches.values())
    return usual if farthest >= max(0.5, 4 * usual) else None


def lift_axis(rows: Sequence[ChartRow]) -> alt.Y:
    """Return a vertical axis of lifts.

    If one line is far beyond most others, the axis is compressed away from 0, so that these are not
    squeezed together.
    """
    import altair as alt

    usual = find_usual_reach(rows)
    if usual is None:
        return number_axis(None, "+~%")
    low, high = find_domain(rows, ("y",))
    axis = alt.Axis(
        format="+~%", values=[tick for tick in _LIFT_TICKS if low <= tick <= high], title=None,
        labelExpr=_PLAIN_ZERO, labelOverlap="greedy", labelSeparation=4,
    )  # fmt: skip
    scale = alt.Scale(type="symlog", constant=max(0.02, usual / 2), domain=[low, high], nice=False)
    return alt.Y("y:Q", scale=scale, axis=axis)


def name_axis(title: str | None) -> alt.X:
    """Return a horizontal axis of names."""
    import altair as alt

    axis = alt.Axis(title=title, labelAngle=0, labelOverlap=True)
    return alt.X("x:N", sort=None, axis=axis, scale=alt.Scale(type="point", padding=0.4))


def count_axis(title: str | None) -> alt.X:
    """Return a horizontal axis of whole numbers."""
    import altair as alt

    axis = alt.Axis(title=title, format=",d", tickCount=5, labelOverlap=True)
    return alt.X("x:Q", scale=alt.Scale(zero=False, nice=False), axis=axis)


def date_axis(dates: Sequence[str], style: str = "%-d %b") -> alt.X:
    """Return a horizontal axis of dates in UTC, with about six labels at equal steps."""
    import altair as alt

    known = [date.fromisoformat(text) for text in sorted(set(dates))]
    values = [
        alt.DateTime(year=day.year, month=day.month, date=day.day, utc=True)
        for day in known[:: math.ceil(len(known) / 6)]
    ]
    axis = alt.Axis(
        title=None, format=style, values=values, labelOverlap="parity", labelSeparation=6,
        labelFlush=12,  # more than the padding: labels at the ends stay inside
    )  # fmt: skip
    return alt.X("x:T", scale=alt.Scale(type="utc", padding=8), axis=axis)


def rank_chart(rows: Sequence[ChartRow]) -> Spec:
    """Return ranks by month, best on top, on a log scale; lines end in the item's `number`."""
    import altair as alt

    deepest = max(10, *(row["y"] for row in rows))
    values = [rank for rank in _RANKS if rank <= deepest]
    scale = alt.Scale(type="log", domain=[deepest * 1.15, 0.85], nice=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(values=values, format=",d", title="rank"))
    stroke, fill = _raw("Stroke", "colour"), _raw("Fill", "colour")
    base = alt.Chart(_data(rows)).encode(x=name_axis(None), y=y, detail="series:N", stroke=stroke)
    line = base.mark_line(strokeWidth=2.5, interpolate="monotone")
    dots = base.mark_point(size=16, filled=True).encode(fill=fill, tooltip="tip:N")
    ends = base.transform_filter("datum.end")
    discs = ends.mark_point(size=330, filled=True, opacity=1).encode(fill=fill, tooltip="tip:N")
    figures = ends.mark_text(fontSize=11, fontWeight="bold", color=_GROUND).encode(
        text="number:N", stroke=alt.value(None), tooltip="tip:N"
    )
    return _spec(alt.layer(line, dots, discs, figures), 400)


def sales_chart(rows: Sequence[ChartRow], highest: float) -> Spec:
    """Return a line per label from `before` to `after`, with a tick at `recent`."""
    import altair as alt

    scale = alt.Scale(type="sqrt", domain=[0, highest], nice=True)
    axis = alt.Axis(
        title="buyers per week", format=",d", tickCount=5, labelOverlap="greedy", labelSeparation=6
    )
    y = alt.Y("label:N", sort=None, axis=alt.Axis(title=None, labelPadding=11))
    base = alt.Chart(_data(rows)).encode(y=y, tooltip="tip:N")
    x = alt.X("before:Q", scale=scale, axis=axis)
    bars = base.mark_rule(strokeWidth=3, color=_FAINT).encode(x=x, x2="after:Q")
    ticks = base.mark_tick(thickness=2, size=13, color=css_colour("ochre")).encode(x="recent:Q")
    before = base.mark_point(size=60, stroke=_INK, fill=_GROUND, opacity=1).encode(x=x)
    after = base.mark_point(size=60, stroke=_INK, fill=_INK, opacity=1).encode(x="after:Q")
    return _spec(alt.layer(bars, ticks, before, after), 22 * len(rows))


def _data(rows: Sequence[ChartRow]) -> alt.InlineData:
    """Return the rows as data; NaN and infinity become null."""
    import altair as alt

    def clean(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return alt.InlineData(values=[{key: clean(row[key]) for key in row} for row in rows])


def _spec(chart: Any, height: float) -> Spec:
    spec: dict[str, Any] = chart.properties(height=height).to_dict()
    for name in ("$schema", "config"):
        spec.pop(name, None)
    return spec
