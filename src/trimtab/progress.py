"""A progress bar for long fits, on stderr; it disappears at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[int, int, int], None]  # cycle, items done in it, items in it

_PATIENCE = 1.5  # seconds; shorter fits show nothing


def progress_reporter(
    wanted: bool | Progress | None, max_cycles: int | None, n_bags: int
) -> tuple[Callable[[int], Progress | None], Callable[[], None]]:
    """Return a function that gives each bag its progress callback, and one to call at the end."""
    if callable(wanted):
        return (lambda bag: wanted), lambda: None
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return (lambda bag: None), lambda: None
    bar = _Bar(max_cycles or 1, n_bags)
    return (lambda bag: lambda cycle, done, total: bar.show(bag, cycle, done, total)), bar.close


class _Bar:
    def __init__(self, n_cycles: int, n_bags: int) -> None:
        self._started = time.monotonic()
        self._n_cycles = n_cycles
        self._n_bags = n_bags
        self._bar: Any = None
        self._task: Any = None

    def show(self, bag: int, cycle: int, done: int, total: int) -> None:
        """Draw the bar, unless the fit has only just started."""
        if self._bar is None:
            if time.monotonic() - self._started < _PATIENCE:
                return
            self._draw()
        share_of_bag = min(1.0, (cycle - 1 + done / max(total, 1)) / self._n_cycles)
        which_bag = f", bag {bag + 1} of {self._n_bags}" if self._n_bags > 1 else ""
        self._bar.update(
            self._task,
            completed=(bag + share_of_bag) / self._n_bags,
            description=f"learning, cycle {cycle}{which_bag}",
        )

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task("learning", total=1.0)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
