"""Whole-number weights at keys in ascending order, kept in sorted blocks.

A search is a binary search over the blocks and one inside a block; adding a key moves at most the
entries of one block. When a block is full, all entries are spread anew over half-full blocks. A
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
# How many entries a block has, and their sum; none has a key below `low`.
_BLOCK_INFO = np.dtype([("low", np.float64), ("length", np.int64), ("sum", np.int64)])


class OrderedWeights(NamedTuple):
    """Weights by key, ascending from block to block and inside each."""

    entries: Any  # of _ENTRY, by [block, place]
    blocks: Any  # of _BLOCK_INFO
    n_blocks: Ints  # one number
    spare: Any  # room for all entries


def make_weights(max_entries: int) -> OrderedWeights:
    """No weights yet, and room for `max_entries` different keys."""
    n = max_entries // _HALF + 2
    weights = OrderedWeights(
        entries=np.zeros((n, BLOCK), _ENTRY),
        blocks=np.zeros(n, _BLOCK_INFO),
        n_blocks=np.ones(1, np.int64),
        spare=np.zeros(n * _HALF, _ENTRY),
    )
    weights.blocks["low"][0] = -np.inf
    return weights


@bare_helper
def _find_place(weights, key):
    """The block and the place in it where a key is or would be."""
    low = 0
    high = weights.n_blocks[0]
    while high - low > 1:
        middle = (low + high) >> 1
        if key < weights.blocks[middle].low:
            high = middle
        else:
            low = middle
    block = low
    low = 0
    high = weights.blocks[block].length
    while low < high:
        middle = (low + high) >> 1
        if weights.entries[block, middle].key < key:
            low = middle + 1
        else:
            high = middle
    return block, low


@bare_helper
def _spread(weights):
    """Spread all entries over half-full blocks."""
    spare = weights.spare
    n = np.int64(0)
    for block in range(weights.n_blocks[0]):
        for e in range(weights.blocks[block].length):
            spare[n] = weights.entries[block, e]
            n += 1
    n_blocks = max(1, (n + _HALF - 1) // _HALF)
    for block in range(n_blocks):
        start = block * _HALF
        info = weights.blocks[block]
        info.low = spare[start].key if block > 0 else -np.inf
        info.length = min(_HALF, n - start)
        info.sum = 0
        for e in range(info.length):
            weights.entries[block, e] = spare[start + e]
            info.sum += spare[start + e].weight
    weights.n_blocks[0] = n_blocks


@bare_helper
def add_weight(weights, key, weight):
    """Add a weight at a key; creates or removes the entry as needed."""
    block, e = _find_place(weights, key)
    if weights.blocks[block].length == BLOCK:
        _spread(weights)
        block, e = _find_place(weights, key)
    info = weights.blocks[block]
    entries = weights.entries[block]
    info.sum += weight
    if e < info.length and entries[e].key == key:
        entries[e].weight += weight
        if entries[e].weight == 0:
            info.length -= 1
            for x in range(e, info.length):
                entries[x] = entries[x + 1]
        return
    for x in range(info.length, e, -1):
        entries[x] = entries[x - 1]
    entries[e].key = key
    entries[e].weight = weight
    info.length += 1


@bare_helper
def skip_below(weights, block, e, key):
    """The weights from place `e` of a block up to `key`, and the block and place where they end.

    At the end of all entries, the block is the number of blocks.
    """
    total = np.int64(0)
    n_blocks = weights.n_blocks[0]
    while block < n_blocks:
        info = weights.blocks[block]
        if e == 0 and block + 1 < n_blocks and weights.blocks[block + 1].low < key:
            total += info.sum
        else:
            while e < info.length and weights.entries[block, e].key < key:
                total += weights.entries[block, e].weight
                e += 1
            if e < info.length:
                break
        block += 1
        e = np.int64(0)
    return total, block, e


@bare_helper
def first_key_over(weights, budget):
    """The first key where the sum of weights exceeds `budget`; inf if it never does."""
    total = np.int64(0)
    for block in range(weights.n_blocks[0]):
        info = weights.blocks[block]
        if total + info.sum > budget:
            for e in range(info.length):
                total += weights.entries[block, e].weight
                if total > budget:
                    return weights.entries[block, e].key
        total += info.sum
    return np.inf
