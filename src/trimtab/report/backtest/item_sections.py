"""Sections about items: how large biases are, and which items they raise and lower most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.report.backtest import item_sentences
from trimtab.report.backtest.figures import Overview, Row, objective_of, select
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table
from trimtab.report.charts import (
    ChartRow,
    dumbbell_chart,
    highest_sales,
    ink,
    line_chart,
    numbers,
    quantity,
)
from trimtab.report.words import (  # fmt: skip
    compact,
    count,
    day,
    decimal,
    is_number,
    metric_name,
    told_apart,
)

N_MOVED = 15
_N_DRAWN = 240  # points of a curve; its ends are drawn in full
_N_ENDS = 30
_SALES = (
    Mark("week before", kind="hollow"),
    Mark("in the window", "ochre", "tick"),
    Mark("in the test", kind="full"),
)


@dataclass(frozen=True)
class Learned:
    """The biases of one fit, largest first."""

    date: str
    method: str
    objective: str
    rows: Sequence[Row]

    @property
    def raised(self) -> list[Row]:
        """The items raised most, the most first."""
        return [row for row in self.rows[:N_MOVED] if row["bias"] > 0]

    @property
    def lowered(self) -> list[Row]:
        """The items lowered most, the most first."""
        return [row for row in reversed(self.rows[-N_MOVED:]) if row["bias"] < 0]


def learned_biases(view: Overview) -> list[Learned]:
    """The biases of the first engine on the dates shown, learned for the metric shown."""
    table = view.results.table("biases")
    objective = objective_of(table, view.metric)
    found = []
    for date in view.shown_dates():
        for method in view.methods:
            wanted = {"engine": view.engines[0], "date": date, "method": method}
            rows = select(table, **wanted, objective=objective)
            rows = [row for row in rows if is_number(row["bias"]) and row["bias"] != 0]
            rows.sort(key=lambda row: (-row["bias"], row["item_id"]))
            found.append(Learned(date, method, objective, rows))
    return [fit for fit in found if fit.rows]


def curves_section(view: Overview, fits: Sequence[Learned]) -> Section | None:
    """The sorted values of the biases."""
    if not fits:
        return None
    charts = [_curve(view, fit) for fit in fits]
    title = f"Biases, largest first ({view.engines[0]}, learned for {_objective(view, fits)})"
    sentence = item_sentences.curves(view, fits)
    return Section("curves", "How large the biases are", sentence, [Panels(title, charts)])


def _objective(view: Overview, fits: Sequence[Learned]) -> str:
    return metric_name(fits[0].objective, view.cutoff)


def _curve(view: Overview, fit: Learned) -> Chart:
    name = view.names[fit.method]
    rows: list[ChartRow] = [
        {"x": place + 1, "y": fit.rows[place]["bias"], "series": 0, "colour": ink(name.colour)}
        for place in drawn_places(len(fit.rows))
    ]
    y = quantity("bias", "~r")
    spec = line_chart(rows, numbers("items with a bias at work"), y, 180, points=False, zero=True)
    title = f"{name.long}, {day(fit.date)}"
    return Chart(title, f"Sorted biases of {count(len(fit.rows))} items: {title}.", spec)


def drawn_places(n_values: int) -> list[int]:
    """Which of n sorted values a curve is drawn through: both ends in full, some between."""
    if n_values <= _N_DRAWN:
        return list(range(n_values))
    ends = {*range(_N_ENDS), *range(n_values - _N_ENDS, n_values)}
    step = (n_values - 1) / (_N_DRAWN - 1)
    return sorted(ends | {round(place * step) for place in range(_N_DRAWN)})


def moved_section(view: Overview, fits: Sequence[Learned]) -> Section | None:
    """The items raised and lowered most, by name, with what they sold before and after."""
    shown = [fit for fit in fits if fit.method in view.biased]
    if not shown:
        return None
    blocks: list[Block] = []
    for fit in shown:
        title = f"{view.names[fit.method].long}, {day(fit.date)}"
        blocks.append(Panels(title, _dumbbells(fit, title), _SALES))
        blocks.append(_moved_table(fit, title))
    title = f"Items raised and lowered most ({view.engines[0]})"
    return Section("moved", title, item_sentences.moved(view, shown), blocks)


def _dumbbells(fit: Learned, title: str) -> list[Chart]:
    kinds = {"Raised most": _sales_points(fit.raised), "Lowered most": _sales_points(fit.lowered)}
    highest = highest_sales(row for rows in kinds.values() for row in rows)
    about = "buyers a week before, in the window and after, by item."
    return [
        Chart(word, f"{word}, {title}: {about}", dumbbell_chart(rows, highest))
        for word, rows in kinds.items() if rows
    ]  # fmt: skip


def _sales_points(rows: Sequence[Row]) -> list[ChartRow]:
    names = [item_name(row) for row in rows]
    labels = told_apart(names, [row["item_id"] for row in rows], 34)
    return [
        {
            "label": label, "before": row["sales_before"], "recent": row["sales_recent"],
            "after": row["sales_after"],
            "tip": f"{name}: bias {compact(row['bias'])}, {_sold(row)}",
        }
        for label, name, row in zip(labels, names, rows, strict=True)
    ]  # fmt: skip


def _sold(row: Row) -> str:
    numbers = [decimal(row[f"sales_{when}"], 0) for when in ("before", "recent", "after")]
    return f"buyers a week {' → '.join(numbers)}"


def item_name(row: Row) -> str:
    """What an item is called: its id if it has no name."""
    return str(row["name"] or row["item_id"])


def _moved_table(fit: Learned, title: str) -> Table:
    body = [
        [Cell(item_name(row), kind="name"), Cell(compact(row["bias"])),
         *(Cell(decimal(row[f"sales_{when}"], 0)) for when in ("before", "recent", "after"))]
        for row in (*fit.raised, *fit.lowered)
    ]  # fmt: skip
    columns = ["item", "bias", "week before", "in the window, a week", "in the test, a week"]
    caption = f"{title}: biases, and buyers a week"
    return Table(caption, columns, body, folded=True)
