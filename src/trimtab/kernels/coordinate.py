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

from trimtab.kernels.blocks import BLOCK, add_weight, reach
from trimtab.kernels.jit import helper, kernel
from trimtab.kernels.rows import GROUP, hit_step, move_item
from trimtab.kernels.sorting import sort_curve
from trimtab.kernels.steps import better, make_rules, penalty_of, too_narrow

_LISTER = 1
_BUYER = 2


@helper
def _grown(values, deltas, n, extra):
    """The same columns with room for `extra` more entries."""
    if n + extra <= len(values):
        return values, deltas
    room = 2 * (n + extra)
    new_values = np.empty(room, np.float64)
    new_deltas = np.empty(room, np.int64)
    new_values[:n] = values[:n]
    new_deltas[:n] = deltas[:n]
    return new_values, new_deltas


@helper
def _collect(problem, rows, unit, item, relevant, listed, own, up, up_d, n_up, down, down_d, n_down):
    """Append one special unit's breakpoints: `up` those not passed at b = 0, `down` those passed.

    Returns both lengths and what the item's current place adds to the value at b = 0. With a
    shared curve, also cancels what the unit has in it.
    """
    k = problem.k
    base = unit * problem.width
    n = np.int64(rows.length[unit])
    current = np.int64(0)
    place = 0  # among the items besides this one
    hits = 0
    all_hits = 0  # this one included
    above = False  # whether the item is now above the entry looked at
    for p in range(n):
        code = rows.codes[base + p]
        score = rows.scores[base + p]
        hit = code & 1
        if problem.reaches_unlisted and hit == 1 and p < k:
            if p >= problem.first:
                step = hit_step(problem, unit, p, all_hits)
                if step != 0:
                    up[n_up] = max(score, 0.0)
                    up_d[n_up] = step
                    n_up += 1
            all_hits += 1
        if code >> 1 == item:
            above = True
            continue
        if place == k:
            break
        if hit != relevant and place >= problem.first:
            step = hit_step(problem, unit, place, hits)
            if step != 0:
                delta = step if relevant else -step
                passed = listed and (own > score or (own == score and item < code >> 1))
                if passed:
                    down[n_down] = score - own
                    down_d[n_down] = delta
                    n_down += 1
                    if not above:
                        current -= delta
                else:
                    up[n_up] = score - own if listed else max(score, 0.0)
                    up_d[n_up] = delta
                    n_up += 1
                    if above:
                        current += delta
        place += 1
        hits += hit
    if relevant and not listed:
        # Places that nothing claims: the item takes the first of them as soon as b > 0.
        delta = np.int64(0)
        for empty in range(max(place, problem.first), k):
            delta += hit_step(problem, unit, empty, hits)
        if delta != 0:
            up[n_up] = 0.0
            up_d[n_up] = delta
            n_up += 1
            if above:
                current += delta
    return n_up, n_down, current


@helper
def _best_below(down, down_d, n_down, rules, best_value, best_bias):
    """Best bias below 0: walk down from 0, dropping breakpoints."""
    value = np.int64(0)
    pending = False
    high = 0.0
    e = n_down - 1
    while e >= 0:
        at = down[e]
        net = np.int64(0)
        while e >= 0 and down[e] == at:
            net -= down_d[e]
            e -= 1
        if net == 0:
            continue
        if pending and not too_narrow(high - max(at, -rules.cap), rules):
            bias = high - min((high - max(at, -rules.cap)) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            pending = False
        if at <= -rules.cap:
            return best_value, best_bias
        value += net
        if net > 0:
            pending = True
        high = at
    if pending and not too_narrow(high + rules.cap, rules):
        bias = high - min((high + rules.cap) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias


@helper
def _best_above(problem, losses, up, up_d, n_up, limit, rules, bar, best_value, best_bias):
    """Best bias above 0: merge the item's own breakpoints with the shared losses.

    Looks only for values above `bar`. Own breakpoints beyond `limit` may be missing; the last
    value returned says whether the answer could depend on them.
    """
    left = np.int64(0)
    for e in range(n_up):
        left += max(up_d[e], 0)
    value = np.int64(0)
    pending = False
    low = 0.0
    e = 0
    block_place = 0
    n_blocks = losses.counts[0] if problem.reaches_unlisted else 0
    entry = np.int64(0)
    end = np.int64(0)
    if n_blocks > 0:
        entry = np.int64(losses.order[0]) * BLOCK
        end = entry + losses.lengths[losses.order[0]]
    while True:
        if not pending and (value + left < best_value or value + left <= bar):
            return best_value, best_bias, False
        own = up[e] if e < n_up else np.inf
        # The next shared loss; whole blocks below the next own breakpoint are taken at once.
        shared = np.inf
        while block_place < n_blocks:
            if entry < end:
                shared = losses.keys[entry]
                break
            block_place += 1
            while (
                not pending
                and block_place + 1 < n_blocks
                and value + left > bar
                and losses.floor_keys[block_place + 1] < own
            ):
                value -= losses.sums[losses.order[block_place]]
                block_place += 1
            if block_place < n_blocks:
                entry = np.int64(losses.order[block_place]) * BLOCK
                end = entry + losses.lengths[losses.order[block_place]]
        if shared < own and not pending:
            while entry < end and losses.keys[entry] < own:
                value -= losses.weights[entry]
                entry += 1
            continue
        at = min(own, shared)
        if at == np.inf:
            break
        net = np.int64(0)
        while e < n_up and up[e] == at:
            net += up_d[e]
            left -= max(up_d[e], 0)
            e += 1
        while block_place < n_blocks:
            if entry < end:
                if losses.keys[entry] != at:
                    break
                net -= losses.weights[entry]
                entry += 1
            else:
                block_place += 1
                if block_place < n_blocks:
                    entry = np.int64(losses.order[block_place]) * BLOCK
                    end = entry + losses.lengths[losses.order[block_place]]
        if net == 0:
            continue
        if pending and not too_narrow(min(at, rules.cap) - low, rules):
            if low + 2 * rules.margin > limit:
                return best_value, best_bias, True
            bias = low + min((min(at, rules.cap) - low) / 2, rules.margin)
            total = value - penalty_of(bias, rules)
            if better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
            pending = False
        if at >= rules.cap:
            return best_value, best_bias, False
        value += net
        if net > 0:
            pending = True
        low = at
    if pending and not too_narrow(rules.cap - low, rules):
        if low + 2 * rules.margin > limit:
            return best_value, best_bias, True
        bias = low + min((rules.cap - low) / 2, rules.margin)
        total = value - penalty_of(bias, rules)
        if better(total, bias, best_value, best_bias):
            best_value, best_bias = total, bias
    return best_value, best_bias, False


@helper
def _gain_left(up_d, n_up):
    total = np.int64(0)
    for e in range(n_up):
        total += max(up_d[e], 0)
    return total


@helper
def _highest_gain(up, up_d, n_up):
    highest = -1.0
    for e in range(n_up):
        if up_d[e] > 0 and up[e] > highest:
            highest = up[e]
    return highest


@helper
def _stamp_special(by_item, item, stamp, visit):
    """Mark who lists the item and who bought it without listing it."""
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        stamp[by_item.listers[e] >> 1] = visit * 4 + _LISTER
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        stamp[by_item.buyers[e]] = visit * 4 + _BUYER


@kernel
def _apply_move(problem, rows, by_item, item, old, new, stamp, visit):
    """Give an item its new bias in every row that it enters, leaves or moves in."""
    rows.offset[item] = new
    highest = max(old, new)
    if problem.reaches_unlisted:
        if old > 0:
            add_weight(rows.raised, old, item, -1)
        if new > 0:
            add_weight(rows.raised, new, item, 1)
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        unit = np.int64(by_item.listers[e] >> 1)
        own = by_item.scores[e]
        if own + highest >= rows.floor[unit]:
            move_item(problem, rows, unit, item, by_item.listers[e] & 1, True, True, own + new)
    if not problem.reaches_unlisted or highest <= 0:
        return
    _stamp_special(by_item, item, stamp, visit)
    n_units = len(rows.floor)
    for group in range(len(rows.group_floor)):
        if rows.group_floor[group] <= highest:
            lowest = np.inf
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                if rows.floor[unit] <= highest and stamp[unit] != visit * 4 + _LISTER:
                    bought = np.int32(stamp[unit] == visit * 4 + _BUYER)
                    move_item(problem, rows, unit, item, bought, old > 0, new > 0, new)
                lowest = min(lowest, rows.floor[unit])
            rows.group_floor[group] = lowest


@kernel
def visit_items(
    problem, rows, by_item, candidates, cap, margin, rate, most, gain, stamp, counters, levels
):
    """Give each candidate in turn its best bias; returns how many changed.

    Args:
        problem: what does not change.
        rows: the current rankings; changed in place.
        by_item: lists by item.
        candidates: item codes in the order of their visits.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        rate: penalty in quanta per unit of bias.
        most: the most that one unit can gain or lose, in quanta.
        gain: per item, what its last move added, in quanta; changed in place.
        stamp: scratch, one int32 per unit.
        counters: visits so far, the metric's sum and the penalty's sum in quanta; changed.
        levels: largest |score| and largest |bias| so far; changed.
    """
    up = np.empty(1024, np.float64)
    up_d = np.empty(1024, np.int64)
    down = np.empty(1024, np.float64)
    down_d = np.empty(1024, np.int64)
    later = np.empty(1024, np.int64)
    room = 2 * problem.k + 2
    n_changed = 0
    for c in range(len(candidates)):
        item = candidates[c]
        counters[0] += 1
        visit = counters[0]
        bias = rows.offset[item]
        rules = make_rules(cap, margin, rate, levels[0] + levels[1])
        n_up = 0
        n_down = 0
        n_later = 0
        current = np.int64(0)
        raised = problem.reaches_unlisted and bias > 0
        start = by_item.indptr[item]
        stop = by_item.indptr[item + 1]
        if stop - start > len(later):
            later = np.empty(2 * (stop - start), np.int64)
        reachable = max(bias, 0.0)
        for e in range(start, stop):
            unit = np.int64(by_item.listers[e] >> 1)
            relevant = by_item.listers[e] & 1
            own = by_item.scores[e]
            low_hit = rows.low_hit[unit]
            if relevant or low_hit <= own + reachable:
                up, up_d = _grown(up, up_d, n_up, room)
                down, down_d = _grown(down, down_d, n_down, room)
                n_up, n_down, change = _collect(
                    problem, rows, unit, item, relevant, True, own,
                    up, up_d, n_up, down, down_d, n_down,
                )  # fmt: skip
                current += change
            elif low_hit <= own + cap:
                later[n_later] = e
                n_later += 1
        if raised:
            _stamp_special(by_item, item, stamp, visit)
            for group in range(len(rows.group_floor)):
                if rows.group_floor[group] <= bias:
                    for unit in range(group * GROUP, min(len(rows.floor), (group + 1) * GROUP)):
                        if rows.floor[unit] <= bias and stamp[unit] >> 2 != visit:
                            up, up_d = _grown(up, up_d, n_up, room)
                            n_up, n_down, change = _collect(
                                problem, rows, unit, item, 0, False, 0.0,
                                up, up_d, n_up, down, down_d, n_down,
                            )  # fmt: skip
                            current += change
        buyers_start = by_item.buyers_indptr[item]
        buyers_stop = by_item.buyers_indptr[item + 1]
        buyers_limit = np.inf
        if buyers_stop > buyers_start:
            budget = _gain_left(up_d, n_up) + 2 * most * (buyers_stop - buyers_start)
            buyers_limit = max(min(reach(rows.losses, budget), cap), bias) + 4 * rules.margin
            for e in range(buyers_start, buyers_stop):
                unit = np.int64(by_item.buyers[e])
                if rows.edge[unit] <= buyers_limit:
                    up, up_d = _grown(up, up_d, n_up, room)
                    n_up, n_down, change = _collect(
                        problem, rows, unit, item, 1, False, 0.0,
                        up, up_d, n_up, down, down_d, n_down,
                    )  # fmt: skip
                    current += change
        bar = current - penalty_of(bias, rules)
        best_value = np.int64(0)
        best = 0.0
        sort_curve(down, down_d, n_down)
        best_value, best = _best_below(down, down_d, n_down, rules, best_value, best)
        budget = _gain_left(up_d, n_up) - max(bar, best_value)
        limit = -1.0
        if budget >= 0:
            limit = min(_highest_gain(up, up_d, n_up), cap)
            if problem.reaches_unlisted and limit > 0:
                limit = min(limit, reach(rows.losses, budget))
        if limit >= 0:
            limit += 4 * rules.margin
            value_below = best_value
            best_below = best
            while True:
                kept = 0
                for x in range(n_later):
                    e = later[x]
                    unit = np.int64(by_item.listers[e] >> 1)
                    own = by_item.scores[e]
                    if rows.low_hit[unit] <= own + limit:
                        up, up_d = _grown(up, up_d, n_up, room)
                        n_up, n_down, change = _collect(
                            problem, rows, unit, item, 0, True, own,
                            up, up_d, n_up, down, down_d, n_down,
                        )  # fmt: skip
                    else:
                        later[kept] = e
                        kept += 1
                n_later = kept
                sort_curve(up, up_d, n_up)
                best_value, best, unsure = _best_above(
                    problem, rows.losses, up, up_d, n_up, limit, rules, bar, value_below, best_below
                )
                if not unsure:
                    break
                # A chain of intervals too narrow to stand in led past the limit: take everything.
                limit = np.inf
                for e in range(buyers_start, buyers_stop):
                    unit = np.int64(by_item.buyers[e])
                    if rows.edge[unit] > buyers_limit:
                        up, up_d = _grown(up, up_d, n_up, room)
                        n_up, n_down, change = _collect(
                            problem, rows, unit, item, 1, False, 0.0,
                            up, up_d, n_up, down, down_d, n_down,
                        )  # fmt: skip
        if best_value > bar:
            counters[2] += penalty_of(best, rules) - penalty_of(bias, rules)
            moved = best_value + penalty_of(best, rules) - current
            counters[1] += moved
            gain[item] = moved
            levels[1] = max(levels[1], abs(best))
            _apply_move(problem, rows, by_item, item, bias, best, stamp, visit)
            n_changed += 1
    return n_changed
