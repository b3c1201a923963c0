"""The ascent in rounds: proposals for many items at once, in parts and on threads.

The kernel that visits one item after the other gives the exact gain of an item's best move, all
other biases fixed. Searches over many items at once must find the same moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

from brute import to_dense
from heads import check_state
from problems import PAIRS, Case, draw_medium, draw_narrow, draw_small, ends_of
from threaded_rounds import ThreadedBackend
from trimtab.arrays import Codes, Floats, Lists, Sets
from trimtab.kernels.coordinate_ascent import visit_items
from trimtab.kernels.item_curves import BestMoves
from trimtab.kernels.ordered_multiset import read_multiset
from trimtab.kernels.reference import objective
from trimtab.learn.ascent.rounds import (
    Losses,
    MoveSearch,
    RoundAscent,
    RoundState,
    TriedMoves,
    add_tried_moves,
    choose_moves,
    curves_of_part,
    try_moves_on_part,
)
from trimtab.learn.ascent.setup import AscentSetup
from trimtab.learn.ascent.state import AscentState, prepare_ascent
from trimtab.learn.engine_ranking import rank_by_engine
from trimtab.learn.scales import largest_of
from watch import State

THREADS = (1, 2, 3)


class Start(NamedTuple):
    """A case, where it states, and the items to look at."""

    case: Case
    setup: AscentSetup
    offset: Floats
    candidates: Codes

    def state(self) -> AscentState:
        """Everybody in one start, standing there."""
        start = np.where(np.isfinite(self.offset), self.offset, 0.0)
        return lay(replace(self.case, start=start))

    @property
    def widest(self) -> MoveSearch:
        """A look that goes as far as it can."""
        limits = np.full(len(self.candidates), self.setup.cap)
        losses = Losses(*read_multiset(self.state().rows.losses))
        return MoveSearch(self.offset, self.candidates, limits, losses)


def lay(case: Case) -> AscentState:
    given = (case.lists, case.bought, case.n_items, case.settings, case.weights, case.start)
    return prepare_ascent(*given)[0]


def start_at(case: Case) -> Start:
    state = lay(case)
    candidates = state.setup.visiting_order(state.matters)
    return Start(case, state.setup, state.rows.offset.copy(), candidates)


def starts(case: Case) -> Iterator[Start]:
    """Where an ascent starts, and where it is after a cycle."""
    yield start_at(case)
    once = replace(case, settings=replace(case.settings, max_cycles=1)).solve()
    yield start_at(replace(case, start=once.bias))


def draw_cases(metric: str, unlisted: str, n_small: int) -> Iterator[Case]:
    for seed in range(n_small):
        yield draw_small(seed, metric, unlisted)
    for seed in range(0, n_small, 5):
        yield draw_narrow(seed, metric, unlisted)
    for seed in (1, 2):
        yield draw_medium(seed, metric, unlisted, 3, 30, n_units=60)


def take(rows: Lists | Sets, chosen: np.ndarray) -> list[np.ndarray]:
    """The columns of some of the units."""
    places = [np.arange(*rows.indptr[[u, u + 1]]) for u in chosen]
    entries = np.concatenate([*places, np.empty(0, np.int64)]).astype(np.int64)
    return [ends_of(places), *(column[entries] for column in rows[1:])]


@dataclass
class PartsBackend:
    """Units dealt out to parts, each of which starts afresh at every look and check."""

    case: Case
    n_parts: int

    def states(self, setup: AscentSetup, offset: Floats) -> list[AscentState]:
        return [self.state(setup, offset, part) for part in range(self.n_parts)]

    def state(self, setup: AscentSetup, offset: Floats, part: int) -> AscentState:
        case = self.case
        chosen = np.arange(part, case.lists.n_units, self.n_parts)
        lists, bought = Lists(*take(case.lists, chosen)), Sets(*take(case.bought, chosen))
        weights = None if case.weights is None else case.weights[chosen]
        raw = rank_by_engine(lists, bought, setup.settings.k, setup.settings.metric, case.n_items)
        return AscentState(
            lists, bought, weights, raw.kth_score, setup, offset.copy(), setup.candidates
        )

    def propose(self, setup: AscentSetup, search: MoveSearch) -> BestMoves:
        states = self.states(setup, search.offset)
        return choose_moves(
            setup, search, [curves_of_part(state, search.items, search.limits) for state in states]
        )

    def try_moves(
        self, setup: AscentSetup, offset: Floats, items: Codes, biases: Floats
    ) -> TriedMoves:
        return add_tried_moves(
            [try_moves_on_part(state, items, biases) for state in self.states(setup, offset)]
        )


def visit_one(start: Start, item: int) -> tuple[float, int]:
    """Where the sequential kernel moves an item from here, and what that gains."""
    state, setup = start.state(), start.setup
    offset = state.rows.offset
    counters = np.array([0, state.value(), int(setup.penalties(offset).sum())])
    levels = np.array([setup.largest, largest_of(offset[np.isfinite(offset)])])
    before = counters[1] - counters[2]
    visit_items(
        *state.parts, np.array([item], np.int32), setup.cap, setup.margin, setup.penalty_rate,
        setup.most_per_unit, np.zeros(setup.n_items, np.int64), counters, levels,
    )  # fmt: skip
    return float(offset[item]), int(counters[1] - counters[2] - before)


def check_proposals(start: Start, moves: BestMoves) -> int:
    """BestMoves are what the sequential kernel does; returns how many move."""
    for item, bias, gain in zip(moves.items, moves.biases, moves.gains, strict=True):
        new_bias, gained = visit_one(start, item)
        if gain > 0:
            assert (new_bias, gained) == (bias, gain)
        else:
            assert (new_bias, gained) == (start.offset[item], 0)
    return int((moves.gains > 0).sum())


def sorted_moves(moves: BestMoves) -> tuple[np.ndarray, ...]:
    """Items that move, with their biases and gains, by item."""
    moving = np.flatnonzero(moves.gains > 0)
    moving = moving[np.argsort(moves.items[moving])]
    return tuple(column[moving] for column in moves[:3])


def same_bytes(*results: tuple[np.ndarray, ...]) -> bool:
    return len({tuple(column.tobytes() for column in result) for result in results}) == 1


def ascend_in_rounds(start: Start, backend: PartsBackend | ThreadedBackend) -> list[RoundState]:
    """Where rounds come to, one after the other."""
    state = start.state()
    listers = np.diff(state.by_item.indptr) + np.diff(state.by_item.buyers_indptr)
    states: list[RoundState] = []
    run = RoundAscent(backend, start.setup, start.candidates, listers, 5, after_round=states.append)
    states.insert(0, first := run.start(start.offset))
    run.run(first)
    return states


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_moves_on_curves_equal_those_of_the_sequential_kernel(metric: str, unlisted: str) -> None:
    n_moves = 0
    for seed in range(20):
        for start in starts(draw_small(seed, metric, unlisted)):
            moves = PartsBackend(start.case, 1).propose(start.setup, start.widest)
            n_moves += check_proposals(start, moves)
    assert n_moves > 20


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_threads_propose_the_same_moves_as_curves(metric: str, unlisted: str) -> None:
    n_moves = 0
    for case in draw_cases(metric, unlisted, 10):
        for start in starts(case):
            found = [sorted_moves(PartsBackend(case, 1).propose(start.setup, start.widest))]
            for n_threads in THREADS:
                with closing(ThreadedBackend(start.state(), n_threads)) as backend:
                    found.append(sorted_moves(backend.propose(start.setup, start.widest)))
            assert same_bytes(*found)
            n_moves += len(found[0][0])
    assert n_moves > 40


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_parts_add_up_to_the_whole(metric: str, unlisted: str) -> None:
    for case in draw_cases(metric, unlisted, 5):
        start = start_at(case)
        backends = [PartsBackend(case, n_parts) for n_parts in (1, 2, 5)]
        proposals = [backend.propose(start.setup, start.widest) for backend in backends]
        assert same_bytes(*proposals)
        first = proposals[0].items, proposals[0].biases
        checks = [backend.try_moves(start.setup, start.offset, *first) for backend in backends]
        assert len({check.value for check in checks}) == 1
        assert same_bytes(*((check.gains, *check.losses) for check in checks))
        assert same_bytes(*((ascend_in_rounds(start, backend)[-1].offset,) for backend in backends))


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_rounds_never_fall_and_report_the_true_objective(metric: str, unlisted: str) -> None:
    n_rounds = 0
    for seed in range(12):
        start = start_at(draw_small(seed, metric, unlisted))
        task = start.case.task(start.case.solve())
        with closing(ThreadedBackend(start.state(), 2)) as local:
            for backend in (PartsBackend(start.case, 2), local):
                for state in ascend_in_rounds(start, backend):
                    bias = {i: b for i, b in enumerate(state.offset.tolist()) if b > -np.inf}
                    assert objective(bias, task) == state.objectives[-1]
                    n_rounds += state.updates > 0
                assert (np.diff(state.objectives) >= 0).all()
    assert n_rounds > 12


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_a_threaded_backend_undoes_moves(metric: str, unlisted: str) -> None:
    for case in draw_cases(metric, unlisted, 6):
        start, dense = start_at(case), to_dense(case)
        rng = np.random.default_rng(0)
        items = start.candidates
        biases = np.clip(rng.normal(size=len(items)), -start.setup.cap, start.setup.cap)
        none = items[:0], biases[:0]
        with closing(ThreadedBackend(start.state(), 2)) as backend:
            at_first = backend.try_moves(start.setup, start.offset, *none)
            moved = backend.try_moves(start.setup, start.offset, items, biases)
            check_state(State(*backend.state.parts), case, dense)
            assert moved.value == backend.state.value() == at_first.value + moved.gains.sum()
            again = backend.try_moves(start.setup, start.offset, items, biases)
            assert same_bytes((moved.gains,), (again.gains,))
            back = backend.try_moves(start.setup, start.offset, *none)
            check_state(State(*backend.state.parts), case, dense)
            assert back.value == backend.state.value() == at_first.value
            assert backend.state.rows.offset.tobytes() == start.offset.tobytes()


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_rounds_are_the_same_for_any_number_of_threads(metric: str, unlisted: str) -> None:
    for seed in range(2):
        start = start_at(draw_medium(seed, metric, unlisted, 5, 40))
        ends = []
        for n_threads in THREADS:
            with closing(ThreadedBackend(start.state(), n_threads)) as backend:
                ends.append(ascend_in_rounds(start, backend)[-1])
        assert same_bytes(*((end.offset, end.gain, end.objectives) for end in map(in_arrays, ends)))
        assert ends[0].updates > 0


def in_arrays(state: RoundState) -> RoundState:
    return replace(state, objectives=np.array(state.objectives))
