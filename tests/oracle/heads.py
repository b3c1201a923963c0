"""The kernel's rows, bounds and losses, checked against rankings made from scratch."""

from __future__ import annotations

from collections import Counter

import numpy as np

from brute import Dense, rank
from problems import Case
from trimtab.kernels.ascent_rows import GROUP
from watch import State, entries_of


def totals(dense: Dense, unit: int, bias: np.ndarray) -> np.ndarray:
    listed = dense.scores[unit]
    return np.where(np.isnan(listed), 0.0, listed) + bias


def check_row(state: State, dense: Dense, unit: int, ranked: np.ndarray) -> None:
    """A row is the exact top of a ranking, long enough, and its bounds hold."""
    units, rows = state.units, state.rows
    source = units.source[unit]
    row = slice(unit * units.width, (unit + 1) * units.width)
    floor = rows.floor[unit]
    shown = rows.cells["score"][row]
    length = int((shown >= max(floor, np.finfo(float).min)).sum())
    scores, items = (rows.cells[name][row][:length] for name in ("score", "item"))
    total = totals(dense, source, rows.bias)
    assert length >= min(units.k + 1, len(ranked))
    assert scores.tobytes() == total[ranked[:length]].tobytes()
    codes = ranked * 2 + dense.bought[source, ranked]
    assert np.array_equal(items, codes[:length])
    assert (rows.cells["item"][row][shown == -np.inf] < 0).all()
    assert (total[ranked[length:]] <= floor).all()
    after_k = shown[units.k]
    if after_k > -np.inf:
        assert after_k * (1 - np.sign(after_k) * 1e-6) - 1e-30 <= rows.after_k[unit] <= after_k
    else:
        assert rows.after_k[unit] == -np.inf
    head = ranked[units.first_counted_slot : units.k + 1]
    hits = total[head[dense.bought[source, head]]]
    low = hits.min() if len(hits) else np.inf
    assert low * (1 - np.sign(low) * 1e-6) - 1e-30 <= rows.lowest_hit[unit] <= low
    assert rows.group_floor[unit // GROUP] <= floor


def unit_losses(state: State, dense: Dense, unit: int, ranked: np.ndarray) -> Counter:
    """The loss of each hit of a unit when pushed down one slot, by score."""
    units = state.units
    source = units.source[unit]
    total = totals(dense, source, state.rows.bias)
    hit_values = units.hit_values[units.kind[unit]]
    losses: Counter = Counter()
    hits = 0
    for slot, item in enumerate(ranked[: units.k].tolist()):
        if dense.bought[source, item]:
            step = int(hit_values[slot] - hit_values[slot + 1]) * (
                1 + hits if units.counts_hits_above else 1
            )
            hits += 1
            if step and slot >= units.first_counted_slot:
                losses[max(float(total[item]), 0.0)] += step
    return losses


def check_state(state: State, case: Case, dense: Dense) -> None:
    """All rows, shared losses and raised items equal those computed from scratch."""
    units, rows = state.units, state.rows
    losses: Counter = Counter()
    for unit in range(len(units.source)):
        ranked = rank(dense, units.source[unit], rows.bias, case.n_items)
        check_row(state, dense, unit, ranked)
        losses.update(unit_losses(state, dense, unit, ranked))
    if units.reaches_unlisted:
        assert entries_of(rows.losses) == sorted(losses.items())
    raised = np.flatnonzero(rows.bias > 0)
    order = raised[np.argsort(-rows.bias[raised], kind="stable")]
    assert rows.raised[: rows.n_raised[0]].tolist() == order.tolist()
