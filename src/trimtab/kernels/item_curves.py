"""Curves of many items at once, written by parts of the units and added up.

An item's curve is its list of (breakpoint, delta), as defined in `coordinate_ascent`. Each part
writes the breakpoints of its affected units (see `affected_units`). The parts together, with the
losses that all items share, give the item's curve. The best move on it is the one that
`coordinate_ascent` makes: the rules and the search are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.affected_units import (
    Scratch,
    add_breakpoints,
    add_buyers,
    add_units_showing_item,
    find_listers,
    mark_affected,
    take_postponed,
    unpack_scratch,
)
from trimtab.kernels.bias_steps import make_rules, penalty_of
from trimtab.kernels.compiling import kernel, pack
from trimtab.kernels.ordered_multiset import OrderedMultiset, first_key_over, unpack_multiset
from trimtab.kernels.prepare_lists import ByItem, unpack_by_item
from trimtab.kernels.short_sorts import STACK, sort_curve
from trimtab.kernels.staircase import best_above, best_below, possible_gain
from trimtab.kernels.top_rows import Problem, Rows, unpack_problem, unpack_rows


class Curves(NamedTuple):
    """Parts of items' curves, one item after the other."""

    items: Codes
    current: Ints  # value at the current bias, relative to b = 0
    n_up: Codes  # breakpoints not passed at b = 0; they come first
    n_down: Codes  # breakpoints passed at b = 0
    at: Floats  # breakpoints
    delta: Ints


class BestMoves(NamedTuple):
    """The best bias of each item, all other biases fixed."""

    items: Codes
    biases: Floats
    gains: Ints  # of the penalised metric, in quanta; at 0 or less the item does not move
    max_gains: Ints  # upper bound of the gain, at biases whose shared losses are not too high


@kernel
def _write_curves(
    packed, packed_rows, packed_by_item, packed_scratch, start, items, limits, current, n_up,
    n_down, at, delta,
):  # fmt: skip
    """Write curves from items[start] on while there is room; see `write_curves`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    by_item = unpack_by_item(packed_by_item)
    scratch = unpack_scratch(packed_scratch)
    out = 0
    for c in range(start, len(items)):
        item = np.int64(items[c])
        limit = limits[c]
        bias = rows.offset[item]
        scratch.counts[0] = 0
        scratch.counts[1] = 0
        zero = np.int64(0)
        n_affected, n_postponed = find_listers(rows, by_item, item, bias, limit, scratch)
        if problem.reaches_unlisted and bias > 0:
            visit = np.int64(c + 1)
            mark_affected(by_item, item, scratch, visit)
            n_affected = add_units_showing_item(problem, rows, bias, visit, scratch, n_affected)
        current_value = add_breakpoints(problem, rows, item, scratch, n_affected)
        n_affected, n_postponed = take_postponed(rows, by_item, n_postponed, limit, scratch)
        current_value += add_breakpoints(problem, rows, item, scratch, n_affected)
        if problem.reaches_unlisted:
            n_affected = add_buyers(rows, by_item, item, -np.inf, limit, scratch, zero)
            current_value += add_breakpoints(problem, rows, item, scratch, n_affected)
        ups = scratch.counts[0]
        downs = scratch.counts[1]
        if out + ups + downs > len(at):
            return c, out
        current[c] = current_value
        n_up[c] = ups
        n_down[c] = downs
        for e in range(ups):
            at[out + e] = scratch.up[e]
            delta[out + e] = scratch.up_deltas[e]
        out += ups
        for e in range(downs):
            at[out + e] = scratch.down[e]
            delta[out + e] = scratch.down_deltas[e]
        out += downs
    return len(items), out


def write_curves(
    problem: Problem, rows: Rows, by_item: ByItem, scratch: Scratch, items: Codes, limits: Floats
) -> Curves:
    """Return one part's share of the items' curves.

    Args:
        problem: lists, purchases and hit values, which do not change.
        rows: the current rankings.
        by_item: the units that list and that bought each item.
        scratch: working memory, not used before.
        items: item codes, each once.
        limits: the highest bias to try for each item; units beyond its reach are left out.
    """
    packed = (pack(problem), pack(rows), pack(by_item), pack(scratch))
    current = np.zeros(len(items), np.int64)
    n_up, n_down = np.zeros((2, len(items)), np.int32)
    room = len(scratch.up) + len(scratch.down)
    at, delta = np.empty(room), np.empty(room, np.int64)
    found: list[tuple[Floats, Ints]] = []
    done = 0
    while done < len(items):
        done, n = _write_curves(*packed, done, items, limits, current, n_up, n_down, at, delta)
        found.append((at[:n].copy(), delta[:n].copy()))
    if not found:
        found.append((at[:0], delta[:0]))
    return Curves(items, current, n_up, n_down, *map(np.concatenate, zip(*found, strict=True)))


@kernel
def _add_curves(positions, n_up, n_down, at, delta, up_cursor, down_cursor, out_at, out_delta):
    """Copy a part's breakpoints to the items' cursors, and advance the cursors."""
    e = 0
    for c in range(len(positions)):
        item = positions[c]
        for _ in range(n_up[c]):
            out_at[up_cursor[item]] = at[e]
            out_delta[up_cursor[item]] = delta[e]
            up_cursor[item] += 1
            e += 1
        for _ in range(n_down[c]):
            out_at[down_cursor[item]] = at[e]
            out_delta[down_cursor[item]] = delta[e]
            down_cursor[item] += 1
            e += 1


def add_curves(parts: list[Curves]) -> Curves:
    """Add up the curves of parts; items come ascending, and the order of parts does not matter."""
    items = np.unique(np.concatenate([part.items for part in parts]))
    positions_by_part = [np.searchsorted(items, part.items) for part in parts]
    current, n_up, n_down = np.zeros((3, len(items)), np.int64)
    for part, positions in zip(parts, positions_by_part, strict=True):
        current[positions] += part.current
        n_up[positions] += part.n_up
        n_down[positions] += part.n_down
    ends = np.cumsum(n_up + n_down)
    down_cursor = ends - n_down
    up_cursor = down_cursor - n_up
    size = int(ends[-1]) if len(ends) else 0
    at, delta = np.empty(size), np.empty(size, np.int64)
    for part, positions in zip(parts, positions_by_part, strict=True):
        _add_curves(positions, *part[2:], up_cursor, down_cursor, at, delta)
    return Curves(items, current, n_up.astype(np.int32), n_down.astype(np.int32), at, delta)


@kernel
def _choose_moves(
    reaches_unlisted, packed_losses, n_up, n_down, at, delta, current, biases, limits, cap, margin,
    penalty_rate, magnitude, best, gains, max_gains,
):  # fmt: skip
    """Write each item's best bias and its gain; see `choose_moves`."""
    losses = unpack_multiset(packed_losses)
    rules = make_rules(cap, margin, penalty_rate, magnitude)
    longest = 1
    for c in range(len(biases)):
        longest = max(longest, max(n_up[c], n_down[c]))
    breakpoints = np.empty(longest)
    deltas = np.empty(longest, np.int64)
    stack = np.empty(STACK, np.int64)
    start = 0
    for c in range(len(biases)):
        middle = start + n_up[c]
        end = middle + n_down[c]
        for e in range(middle, end):
            breakpoints[e - middle] = at[e]
            deltas[e - middle] = delta[e]
        sort_curve(breakpoints, deltas, end - middle, stack)
        value, bias = best_below(breakpoints, deltas, end - middle, rules)
        for e in range(start, middle):
            breakpoints[e - start] = at[e]
            deltas[e - start] = delta[e]
        sort_curve(breakpoints, deltas, middle - start, stack)
        current_total = current[c] - penalty_of(biases[c], rules)
        limit = min(limits[c], cap)
        above, higher, incomplete = best_above(
            reaches_unlisted,
            losses,
            breakpoints,
            deltas,
            middle - start,
            limit,
            rules,
            current_total,
            value,
            bias,
        )
        if not incomplete:
            value = above
            bias = higher
        budget = possible_gain(deltas, middle - start)
        reached = first_key_over(losses, budget) if reaches_unlisted else np.inf
        max_gains[c] = 0
        for e in range(middle - start):
            if breakpoints[e] <= reached:
                max_gains[c] += max(deltas[e], 0)
        best[c] = bias
        gains[c] = value - current_total
        start = end


def choose_moves(
    curves: Curves, losses: OrderedMultiset, reaches_unlisted: bool, biases: Floats, limits: Floats,
    cap: float, margin: float, penalty_rate: float, magnitude: float,
) -> BestMoves:  # fmt: skip
    """Return each item's best bias and its gain.

    Args:
        curves: of the items, over all units.
        losses: cost of showing an item to every unit, by the score it is given.
        reaches_unlisted: whether biases above 0 reach units that do not list the item.
        biases: current biases of the items.
        limits: the highest bias to try for each item, as in `write_curves`.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        penalty_rate: penalty in quanta per unit of bias.
        magnitude: upper bound of |score| plus |bias|.
    """
    best = np.empty(len(biases))
    gains, max_gains = np.empty((2, len(biases)), np.int64)
    _choose_moves(
        reaches_unlisted, pack(losses), curves.n_up, curves.n_down, curves.at, curves.delta,
        curves.current, biases, limits, cap, margin, penalty_rate, magnitude, best, gains,
        max_gains,
    )  # fmt: skip
    return BestMoves(curves.items, best, gains, max_gains)
