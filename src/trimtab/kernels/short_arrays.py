"""Searches and sorts short arrays, or parts of arrays, inside kernels.

NumPy's own sort and partition would take seconds to compile, and cannot sort pairs.
"""

from __future__ import annotations

from trimtab.kernels.compiling import bare_helper, helper

STACK = 128  # length of the stack that sorts need
_SHORT = 24  # ranges up to this length are sorted by insertion


@bare_helper
def _median_of_three(values, low, high):
    """The median of the first, the middle and the last value of a range."""
    x = values[low]
    y = values[(low + high) >> 1]
    z = values[high]
    return max(min(x, y), min(max(x, y), z))


@bare_helper
def _sort_by_insertion(values, deltas, low, high):
    """Sort the (value, delta) from `low` to `high`, inclusive; equal values keep their order."""
    for a in range(low + 1, high + 1):
        v = values[a]
        d = deltas[a]
        b = a - 1
        while b >= low and values[b] > v:
            values[b + 1] = values[b]
            deltas[b + 1] = deltas[b]
            b -= 1
        values[b + 1] = v
        deltas[b + 1] = d


@bare_helper
def bring_forward(values, deltas, low, high, pivot, equal):
    """Bring values below the pivot (or equal to it) to the front; returns the first of the others.

    It swaps at every step instead of branching on what cannot be predicted.
    """
    first = low
    for e in range(low, high + 1):
        v = values[e]
        d = deltas[e]
        values[e] = values[first]
        deltas[e] = deltas[first]
        values[first] = v
        deltas[first] = d
        first += (v < pivot) | (equal & (v == pivot))
    return first


@bare_helper
def sort_curve(values, deltas, n, stack):
    """Sort the first `n` (value, delta) in place, by value ascending; uses `stack`."""
    depth = 1
    stack[0] = 0
    stack[1] = n - 1
    while depth > 0:
        depth -= 1
        low = stack[2 * depth]
        high = stack[2 * depth + 1]
        while high - low > _SHORT:
            pivot = _median_of_three(values, low, high)
            first = bring_forward(values, deltas, low, high, pivot, False)
            if first == low:  # the pivot is the lowest value: its equals are in place now
                low = bring_forward(values, deltas, low, high, pivot, True)
                continue
            if first - low > high + 1 - first:
                stack[2 * depth] = low
                stack[2 * depth + 1] = first - 1
                low = first
            else:
                stack[2 * depth] = first
                stack[2 * depth + 1] = high
                high = first - 1
            depth += 1
        _sort_by_insertion(values, deltas, low, high)


@helper
def nth_smallest(values, place):
    """The value at a place (from 0) of the sorted values, none of them nan; `values` stay as is."""
    kept = values.copy()
    low = 0
    high = len(kept) - 1
    while low < high:
        pivot = _median_of_three(kept, low, high)
        first = bring_forward(kept, kept, low, high, pivot, False)
        if place < first:
            high = first - 1
        else:
            low = bring_forward(kept, kept, first, high, pivot, True)
            if place < low:
                return pivot
    return kept[place]


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
