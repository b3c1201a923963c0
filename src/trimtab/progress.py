"""A progress bar for long fits, on stderr, that goes away when done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[int, int, int], None]

_PATIENCE = 1.5  # seconds; shorter fits show nothing


@contextmanager
def progress_reporter(
    wanted: bool | Progress | None, max_cycles: int | None, n_fits: int
) -> Iterator[Callable[[int], Progress | None]]:
    """A function that returns the progress callback of each fit; the bar closes at the end."""
    if callable(wanted):
        yield lambda fit: wanted
    elif wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda fit: None
    else:
        bar = _Bar(max_cycles, n_fits)
        try:
            yield lambda fit: lambda cycle, done, of: bar.show(fit, cycle, done, of)
        finally:
            bar.close()


class _Bar:
    def __init__(self, max_cycles: int | None, n_bags: int) -> None:
        self._began = time.monotonic()
        self._cycles = max_cycles or 1
        self._bags = n_bags
        self._bar: Any = None
        self._task: Any = None

    def show(self, bag: int, cycle: int, done: int, of: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._began < _PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("learning", total=1.0)
        in_bag = min(1.0, (cycle - 1 + done / max(of, 1)) / self._cycles)
        self._bar.update(
            self._task,
            completed=(bag + in_bag) / self._bags,
            description=f"learning, cycle {cycle}" + (f", bag {bag + 1}" if self._bags > 1 else ""),
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
