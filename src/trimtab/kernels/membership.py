"""Whether part of an array holds an item."""

from __future__ import annotations

from trimtab.kernels.compiling import helper


@helper
def in_range(items, first, end, item):
    """Whether items[first:end], in any order, hold the item."""
    for e in range(first, end):
        if items[e] == item:
            return True
    return False


@helper
def in_ascending_range(items, first, end, item):
    """Whether items[first:end], in ascending order, hold the item."""
    low = first
    high = end
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low < end and items[low] == item
