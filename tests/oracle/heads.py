"""The kernel's rows, bounds and multisets, checked against rankings made from scratch."""

from __future__ import annotations

from collections import Counter

import numpy as np

from brute import Dense, rank
from problems import Case
from trimtab.kernels.top_rows import GROUP
from watch import State, entries_of


def totals(dense: Dense, unit: int, bias: np.ndarray) -> np.ndarray:
    listed = dense.scores[unit]
    return np.where(np.isnan(listed), 0.0, listed) + bias


def check_row(state: State, dense: Dense, unit: int, ranked: np.ndarray) -> None:
    """A row is the exact top of a ranking, long enough, and its bounds hold."""
    problem, rows = state.problem, state.rows
    source = problem.source[unit]
    scores_start = unit * problem.stride
    items_start = 2 * (scores_start + problem.width)
    length = rows.marked_items[items_start + problem.width]
    exact_above = rows.exact_above[unit]
    scores = rows.scores[scores_start : scores_start + length]
    length = int((scores >= exact_above).sum())
    scores = scores[:length]
    total = totals(dense, source, rows.offset)
    assert length >= min(problem.k + 1, len(ranked))
    assert scores.tobytes() == total[ranked[:length]].tobytes()
    codes = ranked * 2 + dense.bought[source, ranked]
    assert np.array_equal(rows.marked_items[items_start : items_start + length], codes[:length])
    assert exact_above > -np.inf or length == len(ranked)
    after_k = total[ranked[problem.k]] if len(ranked) > problem.k else -np.inf
    assert after_k * (1 - np.sign(after_k) * 1e-6) - 1e-30 <= rows.score_after_k[unit] <= after_k
    head = ranked[problem.first_counted_slot : problem.k + 1]
    hits = total[head[dense.bought[source, head]]]
    low = hits.min() if len(hits) else np.inf
    assert low * (1 - np.sign(low) * 1e-6) - 1e-30 <= rows.lowest_hit[unit] <= low
    assert rows.group_exact_above[unit // GROUP] <= exact_above
    assert rows.group_score_after_k[unit // GROUP] <= rows.score_after_k[unit]


def unit_losses(state: State, dense: Dense, unit: int, ranked: np.ndarray) -> Counter:
    """The loss of each hit of a unit when pushed down one slot, by (score, item)."""
    problem = state.problem
    source = problem.source[unit]
    k = problem.k
    total = totals(dense, source, state.rows.offset)
    values = problem.hit_values_float.reshape(k + 1, k + 1)[problem.max_hits[unit]]
    hit_values = np.rint(dense.weights[source] * values).astype(np.int64)
    losses: Counter = Counter()
    hits = 0
    for slot, item in enumerate(ranked[:k].tolist()):
        if dense.bought[source, item]:
            step = int(hit_values[slot] - hit_values[slot + 1]) * (
                1 + hits if problem.counts_hits_above else 1
            )
            hits += 1
            if step and slot >= problem.first_counted_slot:
                losses[max(float(total[item]), 0.0), item] += step
    return losses


def check_state(state: State, case: Case, dense: Dense) -> None:
    """All rows, shared losses and raised items equal those computed from scratch."""
    problem, rows = state.problem, state.rows
    losses: Counter = Counter()
    for unit in range(problem.n_units):
        ranked = rank(dense, problem.source[unit], rows.offset, case.n_items)
        check_row(state, dense, unit, ranked)
        losses.update(unit_losses(state, dense, unit, ranked))
    if problem.reaches_unlisted:
        raised = {(b, i): 1 for i, b in enumerate(rows.offset.tolist()) if b > 0}
        check_entries(entries_of(rows.losses), losses)
        check_entries(entries_of(rows.raised), raised)


def check_entries(entries: list[tuple[float, int, int]], expected: dict) -> None:
    order = [(key, -item) for key, item, _ in entries]
    assert order == sorted(order)
    assert {(key, item): weight for key, item, weight in entries} == expected
