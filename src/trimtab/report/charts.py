"""Charts as Vega-Lite specifications.

Rows carry the colour of their mark as a CSS variable, so that one drawing serves light, dark and
print, and `tip`, the text shown on pointing. Widths, fonts and ink are set where it is drawn.

Names go into data only, never into a list to sort by: Vega-Lite makes expressions of those. So
axes of names take the order in which their names first come in the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from trimtab.report.blocks import Spec
from trimtab.report.words import is_number

if TYPE_CHECKING:
    import altair as alt

ChartRow = Mapping[str, Any]
Domain = tuple[float, float]
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_STEP = 26
_ENDS = ("x", "low", "high")
_UNCROWDED: Mapping[str, Any] = {"labelOverlap": "greedy", "labelSeparation": 6}
_EVEN: Mapping[str, Any] = {"labelOverlap": "parity", "labelSeparation": 6}
_PLAIN_ZERO = "datum.value === 0 ? '0' : datum.label"
_INK, _FAINT, _GROUND = (f"var(--{name})" for name in ("ink", "line", "ground"))


def ink(colour: str) -> str:
    """A colour of page.css, for a chart."""
    return f"var(--{colour})"


def domain_of(rows: Iterable[ChartRow], fields: Sequence[str]) -> Domain:
    """The range of several fields, 0 among them, with a little room at both ends."""
    values = [row[name] for row in rows for name in fields if row.get(name) is not None]
    low, high = min([0.0, *values]), max([0.0, *values])
    room = 0.06 * (high - low) or 0.01
    return low - room * (low < 0), high + room


def main_domain(rows: Sequence[ChartRow]) -> Domain:
    """The range of lifts without those few that would squeeze all others.

    Left outside is what reaches beyond 50 % and over four times as far as the next, and all that
    is farther still, as long as most dots stay inside.
    """
    cases: dict[tuple[str, str], list[ChartRow]] = {}
    for row in rows:
        cases.setdefault((row["label"], row["offset"]), []).append(row)
    order = sorted(cases.values(), key=_reach)
    for place in range(len(order) // 2 + 1, len(order)):
        if _reach(order[place]) > max(0.5, 4 * _reach(order[place - 1])):
            order = order[:place]
            break
    return domain_of([row for own in order for row in own], _ENDS)


def _reach(rows: Sequence[ChartRow]) -> float:
    return max(abs(float(row[name])) for row in rows for name in _ENDS if row[name] is not None)


def outside(rows: Iterable[ChartRow], domain: Domain) -> bool:
    """Whether a dot is beyond the scale."""
    return any(not domain[0] <= row["x"] <= domain[1] for row in rows)


def dot_chart(
    rows: Sequence[ChartRow],
    domain: Domain,
    style: str = "+~%",
    n_offsets: int = 1,
) -> Spec:
    """Dots on lines, one a label (or up to `n_offsets`), each with its interval.

    Rows have `label`, `x`, `low`, `high`, `colour`, `filled`, and `offset` where it tells rows of
    one label apart. What is beyond the domain is a triangle at its edge.
    """
    import altair as alt

    names = alt.Axis(title=None, labelPadding=10)
    place: dict[str, Any] = {"y": alt.Y("label:N", sort=None, axis=names)}
    if n_offsets > 1:
        place["yOffset"] = alt.YOffset("offset:N", sort=None)
    axis = alt.Axis(format=style, tickCount=5, title=None, labelExpr=_PLAIN_ZERO, **_UNCROWDED)
    across = alt.X("x:Q", scale=alt.Scale(domain=list(domain), nice=False, clamp=True), axis=axis)
    dots = [_dot(row, domain) for row in rows]
    base = alt.Chart(_data(dots)).encode(across, **place)
    zero = alt.Chart(_data([{"zero": 0}])).mark_rule(color=_INK, opacity=0.6).encode(x="zero:Q")
    spans = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x="low:Q", x2="high:Q", stroke=_plain(alt, "stroke"), tooltip="tip:N"
    )
    points = base.mark_point(size=64, strokeWidth=2, opacity=1).encode(
        stroke=_plain(alt, "stroke"),
        fill=_plain(alt, "fill"),
        shape=alt.Shape("shape:N", scale=None),
        tooltip="tip:N",
    )
    return _spec(alt.layer(zero, spans, points), _height(rows, n_offsets))


def _height(rows: Sequence[ChartRow], n_offsets: int) -> float:
    n_labels = len({row["label"] for row in rows})
    return _STEP * n_labels * max(1.0, 0.75 * n_offsets)


def _dot(row: ChartRow, domain: Domain) -> ChartRow:
    """The row with the look of its dot; an interval not known is as short as can be."""
    fill = row["colour"] if row["filled"] else _GROUND
    ends = {end: row["x"] if row[end] is None else row[end] for end in ("low", "high")}
    side = int(row["x"] > domain[1]) - int(row["x"] < domain[0])
    shape = {0: "circle", 1: "triangle-right", -1: "triangle-left"}[side]
    return {**row, **ends, "stroke": row["colour"], "fill": fill, "shape": shape}


def _plain(alt: Any, field: str) -> Any:
    """An encoding whose values are colours already."""
    channel = {"stroke": alt.Stroke, "fill": alt.Fill}[field]
    return channel(f"{field}:N", scale=None)


def line_chart(
    rows: Sequence[ChartRow],
    x: alt.X,
    y: alt.Y,
    height: int = 220,
    points: bool = True,
    zero: bool = False,
    levels: Sequence[ChartRow] = (),
) -> Spec:
    """Lines with points, one a `series`; `colour` and `symbol` are those of its rows.

    Each of `levels` is a dashed line across, at `y` and in its `colour`.
    """
    import altair as alt

    base = alt.Chart(_data(rows)).encode(
        x=x, y=y, detail="series:N", stroke=alt.Stroke("colour:N", scale=None)
    )
    layers = [base.mark_line(strokeWidth=2)]
    if zero:
        rule = alt.Chart(_data([{"zero": 0}])).mark_rule(color=_INK, opacity=0.6)
        layers.insert(0, rule.encode(y="zero:Q"))
    if levels:
        across = alt.Chart(_data(levels)).mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
        stroke = alt.Stroke("colour:N", scale=None)
        layers.insert(0, across.encode(y="y:Q", stroke=stroke, tooltip="tip:N"))
    if points:
        marks = base.mark_point(size=50, opacity=1, strokeWidth=1.5).encode(
            fill=alt.Fill("colour:N", scale=None),
            shape=alt.Shape("symbol:N", scale=None),
            tooltip="tip:N",
        )
        layers.append(marks)
    return _spec(alt.layer(*layers), height)


def quantity(title: str | None, style: str = "", **scale: Any) -> alt.Y:
    """A vertical axis of numbers."""
    import altair as alt

    axis = alt.Axis(format=style, tickCount=5, title=title, labelExpr=_PLAIN_ZERO)
    return alt.Y("y:Q", scale=alt.Scale(**scale), axis=axis)


def places(title: str | None) -> alt.X:
    """A horizontal axis of names."""
    import altair as alt

    axis = alt.Axis(title=title, labelAngle=0, labelOverlap=True)
    return alt.X("x:N", sort=None, axis=axis, scale=alt.Scale(type="point", padding=0.4))


def numbers(title: str | None) -> alt.X:
    """A horizontal axis of whole numbers."""
    import altair as alt

    axis = alt.Axis(title=title, format=",d", tickCount=5, labelOverlap=True)
    return alt.X("x:Q", scale=alt.Scale(zero=False, nice=False), axis=axis)


def days(title: str | None = None) -> alt.X:
    """A horizontal axis of dates, the same in every time zone."""
    import altair as alt

    axis = alt.Axis(title=title, format="%-d %b %y", tickCount=4, labelOverlap=True)
    return alt.X("x:T", scale=alt.Scale(type="utc", padding=8), axis=axis)


def calendar(dates: Sequence[str]) -> alt.X:
    """A horizontal axis of successive days, with labels at equal steps whatever their number."""
    import altair as alt

    known = [date.fromisoformat(day) for day in sorted(set(dates))]
    step = math.ceil(len(known) / 6)
    values = [
        alt.DateTime(year=day.year, month=day.month, date=day.day, utc=True)
        for day in known[::step]
    ]
    axis = alt.Axis(title=None, format="%-d %b", values=values, **_EVEN)
    return alt.X("x:T", scale=alt.Scale(type="utc", padding=8), axis=axis)


def bump_chart(rows: Sequence[ChartRow]) -> Spec:
    """Ranks by month, best on top, on a log scale; lines end in `number`, the item's own."""
    import altair as alt

    deepest = max(10, *(row["y"] for row in rows))
    values = [rank for rank in _RANKS if rank <= deepest]
    scale = alt.Scale(type="log", domain=[deepest * 1.15, 0.85], nice=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(values=values, format=",d", title="rank"))
    base = alt.Chart(_data(rows)).encode(
        x=places(None), y=y, detail="series:N", stroke=alt.Stroke("colour:N", scale=None)
    )
    line = base.mark_line(strokeWidth=2.5, interpolate="monotone")
    dots = base.mark_point(size=16, filled=True).encode(
        fill=alt.Fill("colour:N", scale=None), tooltip="tip:N"
    )
    ends = base.transform_filter("datum.end")
    discs = ends.mark_point(size=330, filled=True, opacity=1).encode(
        fill=alt.Fill("colour:N", scale=None), tooltip="tip:N"
    )
    figures = ends.mark_text(fontSize=11, fontWeight="bold", color=_GROUND).encode(
        text="number:N", stroke=alt.value(None), tooltip="tip:N"
    )
    return _spec(alt.layer(line, dots, discs, figures), 400)


_RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10000)


def dumbbell_chart(rows: Sequence[ChartRow], highest: float) -> Spec:
    """For each label a line from `before` to `after`, with a tick at `recent`."""
    import altair as alt

    scale = alt.Scale(type="sqrt", domain=[0, highest], nice=True)
    axis = alt.Axis(title="buyers a week", format=",d", tickCount=5, **_UNCROWDED)
    y = alt.Y("label:N", sort=None, axis=alt.Axis(title=None, labelPadding=11))
    base = alt.Chart(_data(rows)).encode(y=y, tooltip="tip:N")
    across = alt.X("before:Q", scale=scale, axis=axis)
    bars = base.mark_rule(strokeWidth=3, color=_FAINT).encode(x=across, x2="after:Q")
    ticks = base.mark_tick(thickness=2, size=13, color=ink("ochre")).encode(x="recent:Q")
    before = base.mark_point(size=60, stroke=_INK, fill=_GROUND, opacity=1).encode(x=across)
    after = base.mark_point(size=60, stroke=_INK, fill=_INK, opacity=1).encode(x="after:Q")
    return _spec(alt.layer(bars, ticks, before, after), 22 * len(rows))


def highest_sales(rows: Iterable[ChartRow]) -> float:
    """Where an axis of sales ends."""
    sales = (row[name] for row in rows for name in ("before", "recent", "after"))
    return max([1.0, *(value for value in sales if is_number(value))])


def _data(rows: Sequence[ChartRow]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=[{key: _known(row[key]) for key in row} for row in rows])


def _known(value: Any) -> Any:
    """The value, or None for a number that is not one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spec(chart: Any, height: float) -> Spec:
    spec: dict[str, Any] = chart.properties(height=height).to_dict()
    for name in ("$schema", "config"):
        spec.pop(name, None)
    return spec
