"""A backtest in the terminal: what to do in a few lines, or all tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from trimtab.replay.results import Results
from trimtab.report.backtest_page import headline, make_sections
from trimtab.report.overview import TEXT, Overview
from trimtab.report.page import Table, flatten

_SHOWN = ("method", "lift", "worst date", "dates below 0")  # fits 80 columns; the page has all
_STYLES = {"gain": "green", "loss": "red", "mixed": "yellow", "name": "bold"}


def print_summary(results: Results, console: Console) -> None:
    """Print what to do, why, and the lifts of each method on the first engine."""
    view = Overview(results)
    section = headline(view)
    for sentence in (f"{section.title}.", *section.sentences):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if view.ranked(view.engine):
        table = TEXT.table("records_table", view, view.metric)
        table.rows = [row for row in table.rows if row[1].text]  # the engine alone has no lift
        places = [place for place, name in enumerate(table.columns) if name in _SHOWN]
        console.print(_make_rich_table(table, places))


def print_tables(results: Results, console: Console) -> None:
    """Print the sentences of each section, and its tables except folded ones."""
    *sections, _ = make_sections(Overview(results), all_tables=True)  # the guide is for the page
    for section in sections:
        tables = [b for b in flatten(section.blocks) if isinstance(b, Table) and not b.folded]
        console.rule(escape(section.title))
        for sentence in section.sentences:
            console.print(sentence, markup=False, highlight=False)
        for table in tables:
            console.print(_make_rich_table(table, range(len(table.columns))))


def _make_rich_table(table: Table, places: Sequence[int]) -> RichTable:
    """Return a table of these columns; cells of a table that is too wide are wrapped."""
    shown = RichTable(
        title=escape(table.caption), title_justify="left", title_style="italic",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    for place in places:
        heading = escape(table.columns[place])
        shown.add_column(heading, justify="left" if place < table.n_headings else "right")
    for row in table.rows:
        cells = [row[place] for place in places]
        texts = ("\n".join(filter(None, [cell.text, cell.note])) for cell in cells)
        styles = (_STYLES.get(cell.kind, "") for cell in cells)
        shown.add_row(*map(Text, texts, styles))
    return shown
