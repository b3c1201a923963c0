"""Runs `ascend` one candidate at a time and records the state of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from problems import Case
from trimtab.kernels import coordinate_ascent
from trimtab.kernels.affected_units import Scratch
from trimtab.kernels.compiling import pack
from trimtab.kernels.ordered_multiset import BLOCK, OrderedMultiset
from trimtab.kernels.prepare_lists import ByItem
from trimtab.kernels.top_rows import Problem, Rows
from trimtab.learn.ascent import state
from trimtab.learn.ascent.cycles import Solution


class State(NamedTuple):
    """The first four arguments of `visit_items`."""

    problem: Problem
    rows: Rows
    by_item: ByItem
    scratch: Scratch


class Visit(NamedTuple):
    """One visit of a candidate; sums before and after, in quanta."""

    item: int
    bias: np.ndarray  # of all items before; -inf for excluded items
    new: float
    gain: int
    metric: tuple[int, int]
    penalty: tuple[int, int]
    margin: float
    narrow: float


class Record(NamedTuple):
    """A solution and the visits that led to it."""

    found: Solution
    visits: list[Visit]
    state: State | None  # None when nothing was visited


def run_in_turn(job: Callable[[int, int], None], parts: list[tuple[int, int]]) -> None:
    for start, stop in parts:
        job(start, stop)


@contextmanager
def replaced_visits(visit: Callable[..., int]) -> Iterator[None]:
    """Have `ascend` call `visit` instead of `visit_items`, on one thread: pools are slow."""
    with (
        patch.object(coordinate_ascent, "visit_items", visit),
        patch.object(state, "_run_parts", run_in_turn),
    ):
        yield


def record(case: Case, before_visit: Callable[[State, int], None] | None = None) -> Record:
    """Solve a case; `before_visit` is called with the state and the item before each visit."""
    visits: list[Visit] = []
    states: list[State] = []

    def visit(*given: Any) -> int:
        state = State(*given[:4])
        candidates, cap, margin, rate, most, gain, counters, magnitudes = given[4:]
        states[:] = [state]
        packed = [pack(part) for part in state]  # takes longer than a visit
        n_changed = 0
        for place, item in enumerate(candidates.tolist()):
            if before_visit is not None:
                before_visit(state, item)
            bias, (_, metric, penalty) = state.rows.offset.copy(), counters.tolist()
            narrow = 2.0**-46 * magnitudes.sum()
            n_changed += coordinate_ascent._visit_items(
                *packed, candidates[place : place + 1], cap, margin, rate, most,
                gain, counters, magnitudes,
            )  # fmt: skip
            changes = ((metric, int(counters[1])), (penalty, int(counters[2])))
            new = float(state.rows.offset[item])
            visits.append(
                Visit(item, bias, new, int(gain[item]), *changes, max(margin, narrow / 2), narrow)
            )
        return n_changed

    with replaced_visits(visit):
        found = case.solve()
    return Record(found, visits, states[0] if states else None)


def build(case: Case) -> State | None:
    """The kernel's state before the first visit; None without candidates."""
    states: list[State] = []

    def visit(*given: Any) -> int:
        states.append(State(*given[:4]))
        return 0

    with replaced_visits(visit):
        case.solve()
    return states[0] if states else None


def entries_of(multiset: OrderedMultiset) -> list[tuple[float, int, int]]:
    """(key, id, weight) of a multiset, in its own order."""
    entries = []
    for block in multiset.order[: multiset.counts[0]].tolist():
        inside = slice(block * BLOCK, block * BLOCK + int(multiset.lengths[block]))
        columns = (multiset.keys[inside], multiset.ids[inside], multiset.weights[inside])
        entries += list(zip(*(column.tolist() for column in columns), strict=True))
    return entries
