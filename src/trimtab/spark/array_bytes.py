"""Arrays and ids as bytes, to travel between workers and the driver."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

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


def ids_to_bytes(ids: Any) -> bytes:
    """Ids, an array of integers or of Arrow strings."""
    column = pa.array(ids)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("ids", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["ids"]))
    return bytes(out.getvalue())


def ids_from_bytes(data: Any) -> Any:
    """The ids that `ids_to_bytes` wrote."""
    return as_ids(pa.ipc.open_stream(data).read_all().column("ids"))


def as_ids(column: pa.ChunkedArray) -> Any:
    """Ids as coded tables hold them: an array of integers, or Arrow strings."""
    ids = column.combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.chunk(0)
    return np.array(ids) if pa.types.is_integer(ids.type) else ids
