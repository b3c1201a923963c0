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

from typing import NamedTuple

import numpy as np

from trimtab.coded import Codes, Floats, Ints
from trimtab.kernels.blocks import BLOCK, add_weight, reach
from trimtab.kernels.jit import helper, kernel, pack, prefetch, unpacker
from trimtab.kernels.prepare import ByItem, unpack_by_item
from trimtab.kernels.rows import (
    GROUP,
    Problem,
    Rows,
    hit_step,
    move_item,
    raise_floor,
    tags_of,
    unpack_problem,
    unpack_rows,
)
from trimtab.kernels.sorting import STACK, sort_curve
from trimtab.kernels.steps import better, make_rules, penalty_of, too_narrow

_AHEAD = 6
_LISTER = 1
_BUYER = 2


class Scratch(NamedTuple):
    """Room to work in, large enough for any item."""

    who: Ints  # units special to the item: unit * 4 + relevant * 2 + listed
    owns: Floats  # their own scores for it
    later: Ints  # entries of its listers that may matter
    up: Floats  # breakpoints not passed at b = 0, and their deltas
    up_deltas: Ints
    down: Floats  # breakpoints passed at b = 0, and their deltas
    down_deltas: Ints
    sizes: Ints  # how many of both, and how often everybody had to be looked at
    stack: Ints
    stamp: Codes  # unit -> 4 * visit + why it is special


unpack_scratch = unpacker(Scratch)


def make_scratch(n_units: int, n_hits: int, most_buyers: int, k: int) -> Scratch:
    """Room for any item of a problem.

    A unit has at most as many breakpoints as hits, once its own and once to cancel the shared
    ones; one that bought the item has up to k of its own.
    """
    room = 2 * n_hits + most_buyers * (k + 1) + 1
    return Scratch(
        who=np.empty(n_units, np.int64),
        owns=np.empty(n_units),
        later=np.empty(n_units, np.int64),
        up=np.empty(room),
        up_deltas=np.empty(room, np.int64),
        down=np.empty(room),
        down_deltas=np.empty(room, np.int64),
        sizes=np.zeros(3, np.int64),
        stack=np.empty(STACK, np.int64),
        stamp=np.zeros(n_units, np.int32),
    )


@helper
def _prefetch_row(problem, rows, unit):
    for word in range(unit * problem.stride, (unit + 1) * problem.stride, 8):
        prefetch(rows.scores, word)


@helper
def _collect(problem, rows, item, scratch, n_who):
    """Append the special units' breakpoints: `up` those not passed at b = 0, `down` those passed.

    Renews both lengths in `sizes`, and returns what the item's current places add to the value at
    b = 0. With a shared curve, also cancels what these units have in it.
    """
    k = problem.k
    who = scratch.who
    up = scratch.up
    up_d = scratch.up_deltas
    down = scratch.down
    down_d = scratch.down_deltas
    n_up = scratch.sizes[0]
    n_down = scratch.sizes[1]
    current = np.int64(0)
    for x in range(n_who):
        if x + _AHEAD < n_who:
            _prefetch_row(problem, rows, who[x + _AHEAD] >> 2)
        unit = who[x] >> 2
        relevant = (who[x] >> 1) & 1
        listed = who[x] & 1
        own = scratch.owns[x]
        base = unit * problem.stride
        tags = tags_of(problem, unit)
        place = np.int64(0)  # among the items besides this one
        hits = np.int64(0)
        all_hits = np.int64(0)  # this one included
        above = False  # whether the item is now above the entry looked at
        for p in range(np.int64(rows.codes[tags + problem.width])):
            code = np.int64(rows.codes[tags + p])
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
                    delta = step if relevant == 1 else -step
                    passed = own > score or (own == score and item < code >> 1)
                    if listed == 1 and passed:
                        down[n_down] = score - own
                        down_d[n_down] = delta
                        n_down += 1
                        if not above:
                            current -= delta
                    else:
                        up[n_up] = score - own if listed == 1 else max(score, 0.0)
                        up_d[n_up] = delta
                        n_up += 1
                        if above:
                            current += delta
            place += 1
            hits += hit
        if relevant == 1 and listed == 0:
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
    scratch.sizes[0] = n_up
    scratch.sizes[1] = n_down
    return current


@helper
def _best_below(down, down_d, n_down, rules):
    """Best bias at or below 0: walk down from 0, dropping breakpoints."""
    best_value = np.int64(0)
    best_bias = 0.0
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
def _best_above(problem, losses, up, up_d, n_up, bound, rules, bar, best_value, best_bias):
    """Best bias above 0: merge the item's own breakpoints with the shared losses.

    Looks only for values above `bar`. Nothing beyond `bound` can be the best; own breakpoints
    four margins beyond it may be missing, and the last value returned says whether the answer
    could depend on them.
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
        if not pending and own > bound:
            return best_value, best_bias, False
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
            if low > bound + 2 * rules.margin:
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
        if low > bound + 2 * rules.margin:
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
def _split_at(up, up_d, n_up, limit):
    """Bring the entries up to the limit to the front; returns their number."""
    n = 0
    for e in range(n_up):
        if up[e] <= limit:
            value = up[e]
            delta = up_d[e]
            up[e] = up[n]
            up_d[e] = up_d[n]
            up[n] = value
            up_d[n] = delta
            n += 1
    return n


@helper
def _stamp_special(by_item, item, scratch, visit):
    """Mark who lists the item and who bought it without listing it."""
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        scratch.stamp[by_item.listers[e] >> 1] = visit * 4 + _LISTER
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        scratch.stamp[by_item.buyers[e]] = visit * 4 + _BUYER


@helper
def _apply_move(problem, rows, by_item, item, old, new, scratch, visit):
    """Give an item its new bias in every row that it enters, leaves or moves in."""
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
        if x + _AHEAD < n_who:
            _prefetch_row(problem, rows, scratch.who[x + _AHEAD] >> 1)
        lister = scratch.who[x]
        score = scratch.owns[x] + new
        move_item(problem, rows, lister >> 1, item, lister & 1, there, there, score)
    if not problem.reaches_unlisted or highest <= 0:
        return
    _stamp_special(by_item, item, scratch, visit)
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_floor[group] <= highest:
            lowest = np.inf
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                if rows.floor[unit] <= highest and scratch.stamp[unit] != visit * 4 + _LISTER:
                    if highest < rows.edge[unit]:
                        raise_floor(rows, unit, highest)
                    else:
                        bought = np.int64(scratch.stamp[unit] == visit * 4 + _BUYER)
                        move_item(
                            problem, rows, np.int64(unit), item, bought,
                            np.int64(old > 0), np.int64(new > 0), new,
                        )  # fmt: skip
                lowest = min(lowest, rows.floor[unit])
            rows.group_floor[group] = lowest


@helper
def _gather_listers(rows, by_item, item, bias, cap, scratch):
    """The listers that matter whatever happens, into `who`; those that may, into `later`.

    A lister without a relevant item that can lose, or with one only beyond the cap, is neither.
    """
    n_who = np.int64(0)
    n_later = np.int64(0)
    reachable = max(bias, 0.0)
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e])
        own = by_item.scores[e]
        low_hit = rows.low_hit[lister >> 1]
        if lister & 1 == 1 or low_hit <= own + reachable:
            scratch.who[n_who] = lister * 2 + 1
            scratch.owns[n_who] = own
            n_who += 1
        elif low_hit <= own + cap:
            scratch.later[n_later] = e
            n_later += 1
    return n_who, n_later


@helper
def _gather_later(rows, by_item, n_later, limit, scratch):
    """Move from `later` to `who` the listers that a bias up to `limit` reaches."""
    n_who = np.int64(0)
    kept = np.int64(0)
    for x in range(n_later):
        e = scratch.later[x]
        lister = np.int64(by_item.listers[e])
        if rows.low_hit[lister >> 1] <= by_item.scores[e] + limit:
            scratch.who[n_who] = lister * 2 + 1
            scratch.owns[n_who] = by_item.scores[e]
            n_who += 1
        else:
            scratch.later[kept] = e
            kept += 1
    return n_who, kept


@helper
def _gather_raised(problem, rows, bias, visit, scratch, n_who):
    """Add the units with a hit that may have the raised item in their top k without listing it."""
    n_units = problem.n_units
    for group in range((n_units + GROUP - 1) // GROUP):
        if rows.group_edge[group] <= bias:
            lowest = np.float32(np.inf)
            for unit in range(group * GROUP, min(n_units, (group + 1) * GROUP)):
                edge = rows.edge[unit]
                lowest = min(lowest, edge)
                special = scratch.stamp[unit] >> 2 == visit
                if edge <= bias and rows.low_hit[unit] < np.inf and not special:
                    scratch.who[n_who] = unit * 4
                    scratch.owns[n_who] = 0.0
                    n_who += 1
            rows.group_edge[group] = lowest
    return n_who


@helper
def _gather_buyers(rows, by_item, item, above, limit, scratch, n_who):
    """Add the buyers who do not list the item and whose place k + 1 scores in (above, limit]."""
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        unit = np.int64(by_item.buyers[e])
        edge = np.float64(rows.edge[unit])
        if edge <= limit and (edge > above or above == -np.inf):
            scratch.who[n_who] = unit * 4 + 2
            scratch.owns[n_who] = 0.0
            n_who += 1
    return n_who


@helper
def _best_bias(problem, rows, by_item, item, bias, visit, rules, most, scratch):
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
            n_who, n_later = _gather_listers(rows, by_item, item, bias, rules.cap, scratch)
            if problem.reaches_unlisted and bias > 0:
                _stamp_special(by_item, item, scratch, visit)
                n_who = _gather_raised(problem, rows, bias, visit, scratch, n_who)
        elif stage == 1:
            if n_buyers == 0:
                continue
            budget = _gain_left(scratch.up_deltas, sizes[0]) + 2 * most * n_buyers
            reached = min(reach(rows.losses, budget), rules.cap)
            buyers_limit = max(reached, bias) + 4 * rules.margin
            n_who = _gather_buyers(rows, by_item, item, -np.inf, buyers_limit, scratch, none)
        elif stage == 2:
            bar = current - penalty_of(bias, rules)
            sort_curve(scratch.down, scratch.down_deltas, sizes[1], scratch.stack)
            best_value, best = _best_below(scratch.down, scratch.down_deltas, sizes[1], rules)
            budget = _gain_left(scratch.up_deltas, sizes[0]) - max(bar, best_value)
            limit = min(_highest_gain(scratch.up, scratch.up_deltas, sizes[0]), rules.cap)
            if problem.reaches_unlisted and limit > 0:
                limit = min(limit, reach(rows.losses, budget))
            if budget < 0 or limit < 0:
                break
            reached = limit + 4 * rules.margin
            n_who, n_later = _gather_later(rows, by_item, n_later, reached, scratch)
        else:
            sizes[2] += 1
            limit = np.inf
            n_who, n_later = _gather_later(rows, by_item, n_later, limit, scratch)
            n_who = _gather_buyers(rows, by_item, item, buyers_limit, limit, scratch, n_who)
        current += _collect(problem, rows, item, scratch, n_who)
        if stage >= 2:
            n_up = _split_at(scratch.up, scratch.up_deltas, sizes[0], limit + 4 * rules.margin)
            sort_curve(scratch.up, scratch.up_deltas, n_up, scratch.stack)
            value, above, unsure = _best_above(
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
        value, best, current = _best_bias(
            problem, rows, by_item, item, bias, counters[0], rules, most, scratch
        )
        before = penalty_of(bias, rules)
        if value > current - before:
            after = penalty_of(best, rules)
            counters[1] += value + after - current
            counters[2] += after - before
            gain[item] = value + after - current
            levels[1] = max(levels[1], abs(best))
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
