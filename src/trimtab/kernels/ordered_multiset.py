"""An ordered multiset of (key, id) with integer weights, kept in sorted blocks.

The order is key ascending, then id *descending*: an item `i` that is in everybody's list at score
`b` has passed (key, id) when `b > key`, or `b == key` and `i < id`. So what it has passed is
always a prefix. Adding a negative weight removes; an entry whose weight falls to 0 disappears.

Finding is a binary search over the blocks and one inside a block; adding moves at most one
block's entries. Helpers take `unpack_blocks(pack(blocks))`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.kernels.compiling import helper, kernel, pack, unpacker

BLOCK = 256
_N_BLOCKS = 0
_N_FREE = 1


class OrderedMultiset(NamedTuple):
    """Entries of block `c` are at `c * BLOCK`; `order` lists the blocks by rising `floor`."""

    keys: Floats
    ids: Codes
    weights: Ints
    lengths: Codes
    sums: Ints
    order: Codes
    floor_keys: Floats  # no entry of the block in this place of `order` comes before the floor
    floor_ids: Codes
    free: Codes
    counts: Ints  # blocks in use, blocks free


unpack_blocks = unpacker(OrderedMultiset)


def make_multiset(max_entries: int) -> OrderedMultiset:
    """An empty multiset with room for `max_entries` different (key, id)."""
    # Merging neighbours leaves blocks more than 3/8 full on average, so this never runs out.
    n = 4 * (max_entries // BLOCK + 1) + 8
    # Block 0 is in use, and empty.
    return OrderedMultiset(
        keys=np.empty(n * BLOCK, np.float64),
        ids=np.empty(n * BLOCK, np.int32),
        weights=np.empty(n * BLOCK, np.int64),
        lengths=np.zeros(n, np.int32),
        sums=np.zeros(n, np.int64),
        order=np.zeros(n, np.int32),
        floor_keys=np.full(n, -np.inf),
        floor_ids=np.full(n, np.iinfo(np.int32).max, np.int32),
        free=np.arange(n - 1, -1, -1, dtype=np.int32),
        counts=np.array([1, n - 1], np.int64),
    )


def fill_multiset(keys: Floats, weights: Ints) -> OrderedMultiset:
    """A multiset to read from, of ascending keys, each once; all ids are 0."""
    blocks = make_multiset(len(keys))
    n_blocks = max(1, -(-len(keys) // BLOCK))
    starts = np.arange(0, len(keys), BLOCK)
    blocks.keys[: len(keys)] = keys
    blocks.ids[: len(keys)] = 0
    blocks.weights[: len(keys)] = weights
    blocks.lengths[: len(starts)] = np.diff(np.append(starts, len(keys)))
    blocks.sums[: len(starts)] = np.add.reduceat(weights, starts) if len(starts) else 0
    blocks.order[:n_blocks] = np.arange(n_blocks)
    blocks.floor_keys[1:n_blocks] = keys[starts[1:]]
    blocks.floor_ids[1:n_blocks] = 0
    blocks.counts[:] = n_blocks, len(blocks.free) - n_blocks
    return blocks


def read_multiset(blocks: OrderedMultiset) -> tuple[Floats, Ints]:
    """The keys of a multiset, ascending, each once, and the sums of their weights."""
    order = blocks.order[: blocks.counts[_N_BLOCKS]].astype(np.int64)
    inside = np.arange(BLOCK) < blocks.lengths[order][:, None]
    places = (order[:, None] * BLOCK + np.arange(BLOCK))[inside]
    return sum_by_key(blocks.keys[places], blocks.weights[places])


def sum_by_key(keys: Floats, weights: Ints) -> tuple[Floats, Ints]:
    """Different keys, ascending, and the sums of their weights."""
    by_key = np.argsort(keys, kind="stable")
    keys, weights = keys[by_key], weights[by_key]
    starts = np.flatnonzero(np.diff(keys, prepend=-np.inf))
    return keys[starts], np.add.reduceat(weights, starts) if len(starts) else weights


@helper
def _comes_before(key_a, id_a, key_b, id_b):
    return key_a < key_b or (key_a == key_b and id_a > id_b)


@helper
def find_block(blocks, key, item):
    """Place in `order` of the block where (key, item) is or would be."""
    low = 0
    high = blocks.counts[_N_BLOCKS]
    while high - low > 1:
        middle = (low + high) >> 1
        if _comes_before(key, item, blocks.floor_keys[middle], blocks.floor_ids[middle]):
            high = middle
        else:
            low = middle
    return low


@helper
def find_entry(blocks, block, key, item):
    """Index of the first entry of the block that does not come before (key, item)."""
    low = block * BLOCK
    high = low + blocks.lengths[block]
    while low < high:
        middle = (low + high) >> 1
        if _comes_before(blocks.keys[middle], blocks.ids[middle], key, item):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _drop_place(blocks, place):
    n = blocks.counts[_N_BLOCKS]
    blocks.free[blocks.counts[_N_FREE]] = blocks.order[place]
    blocks.counts[_N_FREE] += 1
    for p in range(place, n - 1):
        blocks.order[p] = blocks.order[p + 1]
        blocks.floor_keys[p] = blocks.floor_keys[p + 1]
        blocks.floor_ids[p] = blocks.floor_ids[p + 1]
    blocks.counts[_N_BLOCKS] = n - 1
    blocks.floor_keys[0] = -np.inf
    blocks.floor_ids[0] = np.iinfo(np.int32).max


@helper
def _move_entries(blocks, source, target, count):
    for e in range(count):
        blocks.keys[target + e] = blocks.keys[source + e]
        blocks.ids[target + e] = blocks.ids[source + e]
        blocks.weights[target + e] = blocks.weights[source + e]


@helper
def merge_neighbours(blocks):
    """Merge blocks that fit together, so that some become free again."""
    place = 0
    while place + 1 < blocks.counts[_N_BLOCKS]:
        left = np.int64(blocks.order[place])
        right = np.int64(blocks.order[place + 1])
        n_left = blocks.lengths[left]
        n_right = blocks.lengths[right]
        if n_left + n_right <= BLOCK * 3 // 4:
            _move_entries(blocks, right * BLOCK, left * BLOCK + n_left, n_right)
            blocks.lengths[left] = n_left + n_right
            blocks.sums[left] += blocks.sums[right]
            blocks.lengths[right] = 0
            blocks.sums[right] = 0
            _drop_place(blocks, place + 1)
        else:
            place += 1


@helper
def _split(blocks, place):
    """Move the upper half of a full block into a new one behind it."""
    left = np.int64(blocks.order[place])
    blocks.counts[_N_FREE] -= 1
    right = np.int64(blocks.free[blocks.counts[_N_FREE]])
    n = blocks.counts[_N_BLOCKS]
    half = BLOCK // 2
    _move_entries(blocks, left * BLOCK + half, right * BLOCK, BLOCK - half)
    moved = np.int64(0)
    for e in range(right * BLOCK, right * BLOCK + BLOCK - half):
        moved += blocks.weights[e]
    blocks.lengths[left] = half
    blocks.lengths[right] = BLOCK - half
    blocks.sums[left] -= moved
    blocks.sums[right] = moved
    for p in range(n, place + 1, -1):
        blocks.order[p] = blocks.order[p - 1]
        blocks.floor_keys[p] = blocks.floor_keys[p - 1]
        blocks.floor_ids[p] = blocks.floor_ids[p - 1]
    blocks.order[place + 1] = right
    blocks.floor_keys[place + 1] = blocks.keys[right * BLOCK]
    blocks.floor_ids[place + 1] = blocks.ids[right * BLOCK]
    blocks.counts[_N_BLOCKS] = n + 1


@helper
def add_weight(blocks, key, item, weight):
    """Add `weight` to the entry (key, item), which comes into being or vanishes as needed."""
    place = find_block(blocks, key, item)
    block = np.int64(blocks.order[place])
    e = find_entry(blocks, block, key, item)
    end = block * BLOCK + blocks.lengths[block]
    if e < end and blocks.keys[e] == key and blocks.ids[e] == item:
        blocks.weights[e] += weight
        blocks.sums[block] += weight
        if blocks.weights[e] == 0:
            for x in range(e, end - 1):
                blocks.keys[x] = blocks.keys[x + 1]
                blocks.ids[x] = blocks.ids[x + 1]
                blocks.weights[x] = blocks.weights[x + 1]
            blocks.lengths[block] -= 1
            if blocks.lengths[block] == 0 and blocks.counts[_N_BLOCKS] > 1:
                _drop_place(blocks, place)
        return
    if blocks.lengths[block] == BLOCK:
        if blocks.counts[_N_FREE] == 0:
            merge_neighbours(blocks)
            place = find_block(blocks, key, item)
        _split(blocks, place)
        place = find_block(blocks, key, item)
        block = np.int64(blocks.order[place])
        e = find_entry(blocks, block, key, item)
        end = block * BLOCK + blocks.lengths[block]
    for x in range(end, e, -1):
        blocks.keys[x] = blocks.keys[x - 1]
        blocks.ids[x] = blocks.ids[x - 1]
        blocks.weights[x] = blocks.weights[x - 1]
    blocks.keys[e] = key
    blocks.ids[e] = item
    blocks.weights[e] = weight
    blocks.lengths[block] += 1
    blocks.sums[block] += weight


@helper
def passed_weight(blocks, key, item):
    """Sum of the weights that `item`, in everybody's list at score `key`, has passed."""
    place = find_block(blocks, key, item)
    total = np.int64(0)
    for p in range(place):
        total += blocks.sums[blocks.order[p]]
    block = np.int64(blocks.order[place])
    for e in range(block * BLOCK, find_entry(blocks, block, key, item)):
        total += blocks.weights[e]
    return total


@helper
def reach(blocks, budget):
    """The first key at which the sum of the weights up to it exceeds `budget`; inf if none."""
    total = np.int64(0)
    for p in range(blocks.counts[_N_BLOCKS]):
        block = np.int64(blocks.order[p])
        if total + blocks.sums[block] > budget:
            for e in range(block * BLOCK, block * BLOCK + blocks.lengths[block]):
                total += blocks.weights[e]
                if total > budget:
                    return blocks.keys[e]
        else:
            total += blocks.sums[block]
    return np.inf


@kernel
def _add_weights(packed, keys, items, weights):
    blocks = unpack_blocks(packed)
    for e in range(len(keys)):
        add_weight(blocks, keys[e], np.int64(items[e]), weights[e])


@kernel
def _passed_weights(packed, keys, items, sums):
    blocks = unpack_blocks(packed)
    for e in range(len(keys)):
        sums[e] = passed_weight(blocks, keys[e], np.int64(items[e]))


def add_weights(blocks: OrderedMultiset, keys: Floats, items: Ints, weights: Ints) -> None:
    """Add many weights, one after the other."""
    _add_weights(pack(blocks), keys, items, weights)


def passed_weights(blocks: OrderedMultiset, keys: Floats, items: Ints) -> Ints:
    """Sums of the weights passed, for many (key, item)."""
    sums = np.empty(len(keys), np.int64)
    _passed_weights(pack(blocks), keys, items, sums)
    return sums
