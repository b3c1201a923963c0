"""A backtest in the terminal: what to do in a few lines, or all tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from trimtab.replay.results import Results
from trimtab.report.backtest import make_sections
from trimtab.report.backtest.judged import headline, records_table
from trimtab.report.backtest.overview import Overview
from trimtab.report.page import Cell, Table, flatten

_SHOWN = ("method", "lift", "worst date", "dates below 0")  # fits 80 columns; the page has all
_STYLES = {"gain": "green", "loss": "red", "mixed": "yellow", "name": "bold"}


def print_summary(results: Results, console: Console) -> None:
    """Print what to do, why, and the lifts of each method on the first engine."""
    view = Overview(results)
    section = headline(view)
    for sentence in (f"{section.title}.", *section.sentences):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if view.ranked(view.engine):
        table = records_table(view, view.metric)
        table.rows = [row for row in table.rows if row[1].text]  # the engine alone has no lift
        table.groups = ()
        places = [place for place, name in enumerate(table.columns) if name in _SHOWN]
        console.print(_make_rich_table(table, places))


def print_tables(results: Results, console: Console) -> None:
    """Print the sentences of each section, and its tables except folded ones."""
    for section in make_sections(Overview(results), all_tables=True):
        tables = [b for b in flatten(section.blocks) if isinstance(b, Table) and not b.folded]
        if section.key != "headline" and not tables:
            continue
        console.rule(escape(section.title))
        for sentence in section.sentences:
            console.print(sentence, markup=False, highlight=False)
        for table in tables:
            for part in _split_table(table, console):
                console.print(part)


def _split_table(table: Table, console: Console) -> list[RichTable]:
    """Return the table, or one table per group of columns if it is too wide."""
    whole = _make_rich_table(table, range(len(table.columns)))
    wide = console.options.update(max_width=10_000)
    if not table.groups or console.measure(whole, options=wide).maximum <= console.width:
        return [whole]
    ends = accumulate(span for _, span in table.groups)
    names = range(table.n_headings)
    return [_make_rich_table(table, [*names, *range(*pair)]) for pair in pairwise(ends)]


def _make_rich_table(table: Table, places: Sequence[int]) -> RichTable:
    shown = RichTable(
        title=escape(table.caption), title_justify="left", title_style="italic",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    over = [heading for heading, width in table.groups for _ in range(width)]
    for place in places:
        heading = "\n".join(filter(None, [*over[place : place + 1], table.columns[place]]))
        is_name = place < table.n_headings
        shown.add_column(
            escape(heading), justify="left" if is_name else "right", no_wrap=not is_name
        )
    for row in table.rows:
        cells = [row[place] for place in places]
        shown.add_row(*(Text(_write_cell(cell), _STYLES.get(cell.kind, "")) for cell in cells))
    return shown


def _write_cell(cell: Cell) -> str:
    """Return a cell's text and its note below; a name like "decay: older ..." ends at the colon."""
    text = cell.text.partition(":")[0] if cell.kind == "name" else cell.text
    return "\n".join(filter(None, [text, cell.note]))
