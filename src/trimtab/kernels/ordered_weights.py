"""Whole-number weights at keys in ascending order, kept in sorted blocks.

A search is a binary search over the blocks and one inside a block; adding a key moves at most the
entries of one block. A full block is split; when no block is left, all entries are spread anew. A
negative weight removes; entries of weight 0 vanish.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Ints
from trimtab.kernels.compiling import bare_helper

BLOCK = 256  # entries
_HALF = BLOCK // 2
_ENTRY = np.dtype([("key", np.float64), ("weight", np.int64)])
# Where the entries of a block start, how many there are, and their sum; none has a key below `low`.
_BLOCK_INFO = np.dtype(
    [("low", np.float64), ("first", np.int64), ("length", np.int64), ("sum", np.int64)]
)


class OrderedWeights(NamedTuple):
    """Weights by key; blocks are in ascending order, and the first one starts at entry 0."""

    entries: Any  # of _ENTRY
    blocks: Any  # of _BLOCK_INFO
    n_blocks: Ints  # one number
    spare: Any  # room for all entries


def make_weights(max_entries: int) -> OrderedWeights:
    """No weights yet, and room for `max_entries` different keys."""
    # Spreading leaves blocks half full, so this makes room for as many entries again.
    n = 4 * (max_entries // BLOCK + 1) + 8
    weights = OrderedWeights(
        entries=np.zeros(n * BLOCK, _ENTRY),
        blocks=np.zeros(n, _BLOCK_INFO),
        n_blocks=np.ones(1, np.int64),
        spare=np.zeros(n * BLOCK, _ENTRY),
    )
    weights.blocks[0] = (-np.inf, 0, 0, 0)
    return weights


@bare_helper
def _find_place(weights, key):
    """The block and the entry where a key is or would be."""
    low = 0
    high = weights.n_blocks[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if key < weights.blocks[middle].low:
            high = middle
        else:
            low = middle
    block = low
    low = weights.blocks[block].first
    high = low + weights.blocks[block].length
    while low < high:
        middle = (low + high) >> 1
        if weights.entries[middle].key < key:
            low = middle + 1
        else:
            high = middle
    return block, low


@bare_helper
def _fill_block(weights, block, first, source, start, length):
    """Copy some entries of a source to entry `first` and after, and describe them as a block."""
    total = np.int64(0)
    for x in range(length):
        weights.entries[first + x] = source[start + x]
        total += source[start + x].weight
    info = weights.blocks[block]
    info.low = source[start].key if block > 0 else -np.inf
    info.first = first
    info.length = length
    info.sum = total


@bare_helper
def _spread(weights):
    """Spread all entries over half-full blocks, to free the others."""
    n = np.int64(0)
    for block in range(weights.n_blocks[0]):
        info = weights.blocks[block]
        for e in range(info.first, info.first + info.length):
            weights.spare[n] = weights.entries[e]
            n += 1
    n_blocks = max(1, (n + _HALF - 1) // _HALF)
    for block in range(n_blocks):
        start = block * _HALF
        _fill_block(weights, block, block * BLOCK, weights.spare, start, min(_HALF, n - start))
    weights.n_blocks[0] = n_blocks


@bare_helper
def _split_block(weights, block):
    """Move the upper half of a full block into a new block after it."""
    n_blocks = weights.n_blocks[0]
    for b in range(n_blocks, block + 1, -1):
        weights.blocks[b] = weights.blocks[b - 1]
    info = weights.blocks[block]
    start = info.first + _HALF
    _fill_block(weights, block + 1, n_blocks * BLOCK, weights.entries, start, _HALF)
    info.length = _HALF
    info.sum -= weights.blocks[block + 1].sum
    weights.n_blocks[0] = n_blocks + 1


@bare_helper
def add_weight(weights, key, weight):
    """Add a weight at a key; creates or removes the entry as needed."""
    block, e = _find_place(weights, key)
    if weights.blocks[block].length == BLOCK:
        if weights.n_blocks[0] == len(weights.blocks):
            _spread(weights)
        else:
            _split_block(weights, block)
        block, e = _find_place(weights, key)
    info = weights.blocks[block]
    entries = weights.entries
    end = info.first + info.length
    info.sum += weight
    if e < end and entries[e].key == key:
        entries[e].weight += weight
        if entries[e].weight == 0:
            for x in range(e, end - 1):
                entries[x] = entries[x + 1]
            info.length -= 1
        return
    for x in range(end, e, -1):
        entries[x] = entries[x - 1]
    entries[e].key = key
    entries[e].weight = weight
    info.length += 1


@bare_helper
def skip_below(weights, block, e, key):
    """The weights from entry `e` of a block up to `key`, and the block and entry where they end.

    At the end of all entries, the block is the number of blocks.
    """
    total = np.int64(0)
    n_blocks = weights.n_blocks[0]
    while block < n_blocks:
        info = weights.blocks[block]
        if e == info.first and block + 1 < n_blocks and weights.blocks[block + 1].low < key:
            total += info.sum
        else:
            end = info.first + info.length
            while e < end and weights.entries[e].key < key:
                total += weights.entries[e].weight
                e += 1
            if e < end:
                break
        block += 1
        if block < n_blocks:
            e = weights.blocks[block].first
    return total, block, e


@bare_helper
def first_key_over(weights, budget):
    """The first key where the sum of weights exceeds `budget`; inf if it never does."""
    total = np.int64(0)
    for block in range(weights.n_blocks[0]):
        info = weights.blocks[block]
        if total + info.sum > budget:
            for e in range(info.first, info.first + info.length):
                total += weights.entries[e].weight
                if total > budget:
                    return weights.entries[e].key
        total += info.sum
    return np.inf
