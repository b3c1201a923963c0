"""Tables as integer codes: what kernels work on.

Item codes follow the order of the items' ids, so comparing codes compares ids: that is the
tie-break of the one total order. Rows (units) are users, or (user, window) pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]


class Lists(NamedTuple):
    """One list of scored items per unit, in CSR form; an item appears at most once in a list."""

    indptr: Ints
    items: Codes
    scores: Floats

    @property
    def n_units(self) -> int:
        """Number of units, those with an empty list included."""
        return len(self.indptr) - 1

    def take(self, chosen: Ints) -> Lists:
        """Lists of some of the units."""
        indptr, entries = entries_of(self.indptr, chosen)
        return Lists(indptr, self.items[entries], self.scores[entries])


class Sets(NamedTuple):
    """One set of items per unit, in CSR form: what the unit bought, each item once."""

    indptr: Ints
    items: Codes

    @property
    def n_units(self) -> int:
        """Number of units, those with an empty set included."""
        return len(self.indptr) - 1

    def take(self, chosen: Ints) -> Sets:
        """Sets of some of the units."""
        indptr, entries = entries_of(self.indptr, chosen)
        return Sets(indptr, self.items[entries])


def entries_of(indptr: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Where the entries of chosen rows begin and end when side by side, and where they are now."""
    lengths = np.diff(indptr)[chosen]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends, np.arange(ends[-1]) + np.repeat(indptr[chosen] - ends[:-1], lengths)
