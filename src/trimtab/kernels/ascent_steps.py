"""Coordinate ascent: the exact best bias of one item after the other, all other biases fixed.

With item i taken out of a unit's ranking, let t_p be the score in slot p, r_p = 1 if that item is
relevant, y = 1 if i is, and a the unit's score of i without its bias. As the bias b grows, i passes
slot p at the breakpoint

    b = t_p - a        and the metric changes by        (y - r_p) * w_p     (w_p: see `ascent_rows`)

If the unit does not list i, the breakpoint is max(t_p, 0). Two kinds of breakpoints matter: gains
(y = 1, r_p = 0), only for units that bought i, and losses (y = 0, r_p = 1), only for units with a
hit in their top k. If a unit neither lists i nor shows it, its losses are the same for every such
item: `rows.losses` holds them once, in order. Item i's curve is the sum of these shared losses and
of the breakpoints of the affected units: those that list i, bought i, or have it in their top k;
their part of the shared losses is cancelled. A cycle's cost grows with the data, not with units x
items.

A bias is tried at 0, at its current value, and in each open interval between two neighboring
breakpoints (those whose changes do not cancel): at the end nearer to 0, `margin` away from that
end, or half the interval if that is less. Intervals of a few ulps are skipped: there, `a + b` may
round to either side of a breakpoint computed as `t - a`. The cap ends the outermost intervals.

Values are whole numbers of quanta relative to the value at b = 0, and so do not depend on the order
of summation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.ascent_rows import GROUP, hit_step, set_bias, update_row
from trimtab.kernels.compiling import bare_helper, bare_kernel
from trimtab.kernels.ordered_weights import first_key_over, skip_below
from trimtab.kernels.ranking import is_above
from trimtab.kernels.short_arrays import STACK, bring_forward, sort_curve

MARGIN = 1e-6  # in units of the median k-th score
_ULPS = 2.0**-46  # 64 ulps of the largest number involved
_UP, _DOWN, _FULL_SEARCHES, _TOUCHED = range(4)  # of `Scratch.counts`
_BATCH = 16  # rows
_LISTER, _BUYER = 1, 2  # marks: why a unit is affected


LISTER = np.dtype([("score", np.float64), ("unit", np.int32)])  # unit * 2 + relevant


class ByItem(NamedTuple):
    """By item: the units that list it, with their scores, and the units that only bought it."""

    indptr: Ints
    listers: Any  # of LISTER
    buyers_indptr: Ints
    buyers: Codes  # units that do not list the item


class Scratch(NamedTuple):
    """Working memory, large enough for any item."""

    affected: Ints  # units affected by the item: unit * 4 + relevant * 2 + listed
    own_scores: Floats  # their own scores of the item; 0 if unlisted
    postponed: Ints  # entries of listers that matter only for higher biases
    up: Floats  # breakpoints not passed at b = 0, and their changes
    up_deltas: Ints
    down: Floats  # breakpoints passed at b = 0, as distances from 0, and their changes below
    down_deltas: Ints
    counts: Ints  # breakpoints up, breakpoints down, searches over all units, touched rows
    stack: Ints  # for sorting
    marks: NDArray[np.uint8]  # of units affected by the item


class Rules(NamedTuple):
    """Limits of the biases of one item."""

    cap: float  # inf: none
    margin: float
    narrow: float  # intervals of at most this width are skipped
    penalty_rate: float  # penalty in quanta per unit of bias


def make_scratch(n_units: int, n_hits: int, most_buyers: int, k: int) -> Scratch:
    """Working memory for any item.

    A unit has at most one breakpoint per hit of its own, and another to cancel the shared one; a
    unit that bought the item has up to k of its own.
    """
    room = 2 * n_hits + most_buyers * (k + 1) + 1
    return Scratch(
        # One more, because some units are written before it is known whether they count.
        affected=np.empty(n_units + 1, np.int64),
        own_scores=np.empty(n_units + 1),
        postponed=np.empty(n_units + 1, np.int64),
        up=np.empty(room),
        up_deltas=np.empty(room, np.int64),
        down=np.empty(room),
        down_deltas=np.empty(room, np.int64),
        counts=np.zeros(4, np.int64),
        stack=np.empty(STACK, np.int64),
        marks=np.zeros(n_units, np.uint8),
    )


@bare_kernel
def gather_by_item(start, stop, units, is_candidate, at, by_item, writes, bought_by):
    """Count or write the units that list each candidate, and those that bought it unlisted.

    Args:
        start: first source row.
        stop: one past the last.
        units: the units.
        is_candidate: by item.
        at: by item: where its next lister and its next buyer go; advanced.
        by_item: filled, if it `writes`.
        writes: whether to write, or only to count.
        bought_by: by item: the last unit that bought it without listing it; -1 at first.
    """
    listers_at, buyers_at = at
    for source in range(start, stop):
        unit = units.unit_of[source]
        if unit < 0:
            continue
        first_bought = units.bought_indptr[source]
        end_bought = units.bought_indptr[source + 1]
        for b in range(first_bought, end_bought):
            bought_by[units.bought_items[b]] = unit
        for e in range(units.indptr[source], units.indptr[source + 1]):
            item = units.items[e]
            if is_candidate[item]:
                relevant = bought_by[item] == unit
                if writes:
                    by_item.listers[listers_at[item]].unit = unit * 2 + relevant
                    by_item.listers[listers_at[item]].score = units.scores[e]
                listers_at[item] += 1
                if relevant:
                    bought_by[item] = -1
        for b in range(first_bought, end_bought if units.reaches_unlisted else first_bought):
            item = units.bought_items[b]
            if is_candidate[item] and bought_by[item] == unit:
                if writes:
                    by_item.buyers[buyers_at[item]] = unit
                buyers_at[item] += 1


# The units that an item affects --------------------------------------------------------------


@bare_helper
def _touch_rows(units, rows, affected, start, end):
    """Read from the next rows at once, so that they come from memory at the same time."""
    total = np.int64(0)
    width = units.width
    for x in range(start, min(start + _BATCH, end)):
        row = (affected[x] >> 2) * width
        for p in (row, row + width // 2, row + width - 1):
            total += rows.cells[p].item
    return total


@bare_helper
def postpone_listers(by_item, item, scratch):
    """Write all listers to `postponed`; returns their number."""
    first = by_item.indptr[item]
    n_postponed = by_item.indptr[item + 1] - first
    for x in range(n_postponed):
        scratch.postponed[x] = first + x
    return n_postponed


@bare_helper
def take_listers(rows, by_item, n_postponed, limit, cap, scratch):
    """Move the postponed listers that a bias up to `limit` can matter to into `affected`.

    A lister matters if it bought the item or if the item can push down a hit of the unit. Listers
    without a hit, or whose hits are out of reach even at the cap, are left out. All is added up
    instead of branched on, because it cannot be predicted.
    """
    n_affected = np.int64(0)
    n_left = np.int64(0)
    for x in range(n_postponed):
        e = scratch.postponed[x]
        lister = by_item.listers[e].unit
        own_score = by_item.listers[e].score
        lowest_hit = rows.lowest_hit[lister >> 1]
        matters = (lister & 1 == 1) | (lowest_hit <= own_score + limit)
        scratch.affected[n_affected] = np.int64(lister) * 2 + 1
        scratch.own_scores[n_affected] = own_score
        n_affected += matters
        scratch.postponed[n_left] = e
        n_left += (not matters) & (lowest_hit <= own_score + cap) & (lowest_hit < np.inf)
    return n_affected, n_left


@bare_helper
def add_buyers(rows, by_item, item, above, limit, scratch, n_affected):
    """Add the buyers that do not list the item and whose rows have a floor in (above, limit].

    Without a limit below, -inf is a floor like any other.
    """
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        floor = rows.floor[by_item.buyers[e]]
        if floor <= limit and (floor > above or above == -np.inf):
            scratch.affected[n_affected] = np.int64(by_item.buyers[e]) * 4 + 2
            scratch.own_scores[n_affected] = 0.0
            n_affected += 1
    return n_affected


@bare_helper
def _mark(by_item, item, scratch, lister, buyer):
    """Mark the units that list the item, and those that bought it without listing it."""
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        scratch.marks[by_item.listers[e].unit >> 1] = lister
    for e in range(by_item.buyers_indptr[item], by_item.buyers_indptr[item + 1]):
        scratch.marks[by_item.buyers[e]] = buyer


@bare_helper
def add_showing(rows, by_item, item, limit, scratch, n_affected, every):
    """Add the units that do not list the item and whose rows have a floor of at most `limit`.

    No other unit shows an unlisted item with a bias of at most `limit`. Without `every`, only those
    that bought the item or have a hit that it can push down.
    """
    _mark(by_item, item, scratch, _LISTER, _BUYER)
    for group in range(len(rows.group_floor)):
        if rows.group_floor[group] > limit:
            continue
        lowest = np.inf
        for unit in range(group * GROUP, min(len(rows.floor), (group + 1) * GROUP)):
            lowest = min(lowest, rows.floor[unit])
            scratch.affected[n_affected] = unit * 4 + scratch.marks[unit]
            scratch.own_scores[n_affected] = 0.0
            matters = every | (rows.lowest_hit[unit] <= limit) | (scratch.marks[unit] == _BUYER)
            n_affected += matters & (rows.floor[unit] <= limit) & (scratch.marks[unit] != _LISTER)
        rows.group_floor[group] = lowest
    _mark(by_item, item, scratch, 0, 0)
    return n_affected


@bare_helper
def add_breakpoints(units, rows, item, scratch, n_affected):
    """Append the affected units' breakpoints to `up` (not passed at b = 0) and `down` (passed).

    Updates their numbers in `scratch.counts` and cancels these units' part of the shared losses.
    Returns the metric of these units at the current bias less their metric at b = 0.
    """
    k = units.k
    up = scratch.up
    up_deltas = scratch.up_deltas
    n_up = scratch.counts[_UP]
    n_down = scratch.counts[_DOWN]
    current = np.int64(0)
    for x in range(n_affected):
        if x % _BATCH == 0:
            scratch.counts[_TOUCHED] += _touch_rows(units, rows, scratch.affected, x, n_affected)
        unit = scratch.affected[x] >> 2
        relevant = (scratch.affected[x] >> 1) & 1
        listed = scratch.affected[x] & 1
        own_score = scratch.own_scores[x]
        start = unit * units.width
        slot = 0  # of the other items
        hits = np.int64(0)
        all_hits = np.int64(0)  # including this item
        above = False  # whether the item is now above this entry
        for p in range(k + 1):
            score = rows.cells[start + p].score
            marked = rows.cells[start + p].item
            is_empty = score == -np.inf
            if is_empty and (listed or not relevant):
                break
            hit = marked & 1
            if units.reaches_unlisted and hit and p < k:
                step = hit_step(units, unit, p, all_hits)
                if step != 0:
                    up[n_up] = max(score, 0.0)
                    up_deltas[n_up] = step
                    n_up += 1
                all_hits += 1
            if marked >> 1 == item:
                above = True
                continue
            if slot == k:
                break
            if hit != relevant:
                step = hit_step(units, unit, slot, hits)
                delta = step if relevant else -step
                passed = is_above(own_score, item, score, marked >> 1)
                if step == 0:
                    pass
                elif listed and passed:
                    scratch.down[n_down] = own_score - score
                    scratch.down_deltas[n_down] = -delta
                    n_down += 1
                    current -= 0 if above else delta
                else:
                    up[n_up] = score - own_score if listed else max(score, 0.0)
                    up_deltas[n_up] = delta
                    n_up += 1
                    current += delta if above else 0
            slot += 1
            hits += hit
    scratch.counts[_UP] = n_up
    scratch.counts[_DOWN] = n_down
    return current


# The best step ---------------------------------------------------------------------------------


@bare_helper
def _penalty(bias, rules):
    """The penalty of a bias, in quanta."""
    return np.int64(np.rint(rules.penalty_rate * abs(bias)))


@bare_helper
def _possible_gain(deltas, n):
    """Sum of all gains, without any loss."""
    total = np.int64(0)
    for e in range(n):
        total += max(deltas[e], 0)
    return total


@bare_helper
def _highest_gain(up, up_deltas, n_up):
    """The highest breakpoint that gains; -1 if there is none."""
    highest = -1.0
    for e in range(n_up):
        if up_deltas[e] > 0 and up[e] > highest:
            highest = up[e]
    return highest


@bare_helper
def _climb(losses, has_losses, points, deltas, n, limit, rules, to_beat):
    """The best value on one side of 0, its distance from 0, and whether more must be known.

    The best is just beyond a breakpoint that gains, or 0. Breakpoints are distances from 0, in
    ascending order, to which shared losses are added. Values below `to_beat` are not searched, nor
    gains beyond `limit`. Breakpoints more than four margins beyond the limit may be missing; if
    intervals too narrow for a bias lead there, the answer may depend on them.
    """
    best_value = value = np.int64(0)
    best = low = 0.0
    gain_left = _possible_gain(deltas, n)
    rising = False  # since the last bias tried
    e = 0
    entry = np.int64(0)
    block = np.int64(0)
    n_blocks = losses.n_blocks[0] if has_losses else np.int64(0)
    while True:
        at = points[e] if e < n else np.inf
        if not rising:
            if at > limit or value + gain_left < max(to_beat, best_value):
                return best_value, best, False
            if has_losses:
                lost, block, entry = skip_below(losses, block, entry, at)
                value -= lost
        if block < n_blocks:
            at = min(at, losses.entries[block, entry].key)
        net = np.int64(0)
        while e < n and points[e] == at:
            net += deltas[e]
            gain_left -= max(deltas[e], 0)
            e += 1
        if block < n_blocks:
            lost, block, entry = skip_below(losses, block, entry, np.nextafter(at, np.inf))
            net -= lost
        if net == 0 and at < np.inf:
            continue
        width = min(at, rules.cap) - low
        if rising and width > rules.narrow:
            if low > limit + 2 * rules.margin:
                return best_value, best, True
            bias = low + min(width / 2, rules.margin)
            total = value - _penalty(bias, rules)
            if total > best_value:
                best_value, best = total, bias
            rising = False
        if at >= rules.cap:
            return best_value, best, False
        value += net
        rising = rising or net > 0
        low = at


@bare_helper
def best_bias(units, rows, by_item, item, rules, scratch):
    """Return the best value, its bias and the current value, in quanta relative to b = 0.

    Of two biases with the same value, the one nearer to 0 is better, then the negative one. Listers
    that only lose are searched as far as gains can reach; and, only if intervals too narrow for a
    bias lead beyond it, all the rest.
    """
    counts = scratch.counts
    counts[_UP] = counts[_DOWN] = 0
    highest = max(rows.bias[item], 0.0)
    n_left = postpone_listers(by_item, item, scratch)
    n_affected, n_left = take_listers(rows, by_item, n_left, highest, rules.cap, scratch)
    buyers_reach = -np.inf
    if units.reaches_unlisted and rows.bias[item] > 0:
        buyers_reach = rows.bias[item]
        n_affected = add_showing(rows, by_item, item, buyers_reach, scratch, n_affected, False)
    current = add_breakpoints(units, rows, item, scratch, n_affected)
    n_buyers = by_item.buyers_indptr[item + 1] - by_item.buyers_indptr[item]
    if n_buyers > 0:
        budget = _possible_gain(scratch.up_deltas, counts[_UP]) + 2 * units.most * n_buyers
        above = buyers_reach
        buyers_reach = min(first_key_over(rows.losses, budget), rules.cap)
        buyers_reach = max(buyers_reach, rows.bias[item]) + 4 * rules.margin
        n_affected = add_buyers(rows, by_item, item, above, buyers_reach, scratch, np.int64(0))
        current += add_breakpoints(units, rows, item, scratch, n_affected)
    to_beat = current - _penalty(rows.bias[item], rules) + 1
    sort_curve(scratch.down, scratch.down_deltas, counts[_DOWN], scratch.stack)
    below_value, below, _ = _climb(
        rows.losses, False, scratch.down, scratch.down_deltas, counts[_DOWN], np.inf, rules, to_beat
    )
    to_beat = max(to_beat, below_value)
    budget = _possible_gain(scratch.up_deltas, counts[_UP]) - to_beat
    limit = min(_highest_gain(scratch.up, scratch.up_deltas, counts[_UP]), rules.cap)
    if budget < 0 or limit < 0:
        return below_value, 0.0 - below, current
    if units.reaches_unlisted:
        limit = min(limit, first_key_over(rows.losses, budget))
    reach = limit + 4 * rules.margin
    while True:
        n_affected, n_left = take_listers(rows, by_item, n_left, reach, rules.cap, scratch)
        if reach == np.inf:
            n_affected = add_buyers(rows, by_item, item, buyers_reach, reach, scratch, n_affected)
        current += add_breakpoints(units, rows, item, scratch, n_affected)
        last = counts[_UP] - 1
        n_up = bring_forward(scratch.up, scratch.up_deltas, np.int64(0), last, reach, True)
        sort_curve(scratch.up, scratch.up_deltas, n_up, scratch.stack)
        value, above, is_open = _climb(
            rows.losses, units.reaches_unlisted, scratch.up, scratch.up_deltas, n_up,
            limit, rules, to_beat,
        )  # fmt: skip
        if not is_open:
            break
        counts[_FULL_SEARCHES] += 1
        limit = reach = np.inf
    if value > below_value or (value == below_value and above < below):
        return value, above, current
    return below_value, 0.0 - below, current


# The move --------------------------------------------------------------------------------------


@bare_helper
def _apply_move(units, rows, by_item, item, new, scratch):
    """Give an item its new bias in every row that it enters, leaves or moves in."""
    highest = max(rows.bias[item], new)
    set_bias(rows, item, new)
    n_affected = np.int64(0)
    for e in range(by_item.indptr[item], by_item.indptr[item + 1]):
        lister = np.int64(by_item.listers[e].unit)
        own_score = by_item.listers[e].score
        scratch.affected[n_affected] = lister * 2 + 1
        scratch.own_scores[n_affected] = own_score
        n_affected += own_score + highest >= rows.floor[lister >> 1]
    if units.reaches_unlisted and highest > 0:
        n_affected = add_showing(rows, by_item, item, highest, scratch, n_affected, True)
    n_affected = _leave_out_low(rows, highest, scratch, n_affected)
    for x in range(n_affected):
        if x % _BATCH == 0:
            scratch.counts[_TOUCHED] += _touch_rows(units, rows, scratch.affected, x, n_affected)
        is_ranked = (scratch.affected[x] & _LISTER) | (new > 0)
        score = scratch.own_scores[x] + new if is_ranked else -np.inf
        marked = np.int32(item * 2 + ((scratch.affected[x] >> 1) & 1))
        update_row(units, rows, scratch.affected[x] >> 2, marked, score)


@bare_helper
def _leave_out_low(rows, highest, scratch, n_affected):
    """Keep the affected units in which an item with a bias up to `highest` reaches slot k + 1.

    In the others all that changes is the floor.
    """
    n_kept = np.int64(0)
    for x in range(n_affected):
        unit = scratch.affected[x] >> 2
        score = scratch.own_scores[x] + highest
        if score < rows.after_k[unit]:
            rows.floor[unit] = max(rows.floor[unit], score + abs(score) * 2.0**-50 + 1e-300)
        else:
            scratch.affected[n_kept] = scratch.affected[x]
            scratch.own_scores[n_kept] = scratch.own_scores[x]
            n_kept += 1
    return n_kept


@bare_kernel
def visit_items(
    units, rows, by_item, scratch, candidates, cap, margin, penalty_rate, gain, sums, magnitudes
):
    """Give each candidate in turn its best bias; returns the number of biases changed.

    Args:
        units: lists, purchases and hit values, which do not change.
        rows: the current rankings and biases; changed.
        by_item: the units that list and that bought each item.
        scratch: working memory.
        candidates: item codes in visiting order.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        penalty_rate: penalty in quanta per unit of bias.
        gain: per item, what its last move added, in quanta; changed.
        sums: of the metric and of penalties, in quanta; changed.
        magnitudes: largest |score| and largest |bias| so far; changed.
    """
    n_changed = 0
    for c in range(len(candidates)):
        item = np.int64(candidates[c])
        narrow = _ULPS * (magnitudes[0] + magnitudes[1])
        rules = Rules(cap, max(margin, narrow / 2), narrow, penalty_rate)
        value, best, current = best_bias(units, rows, by_item, item, rules, scratch)
        before = _penalty(rows.bias[item], rules)
        if value > current - before:
            after = _penalty(best, rules)
            gain[item] = value + after - current
            sums[0] += gain[item]
            sums[1] += after - before
            magnitudes[1] = max(magnitudes[1], abs(best))
            _apply_move(units, rows, by_item, item, best, scratch)
            n_changed += 1
    return n_changed
