"""What commands print on, and the bar that shows how far long work is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

console = Console()


def say(text: str) -> None:
    """Print a sentence as it is, on one line however long."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """A function to call before each of `total` steps with a few words on it.

    The bar is drawn on stderr where that is a terminal; elsewhere nothing is printed.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
    )  # fmt: skip
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("reading the log", total=total)
        begun = False

        def step(text: str) -> None:
            nonlocal begun
            bar.update(task, description=text, advance=1 if begun else 0)
            begun = True

        yield step


def link(path: Path) -> str:
    """A path that can be opened from a terminal."""
    return path.resolve().as_uri()
