"""Callers' vectors, a row each: checked, rounded to float32, multiplied; in bounded memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Floats, Ints, Singles
from trimtab.errors import DataError

_ROWS = 2**16  # rounded at a time
_USERS, _ITEMS = 2**9, 2**13  # multiplied at a time: 32 MB of products


def read_vectors(name: str, vectors: Any) -> NDArray[Any]:
    """An array of real numbers with a row a vector, not copied; refuse anything else."""
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read as an array ({error}); pass a 2-d one") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} holds {array.dtype}: it must be real numbers; cast the array")
    if array.ndim != 2:
        raise DataError(
            f"{name} has shape {array.shape}: it must be 2-d, a row a vector; pass "
            f"vector[None, :] for a single one"
        )
    return array


def fill_singles(name: str, out: Singles, given: NDArray[Any], rows: Ints, factors: Floats) -> None:
    """The given rows times their factors as float32, rounded once; refuse what is not finite."""
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        block = out[start : start + len(part)]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:] = given[part] * factors[part, None]
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, place = part[bad[0, 0]], bad[0, 1]
            raise DataError(
                f"{name} has {given[row, place]} in row {row} (from 0), {block[tuple(bad[0])]} as "
                f"the float32 to serve: it must be finite; mend or scale the vectors"
            )


def lowest_product(users: Singles, items: Singles) -> tuple[float, int, int]:
    """The lowest product, in float64, and the rows it is of; in blocks, in bounded memory."""
    lowest = (math.inf, -1, -1)
    for first in range(0, len(users), _USERS):
        block = users[first : first + _USERS].astype(np.float64)
        for start in range(0, len(items), _ITEMS):
            products = block @ items[start : start + _ITEMS].astype(np.float64).T
            user, item = np.unravel_index(products.argmin(), products.shape)
            found = (float(products[user, item]), first + int(user), start + int(item))
            lowest = min(lowest, found)
    return lowest
