"""Ranges of user ids: all rows of a user are in one part, and parts follow the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.tables.vocabulary import IdColumn, in_one_piece, text_bytes
from trimtab.threads import run_ranges


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
        from trimtab.kernels.counting import find_text_ranges

        found = np.zeros(len(ids), np.int64)
        if self.n_parts > 1:
            texts = (*text_bytes(in_one_piece(ids.values)), *text_bytes(self._starts))
            run_ranges(find_text_ranges, len(ids), *texts, found)
        return found

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
