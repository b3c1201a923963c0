"""An item's curve, summed from shared losses and affected units, equals brute force everywhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from brute import Dense, crossings, quanta_at, rank, to_dense, unit_quanta
from heads import unit_losses
from problems import METRICS, PAIRS, Case, draw_medium, draw_small
from trimtab.kernels.ascent_steps import (
    add_breakpoints,
    add_buyers,
    add_showing,
    postpone_listers,
    take_listers,
)
from trimtab.kernels.compiling import bare_kernel
from trimtab.kernels.hit_value import hit_value_table
from trimtab.kernels.reference import item_curve, line_curve
from trimtab.learn.counted import QUANTA
from watch import State, build, entries_of, record

FINE = 2.0**-20  # quarters and eighths plus this are exact


@bare_kernel
def add_all_breakpoints(units, rows, by_item, scratch, item):
    """Write the breakpoints of all affected units; returns the value at the current bias."""
    scratch.counts[0] = 0
    scratch.counts[1] = 0
    n_postponed = postpone_listers(by_item, item, scratch)
    highest = max(rows.bias[item], 0.0)
    n_affected, n_postponed = take_listers(rows, by_item, n_postponed, highest, np.inf, scratch)
    shown = -np.inf
    if units.reaches_unlisted and rows.bias[item] > 0:
        shown = rows.bias[item]
        n_affected = add_showing(rows, by_item, item, shown, scratch, n_affected, False)
    current = add_breakpoints(units, rows, item, scratch, n_affected)
    n_affected, n_postponed = take_listers(rows, by_item, n_postponed, np.inf, np.inf, scratch)
    n_affected = add_buyers(rows, by_item, item, shown, np.inf, scratch, n_affected)
    return current + add_breakpoints(units, rows, item, scratch, n_affected)


def kernel_value(state: State, bias: float) -> int:
    """The kernel's curve at a bias off all breakpoints, relative to bias 0."""
    scratch = state.scratch
    n_up, n_down = scratch.counts[:2]
    if bias < 0:
        return int(scratch.down_deltas[:n_down][scratch.down[:n_down] < -bias].sum())
    value = int(scratch.up_deltas[:n_up][scratch.up[:n_up] < bias].sum())
    if state.units.reaches_unlisted:
        value -= sum(weight for key, weight in entries_of(state.rows.losses) if key < bias)
    return value


def quanta_by_slot(case: Case, state: State, dense: Dense) -> np.ndarray:
    """The value of a hit by [source row, slot]; 0 for units that cannot learn."""
    units, k = state.units, case.settings.k
    hit_values = np.zeros((len(dense.weights), k + 1), np.int64)
    max_hits = np.minimum(k, dense.bought.sum(axis=1))
    values = dense.weights[:, None] * (hit_value_table(case.settings.metric, k)[max_hits] * QUANTA)
    hit_values[units.source] = np.rint(values[units.source]).astype(np.int64)
    return hit_values


def points_off_ties(ends: np.ndarray, exact: bool) -> list[float]:
    """A bias inside every interval; if scores are coarse, also on both sides of each breakpoint."""
    narrow = 2.0**-46 * (2 + np.abs(ends).max())
    points = [ends[0] - 1, ends[-1] + 1]
    points += [a + (b - a) / 2 for a, b in pairwise(ends) if b - a > narrow]
    return points + [c + side for c in ends for side in (-FINE, FINE) if exact]


def check_off_ties(case: Case, dense: Dense, state: State, item: int, exact: bool) -> None:
    add_all_breakpoints(*state, item)
    hit_values, bias = quanta_by_slot(case, state, dense), state.rows.bias
    at_0 = quanta_at(dense, hit_values, bias, item, 0.0)
    for point in points_off_ties(crossings(dense, bias, item, 0.0), exact):
        expected = quanta_at(dense, hit_values, bias, item, point) - at_0
        assert kernel_value(state, point) == expected


def test_curves_between_breakpoints() -> None:
    """Checked before every visit of some ascents, while raised items and shared losses change."""
    for metric, unlisted in PAIRS:
        cases = [draw_small(seed, metric, unlisted) for seed in range(80)]
        cases += [draw_medium(seed, metric, unlisted, 3, 20, n_units=25) for seed in range(4)]
        for seed, case in enumerate(cases):
            dense = to_dense(case)
            # After the first move, biases are no longer on the grid of scores.
            exact = seed % 2 == 0 and seed < 80
            fresh = build(case)
            for item in case.solve().order.tolist() if fresh else []:
                check_off_ties(case, dense, fresh, item, exact)
            record(case, lambda state, item: check_off_ties(case, dense, state, item, False))  # noqa: B023


def test_curves_on_breakpoints() -> None:
    """At an exact tie, the ids decide which items have been passed."""
    for metric, unlisted in PAIRS:
        for seed in range(60):
            case = draw_small(seed, metric, unlisted)
            case = replace(case, settings=replace(case.settings, max_bias=None))
            found, dense = case.solve(), to_dense(case)
            if not len(found.order):
                continue
            item = int(found.order[seed % len(found.order)])
            first = case.first_biases(found)
            ties = crossings(dense, first, item, 0.0)
            for tie in [*ties, *np.nextafter(ties, np.inf), *np.nextafter(ties, -np.inf)]:
                start = np.where(found.excluded, 0.0, first)
                start[item] = tie
                state = build(replace(case, start=start))
                current = add_all_breakpoints(*state, item)
                hit_values, bias = quanta_by_slot(case, state, dense), state.rows.bias
                expected = quanta_at(dense, hit_values, bias, item, tie)
                assert current == expected - quanta_at(dense, hit_values, bias, item, 0.0)


def check_shared(case: Case, state: State, dense: Dense, item: int) -> None:
    """The shared losses less those of the affected units are the losses of all other units."""
    units, rows = state.units, state.rows
    hit_values = quanta_by_slot(case, state, dense)
    out = rows.bias.copy()
    out[item] = 0.0
    losses_of_affected, others = [], []
    for unit, source in enumerate(units.source.tolist()):
        ranked = rank(dense, source, rows.bias, units.width + len(out))
        listed = not np.isnan(dense.scores[source, item])
        if listed or dense.bought[source, item] or item in ranked[: units.k]:
            losses_of_affected += list(unit_losses(state, dense, unit, ranked).items())
        else:
            others.append(source)
    shared = entries_of(rows.losses)
    keys = np.array([key for key, _ in shared])
    points = np.concatenate([np.nextafter(keys, np.inf), np.nextafter(keys, -1.0)])
    for point in points[(points > 0) & ~np.isin(points, keys)].tolist():
        weight = sum(step for key, step in shared if point > key)
        there = out.copy()
        there[item] = point
        expected = sum(
            unit_quanta(dense, hit_values, u, out) - unit_quanta(dense, hit_values, u, there)
            for u in others
        )
        of_affected = sum(step for key, step in losses_of_affected if point > key)
        assert weight - of_affected == expected


def test_shared_losses_next_to_breakpoints() -> None:
    for metric in METRICS:
        cases = [draw_small(seed, metric, "zero") for seed in range(60)]
        cases += [draw_medium(seed, metric, "zero", 3, 20, n_units=25) for seed in (0, 2)]
        for case in cases:
            dense = to_dense(case)
            record(case, lambda state, item: check_shared(case, state, dense, item))  # noqa: B023


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
