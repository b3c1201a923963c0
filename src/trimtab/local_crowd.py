"""All units in one place, for an ascent in rounds on threads.

Rounds do on one machine what they do on many, at another price: see `benchmarks/rounds.py`. The
learner goes from item to item instead, which is quicker there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from trimtab.coded import Codes, Floats, Ints
from trimtab.ground import Course, Ground, largest_of
from trimtab.rounds import Checked, Look, Losses
from trimtab.threads import thread_count

if TYPE_CHECKING:
    from trimtab.kernels.curves import Steps
    from trimtab.kernels.special import Scratch

# A look in one place finds out by itself how far it has to go; it needs nobody's losses.
_UNTOLD = Losses(np.empty(0), np.empty(0, np.int64))


class LocalCrowd:
    """A crowd in memory: looks are shared out among threads, and moves are taken back by moving.

    What it tells is the same to the byte for any number of threads.

    Args:
        ground: rankings and biases; changed in place.
        n_threads: how many look; one for each core when absent.
    """

    def __init__(self, ground: Ground, n_threads: int | None = None) -> None:
        self.ground = ground
        self._value = ground.value()
        # The first thread looks where moves are made, but numbers its visits by item, as moves do.
        self._rows = [ground.rows]
        self._scratch = [_own_stamps(ground.scratch)]
        for _ in range(1, thread_count() if n_threads is None else n_threads):
            edges = np.empty_like(ground.rows.group_edge)
            self._rows.append(ground.rows._replace(group_edge=edges))
            room = type(ground.scratch)(*map(np.empty_like, ground.scratch))
            self._scratch.append(_own_stamps(room._replace(sizes=np.zeros_like(room.sizes))))
        self._pool = ThreadPoolExecutor(len(self._rows))

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown()

    def look(self, course: Course, look: Look) -> Steps:
        """Each item's best bias, and what it gains by itself."""
        from trimtab.kernels import coordinate
        from trimtab.kernels.curves import Steps

        self._stand_at(look.offset)
        magnitude = course.largest + largest_of(look.offset[np.isfinite(look.offset)])
        limits = np.array([course.cap, course.margin, course.rate, course.most, magnitude])
        biases, gains = np.empty(len(look.items)), np.empty(len(look.items), np.int64)
        for rows in self._rows[1:]:
            np.copyto(rows.group_edge, self.ground.rows.group_edge)

        def look_from(thread: int) -> None:
            parts = self.ground.problem, self._rows[thread], self.ground.by_item
            step = len(self._rows)
            coordinate.look(
                *parts, self._scratch[thread], look.items, thread, step, limits, biases, gains
            )

        list(self._pool.map(look_from, range(len(self._rows))))
        return Steps(look.items, biases, gains, gains)

    def check(self, course: Course, offset: Floats, items: Codes, biases: Floats) -> Checked:
        """Make moves one after the other."""
        self._stand_at(offset)
        gains = self._move(items, biases)
        return Checked(gains, self._value, _UNTOLD)

    def _stand_at(self, offset: Floats) -> None:
        """Move every item to where it is said to be, which takes back what was only tried."""
        away = np.flatnonzero(self.ground.rows.offset != offset).astype(np.int32)
        self._move(away, offset[away])

    def _move(self, items: Codes, biases: Floats) -> Ints:
        from trimtab.kernels.coordinate import move_items

        ground = self.ground
        parts = ground.problem, ground.rows, ground.by_item, self._scratch[0]
        gains = move_items(*parts, items, biases)
        self._value += int(gains.sum())
        return gains


def _own_stamps(scratch: Scratch) -> Scratch:
    return scratch._replace(stamp=np.zeros_like(scratch.stamp))
