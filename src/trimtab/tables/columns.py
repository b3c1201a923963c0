"""Columns: their names, the caller's own names for them, and their Arrow types.

A renamed table remembers the caller's names in its metadata, so that errors can use them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from trimtab.errors import SettingError, warn

USER = "user_id"
ITEM = "item_id"
SCORE = "score"
RANK = "rank"
WINDOW = "window"
WEIGHT = "weight"
CATEGORY = "category"
COUNT = "count"
TIMESTAMP = "timestamp"
QUANTITY = "quantity"
PRICE = "price"
NAME = "name"
BUCKET = "bucket"
TRAINED_UNTIL = "trained_until"
ALL = (
    USER, ITEM, TIMESTAMP, SCORE, RANK, WINDOW, WEIGHT, CATEGORY, COUNT, QUANTITY, PRICE, NAME,
    BUCKET, TRAINED_UNTIL,
)  # fmt: skip
_SHORT = {"user": USER, "item": ITEM, "time": TIMESTAMP}
_KEY = b"trimtab.columns"
_EXAMPLE = "user=customer,item=sku,time=ts"


@dataclass(frozen=True)
class ColumnMap:
    """For some of Trimtab's columns, the names to look for in a table, in this order.

    A table without any of them may have the column under Trimtab's own name.
    """

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(given: GivenColumns, also: Collection[str] = ()) -> ColumnMap:
        """Return the map that a caller gave, like {"user": "customer", "item": ["sku", "art"]}.

        Args:
            given: names of columns, by Trimtab's names; `user`, `item` and `time` are short names.
            also: further columns of Trimtab that may be mapped.
        """
        if isinstance(given, ColumnMap):
            return given
        if given is not None and not isinstance(given, Mapping):
            raise SettingError(f"columns={given!r}: must be a dict like {{'user': 'customer'}}")
        own = {}
        for key, value in (given or {}).items():
            listed = (value,) if isinstance(value, str) else tuple(value)
            if not listed or not all(isinstance(name, str) and name for name in listed):
                raise SettingError(f"columns: {key!r} is {value!r}; must be the name of a column")
            name = _SHORT.get(key, key)
            if name not in (*ALL, *also):
                known = [*_SHORT, *(c for c in (*ALL, *also) if c not in _SHORT.values())]
                raise SettingError(f"columns: {key!r} is not read; use one of {', '.join(known)}")
            own[name] = listed
        for name in set(own.get(USER, ())) & set(own.get(ITEM, ())):
            raise SettingError(f"columns: '{name}' is given for user and for item; use two columns")
        return ColumnMap(own)

    @staticmethod
    def parse(text: str | None, also: Collection[str] = ()) -> ColumnMap:
        """Return the map of an option like user=customer,item=sku; a repeated key adds a name."""
        given: dict[str, list[str]] = {}
        for part in text.split(",") if text is not None else ():
            key, equals, name = (word.strip() for word in part.partition("="))
            if not (key and equals and name):
                raise SettingError(f"--columns {text}: must be name=column pairs, like {_EXAMPLE}")
            given.setdefault(key, []).append(name)
        return ColumnMap.of(given, also)

    def name_of(self, own: str) -> str:
        """Return Trimtab's name of a caller's column; the same name if it is not mapped."""
        return next((name for name, listed in self.own.items() if own in listed), own)

    def find(self, found: Collection[str]) -> dict[str, str]:
        """Return the caller's name of each mapped column that a table has."""
        picks = {name: [own for own in listed if own in found] for name, listed in self.own.items()}
        return {name: own[0] for name, own in picks.items() if own}

    def rename(self, table: pa.Table) -> pa.Table:
        """Return a table with Trimtab's names; a mapped column replaces one of the same name."""
        if not self.own:
            return table
        found = self.find(table.column_names)
        places, renamed = [], []
        for place, own in enumerate(table.column_names):
            targets = [name for name, source in found.items() if source == own]
            if not targets and own not in found:
                targets = [own]
            places += [place] * len(targets)
            renamed += targets
        missing = {name: own[0] for name, own in self.own.items() if name not in table.column_names}
        remembered = json.dumps({**missing, **found}).encode()
        metadata = {**(table.schema.metadata or {}), _KEY: remembered}
        return table.select(places).rename_columns(renamed).replace_schema_metadata(metadata)

    def warn_of_unused(self, tables: Sequence[Any], but: Collection[str] = ()) -> None:
        """Warn of mapped columns that none of the tables has; it is probably a spelling mistake.

        Args:
            tables: renamed tables; None counts as none.
            but: Trimtab's names of columns that are read elsewhere.
        """
        given = [table for table in tables if table is not None]
        used = {name for table in given for name in own_names(table) if name in table.column_names}
        for name, own in self.own.items():
            if name not in used and name not in but:
                listed = "' or '".join(own)
                warn(f"columns: no table has a column '{listed}' (for {name}); check the spelling")


GivenColumns = ColumnMap | Mapping[str, str | Sequence[str]] | None


def own_names(table: Any) -> dict[str, str]:
    """Return the caller's names of columns, by Trimtab's; none for a table that was not renamed."""
    if not isinstance(table, pa.Table) or _KEY not in (table.schema.metadata or {}):
        return {}
    remembered: dict[str, str] = json.loads(table.schema.metadata[_KEY])
    return remembered


def forget_own_names(table: pa.Table) -> pa.Table:
    """Return a table that no longer knows the caller's names, to be kept and written."""
    metadata = table.schema.metadata or {}
    kept = {key: value for key, value in metadata.items() if key != _KEY}
    return table if len(kept) == len(metadata) else table.replace_schema_metadata(kept or None)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type, and any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def without_views(table: pa.Table) -> pa.Table:
    """Return a table with plain text instead of views of text, which few functions can take."""
    for place, own in enumerate(table.schema):
        if pa.types.is_string_view(own.type):
            plain = table[place].cast(pa.large_string())
            table = table.set_column(place, own.with_type(plain.type), plain)
    return table


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, of any length and layout."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())
