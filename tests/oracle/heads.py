"""The kernel's rows, bounds and multisets, checked against rankings made from scratch."""

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
    length = int((rows.scores[row] > -np.inf).sum())
    scores, items = rows.scores[row][:length], rows.items[row][:length]
    floor = rows.floor[unit]
    total = totals(dense, source, rows.bias)
    assert length >= min(units.k + 1, len(ranked))
    assert scores.tobytes() == total[ranked[:length]].tobytes()
    codes = ranked * 2 + dense.bought[source, ranked]
    assert np.array_equal(items, codes[:length])
    assert (rows.scores[row][length:] == -np.inf).all()
    if floor > -np.inf:
        assert floor == scores[-1]
    else:
        assert length == len(ranked)
    head = ranked[units.first_counted_slot : units.k + 1]
    hits = total[head[dense.bought[source, head]]]
    low = hits.min() if len(hits) else np.inf
    assert low * (1 - np.sign(low) * 1e-6) - 1e-30 <= rows.lowest_hit[unit] <= low
    assert rows.group_floor[unit // GROUP] <= floor


def unit_losses(state: State, dense: Dense, unit: int, ranked: np.ndarray) -> Counter:
    """The loss of each hit of a unit when pushed down one slot, by (score, item)."""
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
                losses[max(float(total[item]), 0.0), item] += step
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
        raised = {(b, i): 1 for i, b in enumerate(rows.bias.tolist()) if b > 0}
        check_entries(entries_of(rows.losses), losses)
        check_entries(entries_of(rows.raised), raised)


def check_entries(entries: list[tuple[float, int, int]], expected: dict) -> None:
    order = [(key, -item) for key, item, _ in entries]
    assert order == sorted(order)
    assert {(key, item): weight for key, item, weight in entries} == expected
