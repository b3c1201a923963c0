"""The top of every unit's current ranking, updated in place as biases change.

With y(p) = 1 if the unit bought the item in slot p, a hit in slot p is worth v_p of the metric (for
MAP times the number of hits down to p). Pushing it down one slot costs

    w_p = v_p - v_{p+1}        (for MAP times 1 + the hits above it; v_{k+1} = 0)

Slots count from 0 in the code. Values are whole numbers of quanta, so that sums do not depend on
their order.

A row holds the first items of one unit's ranking under the current biases, in the order that
`ranking` defines: at least k + 1 of them if the unit has that many, because without an item of the
top k the next one moves up. Empty slots score -inf. Bounds of each unit spare most looks at a row:

    floor         items outside the row score at most this; -inf if the row is the whole ranking
    after_k       the score in slot k + 1
    lowest_hit    the lowest score of a relevant item in the first k + 1 slots that can lose

A change below `after_k` only raises the floor above the scores that changed. Entries below the
floor are out of date, and are dropped when the row changes next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Singles
from trimtab.kernels.compiling import bare_helper, bare_kernel
from trimtab.kernels.ordered_weights import OrderedWeights, add_weight
from trimtab.kernels.ranking import is_above
from trimtab.kernels.short_arrays import in_ascending_range, in_range

GROUP = 256  # units that share a lower bound
_NONE = -2  # in an empty slot


class Units(NamedTuple):
    """What does not change while learning: units in the order of their first floors."""

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
    unit_of: Codes  # source row -> unit; -1 for rows that are none
    kind: Codes  # unit -> row of `hit_values`, by its weight and number of relevant items
    hit_values: Ints  # v_p by [kind, slot]


CELL = np.dtype([("score", np.float64), ("item", np.int32)])  # item * 2 + relevant


class Rows(NamedTuple):
    """The first slots of all rankings, and what they depend on."""

    cells: Any  # of CELL, at unit * width + slot
    floor: Floats
    after_k: Singles  # in single precision, rounded down, to stay in the cache
    lowest_hit: Singles
    group_floor: Floats  # lower bound of `floor` over GROUP units
    bias: Floats  # by item, -inf when excluded
    raised: Codes  # items with a positive bias, in ranking order
    n_raised: Ints  # one number
    losses: OrderedWeights  # w_p at the scores of all hits: what a new item costs all units
    changes: Any  # of `losses`, by one unit


def row_width(k: int) -> int:
    """Slots of a row: enough for some items to leave before it must be filled again."""
    return k + 1 + max(2, k // 8)


@bare_helper
def hit_step(units, unit, slot, hits_before):
    """w_p: what the metric loses when a hit is pushed from this slot to the next, in quanta."""
    values = units.hit_values
    step = values[units.kind[unit], slot] - values[units.kind[unit], slot + 1]
    return step * (1 + hits_before) if units.counts_hits_above else step


@bare_helper
def round_down(x):
    """A single-precision number at or below x."""
    if abs(x) > 3e38:
        return np.float32(3e38) if x > 0 else np.float32(-np.inf)
    return np.float32(x - abs(x) * 2.0**-22 - 1e-37)


@bare_helper
def _set_bounds(units, rows, unit, whole):
    """Set the bounds of a row; `whole` if the unit has no other items."""
    start = unit * units.width
    last = start + units.width - 1
    while not whole and rows.cells[last].score == -np.inf:
        last -= 1
    floor = -np.inf if whole else rows.cells[last].score
    rows.floor[unit] = floor
    rows.group_floor[unit // GROUP] = min(rows.group_floor[unit // GROUP], floor)
    rows.after_k[unit] = round_down(rows.cells[start + units.k].score)
    lowest_hit = np.inf
    for p in range(start + units.first_counted_slot, start + units.k + 1):
        if rows.cells[p].item & 1:
            lowest_hit = rows.cells[p].score
    rows.lowest_hit[unit] = round_down(lowest_hit) if lowest_hit < np.inf else np.inf


@bare_helper
def _raise(cells, first, p, score, marked):
    """Put an item into cell p, or further up as far as it belongs; returns its cell."""
    while p > first and not is_above(cells[p - 1].score, cells[p - 1].item, score, marked):
        cells[p] = cells[p - 1]
        p -= 1
    cells[p].score = score
    cells[p].item = marked
    return p


@bare_helper
def fill_row(units, rows, unit):
    """Rank a unit from scratch."""
    cells = rows.cells
    start = unit * units.width
    last = start + units.width - 1
    source = units.source[unit]
    begin = units.indptr[source]
    end = units.indptr[source + 1]
    for p in range(start, last + 1):
        cells[p].score = -np.inf
        cells[p].item = _NONE
    n = 0  # items ranked so far
    for e in range(begin, end):
        item = units.items[e]
        score = units.scores[e] + rows.bias[item]
        if score > -np.inf:
            if not is_above(cells[last].score, cells[last].item, score, item * 2):
                _raise(cells, start, min(start + n, last), score, item * 2)
            n += 1
    for x in range(rows.n_raised[0] if units.reaches_unlisted else 0):
        item = rows.raised[x]
        score = rows.bias[item]
        if is_above(cells[last].score, cells[last].item, score, item * 2):
            n += 1
            break  # all that follow are outside the row, too
        if not in_range(units.items, begin, end, item):
            _raise(cells, start, min(start + n, last), score, item * 2)
            n += 1
    bought = units.bought_indptr[source]
    bought_end = units.bought_indptr[source + 1]
    for p in range(start, last + 1):
        item = cells[p].item >> 1
        cells[p].item += in_ascending_range(units.bought_items, bought, bought_end, item)
    _set_bounds(units, rows, unit, n <= units.width)


@bare_helper
def _move_in_row(units, rows, unit, marked, score):
    """Give an item its new score in a row; -inf takes it out."""
    cells = rows.cells
    start = unit * units.width
    last = start + units.width - 1
    whole = rows.floor[unit] == -np.inf
    for cell in range(start + units.k + 1, last + 1):
        if cells[cell].score < rows.floor[unit]:
            cells[cell].score = -np.inf
            cells[cell].item = _NONE
    p = last
    for cell in range(start, last):
        if cells[cell].item == marked:
            p = cell
    if cells[p].item != marked and cells[p].score > -np.inf:
        # The last item or this one is outside from now on.
        whole = False
        if is_above(cells[p].score, cells[p].item, score, marked):
            rows.floor[unit] = cells[p].score
            return
    p = _raise(cells, start, p, score, marked)
    while p < last and is_above(cells[p + 1].score, cells[p + 1].item, score, marked):
        cells[p] = cells[p + 1]
        p += 1
    # Behind all others of a row, it may be behind items outside.
    stays = score > -np.inf and (whole or (p < last and cells[p + 1].score > -np.inf))
    cells[p].score = score if stays else -np.inf
    cells[p].item = marked if stays else _NONE
    if cells[start + units.k].score == -np.inf and not whole:
        fill_row(units, rows, unit)
    else:
        _set_bounds(units, rows, unit, whole)


@bare_helper
def _note_losses(units, rows, unit, sign, n):
    """Add the losses of a unit's hits to n changes, times a sign; returns the new number."""
    if rows.lowest_hit[unit] == np.inf:
        return n
    changes = rows.changes
    hits = np.int64(0)
    for slot in range(units.k):
        cell = rows.cells[unit * units.width + slot]
        if cell.item & 1:
            key = max(cell.score, 0.0)
            x = 0
            while x < n and changes[x].key != key:
                x += 1
            if x == n:
                changes[x].key = key
                changes[x].weight = 0
                n += 1
            changes[x].weight += hit_step(units, unit, slot, hits) * sign
            hits += 1
    return n


@bare_helper
def _apply_losses(rows, n):
    """Add n changes to the shared losses."""
    for x in range(n):
        if rows.changes[x].weight != 0:
            add_weight(rows.losses, rows.changes[x].key, rows.changes[x].weight)


@bare_helper
def update_row(units, rows, unit, marked, score):
    """Give an item its new score in a unit's ranking; -inf takes it out.

    The item's bias, and its place among the raised items, must be the new ones already.
    """
    if not units.reaches_unlisted:
        _move_in_row(units, rows, unit, marked, score)
        return
    n = _note_losses(units, rows, unit, np.int64(-1), np.int64(0))
    _move_in_row(units, rows, unit, marked, score)
    n = _note_losses(units, rows, unit, np.int64(1), n)
    _apply_losses(rows, n)


@bare_helper
def set_bias(rows, item, bias):
    """Give an item its new bias, and its place among the raised items."""
    raised = rows.raised
    n = 0
    for p in range(rows.n_raised[0]):
        other = raised[p]
        raised[n] = other
        n += other != item
    rows.bias[item] = bias
    if bias > 0:
        p = n
        while p > 0 and is_above(bias, item, rows.bias[raised[p - 1]], raised[p - 1]):
            raised[p] = raised[p - 1]
            p -= 1
        raised[p] = item
        n += 1
    rows.n_raised[0] = n


@bare_kernel
def fill_rows(start, stop, units, rows):
    """Rank the units of some source rows from scratch; returns their metric in quanta."""
    total = np.int64(0)
    for source in range(start, stop):
        unit = np.int64(units.unit_of[source])
        if unit < 0:
            continue
        fill_row(units, rows, unit)
        hits = 0
        for slot in range(units.k):
            if rows.cells[unit * units.width + slot].item & 1:
                hits += 1
                value = units.hit_values[units.kind[unit], slot]
                total += value * hits if units.counts_hits_above else value
    return total


@bare_kernel
def add_losses(units, rows):
    """Add the hits of all units to the shared losses."""
    for unit in range(len(rows.floor)):
        _apply_losses(rows, _note_losses(units, rows, unit, np.int64(1), np.int64(0)))
