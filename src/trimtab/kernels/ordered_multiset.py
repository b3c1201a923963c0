"""An ordered multiset of (key, id) with integer weights, kept in sorted blocks.

The order is key ascending, then id *descending*, the ranking order of `top_k` reversed: item `i` at
score `b` has passed (key, id) if `b > key`, or `b == key` and `i < id`. The entries it has passed
are therefore always the first ones. A negative weight removes; an entry of weight 0 disappears.

A search is a binary search over the blocks and one inside a block; adding an entry moves at most
the entries of one block. Helpers take `unpack_multiset(pack(multiset))`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, kernel, pack, unpacker

BLOCK = 256  # entries
_N_BLOCKS = 0
_N_FREE = 1


class OrderedMultiset(NamedTuple):
    """Entries of block `c` start at `c * BLOCK`; `order` lists the blocks in ascending order."""

    keys: Floats
    ids: Codes
    weights: Ints
    lengths: Codes
    sums: Ints
    order: Codes
    lowest_keys: Floats  # by position in `order`: no entry of the block comes before this one
    lowest_ids: Codes
    free: Codes
    counts: Ints  # blocks in use, blocks free


unpack_multiset = unpacker(OrderedMultiset)


def make_multiset(max_entries: int) -> OrderedMultiset:
    """An empty multiset with room for `max_entries` different (key, id)."""
    # Merging neighbors leaves blocks more than 3/8 full on average, so this never runs out.
    n = 4 * (max_entries // BLOCK + 1) + 8
    # Block 0 is in use, and empty.
    return OrderedMultiset(
        keys=np.empty(n * BLOCK, np.float64),
        ids=np.empty(n * BLOCK, np.int32),
        weights=np.empty(n * BLOCK, np.int64),
        lengths=np.zeros(n, np.int32),
        sums=np.zeros(n, np.int64),
        order=np.zeros(n, np.int32),
        lowest_keys=np.full(n, -np.inf),
        lowest_ids=np.full(n, np.iinfo(np.int32).max, np.int32),
        free=np.arange(n - 1, -1, -1, dtype=np.int32),
        counts=np.array([1, n - 1], np.int64),
    )


@helper
def _comes_before(key_a, id_a, key_b, id_b):
    return key_a < key_b or (key_a == key_b and id_a > id_b)


@helper
def find_block(multiset, key, item):
    """Position in `order` of the block where (key, item) is or would be."""
    low = 0
    high = multiset.counts[_N_BLOCKS]
    while high - low > 1:
        middle = (low + high) >> 1
        if _comes_before(key, item, multiset.lowest_keys[middle], multiset.lowest_ids[middle]):
            high = middle
        else:
            low = middle
    return low


@helper
def find_entry(multiset, block, key, item):
    """Index of the first entry of the block that does not come before (key, item)."""
    low = block * BLOCK
    high = low + multiset.lengths[block]
    while low < high:
        middle = (low + high) >> 1
        if _comes_before(multiset.keys[middle], multiset.ids[middle], key, item):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _remove_block(multiset, position):
    n = multiset.counts[_N_BLOCKS]
    multiset.free[multiset.counts[_N_FREE]] = multiset.order[position]
    multiset.counts[_N_FREE] += 1
    for p in range(position, n - 1):
        multiset.order[p] = multiset.order[p + 1]
        multiset.lowest_keys[p] = multiset.lowest_keys[p + 1]
        multiset.lowest_ids[p] = multiset.lowest_ids[p + 1]
    multiset.counts[_N_BLOCKS] = n - 1
    multiset.lowest_keys[0] = -np.inf
    multiset.lowest_ids[0] = np.iinfo(np.int32).max


@helper
def _move_entries(multiset, source, target, count):
    for e in range(count):
        multiset.keys[target + e] = multiset.keys[source + e]
        multiset.ids[target + e] = multiset.ids[source + e]
        multiset.weights[target + e] = multiset.weights[source + e]


@helper
def merge_neighbors(multiset):
    """Merge neighboring blocks that fit into one, to free the others."""
    position = 0
    while position + 1 < multiset.counts[_N_BLOCKS]:
        left = np.int64(multiset.order[position])
        right = np.int64(multiset.order[position + 1])
        n_left = multiset.lengths[left]
        n_right = multiset.lengths[right]
        if n_left + n_right <= BLOCK * 3 // 4:
            _move_entries(multiset, right * BLOCK, left * BLOCK + n_left, n_right)
            multiset.lengths[left] = n_left + n_right
            multiset.sums[left] += multiset.sums[right]
            multiset.lengths[right] = 0
            multiset.sums[right] = 0
            _remove_block(multiset, position + 1)
        else:
            position += 1


@helper
def _split_block(multiset, position):
    """Move the upper half of a full block into a new block after it."""
    left = np.int64(multiset.order[position])
    multiset.counts[_N_FREE] -= 1
    right = np.int64(multiset.free[multiset.counts[_N_FREE]])
    n = multiset.counts[_N_BLOCKS]
    half = BLOCK // 2
    _move_entries(multiset, left * BLOCK + half, right * BLOCK, BLOCK - half)
    moved = np.int64(0)
    for e in range(right * BLOCK, right * BLOCK + BLOCK - half):
        moved += multiset.weights[e]
    multiset.lengths[left] = half
    multiset.lengths[right] = BLOCK - half
    multiset.sums[left] -= moved
    multiset.sums[right] = moved
    for p in range(n, position + 1, -1):
        multiset.order[p] = multiset.order[p - 1]
        multiset.lowest_keys[p] = multiset.lowest_keys[p - 1]
        multiset.lowest_ids[p] = multiset.lowest_ids[p - 1]
    multiset.order[position + 1] = right
    multiset.lowest_keys[position + 1] = multiset.keys[right * BLOCK]
    multiset.lowest_ids[position + 1] = multiset.ids[right * BLOCK]
    multiset.counts[_N_BLOCKS] = n + 1


@helper
def add_weight(multiset, key, item, weight):
    """Add `weight` to the entry (key, item); creates or removes the entry as needed."""
    position = find_block(multiset, key, item)
    block = np.int64(multiset.order[position])
    e = find_entry(multiset, block, key, item)
    end = block * BLOCK + multiset.lengths[block]
    if e < end and multiset.keys[e] == key and multiset.ids[e] == item:
        multiset.weights[e] += weight
        multiset.sums[block] += weight
        if multiset.weights[e] == 0:
            for x in range(e, end - 1):
                multiset.keys[x] = multiset.keys[x + 1]
                multiset.ids[x] = multiset.ids[x + 1]
                multiset.weights[x] = multiset.weights[x + 1]
            multiset.lengths[block] -= 1
            if multiset.lengths[block] == 0 and multiset.counts[_N_BLOCKS] > 1:
                _remove_block(multiset, position)
        return
    if multiset.lengths[block] == BLOCK:
        if multiset.counts[_N_FREE] == 0:
            merge_neighbors(multiset)
            position = find_block(multiset, key, item)
        _split_block(multiset, position)
        position = find_block(multiset, key, item)
        block = np.int64(multiset.order[position])
        e = find_entry(multiset, block, key, item)
        end = block * BLOCK + multiset.lengths[block]
    for x in range(end, e, -1):
        multiset.keys[x] = multiset.keys[x - 1]
        multiset.ids[x] = multiset.ids[x - 1]
        multiset.weights[x] = multiset.weights[x - 1]
    multiset.keys[e] = key
    multiset.ids[e] = item
    multiset.weights[e] = weight
    multiset.lengths[block] += 1
    multiset.sums[block] += weight


@helper
def passed_weight(multiset, key, item):
    """Sum of the weights of the entries that `item` at score `key` has passed."""
    position = find_block(multiset, key, item)
    total = np.int64(0)
    for p in range(position):
        total += multiset.sums[multiset.order[p]]
    block = np.int64(multiset.order[position])
    for e in range(block * BLOCK, find_entry(multiset, block, key, item)):
        total += multiset.weights[e]
    return total


@helper
def first_key_over(multiset, budget):
    """The first key where the sum of weights exceeds `budget`; inf if it never does."""
    total = np.int64(0)
    for p in range(multiset.counts[_N_BLOCKS]):
        block = np.int64(multiset.order[p])
        if total + multiset.sums[block] > budget:
            for e in range(block * BLOCK, block * BLOCK + multiset.lengths[block]):
                total += multiset.weights[e]
                if total > budget:
                    return multiset.keys[e]
        else:
            total += multiset.sums[block]
    return np.inf


@kernel
def _add_weights(packed, keys, items, weights):
    multiset = unpack_multiset(packed)
    for e in range(len(keys)):
        add_weight(multiset, keys[e], np.int64(items[e]), weights[e])


@kernel
def _passed_weights(packed, keys, items, sums):
    multiset = unpack_multiset(packed)
    for e in range(len(keys)):
        sums[e] = passed_weight(multiset, keys[e], np.int64(items[e]))


def add_weights(multiset: OrderedMultiset, keys: Floats, items: Ints, weights: Ints) -> None:
    """Add many weights, one after the other."""
    _add_weights(pack(multiset), keys, items, weights)


def passed_weights(multiset: OrderedMultiset, keys: Floats, items: Ints) -> Ints:
    """Sums of the weights that many (key, item) have passed."""
    sums = np.empty(len(keys), np.int64)
    _passed_weights(pack(multiset), keys, items, sums)
    return sums
