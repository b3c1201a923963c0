"""A progress bar for long fits, on stderr; it disappears at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[int, int, int], None]  # cycle, items done in it, items in it

_PATIENCE = 1.5  # seconds; shorter fits show nothing


@contextmanager
def progress_reporter(
    wanted: bool | Progress | None, max_cycles: int | None = 1, label: str | None = None
) -> Iterator[Progress]:
    """Yield the progress callback of a fit, or of other work if there is a label.

    Args:
        wanted: True, False, or None for a bar on a terminal only; or a function to call instead.
        max_cycles: of the fit; None if there is no limit.
        label: what is done, to begin the line with.
    """
    if callable(wanted):
        yield wanted
    elif wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda cycle, done, total: None
    else:
        started, n_cycles = time.monotonic(), max_cycles or 1
        bar: Any = None

        def show(cycle: int, done: int, total: int) -> None:
            """Draw the bar, unless the fit has only just started."""
            nonlocal bar
            description = label or f"learning, cycle {cycle}"
            if bar is None and time.monotonic() - started < _PATIENCE:
                return
            bar = bar or _start_bar(description)
            share = min(1.0, (cycle - 1 + done / max(total, 1)) / n_cycles)
            bar.update(bar.task_ids[0], completed=share, description=description)

        try:
            yield show
        finally:
            if bar is not None:
                bar.stop()


def _start_bar(description: str) -> Any:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    bar = RichProgress(console=Console(stderr=True), transient=True)
    bar.start()
    bar.add_task(description, total=1.0)
    return bar
