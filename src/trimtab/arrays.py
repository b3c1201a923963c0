"""Lists and sets of items as integer codes, the input of the kernels.

Item codes have the same order as item ids, so comparing codes breaks ties by id. A row (unit) is a
user or a (user, window) pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]

# Where an entry of a wider list comes from; what is trending and the user's own has the sum.
LISTED, TRENDING, OWN = 0, 1, 2


class Lists(NamedTuple):
    """One list of scored items per unit, in CSR form; an item appears at most once in a list."""

    indptr: Ints
    items: Codes
    scores: Floats

    @property
    def n_units(self) -> int:
        """Number of units, including those with an empty list."""
        return len(self.indptr) - 1

    def take(self, chosen: Ints | Codes) -> Lists:
        """Return the lists of the chosen units."""
        indptr, entries = entries_of(self.indptr, chosen)
        return Lists(indptr, self.items[entries], self.scores[entries])


class Sets(NamedTuple):
    """One set of items per unit, in CSR form: the items a unit bought, each once."""

    indptr: Ints
    items: Codes

    @property
    def n_units(self) -> int:
        """Number of units, including those with an empty set."""
        return len(self.indptr) - 1

    def take(self, chosen: Ints | Codes) -> Sets:
        """Return the sets of the chosen units."""
        indptr, entries = entries_of(self.indptr, chosen)
        return Sets(indptr, self.items[entries])


def pointers(codes: Codes | Ints, n: int) -> Ints:
    """Return where the rows of each code begin once rows are grouped by code."""
    return np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))]).astype(np.int64)


def entries_of(indptr: Ints, chosen: Ints | Codes) -> tuple[Ints, Ints]:
    """Return the pointers of the chosen rows once packed, and the current place of each entry.

    -1 chooses an empty row.
    """
    lengths = np.append(np.diff(indptr), 0)[chosen]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends, np.arange(ends[-1]) + np.repeat(indptr[chosen] - ends[:-1], lengths)


def take_entries(indptr: Ints, values: Floats | None, chosen: Ints | Codes) -> Floats | None:
    """Return the values of the entries of the chosen rows; None stays None."""
    return None if values is None else values[entries_of(indptr, chosen)[1]]


def close_lists(items: Codes, scores: Floats, lengths: Ints, n: int) -> Lists:
    """Return lists from rows of n slots with only the first `lengths` filled."""
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    if indptr[-1] == len(items):
        return Lists(indptr, items, scores)
    filled = (np.arange(n) < lengths[:, None]).ravel()
    return Lists(indptr, items[filled], scores[filled])


def read_only(array: Any) -> Any:
    """Return a view that cannot be written to: kernels compile once for these."""
    view = array.view()
    view.flags.writeable = False
    return view


def find_positions(known: Codes | Ints, wanted: Codes | Ints) -> Codes:
    """Return the position in `known` of each wanted code, or -1 if it is not there."""
    size = int(max(known.max(initial=-1), wanted.max(initial=-1))) + 1
    positions = np.full(size, -1, np.int32)
    positions[known] = np.arange(len(known), dtype=np.int32)
    return positions[wanted]


def split_into_blocks(factors: NDArray[Any], block_size: int) -> NDArray[Any]:
    """Return factors of items as blocks x factors x block_size, padded with zeros."""
    n_items, n_factors = factors.shape
    n_blocks = -(-n_items // block_size)
    padded = np.zeros((n_blocks * block_size, n_factors), factors.dtype)
    padded[:n_items] = factors
    return np.ascontiguousarray(padded.reshape(n_blocks, block_size, n_factors).transpose(0, 2, 1))
