"""Runs `ascend` one candidate at a time and records the state of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from problems import Case
from trimtab.kernels import ascent_steps
from trimtab.kernels.ascent_rows import Rows, Units
from trimtab.kernels.ascent_steps import ByItem, Scratch
from trimtab.kernels.ordered_weights import OrderedWeights
from trimtab.learn.ascent import Solution


class State(NamedTuple):
    """The first four arguments of `visit_items`."""

    units: Units
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


def record(case: Case, before_visit: Callable[[State, int], None] | None = None) -> Record:
    """Solve a case; `before_visit` is called with the state and the item before each visit."""
    visits: list[Visit] = []
    states: list[State] = []
    visit_items = ascent_steps.visit_items

    def visit(*given: Any) -> int:
        state = State(*given[:4])
        candidates, cap, margin, rate, gain, sums, magnitudes = given[4:]
        states[:] = [state]
        n_changed = 0
        for place, item in enumerate(candidates.tolist()):
            if before_visit is not None:
                before_visit(state, item)
            bias, (metric, penalty) = state.rows.bias.copy(), sums.tolist()
            narrow = 2.0**-46 * magnitudes.sum()
            n_changed += visit_items(
                *state, candidates[place : place + 1], cap, margin, rate, gain, sums, magnitudes
            )
            changes = ((metric, int(sums[0])), (penalty, int(sums[1])))
            new = float(state.rows.bias[item])
            visits.append(
                Visit(item, bias, new, int(gain[item]), *changes, max(margin, narrow / 2), narrow)
            )
        return n_changed

    with patch.object(ascent_steps, "visit_items", visit):
        found = case.solve()
    return Record(found, visits, states[0] if states else None)


def build(case: Case) -> State | None:
    """The kernel's state before the first visit; None without candidates."""
    states: list[State] = []

    def visit(*given: Any) -> int:
        states.append(State(*given[:4]))
        return 0

    with patch.object(ascent_steps, "visit_items", visit):
        case.solve()
    return states[0] if states else None


def entries_of(weights: OrderedWeights) -> list[tuple[float, int]]:
    """(key, weight) in the order of keys."""
    found: list[tuple[float, int]] = []
    for block in range(int(weights.n_blocks[0])):
        found += weights.entries[block, : weights.blocks["length"][block]].tolist()
    return found
