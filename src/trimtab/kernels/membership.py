"""Whether part of an array holds an item, and where."""

from __future__ import annotations

from trimtab.kernels.compiling import bare_helper


@bare_helper
def in_range(items, first, end, item):
    """Whether items[first:end], in any order, hold the item.

    Without a way out of the loop, it compiles to vector instructions.
    """
    found = False
    for e in range(first, end):
        found |= items[e] == item
    return found


@bare_helper
def first_not_below(items, first, end, item):
    """The first place in items[first:end], in ascending order, whose item is not below an item."""
    low = first
    high = end
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


@bare_helper
def in_ascending_range(items, first, end, item):
    """Whether items[first:end], in ascending order, hold the item."""
    place = first_not_below(items, first, end, item)
    return place < end and items[place] == item
