"""How commands print: sentences, tables, JSON, and a progress bar for long work."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from trimtab.errors import DataError, StoreError
from trimtab.replay.results import INCOMPLETE, CellDone
from trimtab.tables.files import count_formulas, is_csv

console = Console()
_WIDEST = 1_000  # characters


def escape_controls(text: str) -> str:
    """Return text without characters that a terminal would obey: they are written as escapes.

    An error may quote a damaged file.
    """
    return "".join(
        letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text
    )


def say(text: str) -> None:
    """Print a sentence unchanged and on one line, however long it is."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def write_page(
    kind: str, results: Any, page: Path | None, quiet: bool = False, **options: Any
) -> None:
    """Write a page, unless it is None, and print its address, to open it from a terminal.

    `kind` is that of a function of `trimtab.report`: report, month or verdict.
    """
    from trimtab import report

    if page is not None:
        getattr(report, f"write_{kind}")(results, page, **options)
        if not quiet:
            say(f"page: {page.resolve().as_uri()}")


@contextlib.contextmanager
def page_if_stopped(
    load: Callable[[], Any], of: str, kind: str, page: Path | None
) -> Iterator[None]:
    """Write a page of what is finished if the work stops before its end.

    Args:
        load: returns the results, or raises if nothing is finished.
        of: what is counted, after the numbers.
        kind: as for `write_page`.
        page: as for `write_page`.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(StoreError, DataError):
            results = load()
            if INCOMPLETE in results.about:
                say("incomplete: {done} of {total} ".format(**results.about[INCOMPLETE]) + of)
                write_page(kind, results, page)
        raise


def say_about(macro: str, *about: Any) -> None:
    """Print what a macro of `printed.jinja` says, a line for each of its paragraphs."""
    for text in _words().paragraphs(macro, *about):
        say(text)


@cache
def _words() -> Any:
    from trimtab.report.page import Text

    return Text("printed.jinja", percent=percent, share="{:.0%}".format)


def say_formulas(table: pa.Table, out: Path, escape: bool) -> None:
    """Say how many texts in a CSV file begin like a formula, and whether they were changed."""
    count = count_formulas(table) if is_csv(out) else 0
    if not count:
        return
    begin = f"{count} texts in {out} begin with =, +, -, @, a tab or a return"
    if escape:
        say(f"{begin}: --escape put an apostrophe before them, so these ids differ from yours")
    else:
        say(f"{begin}: a spreadsheet may run them as formulas; --escape changes them")


def print_json(value: Any) -> None:
    """Print a value as JSON; numbers that are not finite become null."""
    print(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with borders."""
    table = Table(*columns)
    _fill(table, rows)
    console.print(table)


def print_numbers(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a narrow table: names in the first column, numbers on the right in the others."""
    first, *others = columns
    right = (Column(name, justify="right", no_wrap=True) for name in others)
    table = Table(
        Column(first, no_wrap=True), *right, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False,
        padding=(0, 0, 0, 1),
    )  # fmt: skip
    _fill(table, rows)
    wide = console.options.update(max_width=_WIDEST)
    table.width = Measurement.get(console, wide, table).maximum  # print(width=) caps it
    console.print(table, crop=False, no_wrap=True)  # numbers are never cut


def _fill(table: Table, rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        table.add_row(*map(Text, row))  # names of items may look like markup


class Steps:
    """Shows how far long work is: on a bar, or without one as a line for each finished cell."""

    def __init__(self, bar: Any = None) -> None:
        self._bar, self._n_begun = bar, 0

    def __call__(self, text: str) -> None:
        """Show the step that begins."""
        if self._bar is not None:
            self._bar.update(0, description=text, completed=self._n_begun)
        self._n_begun += 1

    def done(self, cell: CellDone) -> None:
        """Show that a cell is finished, how long it took, and how long the others will take."""
        left = f"about {describe_seconds(cell.left)} left" if cell.left else ""
        if self._bar is not None:
            self._bar.update(0, left=left)
            return
        took = "done earlier" if cell.seconds is None else describe_seconds(cell.seconds)
        line = f"{cell.place} of {cell.total}: {cell.name}, {took}{left and '; '}{left}"
        print(line, file=sys.stderr, flush=True)


def describe_seconds(seconds: float) -> str:
    """Return '45 s', '12 min' or '1 h 20 min'."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Steps]:
    """Yield a function to call before each of `total` steps with a short description of it.

    Its method `done` takes finished cells. On stderr, a bar is drawn if that is a terminal;
    otherwise a line is printed per finished cell.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield Steps()
        return
    texts = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *texts)
    with Progress(*columns, console=screen, transient=True) as bar:
        bar.add_task("starting", total=total, left="")
        yield Steps(bar)


def percent(value: float | None, none: str = "-") -> str:
    """Return a lift as text."""
    return none if value is None else f"{value:+.1%}"
