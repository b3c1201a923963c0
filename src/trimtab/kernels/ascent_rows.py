"""The top of every unit's current ranking, updated in place as biases change.

With y(p) = 1 if the unit bought the item in slot p, a hit in slot p is worth v_p of the metric (for
MAP times the number of hits down to p). Pushing it down one slot costs

    w_p = v_p - v_{p+1}        (for MAP times 1 + the hits above it; v_{k+1} = 0)

Slots count from 0 in the code. Values are whole numbers of quanta, so that sums do not depend on
their order.

A row holds the first items of one unit's ranking under the current biases, in the order that
`top_k` defines: at least k + 1 of them if the unit has that many, because without an item of the
top k the next one moves up. All other items come after the last one in the row. Empty slots score
-inf. Two bounds per unit spare most looks at a row:

    floor         the last score in the row; -inf if the row is the whole ranking
    lowest_hit    the lowest score of a relevant item in the first k + 1 slots that can lose
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Singles
from trimtab.kernels.compiling import bare_helper, bare_kernel
from trimtab.kernels.membership import in_ascending_range, in_range
from trimtab.kernels.ordered_multiset import BLOCK, OrderedMultiset, add_weight
from trimtab.kernels.top_k import insert_in_top_k

GROUP = 256  # units that share a lower bound


class Units(NamedTuple):
    """What does not change while learning: units in the order of their k-th scores."""

    k: int
    width: int  # slots of a row
    first_counted_slot: int  # the first slot with w_p > 0: k - 1 for ACC, otherwise 0
    most: int  # that one unit can gain or lose, in quanta
    counts_hits_above: bool
    reaches_unlisted: bool  # unlisted items score their bias (unlisted="zero")
    indptr: Ints  # lists by source row
    items: Codes
    scores: Floats
    bought_indptr: Ints  # by source row, items ascending
    bought_items: Codes
    source: Codes  # unit -> source row
    kind: Codes  # unit -> row of the next two: its weight and number of relevant items
    hit_values: Ints  # v_p by [kind, slot]
    hit_steps: Ints  # v_p - v_{p+1} by [kind, slot]


class Rows(NamedTuple):
    """The first slots of all rankings, and what they depend on."""

    scores: Floats  # at unit * width + slot
    items: Codes  # item * 2 + relevant
    floor: Floats
    lowest_hit: Singles  # small enough to stay in the cache
    group_floor: Floats  # lower bound of `floor` over GROUP units
    bias: Floats  # by item, -inf when excluded
    losses: OrderedMultiset  # w_p at (score, item) of all hits: what a new item costs all units
    raised: OrderedMultiset  # items with a positive bias: 1 at (bias, item)
    changes: Any  # of `losses`, by one unit


def row_width(k: int) -> int:
    """Slots of a row: enough for some items to leave before it must be filled again."""
    return k + 1 + max(2, k // 8)


@bare_helper
def hit_step(units, unit, slot, hits_before):
    """w_p: what the metric loses when a hit is pushed from this slot to the next, in quanta."""
    step = units.hit_steps[units.kind[unit], slot]
    return step * (1 + hits_before) if units.counts_hits_above else step


@bare_helper
def round_down(x):
    """A single-precision number at or below x."""
    if abs(x) > 3e38:
        return np.float32(3e38) if x > 0 else np.float32(-np.inf)
    return np.float32(x - abs(x) * 2.0**-22 - 1e-37)


@bare_helper
def _set_bounds(units, rows, unit, n, whole):
    """Set the bounds of a row of n items; `whole` if the unit has no others."""
    start = unit * units.width
    floor = -np.inf if whole else rows.scores[start + n - 1]
    rows.floor[unit] = floor
    rows.group_floor[unit // GROUP] = min(rows.group_floor[unit // GROUP], floor)
    rows.lowest_hit[unit] = np.inf
    for slot in range(min(n - 1, units.k), units.first_counted_slot - 1, -1):
        if rows.items[start + slot] & 1:
            rows.lowest_hit[unit] = round_down(rows.scores[start + slot])
            break


@bare_helper
def _add_raised(units, rows, unit, n):
    """Insert the raised items that a unit does not list, n items in the row; returns n, whole."""
    raised = rows.raised
    width = units.width
    last = (unit + 1) * width - 1
    source = units.source[unit]
    whole = True
    for position in range(raised.n_blocks[0] - 1, -1, -1):
        block = raised.order[position]
        for e in range(block * BLOCK + raised.blocks[block].length - 1, block * BLOCK - 1, -1):
            score = raised.entries[e].key
            item = np.int32(raised.entries[e].item)
            # Raised items come in ranking order: after one outside the row, all are.
            if n == width and score < rows.scores[last]:
                return n, False
            if not in_range(units.items, units.indptr[source], units.indptr[source + 1], item):
                whole = whole and n < width
                n = insert_in_top_k(rows.items, rows.scores, unit * width, n, width, score, item)
    return n, whole


@bare_helper
def fill_row(units, rows, unit):
    """Rank a unit from scratch."""
    start = unit * units.width
    source = units.source[unit]
    n = np.int64(0)
    n_ranked = 0
    for e in range(units.indptr[source], units.indptr[source + 1]):
        item = units.items[e]
        score = units.scores[e] + rows.bias[item]
        if score > -np.inf:
            n_ranked += 1
            n = insert_in_top_k(rows.items, rows.scores, start, n, units.width, score, item)
    whole = n_ranked <= units.width
    if units.reaches_unlisted:
        n, no_others = _add_raised(units, rows, unit, n)
        whole = whole and no_others
    bought = units.bought_indptr[source]
    bought_end = units.bought_indptr[source + 1]
    for p in range(start, start + n):
        item = rows.items[p]
        rows.items[p] = item * 2 + in_ascending_range(units.bought_items, bought, bought_end, item)
    for p in range(start + n, start + units.width):
        rows.scores[p] = -np.inf
    _set_bounds(units, rows, unit, n, whole)


@bare_helper
def _move_in_row(units, rows, unit, item, relevant, score):
    """Give an item its new score in a row; -inf takes it out."""
    width = units.width
    start = unit * width
    marked = np.int32(item * 2 + relevant)
    n = np.int64(0)
    old = np.int64(-1)
    new = np.int64(0)  # the number of other items that come before it
    while n < width and rows.scores[start + n] > -np.inf:
        other = rows.items[start + n]
        if other >> 1 == item:
            old = n
        else:
            tied_before = rows.scores[start + n] == score and other < marked
            new += rows.scores[start + n] > score or tied_before
        n += 1
    whole = rows.floor[unit] == -np.inf
    n_others = n - (old >= 0)
    enters = score > -np.inf and (new < n_others or whole)
    if old < 0 and not enters:
        return
    if old < 0:
        whole = whole and n < width  # otherwise the last item, or this one, stays outside
        old = min(n, width - 1)
    if not enters:
        new = n_others
    n = min(n_others + enters, width)
    if new < width:
        step = 1 if new > old else -1
        for p in range(start + old, start + new, step):
            rows.scores[p] = rows.scores[p + step]
            rows.items[p] = rows.items[p + step]
        rows.scores[start + new] = score if enters else -np.inf
        rows.items[start + new] = marked
    if n <= units.k and not whole:
        fill_row(units, rows, unit)
    else:
        _set_bounds(units, rows, unit, n, whole)


@bare_helper
def _note_losses(units, rows, unit, sign, n):
    """Add the losses of a unit's hits to n changes, times a sign; returns the new number."""
    start = unit * units.width
    hits = np.int64(0)
    for slot in range(units.k):
        score = rows.scores[start + slot]
        if score == -np.inf:
            break
        marked = rows.items[start + slot]
        if marked & 1:
            step = hit_step(units, unit, slot, hits) * sign
            hits += 1
            key = max(score, 0.0)
            x = 0
            while x < n and (rows.changes[x].key != key or rows.changes[x].item != marked >> 1):
                x += 1
            if x == n:
                rows.changes[x].key = key
                rows.changes[x].item = marked >> 1
                rows.changes[x].weight = 0
                n += 1
            rows.changes[x].weight += step
    return n


@bare_helper
def _apply_losses(rows, n):
    """Add n changes to the shared losses."""
    for x in range(n):
        change = rows.changes[x]
        if change.weight != 0:
            add_weight(rows.losses, change.key, change.item, change.weight)


@bare_helper
def update_row(units, rows, unit, item, relevant, score):
    """Give an item its new score in a unit's ranking; -inf takes it out.

    The item's bias, and its entry among the raised items, must be the new ones already.
    """
    if not units.reaches_unlisted:
        _move_in_row(units, rows, unit, item, relevant, score)
        return
    n = _note_losses(units, rows, unit, np.int64(-1), np.int64(0))
    _move_in_row(units, rows, unit, item, relevant, score)
    n = _note_losses(units, rows, unit, np.int64(1), n)
    _apply_losses(rows, n)


@bare_kernel
def fill_rows(start, stop, units, rows, unit_of):
    """Rank the units of the source rows from `start` to `stop` from scratch."""
    for source in range(start, stop):
        if unit_of[source] >= 0:
            fill_row(units, rows, np.int64(unit_of[source]))


@bare_kernel
def add_losses(start, stop, units, rows):
    """Add the hits of the units from `start` to `stop` to the shared losses."""
    for unit in range(start, stop):
        _apply_losses(rows, _note_losses(units, rows, unit, np.int64(1), np.int64(0)))


@bare_kernel
def row_values(start, stop, units, rows, hit_values, value):
    """Write the metric of each unit's ranking at its source row; returns the sum in quanta.

    `hit_values` are v_p by [kind, slot] for a weight of 1, not in quanta.
    """
    quanta = np.int64(0)
    for unit in range(start, stop):
        total = 0.0
        hits = 0
        kind = units.kind[unit]
        for slot in range(units.k):
            at = unit * units.width + slot
            if rows.scores[at] > -np.inf and rows.items[at] & 1:
                hits += 1
                n_counted = hits if units.counts_hits_above else 1
                total += hit_values[kind, slot] * n_counted
                quanta += units.hit_values[kind, slot] * n_counted
        value[units.source[unit]] = total
    return quanta
