"""Draws pictures of the README and of pages into docs/images, for light and dark screens.

`python docs/pictures.py`; needs altair and vl-convert (the extra "docs"). The dates of the
README's picture come from `benchmarks/rolling.py --only-reranker --by-date`: gift shop, ALS; the
figures of staleness from `benchmarks/pace.py --staleness`.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import altair as alt

from trimtab.kernels.reference import Curve, Task, Unit, best_step, item_curve, objective

FOLDER = Path(__file__).parent / "images"
DATES, STALENESS = (
    Path(__file__).parent / "figures" / f"{name}.csv" for name in ("gift-shop-als", "staleness")
)
THEMES: Mapping[str, Mapping[str, str]] = {
    "": {"ink": "#1b1f24", "soft": "#57606a", "line": "#d5dae0", "ground": "#ffffff",
         "blue": "#0068ad", "orange": "#cc5500", "green": "#00825e", "ochre": "#8f6a00"},
    "-dark": {"ink": "#e8eaed", "soft": "#a3acb8", "line": "#3a424c", "ground": "#131416",
              "blue": "#5bb4f2", "orange": "#ff9147", "green": "#3fc79b", "ochre": "#e3bd4a"},
}  # fmt: skip
UMBRELLA, K = 0, 3
RANGE = (-0.15, 0.6)
WIDTH = 470
TICKS = [-0.1, 0, 0.1, 0.2, 0.3, 0.4, 0.5]


def read_shoppers() -> list[tuple[float, tuple[float, ...], int]]:
    """The twelve shoppers in the page's own code."""
    text = (Path(__file__).parent / "how-it-works.md").read_text()
    code = text.partition("shoppers = ")[2].partition("\n]")[0]
    shoppers: list[tuple[float, tuple[float, ...], int]] = ast.literal_eval(f"{code}]")
    return shoppers


def umbrella_task() -> Task:
    """The twelve shoppers as a task judged by NDCG@3."""
    units = tuple(
        Unit({UMBRELLA: own, **dict(enumerate(others, 1))}, frozenset([bought]))
        for own, others, bought in read_shoppers()
    )
    return Task(units, k=K, metric="ndcg")


def staircase(ink: Mapping[str, str]) -> alt.VConcatChart:
    """The objective over the umbrella's bias, its breakpoints, and the best step."""
    task = umbrella_task()
    curve = item_curve(UMBRELLA, {}, task)
    best, _ = best_step(curve, 0.0, task, 1.0)
    levels = {0.0: _mean(objective({}, task), task), best: _at(best, task)}
    x = alt.X("x:Q", scale=alt.Scale(domain=RANGE, nice=False, zero=False))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=(0.43, 0.65), zero=False))
    y = y.axis(format=".2f", values=[0.45, 0.5, 0.55, 0.6, 0.65])
    hidden = x.axis(labels=False, ticks=False, title=None, values=TICKS, grid=False)
    steps = _chart(_step_rows(curve, task)).mark_line(
        interpolate="step-after", color=ink["blue"], strokeWidth=2.5
    )
    begin, end = _interval(curve, best)
    middle = (begin + end) / 2
    taken = _chart([{"x": begin, "y": levels[best], "end": end}]).mark_rule(
        color=ink["green"], strokeWidth=6, strokeCap="round"
    )
    at_zero = _chart([{"x": 0.0, "y": levels[0.0]}])
    marks = [
        _chart([{"x": 0.0}]).mark_rule(color=ink["soft"], strokeDash=[4, 4]).encode(x=hidden),
        steps.encode(x=hidden, y=y),
        taken.encode(x=hidden, x2="end:Q", y=y),
        at_zero.mark_circle(size=90, color=ink["ink"], opacity=1).encode(x=hidden, y=y),
        _note(0.008, levels[0.0] - 0.014, f"engine alone: {levels[0.0]:.3f}", ink, "left"),
        _note(middle, levels[best] + 0.014, f"the best step: {levels[best]:.3f}", ink, "center",
              ink["green"]),
    ]  # fmt: skip
    title = alt.Title("NDCG@3, mean of twelve shoppers", fontSize=14, anchor="start", offset=8)
    upper = alt.layer(*marks).properties(width=WIDTH, height=240, title=title)
    lower = _breakpoints(curve, x, ink)
    return alt.vconcat(upper, lower, spacing=6)


def _breakpoints(curve: Curve, x: Any, ink: Mapping[str, str]) -> alt.LayerChart:
    """A mark at every breakpoint: up for gains, down for losses."""
    kinds = {"a buyer's hit moves up": True, "another hit moves down": False}
    rows = [
        {"x": at, "kind": kind}
        for kind, is_gain in kinds.items()
        for at, change in curve.steps.items() if (change > 0) == is_gain
    ]  # fmt: skip
    y = alt.Y("kind:N", sort=list(kinds)).axis(None)
    legend = alt.Legend(
        title=None, orient="bottom", direction="horizontal", labelColor=ink["ink"],
        labelFontSize=13, labelLimit=300, symbolSize=110, columnPadding=24, offset=8,
    )  # fmt: skip
    shape = alt.Shape("kind:N", legend=legend).scale(
        domain=list(kinds), range=["triangle-up", "triangle-down"]
    )
    colour = alt.Color("kind:N", legend=legend).scale(
        domain=list(kinds), range=[ink["blue"], ink["orange"]]
    )
    axis = x.axis(title="bias of the umbrella", format=".1f", values=TICKS)
    points = _chart(rows).mark_point(size=90, filled=True, opacity=1)
    zero = _chart([{"x": 0.0}]).mark_rule(color=ink["soft"], strokeDash=[4, 4]).encode(x=axis)
    layers = alt.layer(zero, points.encode(x=axis, y=y, shape=shape, color=colour))
    return layers.properties(width=WIDTH, height=56)


def _chart(rows: Iterable[Mapping[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=list(rows)))


def _note(
    x: float, y: float, text: str, ink: Mapping[str, str], align: str, colour: str = ""
) -> alt.Chart:
    mark = _chart([{"x": x, "y": y, "text": text}]).mark_text(
        align=align, fontSize=14, fontWeight="bold", color=colour or ink["ink"]
    )
    return mark.encode(x="x:Q", y="y:Q", text="text:N")


def _mean(value: int, task: Task) -> float:
    return value / task.quanta / len(task.units)


def _at(bias: float, task: Task) -> float:
    """The objective with this bias, from a full ranking."""
    return _mean(objective({UMBRELLA: bias}, task), task)


def _step_rows(curve: Curve, task: Task) -> list[dict[str, float]]:
    """The start of every step, and the end of the last one."""
    begins = [RANGE[0], *sorted(at for at in curve.steps if RANGE[0] < at < RANGE[1])]
    rows = [{"x": at, "y": _at(at + 1e-6, task)} for at in begins]
    return [*rows, {"x": RANGE[1], "y": rows[-1]["y"]}]


def _interval(curve: Curve, bias: float) -> tuple[float, float]:
    """The breakpoints on either side of a bias."""
    below = max(at for at in curve.steps if at < bias)
    return below, min(at for at in curve.steps if at > bias)


def by_date(ink: Mapping[str, str]) -> alt.LayerChart:
    """NDCG@10 of ALS alone, with biases and with the Reranker, on two dates a week."""
    with DATES.open(newline="") as file:
        read = [row for row in csv.DictReader(file) if row["metric"] == "ndcg"]
    colours = {"ALS alone": "soft", "with biases": "blue", "with the Reranker": "green"}
    names = {"bias": "with biases", "reranker": "with the Reranker"}
    rows = [{"x": r["date"], "y": float(r["value"]), "line": names[r["method"]]} for r in read]
    rows += [{"x": r["date"], "y": float(r["alone"]), "line": "ALS alone"}
             for r in read if r["method"] == "bias"]  # fmt: skip
    x = alt.X("x:T", title=None).axis(format="%b %Y", tickCount="month", grid=False)
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=(0, 0.42))).axis(format=".1f", tickCount=4)
    drawn = []
    for name, colour in colours.items():
        own = sorted((row for row in rows if row["line"] == name), key=lambda row: row["x"])
        mark = _chart(own).mark_line(
            color=ink[colour], strokeWidth=2.5, point=alt.OverlayMarkDef(color=ink[colour], size=22)
        )
        label = _chart(own[-1:]).mark_text(
            text=name, align="left", dx=9, color=ink[colour], fontSize=13, fontWeight="bold"
        )
        drawn += [mark.encode(x=x, y=y), label.encode(x=x, y=y)]
    title = alt.Title(
        "NDCG@10 of the next 7 days, a gift shop in 2010", fontSize=14, anchor="start", offset=8
    )
    return alt.layer(*drawn).properties(width=620, height=230, title=title)


def staleness(ink: Mapping[str, str]) -> alt.VConcatChart:
    """The share of a fresh refresh's lift that is left, by its age, on two logs."""
    with STALENESS.open(newline="") as file:
        read = list(csv.DictReader(file))
    panels = [
        _fading([row for row in read if row["log"] == log], colour, unit, ink).properties(
            title=alt.Title(title, fontSize=13, fontWeight="normal", anchor="start", offset=6)
        )
        for log, title, unit, colour in (
            ("news", "News, windows of an hour", "hours", ink["blue"]),
            ("gift shop", "A gift shop, windows of 3 days", "days", ink["green"]),
        )
    ]
    words = "Lift, as a share of that of a fresh refresh"
    title = alt.Title(words, fontSize=14, anchor="start", offset=10)
    return alt.vconcat(*panels, spacing=14).properties(title=title)


def _fading(
    read: list[dict[str, str]], colour: str, unit: str, ink: Mapping[str, str]
) -> alt.LayerChart:
    """The lifts of one log over the first of them."""
    each, fresh = {"hours": 1, "days": 24}[unit], float(read[0]["lift"])
    rows = [
        {"age": _age(float(row["hours"]) / each), "left": float(row["lift"]) / fresh}
        for row in read
    ]
    x = alt.X("age:N", sort=None, title=f"{unit} since the last refresh")
    y = alt.Y("left:Q", title=None, scale=alt.Scale(domain=(-0.1, 1.2), nice=False))
    percent = "format(100 * datum.{}, '.0f') + '\u00a0%'".format
    y = y.axis(labelExpr=percent("value"), values=[0, 0.25, 0.5, 0.75, 1])
    chart = _chart(rows).encode(x=x.axis(labelAngle=0, grid=False), y=y)
    point = alt.OverlayMarkDef(color=colour, size=45)
    line = chart.mark_line(color=colour, strokeWidth=2.5, point=point)
    told = chart.transform_calculate(told=percent("left")).mark_text(
        dx=10, dy=-12, fontSize=12, fontWeight="bold", color=ink["ink"]
    )
    told = told.encode(text="told:N")
    return alt.layer(line, told).properties(width=WIDTH, height=150)


def _age(age: float) -> str:
    """An age as a whole number, or as minutes where it is a part of an hour."""
    return f"{60 * age:.0f} min" if 0 < age < 1 else f"{age:.0f}"


def save(name: str, draw: Any) -> None:
    """One picture for each theme."""
    for suffix, ink in THEMES.items():
        chart = draw(ink).configure(background="transparent", font="sans-serif")
        chart = chart.configure_view(stroke=None).configure_title(color=ink["ink"])
        chart = chart.configure_axis(
            labelColor=ink["soft"], titleColor=ink["soft"], gridColor=ink["line"],
            domainColor=ink["line"], tickColor=ink["line"], labelFontSize=13, titleFontSize=13,
            titleFontWeight="normal",
        )  # fmt: skip
        chart.save(str(FOLDER / f"{name}{suffix}.svg"))


if __name__ == "__main__":
    save("staircase", staircase)
    save("by-date", by_date)
    save("staleness", staleness)
