"""The exact best bias of one item after the other, at a cost that grows with the data.

Taking item i out of everybody's ranking, let t_p be the score of the p-th item left and r_p its
relevance, and let a be i's own score without its bias. As the bias b grows, i passes place p at
b = t_p - a, which changes the unit's metric by (y - r_p) * w_p. Only two kinds of breakpoints
matter: gains (y = 1, r_p = 0), from those who bought i, and losses (y = 0, r_p = 1), from units
with a hit in their top k. For a unit that neither lists i nor has it in its row, the losses are
the same whichever item i is: they are kept once, ordered, in `rows.losses`. Item i's curve is
that, corrected for the units special to i, plus those units' own breakpoints.

Values are sums of fixed-point quanta relative to the value at b = 0, so that the order of
summation cannot matter. The rule for placing a bias in an interval is in `steps.py`.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.affected_units import (
    AHEAD,
    BUYER,
    LISTER,
    Scratch,
    collect,
    gather_buyers,
    gather_later,
    gather_listers,
    gather_raised,
    prefetch_row,
    stamp_special,
    unpack_scratch,
)
from trimtab.kernels.bias_steps import make_rules, penalty_of
from trimtab.kernels.compiling import helper, kernel, pack
from trimtab.kernels.ordered_multiset import add_weight, reach
from trimtab.kernels.prepare_lists import ByItem, unpack_by_item
from trimtab.kernels.short_sorts import sort_curve
from trimtab.kernels.staircase import best_above, best_below, gain_left, highest_gain, split_at
from trimtab.kernels.top_rows import (
    GROUP,
    Problem,
    Rows,
    hit_value_at,
    move_item,
    raise_floor,
    tags_of,
    unpack_problem,
    unpack_rows,
)


@helper
def _unit_value(problem, rows, unit):
    """The metric of a unit's current ranking, in quanta."""
    total = np.int64(0)
    hits = 0
    tags = tags_of(problem, unit)
    for p in range(min(problem.k, np.int64(rows.codes[tags + problem.width]))):
        if rows.codes[tags + p] & 1:
            hits += 1
            total += hit_value_at(problem, unit, p) * (hits if problem.is_map else 1)
    return total


@helper
def _apply_move(problem, rows, by_item, item, old, new, scratch, visit, counted):
    """Give an item its new bias in every row that it enters, leaves or moves in.

    Returns what that adds to the metric, in quanta, if it is to be counted.
    """
    gained = np.int64(0)
    rows.offset[item] = new
    highest = max(old, new)
    if problem.reaches_unlisted:
        for bias, change in ((old, np.int64(-1)), (new, np.int64(1))):
            if bias > 0:
                add_weight(rows.raised, bias, item, change)
    there = np.int64(1)  # numba compiles anew for a literal
    n_who = 0
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e])
        own = by_item.scores[e]
        unit = lister >> 1
        if own + highest >= rows.floor[unit]:
            if own + highest < rows.edge[unit]:
                raise_floor(rows, unit, own + highest)
            else:
                scratch.who[n_who] = lister
                scratch.owns[n_who] = own
                n_who += 1
    for x in range(n_who):
        if x + AHEAD < n_who:
            prefetch_row(problem, rows, scratch.who[x + AHEAD] >> 1)
        lister = scratch.who[x]
        score = scratch.owns[x] + new
        if counted:
            gained -= _unit_value(problem, rows, lister >> 1)
        move_item(problem, rows, lister >> 1, item, lister & 1, there, there, score)
        if counted:
            gained += _unit_value(problem, rows, lister >> 1)
    if not problem.reaches_unlisted or highest <= 0:
        return gained
    stamp_special(by_item, item, scratch, visit)
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_floor[group] <= highest:
            lowest = np.inf
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                if rows.floor[unit] <= highest and scratch.stamp[unit] != visit * 4 + LISTER:
                    if highest < rows.edge[unit]:
                        raise_floor(rows, unit, highest)
                    else:
                        bought = np.int64(scratch.stamp[unit] == visit * 4 + BUYER)
                        if counted:
                            gained -= _unit_value(problem, rows, np.int64(unit))
                        move_item(
                            problem, rows, np.int64(unit), item, bought,
                            np.int64(old > 0), np.int64(new > 0), new,
                        )  # fmt: skip
                        if counted:
                            gained += _unit_value(problem, rows, np.int64(unit))
                lowest = min(lowest, rows.floor[unit])
            rows.group_floor[group] = lowest
    return gained


@helper
def best_bias(problem, rows, by_item, item, bias, visit, rules, most, scratch):
    """The best bias of an item, its value and the current value, in quanta relative to b = 0.

    First come those who matter in any case, then the buyers whom a bias worth its losses can
    reach, then the listers whom it can, and, if narrow intervals lead beyond that, everybody.
    """
    sizes = scratch.sizes
    sizes[0] = 0
    sizes[1] = 0
    none = np.int64(0)
    n_buyers = by_item.buyers_indptr[item + 1] - by_item.buyers_indptr[item]
    buyers_limit = -np.inf
    limit = np.inf
    current = none
    best_value = none
    best = 0.0
    bar = none
    n_later = none
    n_who = none
    for stage in range(4):
        if stage == 0:
            n_who, n_later = gather_listers(rows, by_item, item, bias, rules.cap, scratch)
            if problem.reaches_unlisted and bias > 0:
                stamp_special(by_item, item, scratch, visit)
                n_who = gather_raised(problem, rows, bias, visit, scratch, n_who)
        elif stage == 1:
            if n_buyers == 0:
                continue
            budget = gain_left(scratch.up_deltas, sizes[0]) + 2 * most * n_buyers
            reached = min(reach(rows.losses, budget), rules.cap)
            buyers_limit = max(reached, bias) + 4 * rules.margin
            n_who = gather_buyers(rows, by_item, item, -np.inf, buyers_limit, scratch, none)
        elif stage == 2:
            bar = current - penalty_of(bias, rules)
            sort_curve(scratch.down, scratch.down_deltas, sizes[1], scratch.stack)
            best_value, best = best_below(scratch.down, scratch.down_deltas, sizes[1], rules)
            budget = gain_left(scratch.up_deltas, sizes[0]) - max(bar, best_value)
            limit = min(highest_gain(scratch.up, scratch.up_deltas, sizes[0]), rules.cap)
            if problem.reaches_unlisted and limit > 0:
                limit = min(limit, reach(rows.losses, budget))
            if budget < 0 or limit < 0:
                break
            reached = limit + 4 * rules.margin
            n_who, n_later = gather_later(rows, by_item, n_later, reached, scratch)
        else:
            sizes[2] += 1
            limit = np.inf
            n_who, n_later = gather_later(rows, by_item, n_later, limit, scratch)
            n_who = gather_buyers(rows, by_item, item, buyers_limit, limit, scratch, n_who)
        current += collect(problem, rows, item, scratch, n_who)
        if stage >= 2:
            n_up = split_at(scratch.up, scratch.up_deltas, sizes[0], limit + 4 * rules.margin)
            sort_curve(scratch.up, scratch.up_deltas, n_up, scratch.stack)
            value, above, unsure = best_above(
                problem, rows.losses, scratch.up, scratch.up_deltas, n_up, limit, rules,
                bar, best_value, best,
            )  # fmt: skip
            if not unsure:
                best_value = value
                best = above
                break
    return best_value, best, current


@kernel
def _visit(
    packed, packed_rows, packed_by_item, packed_scratch, candidates, cap, margin, rate, most,
    gain, counters, levels,
):  # fmt: skip
    """Give each candidate in turn its best bias; see `visit_items`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    by_item = unpack_by_item(packed_by_item)
    scratch = unpack_scratch(packed_scratch)
    n_changed = 0
    for c in range(len(candidates)):
        item = np.int64(candidates[c])
        counters[0] += 1
        bias = rows.offset[item]
        rules = make_rules(cap, margin, rate, levels[0] + levels[1])
        value, best, current = best_bias(
            problem, rows, by_item, item, bias, counters[0], rules, most, scratch
        )
        before = penalty_of(bias, rules)
        if value > current - before:
            after = penalty_of(best, rules)
            counters[1] += value + after - current
            counters[2] += after - before
            gain[item] = value + after - current
            levels[1] = max(levels[1], abs(best))
            _apply_move(problem, rows, by_item, item, bias, best, scratch, counters[0], False)
            n_changed += 1
    return n_changed


def visit_items(
    problem: Problem,
    rows: Rows,
    by_item: ByItem,
    scratch: Scratch,
    candidates: Codes,
    cap: float,
    margin: float,
    rate: float,
    most: int,
    gain: Ints,
    counters: Ints,
    levels: Floats,
) -> int:
    """Give each candidate in turn its best bias; returns how many changed.

    Args:
        problem: what does not change.
        rows: the current rankings; changed in place.
        by_item: who lists and who bought each item.
        scratch: room to work in.
        candidates: item codes in the order of their visits.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        rate: penalty in quanta per unit of bias.
        most: the most that one unit can gain or lose, in quanta.
        gain: per item, what its last move added, in quanta; changed in place.
        counters: visits so far, the metric's sum and the penalty's sum in quanta; changed.
        levels: largest |score| and largest |bias| so far; changed.
    """
    packed = (pack(problem), pack(rows), pack(by_item), pack(scratch))
    changed = _visit(*packed, candidates, cap, margin, rate, most, gain, counters, levels)
    return int(changed)


@kernel
def _move(packed, packed_rows, packed_by_item, packed_scratch, items, biases, gains):
    """Give items their biases, one after the other; see `move_items`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    by_item = unpack_by_item(packed_by_item)
    scratch = unpack_scratch(packed_scratch)
    for c in range(len(items)):
        item = np.int64(items[c])
        old = rows.offset[item]
        gains[c] = _apply_move(
            problem, rows, by_item, item, old, biases[c], scratch, item + 1, True
        )


def move_items(
    problem: Problem, rows: Rows, by_item: ByItem, scratch: Scratch, items: Codes, biases: Floats
) -> Ints:
    """Give items their biases, one after the other; what each adds to the metric, in quanta.

    Args:
        problem: what does not change.
        rows: the current rankings; changed in place.
        by_item: who lists and who bought each of the items.
        scratch: room to work in, of its own: not one that `visit_items` uses.
        items: item codes.
        biases: their new biases.
    """
    gains = np.empty(len(items), np.int64)
    _move(pack(problem), pack(rows), pack(by_item), pack(scratch), items, biases, gains)
    return gains
