"""All units in one place, for an ascent in rounds on threads.

Rounds give the same results on one machine as on many, at another cost: see `benchmarks/rounds.py`.
The learner visits one item after the other instead, which is faster on one machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.affected_units import Scratch, unpack_scratch
from trimtab.kernels.bias_steps import make_rules, penalty_of
from trimtab.kernels.compiling import kernel, pack
from trimtab.kernels.coordinate_ascent import best_bias, move_items
from trimtab.kernels.item_curves import BestMoves
from trimtab.kernels.prepare_lists import ByItem, unpack_by_item
from trimtab.kernels.top_rows import Problem, Rows, unpack_problem, unpack_rows
from trimtab.learn.ascent.rounds import Losses, MoveSearch, TriedMoves
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.ascent.state import AscentState
from trimtab.learn.scales import largest_of
from trimtab.threads import thread_count

# A search over all units finds its own limits; it needs no losses from outside.
_NO_LOSSES = Losses(np.empty(0), np.empty(0, np.int64))


class ThreadedBackend:
    """A backend in memory: threads share the search, and moves are undone by moving back.

    Results are the same to the byte for any number of threads.

    Args:
        state: rankings and biases; changed in place.
        n_threads: number of threads; one per core by default.
    """

    def __init__(self, state: AscentState, n_threads: int | None = None) -> None:
        self.state = state
        self._value = state.value()
        # The first thread searches the rows that moves change; visits are numbered by item.
        self._rows = [state.rows]
        self._scratch = [_with_own_marks(state.scratch)]
        for _ in range(1, thread_count() if n_threads is None else n_threads):
            edges = np.empty_like(state.rows.group_score_after_k)
            self._rows.append(state.rows._replace(group_score_after_k=edges))
            room = type(state.scratch)(*map(np.empty_like, state.scratch))
            self._scratch.append(_with_own_marks(room._replace(counts=np.zeros_like(room.counts))))
        self._pool = ThreadPoolExecutor(len(self._rows))

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def propose(self, setup: AscentSetup, search: MoveSearch) -> BestMoves:
        """The best bias of each item, and its gain if only that item moves."""
        self._move_to(search.offset)
        magnitude = setup.largest + largest_of(search.offset[np.isfinite(search.offset)])
        limits = np.array(
            [setup.cap, setup.margin, setup.penalty_rate, setup.most_per_unit, magnitude]
        )
        biases, gains = np.empty(len(search.items)), np.empty(len(search.items), np.int64)
        for rows in self._rows[1:]:
            np.copyto(rows.group_score_after_k, self.state.rows.group_score_after_k)

        def search_on(thread: int) -> None:
            parts = self.state.problem, self._rows[thread], self.state.by_item
            step = len(self._rows)
            find_best_biases(
                *parts, self._scratch[thread], search.items, thread, step, limits, biases, gains
            )

        list(self._pool.map(search_on, range(len(self._rows))))
        return BestMoves(search.items, biases, gains, gains)

    def try_moves(
        self, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
    ) -> TriedMoves:
        """Make moves one after the other."""
        self._move_to(offset)
        gains = self._move(items, biases)
        return TriedMoves(gains, self._value, _NO_LOSSES)

    def _move_to(self, offset: Floats) -> None:
        """Give every item its bias in `offset`; this undoes moves that were only tried."""
        moved = np.flatnonzero(self.state.rows.offset != offset).astype(np.int32)
        self._move(moved, offset[moved])

    def _move(self, items: Codes, biases: Floats) -> Ints:
        state = self.state
        parts = state.problem, state.rows, state.by_item, self._scratch[0]
        gains = move_items(*parts, items, biases)
        self._value += int(gains.sum())
        return gains


def _with_own_marks(scratch: Scratch) -> Scratch:
    return scratch._replace(marks=np.zeros_like(scratch.marks))


@kernel
def _find_best_biases(
    packed, packed_rows, packed_by_item, packed_scratch, items, start, step, limits, biases, gains
):  # fmt: skip
    """Find the best bias of every `step`-th item; see `find_best_biases`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    by_item = unpack_by_item(packed_by_item)
    scratch = unpack_scratch(packed_scratch)
    rules = make_rules(limits[0], limits[1], limits[2], limits[4])
    most = np.int64(limits[3])
    for c in range(start, len(items), step):
        item = np.int64(items[c])
        bias = rows.offset[item]
        value, best, current = best_bias(
            problem, rows, by_item, item, bias, item + 1, rules, most, scratch
        )
        biases[c] = best
        gains[c] = value - current + penalty_of(bias, rules)


def find_best_biases(
    problem: Problem, rows: Rows, by_item: ByItem, scratch: Scratch, items: Codes, start: int,
    step: int, limits: Floats, biases: Floats, gains: Ints,
) -> None:  # fmt: skip
    """Find the best biases of every `step`-th item from `start`, all others staying where they are.

    Changes only the scratch and the lower bounds in `rows.group_score_after_k`: several threads can
    search at once if each has its own of those.

    Args:
        problem: what does not change.
        rows: the current rankings.
        by_item: who lists and who bought each of the items.
        scratch: room to work in, of its own.
        items: item codes.
        start: the first place in `items` to look at.
        step: the distance of places.
        limits: the cap, the margin, the rate of the penalty, the most that one unit can gain, and
            what scores and biases add up to at most.
        biases: the best bias of each item looked at; of no meaning where nothing is gained.
        gains: what each item looked at gains in the penalised metric, in quanta; 0 or less: stay.
    """
    packed = (pack(problem), pack(rows), pack(by_item), pack(scratch))
    _find_best_biases(*packed, items, start, step, limits, biases, gains)
