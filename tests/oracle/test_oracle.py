"""The kernel against brute force, the readable reference and the paper's loop.

In thousands of small problems, each visit is checked by ranking every unit from scratch: the move
is the best one, the claimed gain is the true gain, and the objective never falls.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brute import Dense, best_total, metric_sum, to_dense
from problems import METRICS, PAIRS, Case, draw_narrow, draw_small, draw_ulps
from trimtab.kernels.reference import ascend, item_curve, line_curve
from trimtab.learn.counted import QUANTA
from watch import Record, record

PROBLEMS = 1_200
WITH_REFERENCE = 3  # every third
# The metric of a unit is a sum of at most 5 hits, each rounded to quanta.
TOLERANCE = 1e-7


def is_close(left: float, right: float) -> bool:
    return abs(left - right) <= TOLERANCE


def check_visits(case: Case, watched: Record, dense: Dense) -> None:
    found = watched.found
    settings = case.settings
    rate = settings.penalty / found.unit
    cap = np.inf if settings.max_bias is None else settings.max_bias * found.unit
    bias = case.first_biases(found)
    before = metric_sum(dense, bias)
    for visit in watched.visits:
        assert visit.bias.tobytes() == bias.tobytes()
        old, new = visit.bias[visit.item], visit.new
        best = best_total(dense, bias, visit.item, rate, cap, visit.narrow)
        bias[visit.item] = new
        after = metric_sum(dense, bias)
        assert after - rate * abs(new) >= best - rate * visit.margin - TOLERANCE
        gain = visit.metric[1] - visit.metric[0]
        rise = gain - visit.penalty[1] + visit.penalty[0]
        if new == old:
            assert gain == rise == 0
        else:
            assert rise > 0
            assert abs(new) <= cap
            assert visit.gain == gain
            assert is_close(gain / QUANTA, after - before)
        assert is_close(visit.metric[1] / QUANTA, after)
        before = after
    assert np.where(found.excluded, 0.0, bias).tobytes() == found.bias.tobytes()


def check_solution(case: Case, watched: Record, dense: Dense) -> None:
    found = watched.found
    rate = case.settings.penalty / found.unit
    first = case.first_biases(found)
    last = np.where(found.excluded, -np.inf, found.bias)
    for bias, objective in ((first, found.objective_before), (last, found.objective_after)):
        penalty = rate * np.abs(bias[~found.excluded]).sum()
        assert is_close(objective, metric_sum(dense, bias) - penalty)


def check_same_bytes(
    case: Case, watched: Record, keep_zero_steps: bool, with_reference: bool
) -> None:
    found = watched.found
    by_paper_loop = case.solve_by_paper_loop(found, keep_zero_steps)
    assert by_paper_loop.tobytes() == found.bias.tobytes()
    if with_reference:
        start = {i: b for i, b in enumerate(case.first_biases(found).tolist()) if b > -np.inf}
        ascended = ascend(case.task(found), found.order.tolist(), start, found.cycles)
        reference = np.array([ascended.get(item, 0.0) for item in range(case.n_items)])
        assert reference.tobytes() == found.bias.tobytes()


def test_small_problems() -> None:
    for metric, unlisted in PAIRS:
        n_moves = 0
        for seed in range(PROBLEMS):
            case = draw_small(seed, metric, unlisted)
            watched, dense = record(case), to_dense(case)
            check_visits(case, watched, dense)
            check_solution(case, watched, dense)
            check_same_bytes(case, watched, seed % 4 < 2, seed // 4 % WITH_REFERENCE == 0)
            n_moves += watched.found.updates
        assert n_moves > PROBLEMS / 2


def test_scores_too_close_for_a_bias_between_them() -> None:
    for metric, unlisted in PAIRS:
        for draw in [draw_narrow, draw_ulps]:
            for seed in range(90):
                case = draw(seed, metric, unlisted)
                watched = record(case)
                check_visits(case, watched, to_dense(case))
                check_same_bytes(case, watched, keep_zero_steps=True, with_reference=seed % 3 == 0)


def test_narrow_intervals_lead_to_a_full_search() -> None:
    """The search for the best bias ends early unless intervals are too narrow."""
    for metric, unlisted in PAIRS:
        full_searches = 0
        for seed in range(150):
            watched = record(draw_narrow(seed, metric, unlisted))
            full_searches += int(watched.state.scratch.counts[2]) if watched.state else 0
        assert full_searches > 10


def test_a_line_along_one_item_gives_its_curve() -> None:
    for metric in METRICS:
        n_steps = 0
        for seed in range(300):
            case = draw_small(seed, metric, "never")
            found = case.solve()
            task = case.task(found)
            bias = {i: b for i, b in enumerate(case.first_biases(found).tolist()) if b > -np.inf}
            for unit in task.units:
                alone = replace(task, units=(unit,))
                for item in unit.listed:
                    if item in task.excluded or not unit.bought:
                        continue
                    there = {**bias, item: 0.0}
                    curve = item_curve(item, there, alone).steps
                    curve = {at: delta for at, delta in curve.items() if delta != 0}
                    assert line_curve(unit, there, {item: 1.0}, task) == curve
                    n_steps += len(curve)
        assert n_steps > 500
