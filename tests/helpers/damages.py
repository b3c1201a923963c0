"""Ways to damage JSON, tables and bytes, chosen by hypothesis."""

from __future__ import annotations

import copy
import functools
import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

# JSON values that no file of ours has where they are put. Text between @ is replaced by what
# json.dumps cannot write.
NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 99, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, -1e308,
    5e-324, float("nan"), float("inf"), float("-inf"), "", "\0", "a\0b", "\ud800", "..", "../../x",
    "/etc/passwd", "3", "log", "list", "zero", "é\n" * 3, "x" * 300, [], {}, [None], [[]],
    {"": None}, {"a": {"b": [1]}}, [1, 1], "@inf@", "@digits@", "@list 20@", "@list 40@",
    "@list 700@", "@list 100000@", "@object 50@", "@object 5000@",
)  # fmt: skip
BYTES = st.binary(min_size=1, max_size=8)
WAYS = ("value", "value", "cast", "drop", "add", "repeat", "rows")


def _expand(text: str) -> str:
    """Write what json.dumps cannot: deep nesting, numbers without end."""
    for mark, value in {"@inf@": "1e999", "@digits@": "9" * 5000}.items():
        text = text.replace(f'"{mark}"', value)
    for n in (20, 40, 700, 100_000):
        text = text.replace(f'"@list {n}@"', "[" * n + "]" * n)
    for n in (50, 5000):
        text = text.replace(f'"@object {n}@"', '{"a":' * n + "1" + "}" * n)
    return text


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, own in inner:
        found.append((*path, key))
        if isinstance(own, dict | list):
            found += _places(own, (*path, key))
    return found


def damage_json(data: Any, value: Any) -> bytes:
    """Return a JSON value with one to three values replaced, dropped, moved or repeated."""
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(value)
        if not places:
            break
        *path, last = data.draw(st.sampled_from(places))
        holder = functools.reduce(lambda outer, key: outer[key], path, value)
        how = data.draw(st.sampled_from(("replace", "replace", "drop", "copy", "repeat")))
        if how == "drop":
            del holder[last]
        elif how == "copy":
            *other, key = data.draw(st.sampled_from(places))
            with_other = functools.reduce(lambda outer, name: outer[name], other, value)
            if not (isinstance(with_other, list) and key >= len(with_other)):
                holder[last] = copy.deepcopy(with_other.get(key) if isinstance(with_other, dict)
                                             else with_other[key])  # fmt: skip
        elif how == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        else:
            holder[last] = copy.deepcopy(data.draw(st.sampled_from(NASTY)))
    return _expand(json.dumps(value)).encode()


def damage_bytes(data: Any, content: bytes) -> bytes:
    """Return bytes with one to four of them changed, cut off, put in or taken out."""
    content = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        how = data.draw(st.sampled_from(("flip", "flip", "write", "insert", "cut", "remove")))
        if how == "flip" and content:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "write":
            new = data.draw(BYTES)
            content[at : at + len(new)] = new
        elif how == "insert":
            content[at:at] = data.draw(BYTES)
        elif how == "cut":
            del content[at:]
        else:
            del content[at : at + data.draw(st.integers(1, 64))]
    return bytes(content)


def damage_table(data: Any, table: pa.Table) -> pa.Table:
    """Return a table with one or two columns or all rows changed."""
    for _ in range(data.draw(st.integers(1, 2))):
        how = data.draw(st.sampled_from(WAYS))
        place = data.draw(st.integers(0, table.num_columns - 1))
        name, column = table.column_names[place], table.column(place)
        if how == "value":
            table = table.set_column(place, name, _damage_values(data, column))
        elif how == "cast":
            kind = data.draw(st.sampled_from((
                pa.string(), pa.int8(), pa.float32(), pa.uint64(), pa.bool_(), pa.null(),
                pa.list_(pa.float64()), pa.dictionary(pa.int32(), pa.string()), pa.binary(),
                pa.timestamp("us"), pa.struct([("a", pa.int64())]), pa.decimal128(38, 2),
            )))  # fmt: skip
            table = table.set_column(place, name, _cast(column, kind))
        elif how == "drop" and table.num_columns > 1:
            table = table.remove_column(place)
        elif how == "add":
            table = table.append_column("extra", column)
        elif how == "repeat":
            table = table.append_column(name, column)
        elif how == "rows":
            rows = st.lists(st.integers(0, max(table.num_rows - 1, 0)), max_size=6)
            table = table.take(pa.array(data.draw(rows) if table.num_rows else [], pa.int64()))
    return table


def _damage_values(data: Any, column: pa.ChunkedArray) -> pa.Array:
    values = column.to_pylist()
    nasty: dict[Any, tuple[Any, ...]] = {
        float: (None, np.nan, np.inf, -np.inf, 1e308, -1e300, 499.0, -501.0, 5e-324, 0.0),
        int: (None, 0, -1, 2**63 - 1, -(2**63), 9),
        str: (None, "", "\0", "~" * 50, "zz", "3"),
        bool: (None, True, False),
    }
    own = next((kind for kind in (bool, float, int, str) if any(type(v) is kind for v in values)),
               None)  # fmt: skip
    if own is None:
        return column.combine_chunks()
    values[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.sampled_from(nasty[own]))
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return column.combine_chunks()


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> Any:
    try:
        return column.cast(kind, safe=False)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as a Parquet file; nothing if Parquet lacks one of its types."""
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink, compression="zstd")
    except pa.ArrowException:
        return b""
    return sink.getvalue()
