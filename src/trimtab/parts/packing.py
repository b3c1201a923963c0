"""Values as bytes, to lie in files and to travel between machines; no pickle.

A value is a tuple of named fields whose class is marked `packable`, and holds arrays, Arrow arrays
and tables, plain numbers and text, tuples, lists of plain values, dictionaries, and other such
values.
"""

from __future__ import annotations

import io
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from trimtab.tables.vocabulary import in_one_piece

_KINDS: dict[str, type] = {}
_ARRAY, _ARROW, _TUPLE = "array", "arrow", "tuple"
Kind = TypeVar("Kind", bound=type)


def packable(kind: Kind) -> Kind:
    """Mark a class of named tuples whose values can be packed."""
    _KINDS[kind.__name__] = kind
    return kind


def pack(value: Any) -> bytes:
    """Return a value as bytes."""
    out = io.BytesIO()
    arrays: list[Any] = []
    tree = msgspec.msgpack.encode(_take_apart(value, arrays))
    np.save(out, np.frombuffer(tree, np.uint8), allow_pickle=False)
    for array in arrays:
        np.save(out, array, allow_pickle=False)
    return out.getvalue()


def unpack(data: Any) -> Any:
    """Return the value that was packed."""
    source = io.BytesIO(data)
    tree = msgspec.msgpack.decode(np.load(source, allow_pickle=False).tobytes())
    return _put_together(tree, source)


def _take_apart(value: Any, arrays: list[Any]) -> Any:
    """Return a tree of plain values; arrays are listed in the order in which the tree has them."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: None}
    if isinstance(value, pa.Array | pa.Table):
        arrays.append(np.frombuffer(_to_stream(value), np.uint8))
        return {_ARROW: isinstance(value, pa.Table)}
    if isinstance(value, tuple):
        name = type(value).__name__ if type(value) is not tuple else None
        return {_TUPLE: name, "fields": [_take_apart(field, arrays) for field in value]}
    if isinstance(value, dict):
        return {"keys": list(value), "values": [_take_apart(v, arrays) for v in value.values()]}
    return value.item() if isinstance(value, np.generic) else value


def _put_together(tree: Any, source: io.BytesIO) -> Any:
    if not isinstance(tree, dict):
        return tree
    if _ARRAY in tree:
        return np.load(source, allow_pickle=False)
    if _ARROW in tree:
        table = pa.ipc.open_stream(pa.py_buffer(np.load(source, allow_pickle=False))).read_all()
        return table if tree[_ARROW] else in_one_piece(table.column(0))
    if _TUPLE in tree:
        fields = [_put_together(field, source) for field in tree["fields"]]
        return tuple(fields) if tree[_TUPLE] is None else _KINDS[tree[_TUPLE]](*fields)
    values = [_put_together(value, source) for value in tree["values"]]
    return dict(zip(tree["keys"], values, strict=True))


def _to_stream(values: pa.Array | pa.Table) -> Any:
    table = values if isinstance(values, pa.Table) else pa.table([values], names=["values"])
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return out.getvalue()
