"""Any data frame as Arrow columns, and results as the caller's own type of frame."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Floats
from trimtab.checks import require_columns, require_no_nulls, require_rows
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, SCORE, USER, WINDOW, ColumnMap, own_names, without_views
from trimtab.tables.vocabulary import IdColumn, as_read_only, id_column
from trimtab.threads import run_ranges

_NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


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
    arrow = _to_arrow(eager, name)
    if not may_be_empty:
        require_rows(name, arrow.num_rows)
    return Table(name, arrow, eager.head(0), lazy, own)


def rename_frame(frame: Any, columns: ColumnMap, name: str) -> pa.Table:
    """Return a caller's frame as an Arrow table with Trimtab's names of columns."""
    given = _from_native(frame, name)
    eager = given.collect() if isinstance(given, nw.LazyFrame) else given
    return columns.rename(_to_arrow(eager, name))


def _to_arrow(eager: Any, name: str) -> pa.Table:
    try:
        return without_views(eager.to_arrow())
    except pa.ArrowException as error:  # a pandas object column can hold anything
        reason = ", ".join(map(str, error.args))
        raise DataError(f"{name} cannot be read ({reason}); give each column one type") from error


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


def read_scores(table: Table, column: str = SCORE) -> tuple[Floats, float]:
    """Return a column of finite numbers as a new array of float64, and the smallest of them."""
    from trimtab.kernels.coding import copy_values

    values, lowest = view_scores(table, column)
    scores = np.empty(len(values))
    run_ranges(copy_values, len(values), values, scores)
    return scores, lowest


def view_scores(table: Table, column: str = SCORE) -> tuple[Floats, float]:
    """Return what `read_scores` does, read-only: a column of float64 in one piece as it is."""
    from trimtab.kernels.coding import check_scores

    require_no_nulls(table.name, table.own_name(column), table.columns[column])
    require_numbers(table, column)
    values: Floats = as_read_only(table.columns[column].cast(pa.float64(), safe=False))
    found = run_ranges(check_scores, len(values), values)
    bad = next((row for row, _ in found if row >= 0), None)
    if bad is not None:
        raise not_finite(table.name, table.own_name(column), values[bad], bad)
    return values, min((low for _, low in found), default=0.0)


def not_finite(table: str, name: str, value: float, row: int) -> DataError:
    """Return the error for a number that is nan or infinite."""
    return DataError(
        f"column '{name}' of {table} has {value} in row {row} (from 0): it must be finite; fix or "
        f"drop such rows"
    )


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
