"""Lists from factors of any sign: `factor_lists` in double precision and with scores below 0."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.factor_lists import score_block
from trimtab.kernels.top_k import insert_in_top_k

BLOCK = 512  # items; their scores fit into the L1 cache
TILE = 64  # units per pass over a block, while its factors are in the L2 cache


@helper
def _insert_block(unit, length, first, n, n_items, limit, scores, out_items, out_scores):
    """Insert a block's items into a unit's list; returns the new length."""
    lowest = out_scores[unit * n + n - 1] if length == n else -np.inf
    for x in range(min(BLOCK, n_items - first)):
        # Items come in ascending order, so by the tie rule an equal score comes later.
        if scores[x] > lowest and abs(scores[x]) < limit:
            length = insert_in_top_k(
                out_items, out_scores, unit * n, length, n, scores[x], first + x
            )
            if length == n:
                lowest = out_scores[unit * n + n - 1]
    return length


@kernel
def rank_products(
    start, stop, n, n_items, limit, units, blocks, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items at unit * n.

    Unlike in a matrix product, a unit's scores do not depend on the other units in the range.

    Args:
        start: first unit.
        stop: one past the last.
        n: slots of a list.
        n_items: number of items, without the padding of the last block.
        limit: items with |score| >= limit are left out.
        units: factors of units, by [unit, factor].
        blocks: factors of items, by [block, factor, item in block], padded.
        hidden_indptr: start of each unit's hidden items.
        hidden: items that a unit must not get, ascending for each unit.
        out_items: items of the lists; filled.
        out_scores: scores of the lists; filled.
        lengths: slots used by each unit; filled.
    """
    scores = np.empty(BLOCK)
    next_hidden = np.empty(TILE, np.int64)  # by unit of the tile
    for base in range(start, stop, TILE):
        end = min(base + TILE, stop)
        for unit in range(base, end):
            lengths[unit] = 0
            next_hidden[unit - base] = hidden_indptr[unit]
        for block in range(blocks.shape[0]):
            first = block * BLOCK
            for unit in range(base, end):
                score_block(unit, block, units, blocks, scores)
                h = next_hidden[unit - base]
                while h < hidden_indptr[unit + 1] and hidden[h] < first + BLOCK:
                    scores[hidden[h] - first] = np.nan
                    h += 1
                next_hidden[unit - base] = h
                lengths[unit] = _insert_block(
                    unit, lengths[unit], first, n, n_items, limit, scores, out_items, out_scores
                )
