"""Lookup of item ids in a bias table, fast for one short list."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import StoreError

_MIN_SPAN = 2**20
_MAX_ID = 2**63 - 1
_CHUNK = 2_000  # ids at a time: requests wait a few hundred microseconds for each chunk


class IntLookup:
    """Finds integers: in an array if the ids are dense, else by binary search."""

    id_type = int

    def __init__(self, item_ids: Ints) -> None:
        _require_ascending(bool(np.all(item_ids[1:] > item_ids[:-1])))
        self._ids = item_ids
        self._lowest = int(item_ids[0]) if len(item_ids) else 0
        self._highest = int(item_ids[-1]) if len(item_ids) else -1
        self._rows: Ints | None = None
        span = self._highest - self._lowest + 1
        if span <= 4 * len(item_ids) + _MIN_SPAN:
            self._rows = np.full(span, -1)
            self._rows[item_ids - self._lowest] = np.arange(len(item_ids))

    def find(self, ids: list[int]) -> Ints:
        """Return the rows of ids, -1 for unknown ones."""
        wanted = np.array(ids, np.int64)
        inside = (wanted >= self._lowest) & (wanted <= self._highest)
        if not inside.all():
            rows = np.full(len(wanted), -1)
            rows[inside] = self._find_inside(wanted[inside])
            return rows
        return self._find_inside(wanted)

    def _find_inside(self, wanted: Ints) -> Ints:
        if self._rows is not None:
            found: Ints = self._rows[wanted - self._lowest]
            return found
        rows = np.searchsorted(self._ids, wanted)
        return np.where(self._ids[rows] == wanted, rows, -1)

    def ids_at(self, rows: Ints) -> list[int]:
        """Return the ids at rows."""
        found: list[int] = self._ids[rows].tolist()
        return found


class StringLookup:
    """Finds strings in a dictionary, which is built in chunks."""

    id_type = str

    def __init__(self, item_ids: pa.Array) -> None:
        ascends = pc.all(pc.less(item_ids[:-1], item_ids[1:]), min_count=0)
        _require_ascending(bool(ascends.as_py()))
        self._ids = item_ids
        self._rows: dict[str, int] = {}
        for start in range(0, len(item_ids), _CHUNK):
            ids = item_ids.slice(start, _CHUNK).to_pylist()
            self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))
            time.sleep(0)  # releases the interpreter's lock

    def find(self, ids: list[str]) -> Ints:
        """Return the rows of ids, -1 for unknown ones."""
        row_of = self._rows.get
        return np.array([row_of(text, -1) for text in ids], np.int64)

    def ids_at(self, rows: Ints) -> list[str]:
        """Return the ids at rows."""
        found: list[str] = self._ids.take(pa.array(rows)).to_pylist()
        return found


ItemLookup: TypeAlias = IntLookup | StringLookup


def count_unknown(lookup: ItemLookup, ids: list[Any]) -> int:
    """Return how many ids are not in the table."""
    return int(np.count_nonzero(lookup.find(ids) < 0))


def make_lookup(item_ids: Any) -> ItemLookup:
    """Return the lookup for a table's ids, which must be in ascending order."""
    if not isinstance(item_ids, np.ndarray):
        return StringLookup(item_ids)
    highest = int(item_ids.max(initial=0))
    if highest > _MAX_ID:
        raise StoreError(
            f"item id {highest} of the bias table is larger than {_MAX_ID}, the largest that a "
            f"request may have: publish the ids as text"
        )
    return IntLookup(item_ids.astype(np.int64, copy=False))


def _require_ascending(ascends: bool) -> None:
    if not ascends:
        raise StoreError("item ids of the bias table are not in ascending order: publish it again")
