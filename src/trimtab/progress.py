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
    wanted: bool | Progress | None, max_cycles: int | None
) -> Iterator[Progress | None]:
    """Yield the progress callback of a fit."""
    if callable(wanted):
        yield wanted
    elif wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield None
    else:
        bar = _Bar(max_cycles or 1)
        try:
            yield bar.show
        finally:
            bar.close()


@contextmanager
def show_parts(wanted: bool | Progress | None, label: str) -> Iterator[Progress]:
    """Yield a function that shows how many parts of the users are done.

    Args:
        wanted: True, False, or None for a bar on a terminal only; or a function to call instead.
        label: what is done with the parts, to begin the line with.
    """
    if callable(wanted):
        yield wanted
    elif wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda cycle, done, total: None
    else:
        bar = _Bar(1, label)
        try:
            yield bar.show
        finally:
            bar.close()


class _Bar:
    def __init__(self, n_cycles: int, label: str | None = None) -> None:
        self._label = label
        self._started = time.monotonic()
        self._n_cycles = n_cycles
        self._bar: Any = None
        self._task: Any = None

    def show(self, cycle: int, done: int, total: int) -> None:
        """Draw the bar, unless the fit has only just started."""
        if self._bar is None:
            if time.monotonic() - self._started < _PATIENCE:
                return
            self._draw()
        share = min(1.0, (cycle - 1 + done / max(total, 1)) / self._n_cycles)
        self._bar.update(
            self._task,
            completed=share,
            description=self._label or f"learning, cycle {cycle}",
        )

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self._label or "learning", total=1.0)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
