"""Lists from factors of any sign: like `factors`, but in double precision and below 0 too."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.factor_lists import multiply
from trimtab.kernels.top_k import take_place

BLOCK = 512  # items; the scores of so many stay in the nearest cache,
TILE = 64  # and their factors in the next one while so many units take them


@helper
def _take_places(unit, taken, first, n, n_items, most, scores, out_items, out_scores):
    """Put a block's items into a unit's list; returns the list's new length."""
    lowest = out_scores[unit * n + n - 1] if taken == n else -np.inf
    for x in range(min(BLOCK, n_items - first)):
        # Items come in ascending order, so one that only equals the last is not better.
        if scores[x] > lowest and abs(scores[x]) < most:
            taken = take_place(out_items, out_scores, unit * n, taken, n, scores[x], first + x)
            if taken == n:
                lowest = out_scores[unit * n + n - 1]
    return taken


@kernel
def rank_products(
    start, stop, n, n_items, most, units, blocks, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items at unit * n.

    A unit's scores do not depend on which others are asked for, as they do in a matrix product.

    Args:
        start: first unit.
        stop: one past the last.
        n: places.
        n_items: how many of the blocks' items there are.
        most: scores must lie between -most and most; others are no scores.
        units: factors by unit, units x factors.
        blocks: factors of items, blocks x factors x BLOCK, filled up.
        hidden_indptr: items that a unit must not get, by unit.
        hidden: those items, ascending.
        out_items: items of the lists.
        out_scores: their scores.
        lengths: places taken.
    """
    scores = np.empty(BLOCK)
    seen = np.empty(TILE, np.int64)  # of hidden items
    for base in range(start, stop, TILE):
        end = min(base + TILE, stop)
        for unit in range(base, end):
            lengths[unit] = 0
            seen[unit - base] = hidden_indptr[unit]
        for block in range(blocks.shape[0]):
            first = block * BLOCK
            for unit in range(base, end):
                multiply(unit, block, units, blocks, scores)
                h = seen[unit - base]
                while h < hidden_indptr[unit + 1] and hidden[h] < first + BLOCK:
                    scores[hidden[h] - first] = np.nan
                    h += 1
                seen[unit - base] = h
                lengths[unit] = _take_places(
                    unit, lengths[unit], first, n, n_items, most, scores, out_items, out_scores
                )
