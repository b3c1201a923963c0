"""From ids to rows of a bias table, quick for one short list."""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import StoreError

_LEAST_SPAN = 2**20
_CHUNK = 2_000  # ids at a time: a few hundred microseconds in which requests must wait


class Lookup(Protocol):
    """Rows of a table's ids."""

    @property
    def kind(self) -> type:
        """Of the ids: int or str."""

    def find(self, ids: list[Any]) -> Ints:
        """Rows of the ids; -1 for those that the table does not know."""

    def ids_at(self, rows: Ints) -> list[Any]:
        """The ids of rows."""


def make_lookup(item_ids: Any) -> Lookup:
    """The lookup of a table; refuses one whose ids do not ascend."""
    return WholeLookup(item_ids) if isinstance(item_ids, np.ndarray) else TextLookup(item_ids)


class WholeLookup:
    """Rows of integers: from a table where they lie close together, by bisection elsewhere."""

    kind = int

    def __init__(self, item_ids: Ints) -> None:
        _require_ascending(bool(np.all(item_ids[1:] > item_ids[:-1])))
        self._ids = item_ids
        self._lowest = int(item_ids[0]) if len(item_ids) else 0
        self._highest = int(item_ids[-1]) if len(item_ids) else -1
        self._rows: Ints | None = None
        span = self._highest - self._lowest + 1
        if span <= 4 * len(item_ids) + _LEAST_SPAN:
            self._rows = np.full(span, -1)
            self._rows[item_ids - self._lowest] = np.arange(len(item_ids))

    def find(self, ids: list[int]) -> Ints:
        """Rows of the ids; -1 for those that the table does not know."""
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
        """The ids of rows."""
        found: list[int] = self._ids[rows].tolist()
        return found


class TextLookup:
    """Rows of strings, by a dictionary that is made bit by bit."""

    kind = str

    def __init__(self, item_ids: pa.Array) -> None:
        ascends = pc.all(pc.less(item_ids[:-1], item_ids[1:]), min_count=0)
        _require_ascending(bool(ascends.as_py()))
        self._ids = item_ids
        self._rows: dict[str, int] = {}
        for start in range(0, len(item_ids), _CHUNK):
            ids = item_ids.slice(start, _CHUNK).to_pylist()
            self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))
            time.sleep(0)  # lets go of the interpreter's lock

    def find(self, ids: list[str]) -> Ints:
        """Rows of the ids; -1 for those that the table does not know."""
        row_of = self._rows.get
        return np.array([row_of(text, -1) for text in ids], np.int64)

    def ids_at(self, rows: Ints) -> list[str]:
        """The ids of rows."""
        found: list[str] = self._ids.take(pa.array(rows)).to_pylist()
        return found


def _require_ascending(ascends: bool) -> None:
    if not ascends:
        raise StoreError("the ids of the bias table do not ascend: publish a version that is whole")
