"""What was learned: the parts of a reranker, forecasts, and the items raised and lowered most."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from trimtab.replay.judge import PARTS
from trimtab.report import charts
from trimtab.report.backtest.overview import TEXT, Overview, Row, group_by, where
from trimtab.report.charts import Chart, Mark, Panels
from trimtab.report.page import Block, Section
from trimtab.report.words import compact, day, decimal, is_number

N_MOVED = 15
_SALES_LEGEND = (
    Mark("week before", kind="hollow"),
    Mark("in the window", "ochre", "tick"),
    Mark("in the test", kind="full"),
)


# Parts of a reranker ----------------------------------------------------------------------------


def parts_section(view: Overview) -> Section | None:
    """Return what each part of each reranker adds on every engine."""
    rows = view.select("parts", objective=view.objective_of("parts"))
    rows = where(rows, part=PARTS, method=view.names)
    if not rows:
        return None
    gains = group_by([*rows, *_whole_rows(view, rows)], ("method", "engine", "part"), "gain")
    methods = dict.fromkeys(row["method"] for row in rows)
    engines = [engine for engine in view.engines if where(rows, engine=engine)]
    metric = view.name_metric(rows[0]["objective"])
    made = [TEXT.table("parts_table", view, gains, own, engines, metric) for own in methods]
    text = TEXT.paragraphs("parts", view, gains, rows[0]["method"], engines[0], metric)
    return Section("parts", text, made)


def _whole_rows(view: Overview, rows: Sequence[Row]) -> list[Row]:
    """Return the lifts of rerankers with all parts, as the part `all`."""
    methods = {row["method"] for row in rows}
    return [
        {**row, "part": "all", "used": True, "gain": row["lift"], "gain_low": row["lift_low"],
         "gain_high": row["lift_high"]}
        for row in view.judged(method=methods, metric=rows[0]["objective"])
    ]  # fmt: skip


# Forecasts and holes ----------------------------------------------------------------------------


def forecast_section(view: Overview) -> Section | None:
    """Return the forecast of each method beside the lift that came, as means over dates."""
    metric, keys = view.objective_of("forecasts"), ("date", "engine", "method")
    lifts = view.judged_by(*keys, metric=metric)
    found = []
    for row in view.select("forecasts", objective=metric):
        lift = lifts.get(itemgetter(*keys)(row), {"lift": None})["lift"]
        low, high = row["forecast_low"], row["forecast_high"]
        if all(map(is_number, (lift, row["forecast"], low, high))):
            found.append({**row, "lift": lift, "inside": int(low <= lift <= high)})
    if not found:
        return None
    by_method = group_by(found, ("engine", "method"), "lift")
    order = [(engine, method) for engine in view.engines for method in view.names]
    shown = {key: by_method[key] for key in order if key in by_method}
    text = TEXT.paragraphs("forecasts", sum(row["inside"] for row in found), len(found))
    return Section("forecasts", text, [TEXT.table("forecast_table", view, metric, shown)])


def holes_section(view: Overview) -> Section | None:
    """Return all days with far fewer events than usual; None if there are none."""
    if not view.holes:
        return None
    return Section("holes", TEXT.paragraphs("holes"), [TEXT.table("holes_table", view)])


# Biases -----------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """The items that a fit raised and lowered most, those moved most first."""

    title: str
    raised: list[Row]
    lowered: list[Row]

    def draw(self) -> Panels:
        """Return their sales before, in and after the window."""
        kinds = {"Raised most": self.raised, "Lowered most": self.lowered}
        about = f"{self.title}: buyers per week before, in the window and after, by item."
        made = [
            Chart(kind, f"{kind}, {about}", charts.sales_chart(_sales_rows(rows)))
            for kind, rows in kinds.items()
            if rows
        ]
        return Panels(self.title, made, _SALES_LEGEND)


def moved_items(view: Overview) -> list[Moved]:
    """Return the items moved on the first engine, on the dates and for the metric shown."""
    objective, found = view.objective_of("biases"), []
    for date in view.shown_dates():
        known = view.select("biases", engine=view.engine, date=date, objective=objective)
        rows = [row for row in known if is_number(row["bias"])]
        rows.sort(key=lambda row: (-row["bias"], row["item_id"]))
        for method in view.own_methods or view.rivals:
            own, name = where(rows, method=method), view.names[method]
            raised = [row for row in own[:N_MOVED] if row["bias"] > 0]
            lowered = [row for row in reversed(own[-N_MOVED:]) if row["bias"] < 0]
            if raised or lowered:
                found.append(Moved(f"{name.short}, {day(date)}", raised, lowered))
    return found


def moved_section(view: Overview) -> Section | None:
    """Return the items raised and lowered most, with their sales before and after."""
    found = moved_items(view)
    if not found:
        return None
    blocks: list[Block] = []
    for own in found:
        blocks += [own.draw(), TEXT.table("moved_table", own, folded=True)]
    return Section("moved", TEXT.paragraphs("moved", view, found), blocks)


def _sales_rows(rows: Sequence[Row]) -> list[charts.ChartRow]:
    names = [row["name"] or row["item_id"] for row in rows]
    made: list[charts.ChartRow] = []
    for name, row in zip(names, rows, strict=True):
        label = name if names.count(name) == 1 else f"{row['item_id']} {name}"
        sales = {time: row[f"sales_{time}"] for time in ("before", "recent", "after")}
        texts = " → ".join(decimal(value, 0) for value in sales.values())
        tip = f"{name}: bias {compact(row['bias'])}, buyers per week {texts}"
        made.append({"label": label, "tip": tip, **sales})
    return made
