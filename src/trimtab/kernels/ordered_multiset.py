"""An ordered multiset of (key, item) with integer weights, kept in sorted blocks.

The order is key ascending, then item *descending*, the ranking order of `top_k` reversed: item `i`
at score `b` has passed (key, item) if `b > key`, or `b == key` and `i < item`. The entries it has
passed are therefore always the first ones. A negative weight removes; entries of weight 0 vanish.

A search is a binary search over the blocks and one inside a block; adding an entry moves at most
the entries of one block. A full block is split; when no block is left, all entries are spread anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Ints
from trimtab.kernels.compiling import bare_helper, bare_kernel

BLOCK = 256  # entries
_HALF = BLOCK // 2
_LAST_ITEM = np.iinfo(np.int64).max
ENTRY = np.dtype([("key", np.float64), ("item", np.int64), ("weight", np.int64)])
_BLOCK_INFO = np.dtype(
    # No entry of the block comes before (key, item).
    [("key", np.float64), ("item", np.int64), ("length", np.int64), ("sum", np.int64)]
)


class OrderedMultiset(NamedTuple):
    """Entries of block `c` start at `c * BLOCK`; `order` lists the blocks in ascending order."""

    entries: Any  # of ENTRY
    blocks: Any  # of _BLOCK_INFO
    order: Ints
    n_blocks: Ints  # one number
    spare: Any  # room for all entries


def make_multiset(max_entries: int) -> OrderedMultiset:
    """An empty multiset with room for `max_entries` different (key, item)."""
    # Spreading leaves blocks half full, so this makes room for as many entries again.
    n = 4 * (max_entries // BLOCK + 1) + 8
    multiset = OrderedMultiset(
        entries=np.zeros(n * BLOCK, ENTRY),
        blocks=np.zeros(n, _BLOCK_INFO),
        order=np.zeros(n, np.int64),
        n_blocks=np.ones(1, np.int64),
        spare=np.zeros(n * BLOCK, ENTRY),
    )
    multiset.blocks[0] = (-np.inf, _LAST_ITEM, 0, 0)
    return multiset


@bare_helper
def _comes_before(key_a, item_a, key_b, item_b):
    return key_a < key_b or (key_a == key_b and item_a > item_b)


@bare_helper
def _find_place(multiset, key, item):
    """The position in `order` and the index where (key, item) is or would be."""
    low = 0
    high = multiset.n_blocks[0]
    while high - low > 1:
        middle = (low + high) >> 1
        block = multiset.blocks[multiset.order[middle]]
        if _comes_before(key, item, block.key, block.item):
            high = middle
        else:
            low = middle
    position = low
    low = multiset.order[position] * BLOCK
    high = low + multiset.blocks[multiset.order[position]].length
    while low < high:
        middle = (low + high) >> 1
        entry = multiset.entries[middle]
        if _comes_before(entry.key, entry.item, key, item):
            low = middle + 1
        else:
            high = middle
    return position, low


@bare_helper
def _fill_block(multiset, position, block, entries, first, length):
    """Copy a range of entries into a block and put it at a position of `order`."""
    total = np.int64(0)
    for x in range(length):
        multiset.entries[block * BLOCK + x] = entries[first + x]
        total += entries[first + x].weight
    multiset.order[position] = block
    info = multiset.blocks[block]
    info.key = entries[first].key if position > 0 else -np.inf
    info.item = entries[first].item if position > 0 else _LAST_ITEM
    info.length = length
    info.sum = total


@bare_helper
def _spread(multiset):
    """Spread all entries over half-full blocks, to free the others."""
    entries = multiset.spare
    n = np.int64(0)
    for position in range(multiset.n_blocks[0]):
        block = multiset.order[position]
        for e in range(block * BLOCK, block * BLOCK + multiset.blocks[block].length):
            entries[n] = multiset.entries[e]
            n += 1
    n_blocks = max(1, (n + _HALF - 1) // _HALF)
    for block in range(n_blocks):
        first = block * _HALF
        _fill_block(multiset, block, block, entries, first, min(_HALF, n - first))
    multiset.n_blocks[0] = n_blocks


@bare_helper
def _split_block(multiset, position):
    """Move the upper half of a full block into a new block after it."""
    left = multiset.order[position]
    right = multiset.n_blocks[0]
    for p in range(right, position + 1, -1):
        multiset.order[p] = multiset.order[p - 1]
    _fill_block(multiset, position + 1, right, multiset.entries, left * BLOCK + _HALF, _HALF)
    multiset.blocks[left].length = _HALF
    multiset.blocks[left].sum -= multiset.blocks[right].sum
    multiset.n_blocks[0] = right + 1


@bare_helper
def add_weight(multiset, key, item, weight):
    """Add `weight` to the entry (key, item); creates or removes the entry as needed."""
    position, e = _find_place(multiset, key, item)
    block = multiset.order[position]
    if multiset.blocks[block].length == BLOCK:
        if multiset.n_blocks[0] == len(multiset.order):
            _spread(multiset)
        else:
            _split_block(multiset, position)
        position, e = _find_place(multiset, key, item)
        block = multiset.order[position]
    info = multiset.blocks[block]
    entries = multiset.entries
    end = block * BLOCK + info.length
    info.sum += weight
    if e < end and entries[e].key == key and entries[e].item == item:
        entries[e].weight += weight
        if entries[e].weight == 0:
            for x in range(e, end - 1):
                entries[x] = entries[x + 1]
            info.length -= 1
        return
    for x in range(end, e, -1):
        entries[x] = entries[x - 1]
    entries[e].key = key
    entries[e].item = item
    entries[e].weight = weight
    info.length += 1


@bare_helper
def skip_below(multiset, position, e, key):
    """The weights from entry `e` of the block at `position` up to `key`, and where they end.

    At the end of all entries, the position is the number of blocks.
    """
    total = np.int64(0)
    n_blocks = multiset.n_blocks[0]
    while position < n_blocks:
        block = multiset.order[position]
        end = block * BLOCK + multiset.blocks[block].length
        is_below = (
            e == block * BLOCK
            and position + 1 < n_blocks
            and multiset.blocks[multiset.order[position + 1]].key < key
        )
        if is_below:
            total += multiset.blocks[block].sum
        else:
            while e < end and multiset.entries[e].key < key:
                total += multiset.entries[e].weight
                e += 1
            if e < end:
                break
        position += 1
        if position < n_blocks:
            e = multiset.order[position] * BLOCK
    return total, position, e


@bare_helper
def first_key_over(multiset, budget):
    """The first key where the sum of weights exceeds `budget`; inf if it never does."""
    total = np.int64(0)
    for position in range(multiset.n_blocks[0]):
        block = multiset.order[position]
        info = multiset.blocks[block]
        if total + info.sum > budget:
            for e in range(block * BLOCK, block * BLOCK + info.length):
                total += multiset.entries[e].weight
                if total > budget:
                    return multiset.entries[e].key
        total += info.sum
    return np.inf


@bare_kernel
def add_weights(multiset, keys, items, weights):
    """Add many weights, one after the other."""
    for e in range(len(keys)):
        add_weight(multiset, keys[e], items[e], weights[e])
