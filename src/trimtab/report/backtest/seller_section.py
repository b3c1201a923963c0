"""The section about best sellers: their ranks month by month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.report.backtest.overview import Overview, Row
from trimtab.report.blocks import Block, Cell, Chart, Mark, Panels, Section, Table, name_cell
from trimtab.report.charts import ChartRow, css_colour, rank_chart
from trimtab.report.words import count, is_number, month, shorten

_COLOURS = ("blue", "orange", "green", "pink", "ochre", "violet", "teal", "wine", "olive", "indigo")


def sellers_section(view: Overview) -> Section | None:
    """Return the ranks of the best sellers by month."""
    rows = [row for row in view.results.table("sellers").to_pylist() if is_number(row["rank"])]
    if not rows:
        return None
    items = _sort_items(rows)
    names = {row["item_id"]: str(row["name"] or row["item_id"]) for row in rows}
    order = {item: place for place, item in enumerate(items)}
    points = [
        _make_point(row, names, order[row["item_id"]], rows)
        for row in sorted(rows, key=lambda row: (row["month"], order[row["item_id"]]))
    ]
    chart = Chart("", "Rank of each best seller by month, one line per item.", rank_chart(points))
    marks = [
        Mark(f"{place + 1}  {shorten(names[item], 60)}", _COLOURS[place % len(_COLOURS)])
        for item, place in order.items()
    ]
    blocks: list[Block] = [
        Panels("Rank among all items, by buyers in the month", [chart], marks),
        _make_table(rows, items, names),
    ]
    return Section(
        "sellers", "How best sellers come and go", [describe_sellers(rows, names)], blocks
    )


def describe_sellers(rows: Sequence[Row], names: Mapping[str, str]) -> str:
    """Return how many best sellers stayed on top, and which one moved most."""
    ranks: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        ranks.setdefault(row["item_id"], []).append((row["rank"], row["month"]))
    steady = sum(max(own)[0] <= len(ranks) for own in ranks.values())
    widest = max(ranks, key=lambda item: (max(ranks[item])[0] / max(1, min(ranks[item])[0]), item))
    (high, high_month), (low, low_month) = min(ranks[widest]), max(ranks[widest])
    return (
        f"{steady} of the {len(ranks)} best sellers of the whole log stayed in the top "
        f"{len(ranks)} every month; {names[widest]} moved most, between rank {count(high)} "
        f"({month(high_month)}) and rank {count(low)} ({month(low_month)})."
    )


def _sort_items(rows: Sequence[Row]) -> list[str]:
    """Return items by buyers in all months, most first."""
    buyers: dict[str, int] = {}
    for row in rows:
        buyers[row["item_id"]] = buyers.get(row["item_id"], 0) + (row["buyers"] or 0)
    return sorted(buyers, key=lambda item: (-buyers[item], item))


def _make_point(row: Row, names: Mapping[str, str], place: int, rows: Sequence[Row]) -> ChartRow:
    own = [other["month"] for other in rows if other["item_id"] == row["item_id"]]
    tip = f"{names[row['item_id']]}, {month(row['month'])}: rank {count(row['rank'])}"
    number = str(place + 1)
    return {
        "x": month(row["month"]), "y": row["rank"], "series": number, "number": number,
        "end": row["month"] in (min(own), max(own)),
        "colour": css_colour(_COLOURS[place % len(_COLOURS)]), "tip": tip,
    }  # fmt: skip


def _make_table(rows: Sequence[Row], items: Sequence[str], names: Mapping[str, str]) -> Table:
    months = sorted({row["month"] for row in rows})
    ranks = {(row["item_id"], row["month"]): row["rank"] for row in rows}
    body = [
        [name_cell(names[item]), *(Cell(count(ranks.get((item, text)))) for text in months)]
        for item in items
    ]
    columns = ["item", *(month(text) for text in months)]
    return Table("rank of each item by month", columns, body, folded=True)
