"""Curves of many items at once, written by parts of the units and added up.

A part writes, for each item, the breakpoints of the units that are special to it (see `special`);
those of all parts together, with the losses that all items share, are the item's curve. The best
step on it is the one that `coordinate` would take: the same rules, the same staircase.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.affected_units import (
    Scratch,
    collect,
    gather_buyers,
    gather_later,
    gather_listers,
    gather_raised,
    stamp_special,
    unpack_scratch,
)
from trimtab.kernels.bias_steps import make_rules, penalty_of
from trimtab.kernels.compiling import kernel, pack
from trimtab.kernels.ordered_multiset import OrderedMultiset, reach, unpack_blocks
from trimtab.kernels.prepare_lists import ByItem, unpack_by_item
from trimtab.kernels.short_sorts import STACK, sort_curve
from trimtab.kernels.staircase import best_above, best_below, gain_left
from trimtab.kernels.top_rows import Problem, Rows, unpack_problem, unpack_rows


class Curves(NamedTuple):
    """Parts of items' curves, one item after the other."""

    items: Codes
    current: Ints  # what the item's present places add to the value at b = 0
    n_up: Codes  # breakpoints not passed at b = 0; they come first
    n_down: Codes  # and those passed
    at: Floats
    delta: Ints


class BestMoves(NamedTuple):
    """Items' best biases, all others staying where they are."""

    items: Codes
    biases: Floats
    gains: Ints  # in the penalised metric, in quanta; 0 or less: better stay
    max_gains: Ints  # all that can be gained where it is not yet too costly for everybody else


class _Kind(NamedTuple):
    reaches_unlisted: bool


@kernel
def _write(
    packed, packed_rows, packed_by_item, packed_scratch, start, items, limits, current, n_up,
    n_down, at, delta,
):  # fmt: skip
    """Write curves from place `start` until there is no more room; see `write_curves`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    by_item = unpack_by_item(packed_by_item)
    scratch = unpack_scratch(packed_scratch)
    out = 0
    for c in range(start, len(items)):
        item = np.int64(items[c])
        limit = limits[c]
        bias = rows.offset[item]
        scratch.sizes[0] = 0
        scratch.sizes[1] = 0
        none = np.int64(0)
        n_who, n_later = gather_listers(rows, by_item, item, bias, limit, scratch)
        if problem.reaches_unlisted and bias > 0:
            visit = np.int64(c + 1)
            stamp_special(by_item, item, scratch, visit)
            n_who = gather_raised(problem, rows, bias, visit, scratch, n_who)
        now = collect(problem, rows, item, scratch, n_who)
        n_who, n_later = gather_later(rows, by_item, n_later, limit, scratch)
        now += collect(problem, rows, item, scratch, n_who)
        if problem.reaches_unlisted:
            n_who = gather_buyers(rows, by_item, item, -np.inf, limit, scratch, none)
            now += collect(problem, rows, item, scratch, n_who)
        ups = scratch.sizes[0]
        downs = scratch.sizes[1]
        if out + ups + downs > len(at):
            return c, out
        current[c] = now
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
    """This part's share of items' curves.

    Args:
        problem: what does not change.
        rows: the current rankings.
        by_item: who lists and who bought each of the items.
        scratch: room to work in, not used before.
        items: item codes, each once.
        limits: no bias above these is worth a look; units that only those would reach are left out.
    """
    packed = (pack(problem), pack(rows), pack(by_item), pack(scratch))
    current = np.zeros(len(items), np.int64)
    n_up, n_down = np.zeros((2, len(items)), np.int32)
    room = len(scratch.up) + len(scratch.down)
    at, delta = np.empty(room), np.empty(room, np.int64)
    found: list[tuple[Floats, Ints]] = []
    done = 0
    while done < len(items):
        done, n = _write(*packed, done, items, limits, current, n_up, n_down, at, delta)
        found.append((at[:n].copy(), delta[:n].copy()))
    if not found:
        found.append((at[:0], delta[:0]))
    return Curves(items, current, n_up, n_down, *map(np.concatenate, zip(*found, strict=True)))


@kernel
def _add(items_at, n_up, n_down, at, delta, up_cursor, down_cursor, out_at, out_delta):
    """Put a part's entries where the items' cursors are, which move on."""
    e = 0
    for c in range(len(items_at)):
        slot = items_at[c]
        for _ in range(n_up[c]):
            out_at[up_cursor[slot]] = at[e]
            out_delta[up_cursor[slot]] = delta[e]
            up_cursor[slot] += 1
            e += 1
        for _ in range(n_down[c]):
            out_at[down_cursor[slot]] = at[e]
            out_delta[down_cursor[slot]] = delta[e]
            down_cursor[slot] += 1
            e += 1


def add_curves(parts: list[Curves]) -> Curves:
    """Curves of parts as curves of their items, ascending; the order of parts does not matter."""
    items = np.unique(np.concatenate([part.items for part in parts]))
    slots = [np.searchsorted(items, part.items) for part in parts]
    current, n_up, n_down = np.zeros((3, len(items)), np.int64)
    for part, slot in zip(parts, slots, strict=True):
        current[slot] += part.current
        n_up[slot] += part.n_up
        n_down[slot] += part.n_down
    ends = np.cumsum(n_up + n_down)
    down_cursor = ends - n_down
    up_cursor = down_cursor - n_up
    size = int(ends[-1]) if len(ends) else 0
    at, delta = np.empty(size), np.empty(size, np.int64)
    for part, slot in zip(parts, slots, strict=True):
        _add(slot, part.n_up, part.n_down, part.at, part.delta, up_cursor, down_cursor, at, delta)
    return Curves(items, current, n_up.astype(np.int32), n_down.astype(np.int32), at, delta)


@kernel
def _choose(
    reaches_unlisted, packed_losses, n_up, n_down, at, delta, current, biases, limits, cap, margin,
    rate, magnitude, best, gains, max_gains,
):  # fmt: skip
    """Each item's best bias and what it gains; see `choose_moves`."""
    losses = unpack_blocks(packed_losses)
    rules = make_rules(cap, margin, rate, magnitude)
    most = 1
    for c in range(len(biases)):
        most = max(most, max(n_up[c], n_down[c]))
    column = np.empty(most)
    deltas = np.empty(most, np.int64)
    stack = np.empty(STACK, np.int64)
    kind = _Kind(reaches_unlisted)
    start = 0
    for c in range(len(biases)):
        middle = start + n_up[c]
        end = middle + n_down[c]
        for e in range(middle, end):
            column[e - middle] = at[e]
            deltas[e - middle] = delta[e]
        sort_curve(column, deltas, end - middle, stack)
        value, bias = best_below(column, deltas, end - middle, rules)
        for e in range(start, middle):
            column[e - start] = at[e]
            deltas[e - start] = delta[e]
        sort_curve(column, deltas, middle - start, stack)
        bar = current[c] - penalty_of(biases[c], rules)
        bound = min(limits[c], cap)
        above, higher, unsure = best_above(
            kind, losses, column, deltas, middle - start, bound, rules, bar, value, bias
        )
        if not unsure:
            value = above
            bias = higher
        hope = gain_left(deltas, middle - start)
        reached = reach(losses, hope) if reaches_unlisted else np.inf
        max_gains[c] = 0
        for e in range(middle - start):
            if column[e] <= reached:
                max_gains[c] += max(deltas[e], 0)
        best[c] = bias
        gains[c] = value - bar
        start = end


def choose_moves(
    curves: Curves, losses: OrderedMultiset, reaches_unlisted: bool, biases: Floats, limits: Floats,
    cap: float, margin: float, rate: float, magnitude: float,
) -> BestMoves:  # fmt: skip
    """Each item's best bias, and what it gains.

    Args:
        curves: of items, all units together.
        losses: what an item that everybody gets at score b would cost.
        reaches_unlisted: whether biases above 0 reach units that do not list the item.
        biases: the items' present ones.
        limits: as the curves were written with.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        rate: penalty in quanta per unit of bias.
        magnitude: what scores and biases add up to at most.
    """
    best = np.empty(len(biases))
    gains, max_gains = np.empty((2, len(biases)), np.int64)
    _choose(
        reaches_unlisted, pack(losses), curves.n_up, curves.n_down, curves.at, curves.delta,
        curves.current, biases, limits, cap, margin, rate, magnitude, best, gains, max_gains,
    )  # fmt: skip
    return BestMoves(curves.items, best, gains, max_gains)
