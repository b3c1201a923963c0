"""Sorts short arrays inside kernels.

NumPy's own sort and partition would take seconds to compile, and cannot sort pairs.
"""

from __future__ import annotations

from trimtab.kernels.compiling import helper

STACK = 128  # length of the stack that `sort_curve` needs
_SHORT = 24  # ranges up to this length are sorted by insertion


@helper
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
            # The pivot is the median of three; the longer side goes on the stack.
            middle = (low + high) >> 1
            x = values[low]
            y = values[middle]
            z = values[high]
            pivot = max(min(x, y), min(max(x, y), z))
            i = low
            j = high
            while i <= j:
                while values[i] < pivot:
                    i += 1
                while values[j] > pivot:
                    j -= 1
                if i <= j:
                    v = values[i]
                    values[i] = values[j]
                    values[j] = v
                    d = deltas[i]
                    deltas[i] = deltas[j]
                    deltas[j] = d
                    i += 1
                    j -= 1
            if j - low > high - i:
                stack[2 * depth] = low
                stack[2 * depth + 1] = j
                low = i
            else:
                stack[2 * depth] = i
                stack[2 * depth + 1] = high
                high = j
            depth += 1
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


@helper
def nth_smallest(values, place):
    """The value at a place (from 0) of the sorted values, none of them nan; `values` stay as is."""
    kept = values.copy()
    low = 0
    high = len(kept) - 1
    while low < high:
        middle = (low + high) >> 1
        x = kept[low]
        y = kept[middle]
        z = kept[high]
        pivot = max(min(x, y), min(max(x, y), z))
        i = low
        j = high
        while i <= j:
            while kept[i] < pivot:
                i += 1
            while kept[j] > pivot:
                j -= 1
            if i <= j:
                v = kept[i]
                kept[i] = kept[j]
                kept[j] = v
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return kept[place]
