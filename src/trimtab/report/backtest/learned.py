"""What was learned: the parts of a reranker, forecasts, and the items raised and lowered most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.replay.judge import PARTS
from trimtab.replay.results import HOLE_WINDOWS
from trimtab.report import charts, page
from trimtab.report.backtest.judged import MEAN_MARK, TEXT, make_dots
from trimtab.report.backtest.overview import (
    Overview,
    Row,
    find_spread,
    mean_by,
    sign_of,
    where,
)
from trimtab.report.charts import INTERVAL_MARKS, Chart, Mark, Panels
from trimtab.report.page import Block, Cell, Section, Table, name_cell
from trimtab.report.words import (
    NOTHING,
    Name,
    bare_percent,
    compact,
    count,
    day,
    decimal,
    distinct_labels,
    interval,
    is_number,
    percent,
    points,
)

N_MOVED = 15
_PARTS = {
    "trend": Name("trend: one bias per item", "trend", "trend", "blue"),
    "personal": Name("own purchases: what the user bought before", "own purchases",
                     "own purchases", "wine"),
    "trending": Name("trending items added", "trending items added", "trending items", "ochre"),
    "own": Name("the user's own items added", "own items added", "the user's own items", "green"),
}  # fmt: skip
_NOT_USED = "not used"
_SALES = {time: f"sales_{time}" for time in ("before", "recent", "after")}
_SALES_LEGEND = (
    Mark("week before", kind="hollow"),
    Mark("in the window", "ochre", "tick"),
    Mark("in the test", kind="full"),
)


# Parts of a reranker ----------------------------------------------------------------------------


def parts_section(view: Overview) -> Section | None:
    """Return what each part of each reranker adds on every engine."""
    rows = view.select("parts", objective=view.objective_of("parts"))
    rows = where(rows, part=_PARTS, method=view.names)
    if not rows:
        return None
    made: list[Block] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        made += _parts_blocks(view, where(rows, method=method))
    first = rows[0]
    engine = view.engine if where(rows, engine=view.engine) else first["engine"]
    gains = mean_by(where(rows, engine=engine, method=first["method"]), ["part"], "gain")
    named = [(_PARTS[part].in_text, gains.get((part,))) for part in PARTS]
    said = [(name, gain) for name, gain in named if gain]
    whole = find_spread(_whole_lifts(view, first, engine))
    return Section("parts", TEXT.paragraphs("parts", view, first, engine, whole, said), made)


def _whole_lifts(view: Overview, row: Row, engine: str) -> list[Row]:
    """Return the lifts of a reranker with all its parts."""
    return view.judged(engine=engine, method=row["method"], metric=row["objective"])


def _parts_blocks(view: Overview, rows: Sequence[Row]) -> list[Block]:
    """Return a chart per engine, and a table: one row per part and one for the whole."""
    engines = [engine for engine in view.engines if where(rows, engine=engine)]
    title = f"{view.names[rows[0]['method']].short}, {view.name_metric(rows[0]['objective'])}"
    dots: dict[str, list[charts.ChartRow]] = {engine: [] for engine in engines}
    body = []
    for part, name in _PARTS.items():
        cells = []
        for engine in engines:
            own = where(rows, engine=engine, part=part)
            drawn = make_dots(own, name, "gain", points)
            if not any(row["used"] for row in own):
                unused = {"filled": False, "tip": f"{name.long}: {_NOT_USED}"}
                drawn = [{**one, **unused} for one in drawn]
            dots[engine] += drawn
            cells.append(_gain_cell(own))
        body.append([name_cell(name), *cells])
    wholes = (_gain_cell(_whole_lifts(view, rows[0], engine), "lift") for engine in engines)
    body.append([name_cell("all parts together"), *wholes])
    every = [row for own in dots.values() for row in own]
    domain = charts.find_domain(every, ("x", "low", "high"))
    marks = [MEAN_MARK] if len(view.dates) > 1 else INTERVAL_MARKS
    about = "what each part of the reranker adds."
    shown = charts.dot_panels(f"What each part adds: {title}", dots, about, marks, domain)
    caption = f"Parts of the {title}{view.mean_note}: {TEXT.say('parts_table', view)}"
    return [*shown, Table(caption, ["part", *engines], body)]


def _gain_cell(rows: Sequence[Row], column: str = "gain") -> Cell:
    """Return the gain of one date with its interval, or a mean with the worst and the best."""
    found = find_spread(rows, column)
    n_used = sum(bool(row.get("used", True)) for row in rows)
    if found is None or not n_used:
        return Cell(NOTHING if found is None else _NOT_USED)
    if len(rows) > 1:
        some = f"; used on {n_used} of {len(rows)} dates" if n_used < len(rows) else ""
        return Cell(bare_percent(found.mean), interval(found.worst, found.best, "") + some)
    ends = interval(rows[0][f"{column}_low"], rows[0][f"{column}_high"], "")
    return Cell(bare_percent(found.mean), ends, page.sign_class(sign_of(rows[0], column)))


# Forecasts and holes ----------------------------------------------------------------------------


def forecast_section(view: Overview) -> Section | None:
    """Return the forecast of each method beside the lift that came, as means over dates."""
    metric, keys = view.objective_of("forecasts"), ("date", "engine", "method")
    lifts = {tuple(row[key] for key in keys): row["lift"] for row in view.judged(metric=metric)}
    found = []
    for row in view.select("forecasts", objective=metric):
        lift, (low, high) = lifts.get(tuple(row[key] for key in keys)), _forecast_ends(row)
        if all(map(is_number, (lift, row["forecast"], low, high))):
            found.append({**row, "lift": lift, "inside": low <= lift <= high})
    if not found:
        return None
    body = []
    for engine in view.engines:
        for method, name in view.names.items():
            if own := where(found, engine=engine, method=method):
                n_inside = sum(row["inside"] for row in own)
                (forecast,), (lift,) = (mean_by(own, [], c).values() for c in ("forecast", "lift"))
                ends = interval(*_forecast_ends(own[0])) if len(own) == 1 else ""
                cells = [Cell(percent(forecast), ends), percent(lift), f"{n_inside} of {len(own)}"]
                body.append([engine, name_cell(name), *cells])
    caption = f"{view.name_metric(metric)}: {TEXT.say('forecast_table', view)}"
    columns = ["engine", "method", "forecast", "lift", "inside"]
    text = TEXT.paragraphs("forecasts", sum(row["inside"] for row in found), len(found))
    return Section("forecasts", text, [Table(caption, columns, body, n_headings=2)])


def _forecast_ends(row: Row) -> tuple[Any, Any]:
    return row["forecast_low"], row["forecast_high"]


def holes_section(view: Overview) -> Section | None:
    """Return all days with far fewer events than usual; None if there are none."""
    if not view.holes:
        return None
    body = [
        [day(row["date"]), day(row["day"]), HOLE_WINDOWS[row["window"]], count(row["events"]),
         count(row["usual"])]
        for row in view.holes
    ]  # fmt: skip
    columns = ["date", "day", "in", "events", "usually"]
    table = Table("Days with far fewer events than usual", columns, body, n_headings=3)
    return Section("holes", TEXT.paragraphs("holes"), [table])


# Biases -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """The biases of one fit, largest first."""

    title: str
    method: str
    objective: str
    rows: Sequence[Row]

    @property
    def raised(self) -> list[Row]:
        """The items raised most, largest bias first."""
        return [row for row in self.rows[:N_MOVED] if row["bias"] > 0]

    @property
    def lowered(self) -> list[Row]:
        """The items lowered most, smallest bias first."""
        return [row for row in reversed(self.rows[-N_MOVED:]) if row["bias"] < 0]


def learned_biases(view: Overview) -> list[Learned]:
    """Return the biases of the first engine on the dates and for the metric shown."""
    objective = view.objective_of("biases")
    found = []
    for date in view.shown_dates():
        for method, name in view.names.items():
            wanted = {"engine": view.engine, "date": date, "method": method}
            rows = view.select("biases", **wanted, objective=objective)
            rows = [row for row in rows if is_number(row["bias"]) and row["bias"] != 0]
            rows.sort(key=lambda row: (-row["bias"], row["item_id"]))
            found.append(Learned(f"{name.long}, {day(date)}", method, objective, rows))
    return [fit for fit in found if fit.rows]


def moved_section(view: Overview, fits: Sequence[Learned]) -> Section | None:
    """Return the items raised and lowered most, with their sales before and after."""
    shown = [fit for fit in fits if fit.method in view.learned]
    if not shown:
        return None
    blocks: list[Block] = []
    for fit in shown:
        blocks.append(Panels(fit.title, _sales_charts(fit), _SALES_LEGEND))
        body = [
            [name_cell(_item_name(row)), compact(row["bias"]),
             *(decimal(row[column], 0) for column in _SALES.values())]
            for row in (*fit.raised, *fit.lowered)
        ]  # fmt: skip
        columns = [
            "item",
            "bias",
            "week before",
            "in the window, per week",
            "in the test, per week",
        ]
        caption = f"{fit.title}: biases, and buyers per week"
        blocks.append(Table(caption, columns, body, folded=True))
    up = [_growth(row) for fit in shown for row in fit.raised]
    down = [_growth(row) for fit in shown for row in fit.lowered]
    grown, fallen = sum(own > 0 for own in up), sum(own < 0 for own in down)
    text = TEXT.paragraphs("moved", view, grown, len(up), fallen, len(down))
    return Section("moved", text, blocks)


def _growth(row: Row) -> float:
    return float(row["sales_after"] or 0) - float(row["sales_before"] or 0)


def _sales_charts(fit: Learned) -> list[Chart]:
    kinds = {"Raised most": fit.raised, "Lowered most": fit.lowered}
    sales = [row[name] for rows in kinds.values() for row in rows for name in _SALES.values()]
    highest = max([1.0, *filter(is_number, sales)])
    about = "buyers per week before, in the window and after, by item."
    return [
        Chart(kind, f"{kind}, {fit.title}: {about}", charts.sales_chart(_sales_rows(rows), highest))
        for kind, rows in kinds.items()
        if rows
    ]


def _sales_rows(rows: Sequence[Row]) -> list[charts.ChartRow]:
    names = [_item_name(row) for row in rows]
    labels = distinct_labels(names, [row["item_id"] for row in rows], 34)
    made: list[charts.ChartRow] = []
    for label, name, row in zip(labels, names, rows, strict=True):
        sales = {time: row[column] for time, column in _SALES.items()}
        texts = " → ".join(decimal(value, 0) for value in sales.values())
        tip = f"{name}: bias {compact(row['bias'])}, buyers per week {texts}"
        made.append({"label": label, "tip": tip, **sales})
    return made


def _item_name(row: Row) -> str:
    return str(row["name"] or row["item_id"])
