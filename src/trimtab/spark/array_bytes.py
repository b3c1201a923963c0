"""Arrays as bytes, to travel between workers and the driver."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.learn.partitions.partitioned_units import Arrays


def to_bytes(arrays: Sequence[Any]) -> bytes:
    """Arrays, or numbers, one after the other."""
    out = io.BytesIO()
    for array in arrays:
        np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def from_bytes(data: Any) -> Arrays:
    """The arrays that `to_bytes` wrote."""
    source = io.BytesIO(data)
    end = source.getbuffer().nbytes
    found = []
    while source.tell() < end:
        found.append(np.load(source, allow_pickle=False))
    return found
