"""The tables of a report in the terminal, at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from trimtab.experiments.results import Results
from trimtab.report.backtest.backtest_page import make_sections
from trimtab.report.backtest.overview import make_overview
from trimtab.report.blocks import Cell, Table

_STYLES = {"gain": "green", "loss": "red", "name": "bold"}
_NAME_WIDTH = 24  # longer names wrap
_GAP = 2  # between columns


def print_tables(results: Results, console: Console) -> None:
    """Print the sentences of each section, and its tables except folded ones."""
    for section in make_sections(make_overview(results)):
        tables = [b for b in section.blocks if isinstance(b, Table) and not b.folded]
        if section.key != "headline" and not tables:
            continue
        console.rule(escape(section.title))
        for sentence in section.sentences:
            console.print(sentence, markup=False, highlight=False)
        for table in tables:
            for part in _fit_width(table, console.width):
                console.print(part)


def _fit_width(table: Table, width: int) -> Iterator[RichTable]:
    """Return the table with notes if they fit, otherwise without them and in parts if needed."""
    if sum(_find_widths(table)) > width:
        bare = [[replace(cell, note="") for cell in row] for row in table.rows]
        table = replace(table, rows=bare)
    widths = _find_widths(table)
    room = width - sum(widths[: table.n_headings])
    chosen: list[int] = []
    for places in _column_groups(table):
        if chosen and sum(widths[place] for place in (*chosen, *places)) > room:
            yield _rich_table(table, chosen, widths)
            chosen = []
        chosen += places
    yield _rich_table(table, chosen, widths)


def _column_groups(table: Table) -> Iterator[list[int]]:
    """Return columns that stay together: those under one heading."""
    place = 0
    for _, width in table.groups or [("", 1)] * len(table.columns):
        yield [p for p in range(place, place + width) if p >= table.n_headings]
        place += width


def _find_widths(table: Table) -> list[int]:
    widths = []
    for place, heading in enumerate(_headings(table)):
        texts = [heading, *(_cell_text(row[place]) for row in table.rows)]
        widest = max(cell_len(line) for text in texts for line in text.split("\n"))
        widths.append(_GAP + (min(widest, _NAME_WIDTH) if place < table.n_headings else widest))
    return widths


def _rich_table(table: Table, chosen: Sequence[int], widths: Sequence[int]) -> RichTable:
    shown = RichTable(
        title=escape(table.caption), title_justify="left", title_style="italic",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    headings = _headings(table)
    names = range(table.n_headings)
    for place in (*names, *chosen):
        shown.add_column(
            escape(headings[place]), justify="left" if place in names else "right",
            no_wrap=place not in names, width=widths[place] - _GAP,
        )  # fmt: skip
    for row in table.rows:
        cells = (row[place] for place in (*names, *chosen))
        shown.add_row(*(Text(_cell_text(cell), _STYLES.get(cell.kind, "")) for cell in cells))
    return shown


def _headings(table: Table) -> list[str]:
    """Return column names, each after the heading over it if there is one."""
    over = [heading for heading, width in table.groups for _ in range(width)]
    over += [""] * (len(table.columns) - len(over))
    return [f"{group}\n{name}".strip() for group, name in zip(over, table.columns, strict=True)]


def _cell_text(cell: Cell) -> str:
    """Return a cell's text and its note below; a name like "decay: older ..." ends at the colon."""
    text = cell.text.partition(":")[0] if cell.kind == "name" else cell.text
    return "\n".join(filter(None, [text, cell.note]))
