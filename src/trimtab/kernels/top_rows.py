"""The head of every unit's current ranking, changed in place as biases change.

A row holds the exact head of a unit's ranking (score descending, item ascending) under the current
biases: the first `length` items, less those below `floor`. It is kept at least `k + 1` long while
the unit has that many items: to take an item out of the top k is to see what would replace it.
Nothing outside the row comes before `floor`, which is -inf when the row holds all there is. A
change below place k + 1 only raises the floor; the row itself is touched when it matters.

Rows also keep two cheap bounds in single precision, small enough to stay in the cache, so that
most rows need not be touched: `low_hit`, the lowest score among the relevant items of the first
k + 1 places that can lose anything, and `edge`, the score of place k + 1.

Kernels take `pack(problem)` and `pack(rows)`; helpers take what `unpack_...` makes of those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Singles
from trimtab.kernels.compiling import helper, kernel, unpacker
from trimtab.kernels.ordered_multiset import BLOCK, OrderedMultiset, add_weight

GROUP = 256


class Problem(NamedTuple):
    """What does not change while learning."""

    n_units: int
    k: int
    width: int  # room in a row
    stride: int  # distance of rows, in 8-byte words
    first: int  # the first place whose step counts: k - 1 for ACC, otherwise 0
    is_map: bool
    reaches_unlisted: bool  # unlisted items score their bias (unlisted="zero")
    weighted: bool
    indptr: Ints  # lists by source row
    items: Codes
    scores: Floats
    source: Codes  # unit -> source row
    bought_indptr: Ints  # by source row, items ascending
    bought_items: Codes
    needs: Codes  # unit -> min(k, number of relevant items)
    weights: Floats  # unit -> weight, empty when all are 1
    hit_values_float: Floats  # [need * (k + 1) + place] in fixed-point quanta, before rounding
    hit_values: Ints  # the same, rounded


class Rows(NamedTuple):
    """The heads of all rankings, and what they depend on."""

    scores: Floats  # a row's scores, its codes and its length lie side by side: few cache lines
    codes: Codes  # the same memory; item * 2 + relevant
    floor: Floats
    low_hit: Singles
    edge: Singles
    offset: Floats  # item -> bias, -inf when excluded
    group_floor: Floats  # lower bound of `floor` over GROUP units
    group_edge: Singles  # lower bound of `edge` over GROUP units
    losses: OrderedMultiset  # (score, item) of hits: the cost of showing an item to everybody
    raised: OrderedMultiset  # items with a positive bias: (bias, item)
    noted_keys: Floats  # scratch for one unit's hits before a change
    noted_items: Ints
    noted_steps: Ints


unpack_problem = unpacker(Problem)
unpack_rows = unpacker(Rows)


def row_shape(k: int) -> tuple[int, int]:
    """Width and stride of rows: k + 1 places, some to spare, and whole cache lines."""
    lines = -(-(12 * (k + 1 + max(4, k // 4)) + 4) // 64)
    return (64 * lines - 4) // 12, 8 * lines


@helper
def tags_of(problem, unit):
    """Where the row's codes begin; its length stands behind them."""
    return 2 * (unit * problem.stride + problem.width)


@helper
def hit_value_at(problem, unit, place):
    """What a relevant item at this place adds to the unit's metric, in quanta (see `hit_step`)."""
    if place >= problem.k:
        return np.int64(0)
    at = problem.needs[unit] * (problem.k + 1) + place
    if problem.weighted:
        return np.int64(np.rint(problem.weights[unit] * problem.hit_values_float[at]))
    return problem.hit_values[at]


@helper
def hit_step(problem, unit, place, hits_before):
    """What a relevant item loses when it is pushed from this place to the next: w_p."""
    step = hit_value_at(problem, unit, place) - hit_value_at(problem, unit, place + 1)
    if problem.is_map:
        return step * (1 + hits_before)
    return step


@helper
def round_down(x):
    """A single-precision number not above x."""
    if x > 3e38:
        return np.float32(3e38)
    if x < -3e38:
        return np.float32(-np.inf)
    return np.float32(x - abs(x) * 2.0**-22 - 1e-37)


@helper
def is_bought(problem, source, item):
    """Whether the source row's unit bought the item."""
    low = problem.bought_indptr[source]
    end = problem.bought_indptr[source + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if problem.bought_items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low < end and problem.bought_items[low] == item


@helper
def is_listed(problem, source, item):
    """Whether the item is on the source row's list."""
    for e in range(problem.indptr[source], problem.indptr[source + 1]):
        if problem.items[e] == item:
            return True
    return False


@helper
def note_bounds(problem, rows, unit, complete):
    """Renew `floor`, `low_hit` and `edge` after the row has changed."""
    base = unit * problem.stride
    tags = tags_of(problem, unit)
    n = np.int64(rows.codes[tags + problem.width])
    floor = -np.inf if complete else rows.scores[base + n - 1]
    rows.floor[unit] = floor
    rows.group_floor[unit // GROUP] = min(rows.group_floor[unit // GROUP], floor)
    edge = round_down(rows.scores[base + problem.k]) if n > problem.k else np.float32(-np.inf)
    rows.edge[unit] = edge
    rows.group_edge[unit // GROUP] = min(rows.group_edge[unit // GROUP], edge)
    low_hit = np.float32(np.inf)
    place = min(n - 1, problem.k)
    while place >= problem.first:
        if rows.codes[tags + place] & 1:
            low_hit = round_down(rows.scores[base + place])
            break
        place -= 1
    rows.low_hit[unit] = low_hit


@helper
def _insert(problem, rows, base, tags, n, score, item):
    """Put an item that belongs in the row into it; returns the new length."""
    p = n if n < problem.width else n - 1
    while p > 0 and (
        rows.scores[base + p - 1] < score
        or (rows.scores[base + p - 1] == score and rows.codes[tags + p - 1] > item)
    ):
        rows.scores[base + p] = rows.scores[base + p - 1]
        rows.codes[tags + p] = rows.codes[tags + p - 1]
        p -= 1
    rows.scores[base + p] = score
    rows.codes[tags + p] = item
    return min(n + 1, problem.width)


@helper
def _belongs(problem, rows, base, tags, n, score, item):
    """Whether an item is among the first `width`, given the n <= width seen so far."""
    if n < problem.width:
        return True
    last = rows.scores[base + n - 1]
    return score > last or (score == last and item < rows.codes[tags + n - 1])


@helper
def fill_row(problem, rows, unit):
    """Rank a unit from scratch."""
    base = unit * problem.stride
    tags = tags_of(problem, unit)
    source = np.int64(problem.source[unit])
    n = np.int64(0)
    complete = True
    # While filling, codes are plain items; relevance is looked up once for those that stay.
    for e in range(problem.indptr[source], problem.indptr[source + 1]):
        item = np.int64(problem.items[e])
        score = problem.scores[e] + rows.offset[item]
        if score == -np.inf:
            continue
        complete = complete and n < problem.width
        if _belongs(problem, rows, base, tags, n, score, item):
            n = _insert(problem, rows, base, tags, n, score, item)
    if problem.reaches_unlisted:
        raised = rows.raised
        p = raised.counts[0] - 1
        open_end = True
        while p >= 0 and open_end:
            block = np.int64(raised.order[p])
            e = block * BLOCK + raised.lengths[block] - 1
            while e >= block * BLOCK:
                item = np.int64(raised.ids[e])
                if not _belongs(problem, rows, base, tags, n, raised.keys[e], item):
                    # OrderedMultiset run from high to low here, so none of the rest belongs either.
                    complete = False
                    open_end = False
                    break
                if not is_listed(problem, source, item):
                    complete = complete and n < problem.width
                    n = _insert(problem, rows, base, tags, n, raised.keys[e], item)
                e -= 1
            p -= 1
    for p in range(tags, tags + n):
        item = np.int64(rows.codes[p])
        rows.codes[p] = item * 2 + is_bought(problem, source, item)
    rows.codes[tags + problem.width] = n
    note_bounds(problem, rows, unit, complete)


@kernel
def fill_rows(start, stop, packed, packed_rows):
    """Rank the units from `start` to `stop` from scratch."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    for unit in range(start, stop):
        fill_row(problem, rows, np.int64(unit))


@helper
def _note_hits(problem, rows, unit, low, high):
    """Write down the unit's hits at places low..high that can lose; returns their number."""
    base = unit * problem.stride
    tags = tags_of(problem, unit)
    n = np.int64(0)
    hits = np.int64(0)
    if problem.is_map:
        for p in range(tags, tags + low):
            hits += rows.codes[p] & 1
    stop = min(high + 1, min(problem.k, np.int64(rows.codes[tags + problem.width])))
    for place in range(low, stop):
        code = np.int64(rows.codes[tags + place])
        if code & 1:
            if place >= problem.first:
                step = hit_step(problem, unit, place, hits)
                if step != 0:
                    rows.noted_keys[n] = max(rows.scores[base + place], 0.0)
                    rows.noted_items[n] = code >> 1
                    rows.noted_steps[n] = step
                    n += 1
            hits += 1
    return n


@helper
def _renew_losses(problem, rows, unit, low, high, n):
    """Bring `losses` up to date with places low..high, given the n hits noted before.

    A hit that only changed its place keeps its key, so that one addition will do.
    """
    base = unit * problem.stride
    tags = tags_of(problem, unit)
    hits = np.int64(0)
    if problem.is_map:
        for p in range(tags, tags + low):
            hits += rows.codes[p] & 1
    stop = min(high + 1, min(problem.k, np.int64(rows.codes[tags + problem.width])))
    for place in range(low, stop):
        code = np.int64(rows.codes[tags + place])
        if code & 1:
            step = hit_step(problem, unit, place, hits) if place >= problem.first else np.int64(0)
            key = max(rows.scores[base + place], 0.0)
            for x in range(n):
                if rows.noted_items[x] == code >> 1 and rows.noted_keys[x] == key:
                    step -= rows.noted_steps[x]
                    rows.noted_steps[x] = 0
            if step != 0:
                add_weight(rows.losses, key, code >> 1, step)
            hits += 1
    for x in range(n):
        if rows.noted_steps[x] != 0:
            add_weight(rows.losses, rows.noted_keys[x], rows.noted_items[x], -rows.noted_steps[x])


@kernel
def add_losses(start, stop, packed, packed_rows):
    """Enter the hits of the units from `start` to `stop` into `losses`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    none = np.int64(0)  # numba compiles anew for a literal
    for unit in range(start, stop):
        _renew_losses(problem, rows, np.int64(unit), none, problem.k - 1, none)


@helper
def raise_floor(rows, unit, score):
    """Note that something changed at a score below place k + 1."""
    rows.floor[unit] = max(rows.floor[unit], score + abs(score) * 2.0**-50 + 1e-300)


@helper
def move_item(problem, rows, unit, item, relevant, was_there, is_there, score):
    """Change one item of a row: it was there or not, and is there now, at `score`, or not.

    The item's offset, and its place among the raised, must be the new ones already.
    """
    k = problem.k
    base = unit * problem.stride
    tags = tags_of(problem, unit)
    n = np.int64(rows.codes[tags + problem.width])
    complete = rows.floor[unit] == -np.inf
    while n > 0 and rows.scores[base + n - 1] < rows.floor[unit]:
        n -= 1
    old = n
    if was_there:
        for p in range(n):
            if rows.codes[tags + p] >> 1 == item:
                old = p
                break
    new = n
    if is_there:
        new = 0
        while new < n:
            code = rows.codes[tags + new]
            there = rows.scores[base + new]
            if code >> 1 != item and (there < score or (there == score and code >> 1 > item)):
                break
            new += 1
        if old < new:
            new -= 1
    left = n - 1 if old < n else n  # entries besides the item
    if new == problem.width and is_there and complete:
        # It comes last behind a row that is full: from now on there is something outside.
        complete = False
        note_bounds(problem, rows, unit, complete)
        return
    enters = is_there and (new < left or complete)
    if not enters:
        new = n
    if old == n and not enters:
        return
    low = min(old, new)
    high = max(old, new)
    counts = problem.reaches_unlisted and low < k and relevant
    if problem.reaches_unlisted and not counts:
        for p in range(tags + low, tags + min(min(high, k) + 1, n)):
            counts = counts or (rows.codes[p] & 1) == 1
    n_noted = _note_hits(problem, rows, unit, low, high) if counts else np.int64(0)
    if old < n and not (enters and new <= old):
        stop = new if enters else left
        for p in range(old, stop):
            rows.scores[base + p] = rows.scores[base + p + 1]
            rows.codes[tags + p] = rows.codes[tags + p + 1]
    if enters:
        stop = left
        if old < n:
            stop = old if new < old else new
        elif left == problem.width:
            stop = left - 1
            complete = False
        for p in range(stop, new, -1):
            rows.scores[base + p] = rows.scores[base + p - 1]
            rows.codes[tags + p] = rows.codes[tags + p - 1]
        rows.scores[base + new] = score
        rows.codes[tags + new] = item * 2 + relevant
        left = min(left + 1, problem.width)
    rows.codes[tags + problem.width] = left
    if counts:
        _renew_losses(problem, rows, unit, low, high, n_noted)
    if left <= k and not complete:
        fill_row(problem, rows, unit)
    else:
        note_bounds(problem, rows, unit, complete)
