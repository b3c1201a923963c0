"""Vocabulary: the distinct ids of a column, their codes, and ranges of ids.

Codes follow the order of ids: integers by value, strings by code point. So comparing codes breaks
ties by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.arrays import Codes, Ints, find_positions, read_only
from trimtab.checks import require_no_nulls
from trimtab.errors import DataError
from trimtab.threads import LEAST_SPLIT, run_ranges

_MOST_CODES = 2**30 - 1  # kernels double the codes, in 32 bits


class IdColumn(NamedTuple):
    """A table's column of ids: int64 numbers or Arrow strings."""

    table: str
    name: str
    values: Any  # Ints | pa.ChunkedArray

    @property
    def kind(self) -> str:
        """Return "integers" or "strings"."""
        return "integers" if isinstance(self.values, np.ndarray) else "strings"

    def __len__(self) -> int:
        return len(self.values)


def id_column(table: str, name: str, column: pa.ChunkedArray) -> IdColumn:
    """Return a column of ids as integers or strings; raise if it is neither."""
    require_no_nulls(table, name, column)
    kind = plain_type(column.type)
    column = column.cast(kind)
    if pa.types.is_integer(kind):
        try:
            return IdColumn(table, name, as_read_only(column.cast(pa.int64())))
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column '{name}' of {table} has ids that do not fit in int64; cast them to strings"
            ) from error
    if is_text(kind):
        return IdColumn(table, name, column.cast(pa.large_string()))
    raise DataError(
        f"column '{name}' of {table} holds {kind}: ids must be integers or strings; cast the column"
    )


def as_read_only(column: pa.ChunkedArray) -> Any:
    """Return the column as one read-only NumPy array, the kind kernels are compiled for."""
    return read_only(in_one_piece(column).to_numpy(zero_copy_only=False))


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it is in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def require_same_id_type(columns: Sequence[IdColumn]) -> None:
    """Raise if some tables have integer ids and others strings."""
    first = columns[0]
    for other in columns[1:]:
        if other.kind != first.kind:
            raise DataError(
                f"column '{first.name}' holds {first.kind} in {first.table} but {other.kind} in "
                f"{other.table}; cast one of them to the type of the other"
            )


class Vocabulary:
    """Distinct ids in ascending order; the code of an id is its position.

    Attributes:
        ids: an int64 array, or Arrow strings.
    """

    def __init__(self, ids: Any, table: str = "recs", name: str = "item_id") -> None:
        """Return the vocabulary of distinct ascending ids; errors name a table and a column."""
        self.ids, self._table, self._name = ids, table, name

    @staticmethod
    def encode(*columns: IdColumn) -> tuple[Vocabulary, list[Codes]]:
        """Return the ids of all columns together, and each column as codes of them."""
        require_same_id_type(columns)
        values = [column.values for column in columns]
        is_whole = columns[0].kind == "integers"
        ids, codes = _encode_whole_numbers(values) if is_whole else _encode_by_hash(values)
        return Vocabulary(ids, columns[0].table, columns[0].name), codes

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def column(self) -> IdColumn:
        """The ids as a column, to encode again with others."""
        if not isinstance(self.ids, np.ndarray):
            return IdColumn(self._table, self._name, pa.chunked_array([self.ids]))
        return IdColumn(self._table, self._name, read_only(self.ids.astype(np.int64, copy=False)))

    def codes(self, column: IdColumn) -> Codes:
        """Return the code of each id of a column; -1 for ids that are not in the vocabulary."""
        _, (ours, theirs) = Vocabulary.encode(self.column, column)
        return find_positions(ours, theirs)

    def take(self, codes: Codes | Ints) -> Any:
        """Return the ids of codes."""
        is_array = isinstance(self.ids, np.ndarray)
        return gather(self.ids, codes) if is_array else self.ids.take(pa.array(codes))

    def __getitem__(self, code: Any) -> Any:
        """Return the id of one code, for messages."""
        return self.ids[int(code)]

    def hashes(self) -> NDArray[np.uint64]:
        """Return a hash of each id that depends only on its text: 42 and "42" have the same."""
        from trimtab.kernels.counting import hash_texts

        ids = pa.array(self.ids) if isinstance(self.ids, np.ndarray) else self.ids
        text, hashed = ids.cast(pa.large_string()), np.empty(len(self), np.uint64)
        _, offsets, data = text.buffers()
        if len(self):
            starts = np.frombuffer(offsets, np.int64)[text.offset :]
            letters = np.frombuffer(data or b"\0", np.uint8)
            run_ranges(hash_texts, len(self), starts, letters, hashed)
        return hashed


def gather(values: Any, places: Codes | Ints, first: int = 0) -> Any:
    """Return the values at some places of an array, on several threads if there are many.

    Args:
        values: the array.
        places: of it, counted from `first`.
        first: the place of the first value.
    """
    if len(places) < LEAST_SPLIT:
        return values[places - first]
    from trimtab.kernels.counting import look_up

    taken = np.empty(len(places), values.dtype)
    run_ranges(look_up, len(places), places, first, values, taken)
    return taken


def _encode_whole_numbers(columns: list[Ints]) -> tuple[Ints, list[Codes]]:
    bounds = [bound for ids in columns if len(ids) for bound in (ids.min(), ids.max())]
    if not bounds:
        return np.empty(0, np.int64), [np.empty(0, np.int32) for _ in columns]
    lowest = int(min(bounds))
    span = int(max(bounds)) - lowest + 1
    if span > 4 * sum(map(len, columns)) + 2**20:
        return _encode_by_hash([pa.chunked_array([pa.array(ids)]) for ids in columns])
    seen = np.zeros(span, bool)
    for ids in columns:
        seen[ids - lowest] = True
    distinct = np.flatnonzero(seen) + lowest
    require_codable(len(distinct))
    codes = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return distinct, [gather(codes, ids, lowest) for ids in columns]


def _encode_by_hash(columns: list[pa.ChunkedArray]) -> tuple[Any, list[Codes]]:
    """Hash each column, sort only the distinct values, and translate."""
    hashed = [in_one_piece(column).dictionary_encode() for column in columns]
    every = pc.unique(pa.chunked_array([h.dictionary for h in hashed]))
    every = every.take(pc.sort_indices(every))
    require_codable(len(every))
    encoded = []
    for part in hashed:
        codes = pc.index_in(part.dictionary, every).to_numpy(zero_copy_only=False)
        places = read_only(part.indices.to_numpy(zero_copy_only=False))
        encoded.append(gather(codes.astype(np.int32), places))
    distinct = every.to_numpy() if pa.types.is_integer(every.type) else every
    return distinct, encoded


def require_codable(n: int) -> None:
    """Raise if there are more distinct ids than codes."""
    if n > _MOST_CODES:
        raise DataError(f"{n} distinct ids: at most {_MOST_CODES} are supported; split the data")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type, and any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, of any length and layout."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


# Parts of the users -------------------------------------------------------------------------------


class UserRanges:
    """Ranges of user ids in ascending order, given by the first id of each but the first one."""

    def __init__(self, starts: Any) -> None:
        """Return the ranges that start at distinct ascending ids: integers, or Arrow text."""
        self._starts = starts
        self.n_parts = len(starts) + 1

    @staticmethod
    def of_sample(users: IdColumn, n_parts: int) -> UserRanges:
        """Return ranges with about as many sampled users each; fewer if few ids are distinct."""
        is_array = isinstance(users.values, np.ndarray)
        ids = pa.array(users.values) if is_array else in_one_piece(users.values)
        starts = len(ids) * np.arange(1, n_parts if len(ids) else 1) // n_parts
        ids = ids.take(pc.sort_indices(ids)).take(pa.array(starts)).unique()
        return UserRanges(ids.to_numpy() if is_array else ids)

    def find(self, ids: IdColumn) -> Ints:
        """Return the number of the range that each id is in."""
        if isinstance(ids.values, np.ndarray):
            return np.searchsorted(self._starts, ids.values, side="right")
        if self.n_parts == 1:
            return np.zeros(len(ids), np.int64)
        starts = IdColumn(ids.table, ids.name, pa.chunked_array([self._starts]))
        _, (ours, theirs) = Vocabulary.encode(starts, ids)
        return np.searchsorted(ours, theirs, side="right")

    def split(self, rows: pa.RecordBatch, ids: IdColumn) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range that has any, with its number; rows keep their order.

        Args:
            rows: of any table.
            ids: of their users.
        """
        parts = self.find(ids).astype(np.uint16)  # sorted by counting, not by comparing
        if np.any(parts[1:] < parts[:-1]):
            order = np.argsort(parts, kind="stable")
            rows, parts = rows.take(pa.array(order)), parts[order]
        found, starts, counts = np.unique(parts, return_index=True, return_counts=True)
        for part, start, count in zip(found, starts, counts, strict=True):
            yield int(part), rows.slice(int(start), int(count))

    def conditions(self, user: Any) -> list[Any]:
        """Return the condition that each range makes for a column; None if there is only one."""
        starts = [pa.scalar(start) for start in self._starts.tolist()]
        below = [user < start for start in starts]
        above = [user >= start for start in starts]
        between = [low & high for low, high in zip(above, below[1:], strict=False)]
        return [*below[:1], *between, *above[-1:]] or [None]
