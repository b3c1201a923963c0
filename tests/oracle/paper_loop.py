"""The paper's coordinate loop: every unit for every item, with all breakpoints sorted.

A cycle costs candidates x units x log(units). Items share nothing and no unit is left out, so there
is little to get wrong; the fast kernel is timed and checked against it.

It differs from the paper where the paper is wrong: t_p is taken without item i, a bias is placed
inside an interval (see `kernels/ascent_steps.py`), and the current value is read from the ranking.
For a unit, t_p is the score in slot p without item i, a its own score of i; i passes slot p at
b = t_p - a.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.kernels.ascent_steps import MARGIN, Rules
from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.hit_value import hit_value_table
from trimtab.kernels.short_arrays import STACK, sort_curve
from trimtab.learn.counted import QUANTA

if TYPE_CHECKING:
    from trimtab.learn.settings import LearnerSettings


class Units(NamedTuple):
    """Lists and purchases of the units, and the top of each current ranking."""

    k: int
    first: int  # the first slot with a step: k - 1 for ACC, otherwise 0
    counts_hits_above: bool
    reaches_unlisted: bool
    lists: Lists
    bought: Sets
    hit_values: Ints  # [unit, slot], in quanta; 0 in slot k
    top_scores: Floats  # [unit, slot], k + 1 slots
    top_items: Codes
    top_bought: Flags
    lengths: Codes
    raised: Codes  # items with a positive bias, the highest first
    counts: Ints  # number of raised items


class Columns(NamedTuple):
    """The same lists and purchases by item."""

    indptr: Ints
    listers: Codes
    scores: Floats
    buyers_indptr: Ints
    buyers: Codes


class Curve(NamedTuple):
    """One item's breakpoints: those above its unbiased scores, and those below, mirrored."""

    own: Floats  # unit -> its own score, nan where it is not listed
    bought: Flags
    up: Floats
    up_deltas: Ints
    down: Floats
    down_deltas: Ints
    stack: Ints


@helper
def _insert(units, unit, n, score, item):
    """Insert an item into a unit's top k + 1 of length n if it belongs; returns the length."""
    scores = units.top_scores[unit]
    items = units.top_items[unit]
    p = n
    while p > 0 and (scores[p - 1] < score or (scores[p - 1] == score and items[p - 1] > item)):
        if p <= units.k:
            scores[p] = scores[p - 1]
            items[p] = items[p - 1]
        p -= 1
    if p <= units.k:
        scores[p] = score
        items[p] = item
    return min(n + 1, units.k + 1)


@helper
def _contains(items, low, high, item):
    """Whether the item is in items[low:high]."""
    for e in range(low, high):
        if items[e] == item:
            return True
    return False


@helper
def _rank(units, offset, unit):
    """Rank a unit from scratch."""
    n = 0
    low = units.lists.indptr[unit]
    high = units.lists.indptr[unit + 1]
    for e in range(low, high):
        item = units.lists.items[e]
        if offset[item] > -np.inf:
            n = _insert(units, unit, n, units.lists.scores[e] + offset[item], item)
    for r in range(units.counts[0]):
        item = units.raised[r]
        if n > units.k and offset[item] < units.top_scores[unit, units.k]:
            break
        if not _contains(units.lists.items, low, high, item):
            n = _insert(units, unit, n, offset[item], item)
    units.lengths[unit] = n
    bought_low = units.bought.indptr[unit]
    bought_high = units.bought.indptr[unit + 1]
    for p in range(n):
        item = units.top_items[unit, p]
        units.top_bought[unit, p] = _contains(units.bought.items, bought_low, bought_high, item)


@helper
def _change_raised(units, offset):
    """Find the raised items again."""
    raised = np.flatnonzero(offset > 0)
    units.counts[0] = len(raised)
    order = np.argsort(-offset[raised], kind="mergesort")  # of equals the first item
    units.raised[: len(raised)] = raised[order]


@helper
def _fill_item(columns, item, curve):
    """Write the scores and purchases of an item by unit."""
    curve.own[:] = np.nan
    curve.bought[:] = False
    for e in range(columns.indptr[item], columns.indptr[item + 1]):
        curve.own[columns.listers[e]] = columns.scores[e]
    for e in range(columns.buyers_indptr[item], columns.buyers_indptr[item + 1]):
        curve.bought[columns.buyers[e]] = True


@helper
def _breakpoints(units, item, raised, curve, keep_zero_steps):
    """Write every unit's breakpoints; returns their numbers up and down, and the current value."""
    n_up = 0
    n_down = 0
    current = np.int64(0)
    for unit in range(len(units.lengths)):
        own = curve.own[unit]
        listed = not np.isnan(own)
        if not listed and not units.reaches_unlisted:
            continue
        relevant = np.int64(curve.bought[unit])
        length = units.lengths[unit]
        above = False  # whether the item is now above this slot
        p = 0
        hits = np.int64(0)
        for slot in range(units.k):
            if p < length and units.top_items[unit, p] == item:
                above = True
                p += 1
            empty = p >= length
            if empty and listed:
                break
            hit = np.int64(0 if empty else units.top_bought[unit, p])
            step = units.hit_values[unit, slot] - units.hit_values[unit, slot + 1]
            delta = (relevant - hit) * step * (1 + hits if units.counts_hits_above else 1)
            hits += hit
            if slot >= units.first and (delta != 0 or keep_zero_steps):
                score = 0.0 if empty else units.top_scores[unit, p]
                other = -1 if empty else units.top_items[unit, p]
                if listed and (own > score or (own == score and item < other)):
                    curve.down[n_down] = own - score
                    curve.down_deltas[n_down] = -delta
                    n_down += 1
                    current -= 0 if above else delta
                else:
                    is_above = above or (empty and raised)
                    curve.up[n_up] = score - own if listed else max(score, 0.0)
                    curve.up_deltas[n_up] = delta
                    n_up += 1
                    current += delta if is_above else 0
            p += 1
    return n_up, n_down, current


@helper
def penalty_of(bias, rules):
    """The penalty of a bias, in quanta."""
    return np.int64(np.rint(rules.penalty_rate * abs(bias)))


@helper
def is_better(value, bias, best_value, best_bias):
    """Whether a bias is better: higher value, then smaller |bias|, then the negative one."""
    if value != best_value:
        return value > best_value
    if abs(bias) != abs(best_bias):
        return abs(bias) < abs(best_bias)
    return bias < best_bias


@helper
def _best_of_side(values, deltas, n, sign, rules, best_value, best_bias):
    """The best of one bias per interval on one side of 0, or the best so far."""
    value = np.int64(0)
    low = np.nan
    e = 0
    while True:
        at = values[e] if e < n else np.inf
        net = np.int64(0)
        while e < n and values[e] == at:
            net += deltas[e]
            e += 1
        if net == 0 and at < np.inf:
            continue
        width = min(at, rules.cap) - low
        if width > rules.narrow:
            bias = sign * (low + min(width / 2, rules.margin))
            total = value - penalty_of(bias, rules)
            if is_better(total, bias, best_value, best_bias):
                best_value, best_bias = total, bias
        if at >= rules.cap:
            return best_value, best_bias
        value += net
        low = at


@helper
def _best_step(curve, n_up, n_down, rules):
    """The best value of an item, relative to bias 0, and its bias."""
    sort_curve(curve.up, curve.up_deltas, n_up, curve.stack)
    sort_curve(curve.down, curve.down_deltas, n_down, curve.stack)
    value, bias = _best_of_side(curve.up, curve.up_deltas, n_up, 1.0, rules, np.int64(0), 0.0)
    return _best_of_side(curve.down, curve.down_deltas, n_down, -1.0, rules, value, bias)


@helper
def _rank_again(units, offset, item, curve):
    """Rank the units again whose first k + 1 slots the item leaves or enters."""
    for unit in range(len(units.lengths)):
        own = curve.own[unit]
        listed = not np.isnan(own)
        n = units.lengths[unit]
        affected = _contains(units.top_items[unit], 0, n, item)
        if not affected and (listed or (units.reaches_unlisted and offset[item] > 0)):
            score = own + offset[item] if listed else offset[item]
            affected = n <= units.k or score >= units.top_scores[unit, units.k]
        if affected:
            _rank(units, offset, unit)


@kernel
def visit_all(
    units, columns, curve, order, cycles, offset, cap, margin, penalty_rate, magnitudes,
    keep_zero_steps,
):  # fmt: skip
    """Give each candidate in turn its best bias, `cycles` times; changes `offset`.

    Args:
        units: lists, purchases and current rankings; changed.
        columns: the same by item.
        curve: memory for one item's breakpoints.
        order: item codes in visiting order.
        cycles: number of visits of each item.
        offset: item -> bias, -inf when excluded; changed.
        cap: the largest |bias|; inf for none.
        margin: distance from a breakpoint.
        penalty_rate: penalty in quanta per unit of bias.
        magnitudes: largest |score| and largest |bias| so far; changed.
        keep_zero_steps: whether breakpoints that change nothing are sorted too, as in the paper.
    """
    if units.reaches_unlisted:
        _change_raised(units, offset)
    for unit in range(len(units.lengths)):
        _rank(units, offset, unit)
    for _ in range(cycles):
        for item in order:
            bias = offset[item]
            narrow = 2.0**-46 * (magnitudes[0] + magnitudes[1])
            rules = Rules(cap, max(margin, narrow / 2), narrow, penalty_rate)
            _fill_item(columns, item, curve)
            n_up, n_down, current = _breakpoints(units, item, bias > 0, curve, keep_zero_steps)
            value, best = _best_step(curve, n_up, n_down, rules)
            if value > current - penalty_of(bias, rules):
                offset[item] = best
                magnitudes[1] = max(magnitudes[1], abs(best))
                if units.reaches_unlisted:
                    _change_raised(units, offset)
                _rank_again(units, offset, item, curve)


def _make_columns(lists: Lists, bought: Sets, n_items: int) -> Columns:
    columns: list[Any] = []
    for own in (lists, bought):
        entries = np.argsort(own.items, kind="stable")
        units = np.repeat(np.arange(own.n_units, dtype=np.int32), np.diff(own.indptr))
        ends = np.cumsum(np.bincount(own.items, minlength=n_items))
        columns += [np.concatenate([[0], ends]), units[entries]]
        columns += [own.scores[entries]] if isinstance(own, Lists) else []
    return Columns(*columns)


def _make_units(
    lists: Lists, bought: Sets, n_items: int, settings: LearnerSettings, hit_values: Ints
) -> Units:
    n_units, k = lists.n_units, settings.k
    return Units(
        k=k,
        first=k - 1 if settings.metric == "acc" else 0,
        counts_hits_above=settings.metric == "map",
        reaches_unlisted=settings.unlisted == "zero",
        lists=lists,
        bought=bought,
        hit_values=hit_values,
        top_scores=np.empty((n_units, k + 1)),
        top_items=np.empty((n_units, k + 1), np.int32),
        top_bought=np.empty((n_units, k + 1), np.bool_),
        lengths=np.zeros(n_units, np.int32),
        raised=np.empty(n_items, np.int32),
        counts=np.zeros(1, np.int64),
    )


def _make_curve(n_units: int, k: int) -> Curve:
    room = n_units * k
    return Curve(
        own=np.empty(n_units),
        bought=np.empty(n_units, np.bool_),
        up=np.empty(room),
        up_deltas=np.empty(room, np.int64),
        down=np.empty(room),
        down_deltas=np.empty(room, np.int64),
        stack=np.empty(STACK, np.int64),
    )


def ascend_by_paper_loop(
    lists: Lists, bought: Sets, n_items: int, settings: LearnerSettings, order: Codes, unit: float,
    excluded: Flags, weights: Floats | None = None, start: Floats | None = None, cycles: int = 2,
    keep_zero_steps: bool = True,
) -> Floats:  # fmt: skip
    """The biases of `ascend`, to the byte, at the cost of the paper's loop.

    Args:
        lists: scored items by unit; item codes in the order of the ids.
        bought: items bought by the same units.
        n_items: number of item codes.
        settings: what to maximise; only `cycles` decides when to stop.
        order: candidates in visiting order: `Solution.order`.
        unit: the median k-th score: `Solution.unit`.
        excluded: items never recommended: `Solution.excluded`.
        weights: one per unit; all 1 when absent.
        start: biases to start from; 0 when absent.
        cycles: number of cycles: `Solution.cycles`.
        keep_zero_steps: whether breakpoints that change nothing are sorted too, as in the paper.
    """
    k = settings.k
    cap = np.inf if settings.max_bias is None else settings.max_bias * unit
    offset = np.zeros(n_items) if start is None else np.clip(start, -cap, cap)
    offset[excluded] = -np.inf
    magnitudes = np.array(
        [np.abs(lists.scores).max(initial=0.0), np.abs(offset[~excluded]).max(initial=0.0)]
    )
    weight_of = np.ones(lists.n_units) if weights is None else weights
    quanta = min(QUANTA, 2.0 ** np.floor(61 - np.log2(max(1.0, float(weight_of.sum())))))
    n_bought = np.diff(bought.indptr)
    kept = np.flatnonzero((n_bought > 0) & (np.diff(lists.indptr) > 0) & (weight_of > 0))
    table = hit_value_table(settings.metric, k) * quanta
    hit_values = np.rint(weight_of[kept, None] * table[np.minimum(k, n_bought[kept])]).astype(
        np.int64
    )
    lists, bought = lists.take(kept), bought.take(kept)
    units = _make_units(lists, bought, n_items, settings, hit_values)
    visit_all(
        units, _make_columns(lists, bought, n_items), _make_curve(len(kept), k), order, cycles,
        offset, cap, MARGIN * unit, settings.penalty / unit * quanta, magnitudes, keep_zero_steps,
    )  # fmt: skip
    return np.where(excluded, 0.0, offset)
