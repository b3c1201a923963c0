"""Kinds of Arrow columns."""

from __future__ import annotations

import pyarrow as pa

_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type, and any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def without_views(table: pa.Table) -> pa.Table:
    """Return a table with plain text instead of views of text, which few functions can take."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            plain = table[place].cast(pa.large_string())
            table = table.set_column(place, field.with_type(plain.type), plain)
    return table


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, of any length and layout."""
    return any(is_kind(kind) for is_kind in _TEXT_TYPES)
