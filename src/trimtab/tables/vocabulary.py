"""Vocabulary: the distinct ids of a column, and their codes.

Codes follow the order of ids: integers by value, strings by code point. So comparing codes breaks
ties by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.arrays import Codes, Ints, find_positions, read_only
from trimtab.checks import require_no_nulls
from trimtab.errors import DataError
from trimtab.tables.columns import is_text, plain_type
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
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):  # an empty column stays chunked
        chunk = pa.concat_arrays(chunk.chunks) if chunk.num_chunks else pa.array([], column.type)
    return read_only(chunk.to_numpy(zero_copy_only=False))


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
        from trimtab.kernels import coding

        hashed = np.empty(len(self), np.uint64)
        if isinstance(self.ids, np.ndarray):
            run_ranges(coding.hash_whole_numbers, len(self), self.column.values, hashed)
        elif len(self):
            texts = text_bytes(self.ids.cast(pa.large_string()))
            run_ranges(coding.hash_texts, len(self), *texts, hashed)
        return hashed


def gather(values: Any, places: Codes | Ints) -> Any:
    """Return the values at some places of an array, on several threads if there are many."""
    if len(places) < LEAST_SPLIT:
        return values[places]
    from trimtab.kernels.coding import recode

    taken = np.empty(len(places), values.dtype)
    run_ranges(recode, len(places), places, values, taken)
    return taken


def text_bytes(text: pa.Array) -> tuple[Ints, Any]:
    """Return where each text starts, and where the last one ends, in the bytes of all."""
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return starts, np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)


def _encode_whole_numbers(columns: list[Ints]) -> tuple[Ints, list[Codes]]:
    from trimtab.kernels import coding

    bounds = [b for ids in columns if len(ids) for b in run_ranges(coding.extremes, len(ids), ids)]
    if not bounds:
        return np.empty(0, np.int64), [np.empty(0, np.int32) for _ in columns]
    lowest, highest = min(low for low, _ in bounds), max(high for _, high in bounds)
    span = int(highest) - int(lowest) + 1
    if span > 4 * sum(map(len, columns)) + 2**20:
        return _encode_by_hash([pa.chunked_array([pa.array(ids)]) for ids in columns])
    seen = np.zeros(span, bool)
    for ids in columns:
        run_ranges(coding.mark_seen, len(ids), ids, lowest, seen)
    distinct = np.flatnonzero(seen) + lowest
    require_codable(len(distinct))
    table = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    encoded = []
    for ids in columns:
        codes = np.empty(len(ids), np.int32)
        run_ranges(coding.look_up, len(ids), ids, lowest, table, codes)
        encoded.append(codes)
    return distinct, encoded


def _encode_by_hash(columns: list[pa.ChunkedArray]) -> tuple[Any, list[Codes]]:
    """Hash each column, sort only the distinct values, and translate."""
    from trimtab.kernels import coding

    hashed = [column.combine_chunks().dictionary_encode() for column in columns]
    hashed = [h.combine_chunks() if isinstance(h, pa.ChunkedArray) else h for h in hashed]
    every = pc.unique(pa.chunked_array([h.dictionary for h in hashed]))
    every = every.take(pc.sort_indices(every))
    require_codable(len(every))
    encoded = []
    for part in hashed:
        table = pc.index_in(part.dictionary, every).to_numpy(zero_copy_only=False)
        table = table.astype(np.int32)
        old = part.indices.to_numpy(zero_copy_only=False)
        old.flags.writeable = False
        codes = np.empty(len(old), np.int32)
        run_ranges(coding.recode, len(old), old, table, codes)
        encoded.append(codes)
    distinct = every.to_numpy() if pa.types.is_integer(every.type) else every
    return distinct, encoded


def require_codable(n: int) -> None:
    """Raise if there are more distinct ids than codes."""
    if n > _MOST_CODES:
        raise DataError(f"{n} distinct ids: at most {_MOST_CODES} are supported; split the data")
