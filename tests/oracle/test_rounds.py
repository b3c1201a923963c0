"""Looks at many items at once: what they propose, what rounds make of it, in parts and on threads.

What one item gains by its best move, all others staying where they are, is known exactly from the
kernel that visits one item after the other; whoever looks at many at once must say the same.
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
from watch import State

from trimtab.coded import Codes, Floats, Lists, Sets
from trimtab.ground import Course, Ground, largest_of, lay_ground, raw_tops
from trimtab.kernels.blocks import read_blocks
from trimtab.kernels.coordinate import visit_items
from trimtab.kernels.curves import Steps
from trimtab.kernels.reference import objective
from trimtab.local_crowd import LocalCrowd
from trimtab.rounds import (
    Checked,
    Climb,
    Look,
    Losses,
    Standing,
    add_checks,
    check_part,
    choose_best,
    write_part,
)

THREADS = (1, 2, 3)


class Stage(NamedTuple):
    """A case, where it stands, and the items to look at."""

    case: Case
    course: Course
    offset: Floats
    candidates: Codes

    def ground(self) -> Ground:
        """Everybody in one place, standing there."""
        start = np.where(np.isfinite(self.offset), self.offset, 0.0)
        return lay(replace(self.case, start=start))

    @property
    def widest(self) -> Look:
        """A look that goes as far as it can."""
        limits = np.full(len(self.candidates), self.course.cap)
        losses = Losses(*read_blocks(self.ground().rows.losses))
        return Look(self.offset, self.candidates, limits, losses)


def lay(case: Case) -> Ground:
    given = (case.lists, case.bought, case.n_items, case.settings, case.weights, case.start)
    return lay_ground(*given)[0]


def stage(case: Case) -> Stage:
    ground = lay(case)
    candidates = ground.course.visiting_order(ground.alive)
    return Stage(case, ground.course, ground.rows.offset.copy(), candidates)


def stages(case: Case) -> Iterator[Stage]:
    """Where an ascent starts, and where it is after a cycle."""
    yield stage(case)
    once = replace(case, settings=replace(case.settings, max_cycles=1)).solve()
    yield stage(replace(case, start=once.bias))


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
class PartsCrowd:
    """Units dealt out to parts, each of which starts afresh at every look and check."""

    case: Case
    n_parts: int

    def grounds(self, course: Course, offset: Floats) -> list[Ground]:
        return [self.ground(course, offset, part) for part in range(self.n_parts)]

    def ground(self, course: Course, offset: Floats, part: int) -> Ground:
        case = self.case
        chosen = np.arange(part, case.lists.n_units, self.n_parts)
        lists, bought = Lists(*take(case.lists, chosen)), Sets(*take(case.bought, chosen))
        weights = None if case.weights is None else case.weights[chosen]
        raw = raw_tops(lists, bought, course.settings.k, course.settings.metric, case.n_items)
        return Ground(lists, bought, weights, raw.kth_score, course, offset.copy(), course.wanted)

    def look(self, course: Course, look: Look) -> Steps:
        grounds = self.grounds(course, look.offset)
        return choose_best(course, look, [write_part(g, look.items, look.limits) for g in grounds])

    def check(self, course: Course, offset: Floats, items: Codes, biases: Floats) -> Checked:
        return add_checks([check_part(g, items, biases) for g in self.grounds(course, offset)])


def visit_one(place: Stage, item: int) -> tuple[float, int]:
    """Where the sequential kernel moves an item from here, and what that gains."""
    ground, course = place.ground(), place.course
    offset = ground.rows.offset
    counters = np.array([0, ground.value(), int(course.penalties(offset).sum())])
    levels = np.array([course.largest, largest_of(offset[np.isfinite(offset)])])
    before = counters[1] - counters[2]
    visit_items(
        *ground.parts, np.array([item], np.int32), course.cap, course.margin, course.rate,
        course.most, np.zeros(course.n_items, np.int64), counters, levels,
    )  # fmt: skip
    return float(offset[item]), int(counters[1] - counters[2] - before)


def check_proposals(place: Stage, steps: Steps) -> int:
    """Steps are what the sequential kernel does; returns how many move."""
    for item, bias, gain in zip(steps.items, steps.biases, steps.gains, strict=True):
        there, gained = visit_one(place, item)
        if gain > 0:
            assert (there, gained) == (bias, gain)
        else:
            assert (there, gained) == (place.offset[item], 0)
    return int((steps.gains > 0).sum())


def sorted_steps(steps: Steps) -> tuple[np.ndarray, ...]:
    """Items that move, with their biases and gains, by item."""
    moving = np.flatnonzero(steps.gains > 0)
    moving = moving[np.argsort(steps.items[moving])]
    return tuple(column[moving] for column in steps[:3])


def same_bytes(*results: tuple[np.ndarray, ...]) -> bool:
    return len({tuple(column.tobytes() for column in result) for result in results}) == 1


def climb(place: Stage, crowd: PartsCrowd | LocalCrowd) -> list[Standing]:
    """Where rounds come to, one after the other."""
    ground = place.ground()
    listers = np.diff(ground.by_item.indptr) + np.diff(ground.by_item.buyers_indptr)
    stands: list[Standing] = []
    run = Climb(crowd, place.course, place.candidates, listers, 5, keep=stands.append)
    stands.insert(0, first := run.begin(place.offset))
    run.run(first)
    return stands


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_steps_on_curves_are_those_of_the_sequential_kernel(metric: str, unlisted: str) -> None:
    n_moves = 0
    for seed in range(20):
        for place in stages(draw_small(seed, metric, unlisted)):
            steps = PartsCrowd(place.case, 1).look(place.course, place.widest)
            n_moves += check_proposals(place, steps)
    assert n_moves > 20


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_threads_propose_what_curves_do(metric: str, unlisted: str) -> None:
    n_moves = 0
    for case in draw_cases(metric, unlisted, 10):
        for place in stages(case):
            found = [sorted_steps(PartsCrowd(case, 1).look(place.course, place.widest))]
            for n_threads in THREADS:
                with closing(LocalCrowd(place.ground(), n_threads)) as crowd:
                    found.append(sorted_steps(crowd.look(place.course, place.widest)))
            assert same_bytes(*found)
            n_moves += len(found[0][0])
    assert n_moves > 40


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_parts_add_up_to_the_whole(metric: str, unlisted: str) -> None:
    for case in draw_cases(metric, unlisted, 5):
        place = stage(case)
        crowds = [PartsCrowd(case, n_parts) for n_parts in (1, 2, 5)]
        looks = [crowd.look(place.course, place.widest) for crowd in crowds]
        assert same_bytes(*looks)
        moves = looks[0].items, looks[0].biases
        checks = [crowd.check(place.course, place.offset, *moves) for crowd in crowds]
        assert len({check.value for check in checks}) == 1
        assert same_bytes(*((check.gains, *check.losses) for check in checks))
        assert same_bytes(*((climb(place, crowd)[-1].offset,) for crowd in crowds))


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_rounds_never_fall_and_tell_the_truth(metric: str, unlisted: str) -> None:
    n_rounds = 0
    for seed in range(12):
        place = stage(draw_small(seed, metric, unlisted))
        task = place.case.task(place.case.solve())
        with closing(LocalCrowd(place.ground(), 2)) as local:
            for crowd in (PartsCrowd(place.case, 2), local):
                for standing in climb(place, crowd):
                    bias = {i: b for i, b in enumerate(standing.offset.tolist()) if b > -np.inf}
                    assert objective(bias, task) == standing.objectives[-1]
                    n_rounds += standing.updates > 0
                assert (np.diff(standing.objectives) >= 0).all()
    assert n_rounds > 12


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_a_local_crowd_takes_moves_back(metric: str, unlisted: str) -> None:
    for case in draw_cases(metric, unlisted, 6):
        place, dense = stage(case), to_dense(case)
        rng = np.random.default_rng(0)
        items = place.candidates
        biases = np.clip(rng.normal(size=len(items)), -place.course.cap, place.course.cap)
        none = items[:0], biases[:0]
        with closing(LocalCrowd(place.ground(), 2)) as crowd:
            at_first = crowd.check(place.course, place.offset, *none)
            moved = crowd.check(place.course, place.offset, items, biases)
            check_state(State(*crowd.ground.parts), case, dense)
            assert moved.value == crowd.ground.value() == at_first.value + moved.gains.sum()
            again = crowd.check(place.course, place.offset, items, biases)
            assert same_bytes((moved.gains,), (again.gains,))
            back = crowd.check(place.course, place.offset, *none)
            check_state(State(*crowd.ground.parts), case, dense)
            assert back.value == crowd.ground.value() == at_first.value
            assert crowd.ground.rows.offset.tobytes() == place.offset.tobytes()


@pytest.mark.parametrize(("metric", "unlisted"), PAIRS)
def test_rounds_are_the_same_for_any_number_of_threads(metric: str, unlisted: str) -> None:
    for seed in range(2):
        place = stage(draw_medium(seed, metric, unlisted, 5, 40))
        ends = []
        for n_threads in THREADS:
            with closing(LocalCrowd(place.ground(), n_threads)) as crowd:
                ends.append(climb(place, crowd)[-1])
        assert same_bytes(*((end.offset, end.gain, end.objectives) for end in map(in_arrays, ends)))
        assert ends[0].updates > 0


def in_arrays(standing: Standing) -> Standing:
    return replace(standing, objectives=np.array(standing.objectives))
