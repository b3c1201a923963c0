"""Check vectors, round them to float32 and multiply them, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Floats, Ints, Singles
from trimtab.errors import DataError

_ROWS_PER_BLOCK = 2**16
_USERS_PER_BLOCK, _ITEMS_PER_BLOCK = 2**9, 2**13  # 32 MB of products


def read_vectors(name: str, vectors: Any) -> NDArray[Any]:
    """Return a 2-d array of real numbers, not copied; raise for anything else."""
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read ({error}); pass a 2-d array") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} holds {array.dtype}: it must be real numbers; cast the array")
    if array.ndim != 2:
        raise DataError(
            f"{name} has shape {array.shape}: it must be 2-d, one row per vector; pass "
            f"vector[None, :] for a single vector"
        )
    return array


def fill_singles(name: str, out: Singles, given: NDArray[Any], rows: Ints, factors: Floats) -> None:
    """Fill `out` with the given rows times their factors, rounded once; raise if not finite."""
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        part = rows[start : start + _ROWS_PER_BLOCK]
        block = out[start : start + len(part)]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:] = given[part] * factors[part, None]
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, place = part[bad[0, 0]], bad[0, 1]
            raise DataError(
                f"{name} has {given[row, place]} in row {row} (from 0), which becomes "
                f"{block[tuple(bad[0])]} in float32: it must be finite; fix or scale the vectors"
            )


def count_not_negative(users: Singles, items: Singles, enough: int) -> Ints:
    """Return how many products of each user, in float64, are at least 0.

    A user's items are counted only until there are enough: the first block of items mostly is.
    """
    counts = np.zeros(len(users), np.int64)
    for start in range(0, len(items), _ITEMS_PER_BLOCK):
        block = items[start : start + _ITEMS_PER_BLOCK].astype(np.float64).T
        left = np.flatnonzero(counts < enough)
        for first in range(0, len(left), _USERS_PER_BLOCK):
            some = left[first : first + _USERS_PER_BLOCK]
            products = users[some].astype(np.float64) @ block
            counts[some] += np.count_nonzero(products >= 0, axis=1)
    return counts
