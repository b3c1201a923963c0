"""Tables as Arrow columns: their names, any data frame read, and results in the caller's own type.

A renamed table remembers the caller's names in its metadata, so that errors can use them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats
from trimtab.checks import require_columns, require_no_nulls, require_rows
from trimtab.errors import DataError, SettingError, warn
from trimtab.tables.vocabulary import IdColumn, as_read_only, id_column

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
_NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


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
        kept = {own: own for own in table.column_names if own not in found.values()} | found
        picked = table.select(list(kept.values())).rename_columns(list(kept))
        missing = {name: own[0] for name, own in self.own.items() if name not in table.column_names}
        remembered = json.dumps({**missing, **found}).encode()
        return picked.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: remembered})

    def warn_of_unused(self, tables: Sequence[Any], but: Collection[str] = ()) -> None:
        """Warn of mapped columns that none of the tables has; it is probably a spelling mistake.

        Args:
            tables: renamed tables; None counts as none.
            but: Trimtab's names of columns that are read elsewhere.
        """
        used = {name for table in tables for name in own_names(table) if name in table.column_names}
        for name, own in self.own.items():
            if name not in used and name not in but:
                listed = "' or '".join(own)
                warn(f"columns: no table has a column '{listed}' (for {name}); check the spelling")


GivenColumns = ColumnMap | Mapping[str, str | Sequence[str]] | None


def own_names(table: Any) -> dict[str, str]:
    """Return the caller's names of columns, by Trimtab's; none for a table that was not renamed."""
    if not isinstance(table, pa.Table) or _KEY not in (table.schema.metadata or {}):
        return {}
    return json.loads(table.schema.metadata[_KEY])


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """Return a table with other values in one of its columns."""
    return table.set_column(table.column_names.index(name), name, values)


def without_views(table: pa.Table) -> pa.Table:
    """Return a table with plain text instead of views of text, which few functions can take."""
    for place, own in enumerate(table.schema):
        if pa.types.is_string_view(own.type):
            plain = table[place].cast(pa.large_string())
            table = table.set_column(place, own.with_type(plain.type), plain)
    return table


# Data frames --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A caller's frame as Arrow columns, with an empty frame of the caller's type."""

    name: str
    columns: pa.Table
    sample: Any  # the same columns in the caller's type of frame, without rows
    lazy: bool
    own: Mapping[str, str] = field(default_factory=dict)  # the caller's names, where they differ

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def has(self, column: str) -> bool:
        """Return whether the table has a column."""
        return column in self.columns.column_names

    def own_name(self, column: str) -> str:
        """Return the caller's name of a column, for messages."""
        return self.own.get(column, column)

    def ids(self, column: str) -> IdColumn:
        """Return a checked column of ids."""
        return id_column(self.name, self.own_name(column), self.columns[column])


def read_frame(
    frame: Any,
    name: str,
    *needed: str,
    optional: tuple[str, ...] = (),
    may_be_empty: bool = False,
) -> Table:
    """Return the needed columns, and the optional ones that exist; raise if a frame has no rows."""
    given = _from_native(frame, name)
    found, own = given.collect_schema().names(), own_names(frame)
    require_columns(name, found, needed, own)
    picked = given.select(*needed, *(c for c in optional if c in found))
    lazy = isinstance(picked, nw.LazyFrame)
    eager = picked.collect() if lazy else picked
    try:
        arrow = without_views(eager.to_arrow())
    except pa.ArrowException as error:  # a pandas object column can hold anything
        reason = ", ".join(map(str, error.args))
        raise DataError(f"{name} cannot be read ({reason}); give each column one type") from error
    if not may_be_empty:
        require_rows(name, arrow.num_rows)
    return Table(name, arrow, eager.head(0), lazy, own)


def _from_native(frame: Any, name: str) -> Any:
    try:
        return nw.from_native(frame)
    except TypeError as error:
        raise DataError(
            f"{name} is a {type(frame).__name__}: pass a pandas, polars or pyarrow data frame"
        ) from error
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"{name} has two columns with the same name; rename one") from error


def column_names(frame: Any, name: str) -> list[str]:
    """Return all column names of a caller's frame."""
    return list(_from_native(frame, name).collect_schema().names())


def write_frame(columns: dict[str, Any], like: Table) -> Any:
    """Return a frame of the same type as `like`; ids keep their type where the values fit."""
    backend = like.sample.implementation
    is_pandas = backend.is_pandas_like()
    native = like.sample.to_native()
    own_types = native.dtypes if is_pandas else like.sample.schema
    kinds = native.schema if backend.is_pyarrow() else like.columns.schema
    arrays = {c: v if isinstance(v, pa.Array) else pa.array(v) for c, v in columns.items()}
    fitting = {}
    for name in (c for c in (USER, ITEM, WINDOW) if c in arrays):
        cast = _cast_if_fit(arrays[name], kinds.field(name).type, own_types[name])
        if cast is not None:
            arrays[name], fitting[name] = cast, own_types[name]
    eager = nw.from_arrow(pa.table(arrays), backend=backend)
    if is_pandas:
        eager = nw.from_native(eager.to_native().astype(fitting))
    elif backend.is_polars():
        eager = eager.with_columns(nw.col(name).cast(kind) for name, kind in fitting.items())
    return (eager.lazy() if like.lazy else eager).to_native()


def _cast_if_fit(array: pa.Array, kind: pa.DataType, own_type: Any) -> pa.Array | None:
    """Return an array cast to the type of a frame's column, or None if its values do not fit."""
    categories = getattr(own_type, "categories", None)
    if categories is not None and not set(pc.unique(array).to_pylist()) <= set(categories):
        return None
    try:
        if not pa.types.is_dictionary(kind):
            return array.cast(kind)
        encoded = array.cast(kind.value_type).dictionary_encode()
        indices = encoded.indices.cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=kind.ordered)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def require_numbers(table: Table, column: str = SCORE) -> None:
    """Raise if a column holds anything but numbers."""
    kind = table.columns[column].type
    if not any(is_kind(kind) for is_kind in _NUMBER_TYPES):
        raise DataError(
            f"column '{table.own_name(column)}' of {table.name} holds {kind}: it must be numeric; "
            f"cast the column"
        )


def read_scores(table: Table, column: str = SCORE, below_zero: str = "") -> Floats:
    """Return a column of finite numbers as float64.

    Args:
        table: with the column.
        column: to read.
        below_zero: the rule that numbers below 0 break, for the error; "" if they may be.
    """
    name = table.own_name(column)
    require_no_nulls(table.name, name, table.columns[column])
    require_numbers(table, column)
    values: Floats = as_read_only(table.columns[column].cast(pa.float64(), safe=False)).copy()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"column '{name}' of {table.name} has {values[bad[0]]} in row {bad[0]} (from 0): it "
            f"must be finite; fix or drop such rows"
        )
    if below_zero and values.min(initial=0.0) < 0:
        raise DataError(f"column '{name}' of {table.name} has {values.min():g}: {below_zero}")
    return values


def read_ids(values: Any, name: str, column: str) -> pa.ChunkedArray:
    """Return ids given as a frame, a series, an array or any iterable, as an Arrow column.

    Args:
        values: ids, or a frame with them in `column`.
        name: argument to name in errors.
        column: column that the ids belong to.
    """
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    with contextlib.suppress(TypeError):
        return pa.chunked_array([nw.from_native(values, series_only=True).to_arrow()])
    with contextlib.suppress(TypeError):
        frame = nw.from_native(values)
        return read_frame(frame.to_native(), name, column, may_be_empty=True).columns[column]
    try:
        array = pa.array(values if isinstance(values, np.ndarray) else list(values))
    except (TypeError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"{name} is a {type(values).__name__} that cannot be read as ids ({error}); pass "
            f"64-bit integers or strings, or a frame with '{column}'"
        ) from error
    return pa.chunked_array([array])
