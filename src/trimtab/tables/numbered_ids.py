"""Ids given in any form, and the ids of a model's numbered users or items."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Ints, find_positions
from trimtab.errors import DataError, warn
from trimtab.tables.columns import USER
from trimtab.tables.frames import as_id_column, read_frame, take_ids
from trimtab.tables.vocabulary import encode_ids, id_column


def id_values(values: Any, name: str, column: str) -> pa.ChunkedArray:
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


@dataclass(frozen=True)
class NumberedIds:
    """The ids of users or items that a model knows by number."""

    column: str
    ids: Any  # ascending: int64 array or Arrow strings
    codes: Codes  # by number: position of its id in `ids`

    @staticmethod
    def read(values: Any | None, size: int, name: str, column: str) -> NumberedIds:
        """Return the ids of `size` numbers; for None, the numbers themselves.

        Args:
            values: one distinct id for each number.
            size: number of ids needed.
            name: argument to name in errors.
            column: column that the ids belong to.
        """
        if values is None:
            return NumberedIds.ascending(column, np.arange(size))
        given = id_values(values, name, column)
        if len(given) != size:
            raise DataError(
                f"{name} has {len(given)} ids, but the model has {size}: pass one id for each, in "
                f"the order of the model"
            )
        ids, (codes,) = encode_ids([id_column(name, column, given)])
        if len(ids) < size:
            counts = np.bincount(codes)
            (repeated,) = take_ids(ids, np.array([counts.argmax()]))
            raise DataError(f"{name} has {repeated} more than once; ids must be distinct")
        return NumberedIds(column, ids, codes)

    @staticmethod
    def ascending(column: str, ids: Any) -> NumberedIds:
        """Return ids that are numbered in their own order."""
        return NumberedIds(column, ids, np.arange(len(ids), dtype=np.int32))

    @property
    def numbers(self) -> Ints:
        """The number of each id in `ids`."""
        numbers = np.empty(len(self.codes), np.int64)
        numbers[self.codes] = np.arange(len(self.codes))
        return numbers

    def find(self, users: Any | None) -> Ints:
        """Return the positions in `ids` of the given users, ascending, without unknown users.

        A warning gives the number of unknown users.
        """
        if users is None:
            return np.arange(len(self.ids))
        wanted = id_values(users, "users", USER)
        if len(wanted) == 0 or len(self.ids) == 0:
            n_users = len(pc.unique(wanted))
            warn_of_missing(n_users, n_users, "the model has no users")
            return np.empty(0, np.int64)
        ours = as_id_column("the model", self.column, self.ids)
        _, (known, asked) = encode_ids([ours, id_column("users", USER, wanted)])
        asked = np.unique(asked)
        positions = np.sort(find_positions(known, asked)).astype(np.int64)
        positions = positions[positions >= 0]
        warn_of_missing(len(asked) - len(positions), len(asked), "the model does not know them")
        return positions


def warn_of_missing(n_missing: int, n_users: int, reason: str) -> None:
    """Warn that some of the users asked for get no list.

    Args:
        n_missing: number of them.
        n_users: distinct users asked for.
        reason: why, as part of a sentence.
    """
    if n_missing:
        warn(
            f"{n_missing} of {n_users} users get no list: {reason}; check that users and model "
            f"have the same ids"
        )
