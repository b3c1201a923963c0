"""Lists from factors: a unit's score of an item is the dot product of their factors.

score(u, i) = sum over f of unit_factor(u, f) * item_factor(i, f)
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.top_k import insert_in_top_k

BLOCK = 512  # items; their scores fit into the L1 cache
TILE = 64  # units per pass over a block, while its factors are in the L2 cache


@helper
def _score_block(unit, block, units, blocks, scores):
    """Write a unit's scores of a block of items; four factors at a time spare memory traffic."""
    size = len(scores)
    scores[:] = 0.0
    n_factors = units.shape[1]
    whole = n_factors - n_factors % 4
    for f in range(0, whole, 4):
        a, b, c, d = units[unit, f], units[unit, f + 1], units[unit, f + 2], units[unit, f + 3]
        for x in range(size):
            scores[x] += (a * blocks[block, f, x] + b * blocks[block, f + 1, x]) + (
                c * blocks[block, f + 2, x] + d * blocks[block, f + 3, x]
            )
    for f in range(whole, n_factors):
        a = units[unit, f]
        for x in range(size):
            scores[x] += a * blocks[block, f, x]


@kernel
def rank_factors(
    start, stop, n, n_items, above, limit, units, blocks, hidden_indptr, hidden,
    out_items, out_scores, lengths,
):  # fmt: skip
    """Write each unit's n best items at unit * n, in the precision of the factors.

    Unlike in a matrix product, a unit's scores do not depend on the other units in the range.

    Args:
        start: first unit.
        stop: one past the last.
        n: slots of a list.
        n_items: number of items, without the padding of the last block.
        above: only scores above this are listed.
        limit: items with |score| >= limit are left out.
        units: factors of units, by [unit, factor].
        blocks: factors of items, by [block, factor, item in block], padded.
        hidden_indptr: start of each unit's hidden items.
        hidden: items that a unit must not get, ascending for each unit.
        out_items: items of the lists; filled.
        out_scores: scores of the lists; filled.
        lengths: slots used by each unit; filled.
    """
    scores = np.empty(BLOCK, blocks.dtype)
    next_hidden = np.empty(TILE, np.int64)  # by unit of the tile
    for base in range(start, stop, TILE):
        end = min(base + TILE, stop)
        lengths[base:end] = 0
        next_hidden[: end - base] = hidden_indptr[base:end]
        for block in range(blocks.shape[0]):
            first = block * BLOCK
            for unit in range(base, end):
                _score_block(unit, block, units, blocks, scores)
                h = next_hidden[unit - base]
                while h < hidden_indptr[unit + 1] and hidden[h] < first + BLOCK:
                    scores[hidden[h] - first] = np.nan
                    h += 1
                next_hidden[unit - base] = h
                length = lengths[unit]
                lowest = out_scores[unit * n + n - 1] if length == n else above
                for x in range(min(BLOCK, n_items - first)):
                    # Items come in ascending order, so by the tie rule an equal score comes later.
                    if scores[x] > lowest and abs(scores[x]) < limit:
                        length = insert_in_top_k(
                            out_items, out_scores, unit * n, length, n, scores[x], first + x
                        )
                        lowest = out_scores[unit * n + n - 1] if length == n else above
                lengths[unit] = length
