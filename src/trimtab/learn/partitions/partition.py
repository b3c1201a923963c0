"""One partition's users: their lists and purchases, in the form of the local kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, entries_of
from trimtab.threads import ranges

_CHUNK_ENTRIES = 1_000_000  # of lists in a chunk: about 12 MB


class Partition(NamedTuple):
    """Units of one partition, in the order of their ids."""

    lists: Lists
    bought: Sets
    weights: Floats  # of units
    users: Ints  # of units: codes over all partitions
    windows: Codes  # of units
    units: Ints  # codes over all partitions
    hits: Flags  # of entries: whether the unit bought it; empty where not looked up

    @property
    def n_units(self) -> int:
        """Units here."""
        return self.lists.n_units

    @property
    def buys(self) -> Flags:
        """Which units bought something."""
        flags: Flags = np.diff(self.bought.indptr) > 0
        return flags

    def take(self, chosen: Ints) -> Partition:
        """Some of the units."""
        hits = self.hits
        if len(hits):
            hits = hits[entries_of(self.lists.indptr, chosen)[1]]
        return Partition(
            self.lists.take(chosen), self.bought.take(chosen), self.weights[chosen],
            self.users[chosen], self.windows[chosen], self.units[chosen], hits,
        )  # fmt: skip

    def chunks(self) -> Iterator[bytes]:
        """The partition as Arrow streams of bounded size, units in order."""
        n_chunks = 1 + len(self.lists.items) // _CHUNK_ENTRIES
        columns = {
            "items": _as_lists(self.lists.indptr, self.lists.items),
            "scores": _as_lists(self.lists.indptr, self.lists.scores),
            "bought": _as_lists(*self.bought),
            "weight": self.weights,
            "user": self.users,
            "window": self.windows,
            "unit": self.units,
        }
        if len(self.hits):
            columns["hits"] = _as_lists(self.lists.indptr, self.hits.view(np.uint8))
        batch = pa.record_batch(columns)
        for start, stop in ranges(self.n_units, n_chunks):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch.slice(start, stop - start))
            yield out.getvalue().to_pybytes()

    @staticmethod
    def join(chunks: Iterable[Any], first_user: int, first: int) -> Partition:
        """The partition that was cut into chunks.

        Args:
            chunks: in order.
            first_user: users of partitions before this one, if codes do not yet count them.
            first: units of those.
        """
        table = pa.concat_tables([pa.ipc.open_stream(chunk).read_all() for chunk in chunks])
        indptr, items = _from_lists(table["items"])
        _, scores = _from_lists(table["scores"])
        hits = np.empty(0, bool)
        if "hits" in table.column_names:
            hits = _from_lists(table["hits"])[1].view(bool)
        return Partition(
            Lists(indptr, items, scores),
            Sets(*_from_lists(table["bought"])),
            _own(table["weight"]),
            _own(table["user"]) + first_user,
            _own(table["window"]),
            _own(table["unit"]) + first,
            hits,
        )


def join_partitions(parts: Sequence[Partition]) -> Partition:
    """Partitions as one, in their order; each has codes over all partitions."""
    if len(parts) == 1:
        return parts[0]
    lists, bought = [part.lists for part in parts], [part.bought for part in parts]
    return Partition(
        Lists(_join_bounds(lists), *(np.concatenate([own[c] for own in lists]) for c in (1, 2))),
        Sets(_join_bounds(bought), np.concatenate([own.items for own in bought])),
        *(np.concatenate([part[c] for part in parts]) for c in range(2, len(Partition._fields))),
    )


def _join_bounds(rows: Sequence[Lists] | Sequence[Sets]) -> Ints:
    lengths = [np.diff(own.indptr) for own in rows]
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))])


def _as_lists(indptr: Ints, values: Any) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(indptr), pa.array(values))


def _from_lists(column: pa.ChunkedArray) -> tuple[Ints, Any]:
    lengths = np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks])
    values = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(values)


def _own(column: pa.ChunkedArray) -> Any:
    """A column as a writeable array."""
    return np.array(column.to_numpy())
