"""How long a run of many cells still takes, from how long the finished ones took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean
from typing import NamedTuple


class CellDone(NamedTuple):
    """A cell that is finished, and what is left."""

    name: str
    place: int  # from 1
    total: int
    seconds: float | None  # None if an earlier run had finished it
    left: float | None  # seconds, estimated; None if nothing is known yet


Done = Callable[[CellDone], None]


class Pace:
    """Counts finished cells and estimates the time of the others.

    A cell is expected to take as long as the finished ones of the same kind did on average; without
    one, as long as all of them.

    Example:
        >>> pace = Pace(["markov", "als", "markov", "als"], [False, False, False, True])
        >>> pace.finish("1 May, markov", 3.0).left
        6.0
        >>> pace.finish("1 May, als", 9.0).left
        3.0
    """

    def __init__(self, kinds: Sequence[str], stored: Sequence[bool]) -> None:
        """Begin a run.

        Args:
            kinds: kind of each cell, in order, such as its engine.
            stored: whether an earlier run has finished the cell.
        """
        self._kinds, self._stored = kinds, stored
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._n_done = 0

    def finish(self, name: str, seconds: float | None) -> CellDone:
        """Return the next cell as finished; seconds is None if it was read, not run."""
        if seconds is not None:
            self._seconds[self._kinds[self._n_done]].append(seconds)
        self._n_done += 1
        return CellDone(name, self._n_done, len(self._kinds), seconds, self._left())

    def _left(self) -> float | None:
        if not self._seconds:
            return None
        overall = mean(second for own in self._seconds.values() for second in own)
        cells = zip(self._kinds[self._n_done :], self._stored[self._n_done :], strict=True)
        return sum(
            mean(self._seconds[kind]) if kind in self._seconds else overall
            for kind, stored in cells
            if not stored
        )
