"""Numbers as timestamps: the time since 1970, in a unit that their size tells.

The units differ by a factor of 1000, so a number between 1980 and 2100 in one of them is in 1970
or after the year 11,000 in all others. Days written as numbers, like 20260301, are in none of them.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import DataError

_FIRST, _END = 315_532_800, 4_102_444_800  # the years 1980 and 2100, in seconds since 1970
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_STORED = pa.timestamp("us", tz="UTC")


def is_epoch_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type can hold the time since 1970."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def parse_epochs(column: pa.ChunkedArray, table: str, name: str) -> pa.ChunkedArray:
    """Return seconds, milliseconds, microseconds or nanoseconds since 1970 as instants of UTC.

    Args:
        column: integers or floats, all in the same unit.
        table: table to name in errors.
        name: column to name in errors.
    """
    if len(column) == column.null_count:
        return pa.chunked_array([pa.nulls(len(column), _STORED)])
    low, high = _bounds(column)
    for unit, per_second in _PER_SECOND.items():
        if _FIRST * per_second <= low and high < _END * per_second:
            if pa.types.is_integer(column.type):
                return column.cast(pa.int64()).cast(pa.timestamp(unit, tz="UTC"))
            return _round_floats(column, per_second)
    raise DataError(
        f"column '{name}' of {table} holds {column.type} from {low} to {high}, which are "
        f"not times between 1980 and 2100 in one unit: write seconds, milliseconds or "
        f"microseconds since 1970 (UTC), or ISO text like 2026-03-01 10:00:00"
    )


def _bounds(column: pa.ChunkedArray) -> tuple[float, float]:
    """Return the smallest and the largest number; nan for both if any is nan."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return math.nan, math.nan
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]


def _round_floats(column: pa.ChunkedArray, per_second: int) -> pa.ChunkedArray:
    """Return fractions of the unit, to the nearest microsecond."""
    scaled = pc.multiply(column.cast(pa.float64()), pa.scalar(1e6 / per_second))
    return pc.round(scaled).cast(pa.int64()).cast(_STORED)
