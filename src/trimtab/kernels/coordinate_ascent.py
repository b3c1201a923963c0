"""Coordinate ascent: the exact best bias of one item after the other, all other biases fixed.

With item i taken out of a unit's ranking, let t_p be the score in slot p, r_p = 1 if that item is
relevant, y = 1 if i is, and a the unit's score of i without its bias. As the bias b grows, i passes
slot p at the breakpoint

    b = t_p - a        and the metric changes by        (y - r_p) * w_p        (w_p: see `top_rows`)

Two kinds of breakpoints matter: gains (y = 1, r_p = 0), only for units that bought i, and losses
(y = 0, r_p = 1), only for units with a hit in their top k. If a unit neither lists i nor shows it,
its losses are the same for every such item: `rows.losses` holds them once, in order. Item i's curve
is the sum of these shared losses, corrected for the affected units, and of the affected units' own
breakpoints (see `affected_units`). The cost of a cycle grows with the data, not with units x items.

Values are sums of fixed-point quanta relative to the value at b = 0, and so do not depend on the
order of summation. `bias_steps` has the rule for placing a bias in an interval.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.affected_units import (
    BUYER,
    LISTER,
    PREFETCH_AHEAD,
    Scratch,
    add_breakpoints,
    add_buyers,
    add_units_showing_item,
    find_listers,
    mark_affected,
    prefetch_row,
    take_postponed,
    unpack_scratch,
)
from trimtab.kernels.bias_steps import make_rules, penalty_of
from trimtab.kernels.compiling import helper, kernel, pack
from trimtab.kernels.ordered_multiset import add_weight, first_key_over
from trimtab.kernels.prepare_lists import ByItem, unpack_by_item
from trimtab.kernels.short_sorts import sort_steps
from trimtab.kernels.staircase import (
    best_above,
    best_below,
    bring_to_front,
    highest_gaining_breakpoint,
    possible_gain,
)
from trimtab.kernels.top_rows import (
    GROUP,
    LISTS_AHEAD,
    Problem,
    Rows,
    fill_row,
    move_item,
    prefetch_list,
    prefetch_starts,
    raise_exact_above,
    unpack_problem,
    unpack_rows,
)


@helper
def _fill_short_rows(problem, rows, units, n):
    """Rank the first n of the units from scratch."""
    for x in range(n):
        if x + 2 * LISTS_AHEAD < n:
            prefetch_starts(problem, units[x + 2 * LISTS_AHEAD])
        if x + LISTS_AHEAD < n:
            prefetch_list(problem, units[x + LISTS_AHEAD])
        fill_row(problem, rows, units[x], np.inf)


@helper
def _apply_move(problem, rows, by_item, item, old, new, scratch, visit):
    """Give an item its new bias in every row that it enters, leaves or moves in."""
    rows.offset[item] = new
    highest = max(old, new)
    if problem.reaches_unlisted:
        for bias, change in ((old, np.int64(-1)), (new, np.int64(1))):
            if bias > 0:
                add_weight(rows.raised, bias, item, change)
    yes = np.int64(1)  # numba would compile again for a literal
    n_affected = 0
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e])
        own_score = by_item.scores[e]
        unit = lister >> 1
        if own_score + highest >= rows.exact_above[unit]:
            if own_score + highest < rows.score_after_k[unit]:
                raise_exact_above(rows, unit, own_score + highest)
            else:
                scratch.affected[n_affected] = lister
                scratch.own_scores[n_affected] = own_score
                n_affected += 1
    n_short = 0
    for x in range(n_affected):
        if x + PREFETCH_AHEAD < n_affected:
            prefetch_row(problem, rows, scratch.affected[x + PREFETCH_AHEAD] >> 1)
        lister = scratch.affected[x]
        score = scratch.own_scores[x] + new
        # Rows that are too short now are filled together: their lists can be loaded ahead.
        scratch.postponed[n_short] = lister >> 1
        n_short += move_item(problem, rows, lister >> 1, item, lister & 1, yes, yes, score)
    _fill_short_rows(problem, rows, scratch.postponed, n_short)
    if not problem.reaches_unlisted or highest <= 0:
        return
    mark_affected(by_item, item, scratch, visit)
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_exact_above[group] <= highest:
            lowest = np.inf
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                if rows.exact_above[unit] <= highest and scratch.marks[unit] != visit * 4 + LISTER:
                    if highest < rows.score_after_k[unit]:
                        raise_exact_above(rows, unit, highest)
                    else:
                        bought = np.int64(scratch.marks[unit] == visit * 4 + BUYER)
                        too_short = move_item(
                            problem, rows, np.int64(unit), item, bought,
                            np.int64(old > 0), np.int64(new > 0), new,
                        )  # fmt: skip
                        if too_short:
                            fill_row(problem, rows, np.int64(unit), np.inf)
                lowest = min(lowest, rows.exact_above[unit])
            rows.group_exact_above[group] = lowest


@helper
def best_bias(problem, rows, by_item, item, bias, visit, rules, most_per_unit, scratch):
    """Return the best value, its bias and the current value, in quanta relative to b = 0.

    Units are searched in four stages: those that matter in any case, the buyers within reach of a
    bias whose gains can exceed its losses, the listers within that reach, and, only if intervals
    too narrow for a bias lead beyond it, all the rest. `visit` is a number not used before.
    """
    counts = scratch.counts
    counts[0] = 0
    counts[1] = 0
    zero = np.int64(0)
    n_buyers = by_item.buyers_indptr[item + 1] - by_item.buyers_indptr[item]
    buyers_limit = -np.inf
    limit = np.inf
    current = zero
    best_value = zero
    best = 0.0
    value_to_beat = zero
    n_postponed = zero
    n_affected = zero
    for stage in range(4):
        if stage == 0:
            n_affected, n_postponed = find_listers(rows, by_item, item, bias, rules.cap, scratch)
            if problem.reaches_unlisted and bias > 0:
                mark_affected(by_item, item, scratch, visit)
                n_affected = add_units_showing_item(problem, rows, bias, visit, scratch, n_affected)
        elif stage == 1:
            if n_buyers == 0:
                continue
            budget = possible_gain(scratch.up_deltas, counts[0]) + 2 * most_per_unit * n_buyers
            reached = min(first_key_over(rows.losses, budget), rules.cap)
            buyers_limit = max(reached, bias) + 4 * rules.margin
            n_affected = add_buyers(rows, by_item, item, -np.inf, buyers_limit, scratch, zero)
        elif stage == 2:
            value_to_beat = current - penalty_of(bias, rules)
            sort_steps(scratch.down, scratch.down_deltas, counts[1], scratch.stack)
            best_value, best = best_below(scratch.down, scratch.down_deltas, counts[1], rules)
            budget = possible_gain(scratch.up_deltas, counts[0]) - max(value_to_beat, best_value)
            limit = min(
                highest_gaining_breakpoint(scratch.up, scratch.up_deltas, counts[0]), rules.cap
            )
            if problem.reaches_unlisted and limit > 0:
                limit = min(limit, first_key_over(rows.losses, budget))
            if budget < 0 or limit < 0:
                break
            reached = limit + 4 * rules.margin
            n_affected, n_postponed = take_postponed(rows, by_item, n_postponed, reached, scratch)
        else:
            counts[2] += 1
            limit = np.inf
            n_affected, n_postponed = take_postponed(rows, by_item, n_postponed, limit, scratch)
            n_affected = add_buyers(rows, by_item, item, buyers_limit, limit, scratch, n_affected)
        current += add_breakpoints(problem, rows, item, scratch, n_affected)
        if stage >= 2:
            n_up = bring_to_front(
                scratch.up, scratch.up_deltas, counts[0], limit + 4 * rules.margin
            )
            sort_steps(scratch.up, scratch.up_deltas, n_up, scratch.stack)
            value, above, incomplete = best_above(
                problem.reaches_unlisted, rows.losses, scratch.up, scratch.up_deltas, n_up, limit,
                rules, value_to_beat, best_value, best,
            )  # fmt: skip
            if not incomplete:
                best_value = value
                best = above
                break
    return best_value, best, current


@kernel
def _visit_items(
    packed, packed_rows, packed_by_item, packed_scratch, candidates, cap, margin, penalty_rate,
    most_per_unit, gain, counters, magnitudes,
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
        rules = make_rules(cap, margin, penalty_rate, magnitudes[0] + magnitudes[1])
        value, best, current = best_bias(
            problem, rows, by_item, item, bias, counters[0], rules, most_per_unit, scratch
        )
        before = penalty_of(bias, rules)
        if value > current - before:
            after = penalty_of(best, rules)
            counters[1] += value + after - current
            counters[2] += after - before
            gain[item] = value + after - current
            magnitudes[1] = max(magnitudes[1], abs(best))
            _apply_move(problem, rows, by_item, item, bias, best, scratch, counters[0])
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
    penalty_rate: float,
    most_per_unit: int,
    gain: Ints,
    counters: Ints,
    magnitudes: Floats,
) -> int:
    """Give each candidate in turn its best bias; returns the number of biases changed.

    Args:
        problem: lists, purchases and hit values, which do not change.
        rows: the current rankings; changed in place.
        by_item: the units that list and that bought each item.
        scratch: working memory.
        candidates: item codes in visiting order.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        penalty_rate: penalty in quanta per unit of bias.
        most_per_unit: the most that one unit can gain or lose, in quanta.
        gain: per item, what its last move added, in quanta; changed in place.
        counters: visits so far, sum of the metric and sum of penalties in quanta; changed.
        magnitudes: largest |score| and largest |bias| so far; changed.
    """
    packed = (pack(problem), pack(rows), pack(by_item), pack(scratch))
    changed = _visit_items(
        *packed, candidates, cap, margin, penalty_rate, most_per_unit, gain, counters, magnitudes
    )
    return int(changed)
