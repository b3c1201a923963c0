"""Lists from factors: a unit's score of an item is the dot product of their factors.

score(u, i) = sum over f of unit_factor(u, f) * item_factor(i, f)
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.top_k import insert_in_top_k

BLOCK = 1024  # items; their scores fit into the L1 cache


@helper
def score_block(unit, block, units, blocks, scores):
    """Write a unit's scores of a block of items; four factors at a time spare memory traffic."""
    size = len(scores)
    for x in range(size):
        scores[x] = 0.0
    n_factors = units.shape[1]
    whole = n_factors - n_factors % 4
    for f in range(0, whole, 4):
        a = units[unit, f]
        b = units[unit, f + 1]
        c = units[unit, f + 2]
        d = units[unit, f + 3]
        for x in range(size):
            scores[x] += (a * blocks[block, f, x] + b * blocks[block, f + 1, x]) + (
                c * blocks[block, f + 2, x] + d * blocks[block, f + 3, x]
            )
    for f in range(whole, n_factors):
        a = units[unit, f]
        for x in range(size):
            scores[x] += a * blocks[block, f, x]


@kernel
def rank_factors(start, stop, n, units, blocks, out_items, out_scores, lengths):
    """Write each unit's n best items with scores above 0 at unit * n.

    Unlike in a matrix product, a unit's scores do not depend on the other units in the range.

    Args:
        start: first unit.
        stop: one past the last.
        n: slots of a list.
        units: factors of units, by [unit, factor].
        blocks: factors of items, by [block, factor, item in block], padded with zeros.
        out_items: items of the lists; filled.
        out_scores: scores of the lists; filled.
        lengths: slots used by each unit; filled.
    """
    scores = np.empty(BLOCK, np.float32)
    for unit in range(start, stop):
        length = 0
        lowest = np.float32(0.0)
        for block in range(blocks.shape[0]):
            score_block(unit, block, units, blocks, scores)
            for x in range(BLOCK):
                # Items come in ascending order, so by the tie rule an equal score comes later.
                if scores[x] > lowest:
                    item = block * BLOCK + x
                    length = insert_in_top_k(
                        out_items, out_scores, unit * n, length, n, scores[x], item
                    )
                    if length == n:
                        lowest = np.float32(out_scores[unit * n + n - 1])
        lengths[unit] = length
