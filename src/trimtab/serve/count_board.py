"""Numbers that all workers of a service share: one row per worker."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Combine: TypeAlias = Callable[[Iterable[float]], float]
N_PLACES = 1_024  # in a row
_ROW_BYTES = 8 * N_PLACES


class CountBoard:
    """Rows of numbers; each worker writes to its own row only, and reads all of them.

    Args:
        buffer: Memory for the rows, shared or not.
    """

    def __init__(self, buffer: Any) -> None:
        numbers = memoryview(buffer).cast("B").cast("d")
        self.rows = [
            numbers[start : start + N_PLACES] for start in range(0, len(numbers), N_PLACES)
        ]

    @classmethod
    def of_one(cls) -> CountBoard:
        """Return a board for one process."""
        return cls(bytearray(_ROW_BYTES))

    @classmethod
    def shared(cls, descriptor: int) -> CountBoard:
        """Return the board in a file that several processes have opened."""
        return cls(mmap.mmap(descriptor, os.fstat(descriptor).st_size))


def make_shared_file(n_workers: int) -> int:
    """Return the descriptor of a new file in memory, for a board; it ends with its processes."""
    descriptor = os.memfd_create("trimtab-counts")
    os.truncate(descriptor, n_workers * _ROW_BYTES)
    return descriptor


class Count:
    """One number of a worker; its value is the one of all workers.

    Args:
        board: The board it is on.
        worker: The row to write to.
        place: The place in a row.
        combine: Makes one number of those of all workers.
    """

    def __init__(self, board: CountBoard, worker: int, place: int, combine: Combine) -> None:
        self._rows = board.rows
        self._row = board.rows[worker]
        self._place = place
        self._combine = combine

    def add(self, n: float = 1) -> None:
        """Add n; calls must come from one thread, or under one lock."""
        self._row[self._place] += n

    def set(self, value: float) -> None:
        """Set the number of this worker."""
        self._row[self._place] = value

    @property
    def own(self) -> int:
        """The number of this worker."""
        return int(self._row[self._place])

    @property
    def value(self) -> int:
        """The number of all workers."""
        return int(self._combine(row[self._place] for row in self._rows))


def lowest(values: Iterable[float]) -> float:
    """Return the lowest value that is not 0; 0 if there is none."""
    return min((value for value in values if value), default=0.0)
