"""Ranges of user ids that divide a table into parts of nearly equal numbers of rows."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.tables.columns import USER
from trimtab.tables.parquet_rows import RowGroup, Rows
from trimtab.tables.vocabulary import IdColumn, id_column, text_bytes
from trimtab.threads import run_ranges

_MOST_PARTS = 10_000
_N_SAMPLED = 2**18
_SEED = 0


class UserRanges:
    """Ranges of user ids in ascending order, given by the first id of each but the first one."""

    def __init__(self, starts: Any) -> None:
        """Return the ranges that start at distinct ascending ids: integers, or Arrow text."""
        self._starts = starts
        self._listed = starts.tolist()  # Python compares text by code point, as Arrow does
        self.n_parts = len(starts) + 1

    def find(self, ids: IdColumn) -> Ints:
        """Return the number of the range that each id is in."""
        if isinstance(ids.values, np.ndarray):
            return np.searchsorted(self._starts, ids.values, side="right")
        found = [self._find_text(chunk) for chunk in ids.values.chunks]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _find_text(self, ids: pa.Array) -> Ints:
        from trimtab.kernels.id_ranges import find_text_ranges

        found = np.zeros(len(ids), np.int64)
        if self.n_parts > 1:
            run_ranges(
                find_text_ranges, len(ids), *text_bytes(ids), *text_bytes(self._starts), found
            )
        return found

    def split(self, rows: pa.RecordBatch, ids: IdColumn) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range that has any, with its number; rows keep their order.

        Args:
            rows: of any table.
            ids: of their users.
        """
        parts = self.find(ids).astype(np.uint16)  # sorted by counting, not by comparing
        if len(parts) and (parts == parts[0]).all():
            yield int(parts[0]), rows
            return
        rows = rows.take(pa.array(np.argsort(parts, kind="stable")))
        ends = np.cumsum(np.bincount(parts, minlength=self.n_parts))
        start = 0
        for part, end in enumerate(ends.tolist()):
            if end > start:
                yield part, rows.slice(start, end - start)
            start = end

    def overlap(self, group: RowGroup) -> range:
        """Return the ranges that may have rows in a row group."""
        if group.lowest is None or group.highest is None:
            return range(self.n_parts)
        first = bisect.bisect_right(self._listed, group.lowest)
        return range(first, bisect.bisect_right(self._listed, group.highest) + 1)


def user_column(name: str, rows: Rows, column: pa.ChunkedArray) -> IdColumn:
    """Return some of a table's user ids; raise if they are neither integers nor text."""
    return id_column(name, rows.own_name(USER), column)


def choose_ranges(name: str, rows: Rows, rows_per_part: int) -> UserRanges:
    """Return ranges with about as many rows of a table each, where its users allow it."""
    n_parts = min(-(-rows.n_rows // rows_per_part), _MOST_PARTS)
    if n_parts <= 1:
        starts: list[Any] = []
    elif groups := _in_order(rows, rows_per_part):
        starts = _starts_of(groups, n_parts)
    else:
        starts = starts_of_sample(_sample_users(name, rows), n_parts)
    column = pa.chunked_array([sorted(set(starts))]) if starts else rows.schema.empty_table()[USER]
    return ranges_from(user_column(name, rows, column))


def starts_of_sample(users: pa.Array, n_parts: int) -> list[Any]:
    """Return ids at which parts with about as many sampled users each would start."""
    ordered = users.take(pc.sort_indices(users))
    return [ordered[len(ordered) * part // n_parts].as_py() for part in range(1, n_parts)]


def ranges_from(starts: IdColumn) -> UserRanges:
    """Return the ranges that start at some ids, which are distinct and ascend."""
    if isinstance(starts.values, np.ndarray):
        return UserRanges(starts.values)
    return UserRanges(pa.concat_arrays([pa.array([], pa.large_string()), *starts.values.chunks]))


def _in_order(rows: Rows, most: int) -> list[RowGroup]:
    """Return small row groups by their users; none if one is large, or if users overlap."""
    groups = [group for group in rows.row_groups if group.n_rows]
    if any(group.lowest is None or group.n_rows > most for group in groups):
        return []
    groups.sort(key=lambda group: (group.lowest, group.highest))
    bounds: list[Any] = [(group.lowest, group.highest) for group in groups]
    is_ordered = all(highest <= lowest for (_, highest), (lowest, _) in pairwise(bounds))
    return groups if is_ordered else []


def _starts_of(groups: list[RowGroup], n_parts: int) -> list[Any]:
    """Return the first user of every n-th row group, so that the parts have equally many rows."""
    ends = np.cumsum([group.n_rows for group in groups])
    wanted = ends[-1] / n_parts * np.arange(1, n_parts)
    return [groups[place].lowest for place in np.searchsorted(ends, wanted, side="right")]


def _sample_users(name: str, rows: Rows) -> pa.Array:
    """Return the user ids of a random sample of rows, as int64 or large text."""
    rng = np.random.default_rng(_SEED)
    rate = min(1.0, _N_SAMPLED / rows.n_rows)
    sampled: list[pa.Array] = []
    for batch in rows.batches(columns=[rows.own_user]):
        picked = rng.integers(0, len(batch), int(np.ceil(rate * len(batch))))
        column = batch[rows.own_user].take(pa.array(np.sort(picked)))
        values = user_column(name, rows, column).values
        sampled += [pa.array(values)] if isinstance(values, np.ndarray) else values.chunks
    return pa.concat_arrays(sampled)
