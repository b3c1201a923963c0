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


class Sets(NamedTuple):
    """One set of items per unit, in CSR form: what the unit bought, each item once."""

    indptr: Ints
    items: Codes

    @property
    def n_units(self) -> int:
        """Number of units, those with an empty set included."""
        return len(self.indptr) - 1
