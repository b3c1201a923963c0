"""Lists from factors: a unit's score for an item is the dot product of their factors."""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import helper, kernel
from trimtab.kernels.top_k import take_place

BLOCK = 1024  # items; the scores of so many stay in the nearest cache


@helper
def multiply(unit, block, units, blocks, scores):
    """Scores of a block's items; four factors a turn, to load and store less."""
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

    A unit's scores do not depend on which others are asked for, as they do in a matrix product.

    Args:
        start: first unit.
        stop: one past the last.
        n: places.
        units: factors by unit, units x factors.
        blocks: factors of items, blocks x factors x BLOCK, filled up with zeros.
        out_items: items of the lists.
        out_scores: their scores.
        lengths: places taken.
    """
    scores = np.empty(BLOCK, np.float32)
    for unit in range(start, stop):
        taken = 0
        lowest = np.float32(0.0)
        for block in range(blocks.shape[0]):
            multiply(unit, block, units, blocks, scores)
            for x in range(BLOCK):
                # Items come in ascending order, so one that only equals the last is not better.
                if scores[x] > lowest:
                    item = block * BLOCK + x
                    taken = take_place(out_items, out_scores, unit * n, taken, n, scores[x], item)
                    if taken == n:
                        lowest = np.float32(out_scores[unit * n + n - 1])
        lengths[unit] = taken
