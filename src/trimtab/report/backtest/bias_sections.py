"""The sections about biases: how large they are, and which items they raise and lower most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.report import charts
from trimtab.report.backtest.overview import Overview, Row, choose_objective, select_rows
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.words import compact, count, day, decimal, distinct_labels, is_number

N_MOVED = 15
_N_DRAWN = 240  # points of a curve; both ends are drawn in full
_N_ENDS = 30
_NOTE = " Shown are the best, the worst and the last date."
_TIMES = ("before", "recent", "after")
_SALES = tuple(f"sales_{time}" for time in _TIMES)
_SALES_LEGEND = (
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
        """The items raised most, largest bias first."""
        return [row for row in self.rows[:N_MOVED] if row["bias"] > 0]

    @property
    def lowered(self) -> list[Row]:
        """The items lowered most, smallest bias first."""
        return [row for row in reversed(self.rows[-N_MOVED:]) if row["bias"] < 0]


def learned_biases(view: Overview) -> list[Learned]:
    """Return the biases of the first engine on the dates and for the metric shown."""
    table = view.results.table("biases")
    objective = choose_objective(table, view.metric)
    found = []
    for date in view.shown_dates():
        for method in view.methods:
            wanted = {"engine": view.engines[0], "date": date, "method": method}
            rows = select_rows(table, **wanted, objective=objective)
            rows = [row for row in rows if is_number(row["bias"]) and row["bias"] != 0]
            rows.sort(key=lambda row: (-row["bias"], row["item_id"]))
            found.append(Learned(date, method, objective, rows))
    return [fit for fit in found if fit.rows]


def curves_section(view: Overview, fits: Sequence[Learned]) -> Section | None:
    """Return the sorted values of the biases."""
    if not fits:
        return None
    sizes = [len(fit.rows) for fit in fits]
    ends = sorted({min(sizes), max(sizes)})
    sentence = (
        f"{' to '.join(map(count, ends))} items have a bias at work. Above 0 raises an "
        f"item, below 0 lowers it.{'' if view.few else _NOTE}"
    )
    objective = view.name_metric(fits[0].objective)
    title = f"Biases, largest first ({view.engines[0]}, learned for {objective})"
    blocks = [Panels(title, [_curve_chart(view, fit) for fit in fits])]
    return Section("curves", "How large the biases are", [sentence], blocks)


def _curve_chart(view: Overview, fit: Learned) -> Chart:
    name = view.names[fit.method]
    points = [
        charts.line_point(place + 1, fit.rows[place]["bias"], Mark("", name.colour))
        for place in choose_drawn(len(fit.rows))
    ]
    x, y = charts.count_axis("items with a bias at work"), charts.number_axis("bias", "~r")
    spec = charts.line_chart(points, x, y, 180, points=False, zero=True)
    title = f"{name.long}, {day(fit.date)}"
    return Chart(title, f"Sorted biases of {count(len(fit.rows))} items: {title}.", spec)


def choose_drawn(n_values: int) -> list[int]:
    """Return which of n sorted values a curve is drawn through: both ends in full, some between."""
    if n_values <= _N_DRAWN:
        return list(range(n_values))
    ends = {*range(_N_ENDS), *range(n_values - _N_ENDS, n_values)}
    step = (n_values - 1) / (_N_DRAWN - 1)
    return sorted(ends | {round(place * step) for place in range(_N_DRAWN)})


def moved_section(view: Overview, fits: Sequence[Learned]) -> Section | None:
    """Return the items raised and lowered most, with their sales before and after."""
    shown = [fit for fit in fits if fit.method in view.learned]
    if not shown:
        return None
    blocks: list[Block] = []
    for fit in shown:
        title = f"{view.names[fit.method].long}, {day(fit.date)}"
        blocks.append(Panels(title, _sales_charts(fit, title), _SALES_LEGEND))
        blocks.append(_sales_table(fit, title))
    title = f"Items raised and lowered most ({view.engines[0]})"
    note = "" if view.few else _NOTE
    return Section("moved", title, [describe_moved(shown) + note], blocks)


def describe_moved(fits: Sequence[Learned]) -> str:
    """Return how many raised items sold more, and how many lowered items sold less."""

    def growth(row: Row) -> float:
        return float(row["sales_after"] or 0.0) - float(row["sales_before"] or 0.0)

    up = [growth(row) for fit in fits for row in fit.raised]
    down = [growth(row) for fit in fits for row in fit.lowered]
    return (
        f"{sum(own > 0 for own in up)} of the {len(up)} items raised most sold more in the test "
        f"than in the week before the window; {sum(own < 0 for own in down)} of the {len(down)} "
        f"lowered most sold less."
    )


def _sales_charts(fit: Learned, title: str) -> list[Chart]:
    kinds = {"Raised most": fit.raised, "Lowered most": fit.lowered}
    sales = [row[name] for rows in kinds.values() for row in rows for name in _SALES]
    highest = max([1.0, *filter(is_number, sales)])
    about = "buyers per week before, in the window and after, by item."
    return [
        Chart(word, f"{word}, {title}: {about}", charts.sales_chart(_sales_points(rows), highest))
        for word, rows in kinds.items()
        if rows
    ]


def _sales_points(rows: Sequence[Row]) -> list[charts.ChartRow]:
    names = [_find_name(row) for row in rows]
    labels = distinct_labels(names, [row["item_id"] for row in rows], 34)
    points: list[charts.ChartRow] = []
    for label, name, row in zip(labels, names, rows, strict=True):
        sales = [row[column] for column in _SALES]
        tip = f"{name}: bias {compact(row['bias'])}, buyers per week "
        tip += " → ".join(decimal(value, 0) for value in sales)
        points.append({"label": label, "tip": tip, **dict(zip(_TIMES, sales, strict=True))})
    return points


def _find_name(row: Row) -> str:
    return str(row["name"] or row["item_id"])


def _sales_table(fit: Learned, title: str) -> Table:
    body = [
        [name_cell(_find_name(row)), Cell(compact(row["bias"])),
         *(Cell(decimal(row[column], 0)) for column in _SALES)]
        for row in (*fit.raised, *fit.lowered)
    ]  # fmt: skip
    columns = ["item", "bias", "week before", "in the window, per week", "in the test, per week"]
    return Table(f"{title}: biases, and buyers per week", columns, body, folded=True)
