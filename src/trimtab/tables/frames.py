"""Turn any data frame into integer codes, and codes back into the caller's type of frame."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, read_only
from trimtab.checks import require_columns, require_no_nulls, require_rows
from trimtab.errors import DataError
from trimtab.tables.arrow_types import without_views
from trimtab.tables.column_map import ColumnMap, own_names
from trimtab.tables.columns import ITEM, SCORE, USER, WEIGHT, WINDOW
from trimtab.tables.vocabulary import (
    IdColumn,
    as_read_only,
    encode_ids,
    id_column,
    require_codable,
)
from trimtab.threads import LEAST_SPLIT, run_ranges

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


@dataclass(frozen=True)
class Units:
    """The users, or (user, window) pairs, of unit codes, in ascending order."""

    users: Any
    user_codes: Codes  # by unit
    windows: Any | None
    window_codes: Codes | None

    def __len__(self) -> int:
        return len(self.user_codes)

    def label(self, unit: int, table: Table | None = None) -> str:
        """Return a unit's name for messages, with the names of columns that a table has."""
        own = {} if table is None else table.own
        found = self.columns(np.array([unit], np.int32))
        return " in ".join(f"{own.get(name, name)} {ids[0]}" for name, ids in found.items())

    def columns(self, units: Ints | Codes) -> dict[str, Any]:
        """Return the id columns of the given units."""
        taken = {USER: take_ids(self.users, take_ids(self.user_codes, units))}
        if self.windows is not None and self.window_codes is not None:
            taken[WINDOW] = take_ids(self.windows, take_ids(self.window_codes, units))
        return taken


def take_ids(ids: Any, codes: Codes | Ints) -> Any:
    """Return the ids of codes."""
    if not isinstance(ids, np.ndarray):
        return ids.take(pa.array(codes))
    if len(codes) < LEAST_SPLIT:
        return ids[codes]
    from trimtab.kernels.coding import recode

    taken = np.empty(len(codes), ids.dtype)
    run_ranges(recode, len(codes), codes, ids, taken)
    return taken


def encode_units(*tables: Table) -> tuple[Units, list[Codes]]:
    """Return the units of all tables together, and the unit code of each row of each table."""
    users, user_codes = encode_ids([table.ids(USER) for table in tables])
    if not any(table.has(WINDOW) for table in tables):
        return Units(users, np.arange(len(users), dtype=np.int32), None, None), user_codes
    require_windows_in_all({table.name: table.columns.column_names for table in tables})
    from trimtab.kernels.coding import pair_up

    windows, window_codes = encode_ids([_window_ids(table) for table in tables])
    pairs = []
    for table, by_user, by_window in zip(tables, user_codes, window_codes, strict=True):
        pair = np.empty(len(table), np.int64)
        run_ranges(pair_up, len(pair), by_user, by_window, len(windows), pair)
        pair.flags.writeable = False
        pairs.append(IdColumn(table.name, WINDOW, pair))
    distinct, unit_codes = encode_ids(pairs)
    by_user, by_window = np.divmod(np.asarray(distinct), len(windows))
    units = Units(users, by_user.astype(np.int32), windows, by_window.astype(np.int32))
    return units, unit_codes


def find_runs(table: Table) -> tuple[Units, Ints] | None:
    """Return the users of a table in the order of users, and where the rows of each begin.

    This is quicker than to give each row the code of its user. None for other tables, for ids of
    text, and if there are windows.
    """
    from trimtab.kernels import coding

    users = table.ids(USER)
    if table.has(WINDOW) or users.kind != "integers" or len(users) == 0:
        return None
    ids = users.values
    starts, runs = np.array(run_ranges(coding.count_runs, len(ids), ids), np.int64).T
    if runs.min() < 0:
        return None
    n_users = int(runs.sum())
    require_codable(n_users)
    distinct, indptr = np.empty(n_users, np.int64), np.empty(n_users + 1, np.int64)
    given = (ids, np.ascontiguousarray(starts), np.cumsum(runs) - runs, distinct, indptr)
    run_ranges(coding.write_runs, len(ids), *given)
    indptr[-1] = len(ids)
    return Units(distinct, np.arange(n_users, dtype=np.int32), None, None), indptr


def require_windows_in_all(columns: Mapping[str, Collection[str]]) -> None:
    """Refuse a window column in one table but not in another; columns are by table."""
    have = [name for name, found in columns.items() if WINDOW in found]
    lack = [name for name in columns if name not in have]
    if have and lack:
        raise DataError(
            f"{have[0]} has a column '{WINDOW}' but {lack[0]} does not; add it to both tables or "
            f"remove it from both"
        )


def _window_ids(table: Table) -> IdColumn:
    """Return window labels: integers, strings, or dates and times as text."""
    column = table.columns[WINDOW]
    if pa.types.is_timestamp(column.type):
        # The same text for any time unit; midnight is written as a date.
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.string())
        column = pc.replace_substring_regex(column, r" 00:00:00\.000000$", "")
    elif pa.types.is_date(column.type):
        column = column.cast(pa.string())
    return id_column(table.name, table.own_name(WINDOW), column)


def group_scored(units: Codes, items: Codes, scores: Floats, n_units: int) -> Lists:
    """Return rows as lists by unit, without a copy if the rows are already in order."""
    from trimtab.kernels import coding

    indptr = np.empty(n_units + 1, np.int64)
    if all(run_ranges(coding.find_starts, len(units), units, indptr)):
        return Lists(indptr, items, scores)
    indptr[:] = 0
    coding.count_rows(units, indptr)
    grouped = Lists(indptr, np.empty_like(items), np.empty_like(scores))
    coding.group_scored_rows(units, items, scores, indptr[:-1].copy(), *grouped[1:])
    return grouped


def group_sets(units: Codes, items: Codes, n_units: int) -> Sets:
    """Return rows as sets by unit, items ascending, each once."""
    from trimtab.kernels import coding

    indptr = np.zeros(n_units + 1, np.int64)
    coding.count_rows(units, indptr)
    grouped = np.empty(len(items), np.int32)
    coding.group_rows(units, items, indptr[:-1].copy(), grouped)
    lengths = np.empty(n_units, np.int64)
    run_ranges(coding.distinct_sorted, n_units, indptr, grouped, lengths)
    if lengths.sum() == len(grouped):
        return Sets(indptr, grouped)
    closed = Sets(np.zeros(n_units + 1, np.int64), np.empty(int(lengths.sum()), np.int32))
    coding.close_gaps(indptr, grouped, lengths, *closed)
    return closed


def find_repeat(lists: Lists, n_items: int) -> tuple[int, int] | None:
    """Return the first (unit, item) that is in a list twice, or None."""
    from trimtab.kernels import coding

    found = run_ranges(coding.find_repeat, lists.n_units, lists.indptr, lists.items, n_items)
    return next(((int(unit), int(item)) for unit, item in found if unit >= 0), None)


def merge_repeats(lists: Lists, how: str) -> Lists:
    """Return lists with each item once, merging repeated scores by max, mean or sum."""
    units = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    order = np.lexsort((lists.scores, lists.items, units))
    units, items, scores = units[order], lists.items[order], lists.scores[order]
    first = np.flatnonzero(np.r_[True, (np.diff(units) != 0) | (np.diff(items) != 0)])
    ends = np.r_[first[1:], len(items)]
    # Scores ascend within a pair, so sums do not depend on the order of rows.
    merged = scores[ends - 1] if how == "max" else np.add.reduceat(scores, first)
    if how == "mean":
        merged = merged / (ends - first)
    indptr = np.searchsorted(units[first], np.arange(lists.n_units + 1)).astype(np.int64)
    return Lists(indptr, np.ascontiguousarray(items[first]), merged)


def read_weights(frame: Any, units: Units, judged: Flags, name: str) -> Floats:
    """Return the weight of each unit's user; 1 for users not in the table.

    Args:
        frame: table with user_id and weight.
        units: units of the other tables.
        judged: units that bought something; at least one of them must have a weight above 0.
        name: name of the table with the units.
    """
    table = read_frame(frame, "weights", USER, WEIGHT)
    values, lowest = read_scores(table, WEIGHT)
    if lowest < 0:
        name = table.own_name(WEIGHT)
        raise DataError(f"column '{name}' of weights has {lowest:g}: weights must be at least 0")
    users, (user_codes, weight_codes) = encode_ids(
        [as_id_column(name, USER, units.users), table.ids(USER)]
    )
    counts = np.bincount(weight_codes)
    if counts.max() > 1:
        (user,) = take_ids(users, np.array([counts.argmax()]))
        raise DataError(
            f"column '{table.own_name(USER)}' of weights has {user} more than once; keep one "
            f"weight per user"
        )
    by_code = np.ones(len(users))
    by_code[weight_codes] = values
    weights: Floats = by_code[user_codes][units.user_codes]
    if judged.any() and not (weights[judged] > 0).any():
        raise DataError(
            f"column '{table.own_name(WEIGHT)}' of weights is 0 for every user who bought "
            f"something: at least one must be above 0"
        )
    return weights


def as_id_column(name: str, column: str, ids: Any) -> IdColumn:
    """Return checked ids (from `encode_ids`) as a column to encode again with others."""
    if not isinstance(ids, np.ndarray):
        return IdColumn(name, column, pa.chunked_array([ids]))
    return IdColumn(name, column, read_only(ids.astype(np.int64, copy=False)))
