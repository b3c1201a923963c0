"""One partition's users: their lists and purchases, as the local kernels take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.threads import ranges

_CHUNK_ENTRIES = 1_000_000  # of lists in a chunk: about 12 MB


class Share(NamedTuple):
    """Units of one partition, in the order of their ids."""

    lists: Lists
    bought: Sets
    weights: Floats  # of units
    users: Ints  # of units: codes over all partitions
    windows: Codes  # of units
    first: int  # units of partitions before this one

    @property
    def n_units(self) -> int:
        """Units here."""
        return self.lists.n_units

    @property
    def units(self) -> Ints:
        """Codes of the units over all partitions."""
        return np.arange(self.first, self.first + self.n_units)

    @property
    def judged(self) -> Flags:
        """Units that bought something."""
        flags: Flags = np.diff(self.bought.indptr) > 0
        return flags

    def take(self, chosen: Ints) -> Share:
        """Some of the units; their codes are no longer known."""
        return Share(
            self.lists.take(chosen), self.bought.take(chosen), self.weights[chosen],
            self.users[chosen], self.windows[chosen], -1,
        )  # fmt: skip

    def chunks(self) -> Iterator[bytes]:
        """As Arrow streams of bounded size, units in order."""
        n_chunks = 1 + len(self.lists.items) // _CHUNK_ENTRIES
        batch = pa.record_batch(
            {
                "items": _as_lists(self.lists.indptr, self.lists.items),
                "scores": _as_lists(self.lists.indptr, self.lists.scores),
                "bought": _as_lists(*self.bought),
                "weight": self.weights,
                "user": self.users,
                "window": self.windows,
            }
        )
        for start, stop in ranges(self.n_units, n_chunks):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch.slice(start, stop - start))
            yield out.getvalue().to_pybytes()

    @staticmethod
    def join(chunks: Iterable[Any], first_user: int, first: int) -> Share:
        """The share that was cut into chunks.

        Args:
            chunks: in order.
            first_user: users of partitions before this one.
            first: units of those.
        """
        table = pa.concat_tables([pa.ipc.open_stream(chunk).read_all() for chunk in chunks])
        indptr, items = _from_lists(table["items"])
        _, scores = _from_lists(table["scores"])
        return Share(
            Lists(indptr, items, scores),
            Sets(*_from_lists(table["bought"])),
            _own(table["weight"]),
            _own(table["user"]) + first_user,
            _own(table["window"]),
            first,
        )


def _as_lists(indptr: Ints, values: Any) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(indptr), pa.array(values))


def _from_lists(column: pa.ChunkedArray) -> tuple[Ints, Any]:
    lengths = np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks])
    values = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([[0], np.cumsum(lengths)]), np.concatenate(values)


def _own(column: pa.ChunkedArray) -> Any:
    """A column as an array that kernels may write to."""
    return np.array(column.to_numpy())
