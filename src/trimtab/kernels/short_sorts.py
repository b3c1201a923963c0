"""Sorts short columns of (value, delta) inside kernels, where NumPy's sort is out of reach."""

from __future__ import annotations

from trimtab.kernels.compiling import helper

_SHORT = 24


STACK = 128


@helper
def sort_curve(values, deltas, n, stack):
    """Sort the first `n` (value, delta) by value, ascending, in place; `stack` is scratch."""
    depth = 1
    stack[0] = 0
    stack[1] = n - 1
    while depth > 0:
        depth -= 1
        low = stack[2 * depth]
        high = stack[2 * depth + 1]
        while high - low > _SHORT:
            # Median of three as the pivot; the longer side waits on the stack.
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
