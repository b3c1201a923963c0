"""What the levels of the hierarchy say of every list entry, and how many hits a list has.

`values` are by [table, item]; each unit has its table.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernels.compiling import kernel


@kernel
def add_level(start, stop, indptr, items, scores, table_of, values, length, out):
    """Write the scores of a range of units plus `length` times a level.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list.
        items: items of the lists, as numbered in `values`.
        scores: of the lists.
        table_of: table of each unit.
        values: the level by [table, item].
        length: of the level.
        out: scores with the level, by entry; filled, and may be `scores` itself.
    """
    for unit in range(start, stop):
        own = values[table_of[unit]]
        for e in range(indptr[unit], indptr[unit + 1]):
            out[e] = scores[e] + length * own[items[e]]


@kernel
def take_level(start, stop, indptr, items, chosen, table_of, values, factor, out):
    """Write a level times `factor` for the chosen units of a range, and leave the others alone.

    Args:
        start: first unit.
        stop: one past the last.
        indptr: start of each unit's list.
        items: items of the lists, as numbered in `values`.
        chosen: whether to write a unit.
        table_of: table of each unit.
        values: the level by [table, item].
        factor: of all values.
        out: by entry; filled for the chosen units.
    """
    for unit in range(start, stop):
        if chosen[unit]:
            own = values[table_of[unit]]
            for e in range(indptr[unit], indptr[unit + 1]):
                out[e] = own[items[e]] * factor


@kernel
def count_hits(start, stop, indptr, hits, counts):
    """Count the entries of each list with a hit."""
    for unit in range(start, stop):
        n = np.int64(0)
        for e in range(indptr[unit], indptr[unit + 1]):
            n += hits[e] > 0
        counts[unit] = n
