"""The section about the parts of a reranker: what each of them adds to its lift."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.replay.judge import PARTS
from trimtab.report import blocks, charts
from trimtab.report.backtest.lift_blocks import MEAN_MARK
from trimtab.report.backtest.overview import (
    DateGroup,
    Lift,
    Overview,
    Row,
    choose_objective,
    find_spread,
)
from trimtab.report.blocks import Block, Cell, Chart, Panels, Section, Table, name_cell
from trimtab.report.words import (
    NOTHING,
    SPACE,
    Name,
    capitalize,
    interval,
    is_number,
    join_words,
    percent,
    points,
)

_NAMES = {
    "trend": Name("trend: one bias per item", "trend", "trend", "blue"),
    "personal": Name("own purchases: what the user bought before", "own purchases",
                     "own purchases", "wine"),
    "trending": Name("trending items added", "trending items added", "trending items", "ochre"),
    "own": Name("the user's own items added", "own items added", "the user's own items", "green"),
}  # fmt: skip
_NOT_USED = "not used"


def parts_section(view: Overview) -> Section | None:
    """Return what each part of each reranker adds on every engine."""
    rows = _find_rows(view)
    if not rows:
        return None
    made: list[Block] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        title = f"{view.names[method].short}, {view.name_metric(own[0]['objective'])}"
        for group in view.date_groups:
            made += _make_panels(view, own, title, group)
            made.append(_make_table(view, own, title, group))
    about = (
        "Each part was left out on the test days themselves. A gain is in percentage points of the "
        "lift over the engine alone. Both kinds of added items can bring the same hit, so the "
        "gains need not add up to the whole."
    )
    return Section("parts", "Where the gain comes from", [describe_parts(view, rows), about], made)


def _find_rows(view: Overview) -> list[Row]:
    """Return the gains of known methods and parts, for the objective that is shown."""
    table = view.results.table("parts")
    objective = choose_objective(table, view.metric)
    return [
        row
        for row in table.to_pylist()
        if row["objective"] == objective and row["part"] in _NAMES
        and row["method"] in view.names and row["date"] in view.dates
    ]  # fmt: skip


def _select(rows: Sequence[Row], engine: str, part: str, dates: Sequence[str]) -> list[Row]:
    wanted = {"engine": engine, "part": part}
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return [row for row in found if row["date"] in dates and is_number(row["gain"])]


def _mean(rows: Sequence[Row]) -> float | None:
    return sum(row["gain"] for row in rows) / len(rows) if rows else None


def describe_parts(view: Overview, rows: Sequence[Row]) -> str:
    """Return the lift of the first reranker on the first engine, and the gain of each part."""
    first = rows[0]
    engine = view.engines[0] if any(row["engine"] == view.engines[0] for row in rows) else ""
    engine, method, metric = engine or first["engine"], first["method"], first["objective"]
    own = [row for row in rows if row["method"] == method]
    gains = {part: _mean(_select(own, engine, part, view.dates)) for part in PARTS}
    texts = [f"{_NAMES[part].in_text} {points(gain)}" for part, gain in gains.items() if gain]
    whole = find_spread(view.judged(engine=engine, method=method, metric=metric))
    lift = "no lift" if whole is None else f"{percent(whole.mean)} in {view.name_metric(metric)}"
    mean = "" if len(view.dates) == 1 else f", mean of {len(view.dates)} dates"
    start = f"{capitalize(view.names[method].short)} on {engine}{mean}: {lift}."
    return f"{start} Gains: {join_words(texts)}." if texts else start


def _make_panels(view: Overview, rows: Sequence[Row], title: str, group: DateGroup) -> list[Panels]:
    points_of = {
        engine: [
            _make_point(part, found, view.few)
            for part in PARTS
            if (found := _select(rows, engine, part, group.dates))
        ]
        for engine in view.engines
    }
    domain = charts.find_domain(
        [row for own in points_of.values() for row in own], ("x", "low", "high")
    )
    made = [
        Chart(engine, f"What each part of the reranker adds on {engine}, {group.title}.",
              charts.dot_chart(own, domain))
        for engine, own in points_of.items() if own
    ]  # fmt: skip
    legend = blocks.INTERVAL_MARKS if view.few else [MEAN_MARK]
    return blocks.drawn_panels(f"What each part adds: {title}, {group.title}", made, legend)


def _make_point(part: str, rows: Sequence[Row], few: bool) -> charts.ChartRow:
    name, gains = _NAMES[part], [row["gain"] for row in rows]
    low, high, is_filled = min(gains), max(gains), True
    if few:
        low, high = rows[0]["gain_low"], rows[0]["gain_high"]
        is_filled = is_number(low) and is_number(high) and not low <= 0 <= high
    mean = _mean(rows)
    tip = f"{name.long}: {points(mean)} ({_range(low, high) or NOTHING})"
    if not any(row["used"] for row in rows):
        tip, is_filled = f"{name.long}: {_NOT_USED}", False
    return {
        "label": name.short, "x": mean, "low": low, "high": high, "filled": is_filled, "tip": tip,
        "colour": charts.css_colour(name.colour),
    }  # fmt: skip


def _make_table(view: Overview, rows: Sequence[Row], title: str, group: DateGroup) -> Table:
    """Return one row per part and one for the whole, one column per engine."""
    engines = [engine for engine in view.engines if any(row["engine"] == engine for row in rows)]
    make_cell = _date_cell if view.few else _mean_cell
    body = [
        [name_cell(_NAMES[part].long, _NAMES[part].colour),
         *(make_cell(_select(rows, engine, part, group.dates)) for engine in engines)]
        for part in PARTS
    ]  # fmt: skip
    wholes = [
        [lift for lift in view.judged(engine=engine, method=rows[0]["method"],
                                      metric=rows[0]["objective"]) if lift.date in group.dates]
        for engine in engines
    ]  # fmt: skip
    body.append([name_cell("all parts together"), *map(_whole_cell, wholes)])
    about = "gain and 95 % interval" if view.few else "mean gain, worst and best date"
    caption = f"Parts of the {title}, {group.title}: {about}, in percentage points"
    return Table(caption, ["part", *engines], body)


def _date_cell(rows: Sequence[Row]) -> Cell:
    if not rows or not rows[0]["used"]:
        return Cell(_NOT_USED if rows else NOTHING)
    low, high = rows[0]["gain_low"], rows[0]["gain_high"]
    sign = int(is_number(low) and low > 0) - int(is_number(high) and high < 0)
    return Cell(_bare(rows[0]["gain"]), _range(low, high), blocks.sign_class(sign))


def _mean_cell(rows: Sequence[Row]) -> Cell:
    gains, n_used = [row["gain"] for row in rows], sum(bool(row["used"]) for row in rows)
    if not n_used:
        return Cell(_NOT_USED if rows else NOTHING)
    note = _range(min(gains), max(gains))
    if n_used < len(rows):
        note += f"; used on {n_used} of {len(rows)} dates"
    return Cell(_bare(_mean(rows)), note)


def _whole_cell(lifts: Sequence[Lift]) -> Cell:
    found = find_spread(lifts)
    if found is None:
        return Cell(NOTHING)
    ends = (found.worst, found.best) if len(lifts) > 1 else (lifts[0].low, lifts[0].high)
    return Cell(_bare(found.mean), _range(*ends))


def _bare(value: object) -> str:
    return percent(value).removesuffix(f"{SPACE}%")


def _range(low: object, high: object) -> str:
    return interval(low, high).removesuffix(f"{SPACE}%")
