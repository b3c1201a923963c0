"""The top of every unit's current ranking, updated in place as biases change.

With y(p) = 1 if the unit bought the item in slot p, a hit in slot p is worth v_p of the metric (for
MAP times the number of hits down to p). Pushing it down one slot costs

    w_p = v_p - v_{p+1}        (for MAP times 1 + the hits above it; v_{k+1} = 0)

Slots count from 0 in the code. All values are whole numbers of quanta (see `bias_steps`).

A row holds the first items of one unit's ranking under the current biases, in the order that
`top_k` defines, and at least `k + 1` of them if the unit has that many: without an item of the top
k, the next one moves up. A row is exact above the score `exact_above`: items outside the row score
at most that much, and entries below it may be out of date. It is -inf if the row holds all items
of the unit. A change below slot k + 1 only raises `exact_above`; the row itself is left alone.

Two bounds in single precision are small enough to stay in the cache and spare most looks at a row:
`lowest_hit`, the lowest score of a relevant item in the first k + 1 slots that can lose anything,
and `score_after_k`, the score in slot k + 1.

Kernels take `pack(problem)` and `pack(rows)`; helpers take the unpacked tuples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Singles
from trimtab.kernels.compiling import helper, kernel, prefetch, unpacker
from trimtab.kernels.membership import in_ascending_range, in_range
from trimtab.kernels.ordered_multiset import BLOCK, OrderedMultiset, add_weight

GROUP = 256  # units that share lower bounds
LISTS_AHEAD = 8  # lists loaded ahead of their use


class Problem(NamedTuple):
    """What does not change while learning."""

    n_units: int
    k: int
    width: int  # slots of a row
    stride: int  # 8-byte words from one row to the next
    first_counted_slot: int  # the first slot with w_p > 0: k - 1 for ACC, otherwise 0
    counts_hits_above: bool
    reaches_unlisted: bool  # unlisted items score their bias (unlisted="zero")
    weighted: bool
    indptr: Ints  # lists by source row
    items: Codes
    scores: Floats
    source: Codes  # unit -> source row
    bought_indptr: Ints  # by source row, items ascending
    bought_items: Codes
    max_hits: Codes  # unit -> min(k, number of relevant items)
    weights: Floats  # unit -> weight, empty when all are 1
    hit_values_float: Floats  # v_p in quanta, not rounded, at [max_hits * (k + 1) + slot]
    hit_values: Ints  # the same, rounded


class Rows(NamedTuple):
    """The first slots of all rankings, and what they depend on."""

    scores: Floats  # of a row, followed by its marked items and its length: few cache lines
    marked_items: Codes  # the same memory; item * 2 + relevant
    exact_above: Floats
    lowest_hit: Singles
    score_after_k: Singles
    offset: Floats  # item -> bias, -inf when excluded
    group_exact_above: Floats  # lower bound of `exact_above` over GROUP units
    group_score_after_k: Singles  # lower bound of `score_after_k` over GROUP units
    losses: OrderedMultiset  # (score, item) of hits: the cost of showing an item to every unit
    raised: OrderedMultiset  # items with a positive bias: (bias, item)
    old_hit_scores: Floats  # one unit's hits before a change
    old_hit_items: Ints
    old_hit_steps: Ints


unpack_problem = unpacker(Problem)
unpack_rows = unpacker(Rows)


def row_shape(k: int) -> tuple[int, int]:
    """Width and stride of rows: k + 1 slots and a few more, in whole cache lines."""
    lines = -(-(12 * (k + 1 + max(4, k // 4)) + 4) // 64)
    return (64 * lines - 4) // 12, 8 * lines


@helper
def start_of_items(problem, unit):
    """Index of the row's first marked item; the row's length follows the last one."""
    return 2 * (unit * problem.stride + problem.width)


@helper
def hit_value_at(problem, unit, slot):
    """v_p: what a hit in this slot adds to the unit's metric, in quanta."""
    if slot >= problem.k:
        return np.int64(0)
    at = problem.max_hits[unit] * (problem.k + 1) + slot
    if problem.weighted:
        return np.int64(np.rint(problem.weights[unit] * problem.hit_values_float[at]))
    return problem.hit_values[at]


@helper
def hit_step(problem, unit, slot, hits_before):
    """w_p: what the metric loses when a hit is pushed from this slot to the next, in quanta."""
    step = hit_value_at(problem, unit, slot) - hit_value_at(problem, unit, slot + 1)
    if problem.counts_hits_above:
        return step * (1 + hits_before)
    return step


@helper
def round_down(x):
    """A single-precision number at or below x."""
    if x > 3e38:
        return np.float32(3e38)
    if x < -3e38:
        return np.float32(-np.inf)
    return np.float32(x - abs(x) * 2.0**-22 - 1e-37)


@helper
def is_bought(problem, source, item):
    """Whether the unit of this source row bought the item."""
    indptr = problem.bought_indptr
    return in_ascending_range(problem.bought_items, indptr[source], indptr[source + 1], item)


@helper
def hash_bought(problem, source):
    """64 bits with one set for each item that the unit bought; see `may_be_bought`."""
    bits = np.uint64(0)
    for b in range(problem.bought_indptr[source], problem.bought_indptr[source + 1]):
        bits |= np.uint64(1) << np.uint64(problem.bought_items[b] & 63)
    return bits


@helper
def may_be_bought(bits, item):
    """Whether an item can be among those of `hash_bought`; spares most searches."""
    return (bits >> np.uint64(item & 63)) & np.uint64(1) != np.uint64(0)


@helper
def prefetch_starts(problem, unit):
    """Load where a unit's list and purchases start into the cache."""
    source = np.int64(problem.source[unit])
    prefetch(problem.indptr, source)
    prefetch(problem.bought_indptr, source)


@helper
def prefetch_list(problem, unit):
    """Load a unit's list and purchases into the cache; `prefetch_starts` comes first."""
    source = np.int64(problem.source[unit])
    first = problem.indptr[source]
    end = problem.indptr[source + 1]
    for e in range(first, end, 16):
        prefetch(problem.items, e)
    for e in range(first, end, 8):
        prefetch(problem.scores, e)
    prefetch(problem.bought_items, problem.bought_indptr[source])


@helper
def prefetch_lists_after(problem, unit, stop):
    """Load the lists of units soon to come, up to `stop`."""
    if unit + 2 * LISTS_AHEAD < stop:
        prefetch_starts(problem, unit + 2 * LISTS_AHEAD)
    if unit + LISTS_AHEAD < stop:
        prefetch_list(problem, unit + LISTS_AHEAD)


@helper
def is_listed(problem, source, item):
    """Whether the unit of this source row lists the item."""
    return in_range(problem.items, problem.indptr[source], problem.indptr[source + 1], item)


@helper
def update_bounds(problem, rows, unit, complete):
    """Set `exact_above`, `lowest_hit` and `score_after_k` after a change of the row."""
    scores_start = unit * problem.stride
    items_start = start_of_items(problem, unit)
    n = np.int64(rows.marked_items[items_start + problem.width])
    exact_above = -np.inf if complete else rows.scores[scores_start + n - 1]
    rows.exact_above[unit] = exact_above
    rows.group_exact_above[unit // GROUP] = min(rows.group_exact_above[unit // GROUP], exact_above)
    score_after_k = (
        round_down(rows.scores[scores_start + problem.k]) if n > problem.k else np.float32(-np.inf)
    )
    rows.score_after_k[unit] = score_after_k
    rows.group_score_after_k[unit // GROUP] = min(
        rows.group_score_after_k[unit // GROUP], score_after_k
    )
    lowest_hit = np.float32(np.inf)
    slot = min(n - 1, problem.k)
    while slot >= problem.first_counted_slot:
        if rows.marked_items[items_start + slot] & 1:
            lowest_hit = round_down(rows.scores[scores_start + slot])
            break
        slot -= 1
    rows.lowest_hit[unit] = lowest_hit


@helper
def _insert(problem, rows, scores_start, items_start, n, score, item):
    """Insert an item that `_belongs` in the row; returns the new length."""
    p = n if n < problem.width else n - 1
    while p > 0 and (
        rows.scores[scores_start + p - 1] < score
        or (
            rows.scores[scores_start + p - 1] == score
            and rows.marked_items[items_start + p - 1] > item
        )
    ):
        rows.scores[scores_start + p] = rows.scores[scores_start + p - 1]
        rows.marked_items[items_start + p] = rows.marked_items[items_start + p - 1]
        p -= 1
    rows.scores[scores_start + p] = score
    rows.marked_items[items_start + p] = item
    return min(n + 1, problem.width)


@helper
def _belongs(problem, rows, scores_start, items_start, n, score, item):
    """Whether an item is among the first `width` of the items seen so far, n of them in the row."""
    if n < problem.width:
        return True
    last = rows.scores[scores_start + n - 1]
    return score > last or (score == last and item < rows.marked_items[items_start + n - 1])


@helper
def fill_row(problem, rows, unit, highest):
    """Rank a unit from scratch; no item has a bias above `highest`."""
    scores_start = unit * problem.stride
    items_start = start_of_items(problem, unit)
    source = np.int64(problem.source[unit])
    n = np.int64(0)
    complete = True
    # Plain items at first; relevance is looked up only for the items that stay.
    for e in range(problem.indptr[source], problem.indptr[source + 1]):
        if not complete and problem.scores[e] + highest < rows.scores[scores_start + n - 1]:
            continue
        item = np.int64(problem.items[e])
        score = problem.scores[e] + rows.offset[item]
        if score == -np.inf:
            continue
        complete = complete and n < problem.width
        if _belongs(problem, rows, scores_start, items_start, n, score, item):
            n = _insert(problem, rows, scores_start, items_start, n, score, item)
    if problem.reaches_unlisted:
        raised = rows.raised
        p = raised.counts[0] - 1
        may_belong = True
        while p >= 0 and may_belong:
            block = np.int64(raised.order[p])
            e = block * BLOCK + raised.lengths[block] - 1
            while e >= block * BLOCK:
                item = np.int64(raised.ids[e])
                if not _belongs(problem, rows, scores_start, items_start, n, raised.keys[e], item):
                    # Raised items come in ranking order, so the rest does not belong either.
                    complete = False
                    may_belong = False
                    break
                if not is_listed(problem, source, item):
                    complete = complete and n < problem.width
                    n = _insert(problem, rows, scores_start, items_start, n, raised.keys[e], item)
                e -= 1
            p -= 1
    bits = hash_bought(problem, source)
    for p in range(items_start, items_start + n):
        item = np.int64(rows.marked_items[p])
        bought = may_be_bought(bits, item) and is_bought(problem, source, item)
        rows.marked_items[p] = item * 2 + bought
    rows.marked_items[items_start + problem.width] = n
    update_bounds(problem, rows, unit, complete)


@kernel
def fill_rows(start, stop, packed, packed_rows, highest):
    """Rank the units from `start` to `stop` from scratch; no item has a bias above `highest`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    for unit in range(start, stop):
        prefetch_lists_after(problem, unit, stop)
        fill_row(problem, rows, np.int64(unit), highest)


@helper
def _remember_hits(problem, rows, unit, low, high):
    """Copy the hits in slots low..high that can lose to `rows.old_hit_*`; returns the number."""
    scores_start = unit * problem.stride
    items_start = start_of_items(problem, unit)
    n = np.int64(0)
    hits = np.int64(0)
    if problem.counts_hits_above:
        for p in range(items_start, items_start + low):
            hits += rows.marked_items[p] & 1
    stop = min(high + 1, min(problem.k, np.int64(rows.marked_items[items_start + problem.width])))
    for slot in range(low, stop):
        marked = np.int64(rows.marked_items[items_start + slot])
        if marked & 1:
            if slot >= problem.first_counted_slot:
                step = hit_step(problem, unit, slot, hits)
                if step != 0:
                    rows.old_hit_scores[n] = max(rows.scores[scores_start + slot], 0.0)
                    rows.old_hit_items[n] = marked >> 1
                    rows.old_hit_steps[n] = step
                    n += 1
            hits += 1
    return n


@helper
def _update_losses(problem, rows, unit, low, high, n):
    """Update `losses` after a change of slots low..high; n hits were remembered before it.

    A hit that changed its slot but not its score needs only one addition.
    """
    scores_start = unit * problem.stride
    items_start = start_of_items(problem, unit)
    hits = np.int64(0)
    if problem.counts_hits_above:
        for p in range(items_start, items_start + low):
            hits += rows.marked_items[p] & 1
    stop = min(high + 1, min(problem.k, np.int64(rows.marked_items[items_start + problem.width])))
    for slot in range(low, stop):
        marked = np.int64(rows.marked_items[items_start + slot])
        if marked & 1:
            step = (
                hit_step(problem, unit, slot, hits)
                if slot >= problem.first_counted_slot
                else np.int64(0)
            )
            key = max(rows.scores[scores_start + slot], 0.0)
            for x in range(n):
                if rows.old_hit_items[x] == marked >> 1 and rows.old_hit_scores[x] == key:
                    step -= rows.old_hit_steps[x]
                    rows.old_hit_steps[x] = 0
            if step != 0:
                add_weight(rows.losses, key, marked >> 1, step)
            hits += 1
    for x in range(n):
        if rows.old_hit_steps[x] != 0:
            add_weight(
                rows.losses, rows.old_hit_scores[x], rows.old_hit_items[x], -rows.old_hit_steps[x]
            )


@kernel
def add_losses(start, stop, packed, packed_rows):
    """Add the hits of the units from `start` to `stop` to `losses`."""
    problem = unpack_problem(packed)
    rows = unpack_rows(packed_rows)
    zero = np.int64(0)  # numba would compile again for a literal
    for unit in range(start, stop):
        _update_losses(problem, rows, np.int64(unit), zero, problem.k - 1, zero)


@helper
def raise_exact_above(rows, unit, score):
    """Record a change at a score below slot k + 1: the row is exact only above it."""
    rows.exact_above[unit] = max(rows.exact_above[unit], score + abs(score) * 2.0**-50 + 1e-300)


@helper
def move_item(problem, rows, unit, item, relevant, was_ranked, is_ranked, score):
    """Update a row after a move: the item was in the unit's ranking or not, and is now or not.

    The item's offset, and its entry among the raised items, must be the new ones already. Returns
    whether the row is too short now: then its first k slots are right, and `fill_row` must follow.
    """
    k = problem.k
    scores_start = unit * problem.stride
    items_start = start_of_items(problem, unit)
    n = np.int64(rows.marked_items[items_start + problem.width])
    complete = rows.exact_above[unit] == -np.inf
    while n > 0 and rows.scores[scores_start + n - 1] < rows.exact_above[unit]:
        n -= 1
    old = n
    if was_ranked:
        for p in range(n):
            if rows.marked_items[items_start + p] >> 1 == item:
                old = p
                break
    new = n
    if is_ranked:
        new = 0
        while new < n:
            marked = rows.marked_items[items_start + new]
            other = rows.scores[scores_start + new]
            if marked >> 1 != item and (other < score or (other == score and marked >> 1 > item)):
                break
            new += 1
        if old < new:
            new -= 1
    length = n - 1 if old < n else n  # without the item
    if new == problem.width and is_ranked and complete:
        # It comes after the last item of a full row: now there is an item outside the row.
        complete = False
        update_bounds(problem, rows, unit, complete)
        return False
    enters = is_ranked and (new < length or complete)
    if not enters:
        new = n
    if old == n and not enters:
        return False
    low = min(old, new)
    high = max(old, new)
    changes_losses = problem.reaches_unlisted and low < k and relevant
    if problem.reaches_unlisted and not changes_losses:
        for p in range(items_start + low, items_start + min(min(high, k) + 1, n)):
            changes_losses = changes_losses or (rows.marked_items[p] & 1) == 1
    n_old_hits = _remember_hits(problem, rows, unit, low, high) if changes_losses else np.int64(0)
    if old < n and not (enters and new <= old):
        stop = new if enters else length
        for p in range(old, stop):
            rows.scores[scores_start + p] = rows.scores[scores_start + p + 1]
            rows.marked_items[items_start + p] = rows.marked_items[items_start + p + 1]
    if enters:
        stop = length
        if old < n:
            stop = old if new < old else new
        elif length == problem.width:
            stop = length - 1
            complete = False
        for p in range(stop, new, -1):
            rows.scores[scores_start + p] = rows.scores[scores_start + p - 1]
            rows.marked_items[items_start + p] = rows.marked_items[items_start + p - 1]
        rows.scores[scores_start + new] = score
        rows.marked_items[items_start + new] = item * 2 + relevant
        length = min(length + 1, problem.width)
    rows.marked_items[items_start + problem.width] = length
    if changes_losses:
        _update_losses(problem, rows, unit, low, high, n_old_hits)
    if length <= k and not complete:
        return True
    update_bounds(problem, rows, unit, complete)
    return False
