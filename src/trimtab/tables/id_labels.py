"""Ids given in any form, and the ids of numbered rows or columns."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Ints
from trimtab.errors import DataError
from trimtab.tables.columns import USER
from trimtab.tables.frames import known_ids, read_frame, take_ids
from trimtab.tables.ids import encode_ids, id_column


def id_values(values: Any, name: str, column: str) -> pa.ChunkedArray:
    """Ids given as a frame, a series, an Arrow or NumPy array, or anything to iterate over.

    Args:
        values: the ids; of a frame, those in `column`.
        name: what to call them in errors.
        column: the column that they belong to.
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
            f"{name}, a {type(values).__name__}, cannot be read as ids ({error}); pass whole "
            f"numbers of 64 bits or strings, or a frame with '{column}'"
        ) from error
    return pa.chunked_array([array])


@dataclass(frozen=True)
class Labels:
    """The ids of numbered rows or columns."""

    column: str
    ids: Any  # ascending: int64 array or Arrow strings
    codes: Codes  # by number: the place of its id among `ids`

    @staticmethod
    def read(values: Any | None, size: int, name: str, column: str) -> Labels:
        """Labels of `size` numbers; the numbers themselves for None.

        Args:
            values: one id for each number, each once.
            size: how many there must be.
            name: what to call them in errors.
            column: the column that they belong to.
        """
        if values is None:
            return Labels(column, np.arange(size), np.arange(size, dtype=np.int32))
        given = id_values(values, name, column)
        if len(given) != size:
            raise DataError(
                f"{name} has {len(given)} ids, but the model has {size}: give one for each of its "
                f"numbers, in their order"
            )
        ids, (codes,) = encode_ids([id_column(name, column, given)])
        if len(ids) < size:
            counts = np.bincount(codes)
            (repeated,) = take_ids(ids, np.array([counts.argmax()]))
            raise DataError(f"{name} has {repeated} more than once; give each number its own id")
        return Labels(column, ids, codes)

    @property
    def numbers(self) -> Ints:
        """By place among `ids`: the number that has the id."""
        numbers = np.empty(len(self.codes), np.int64)
        numbers[self.codes] = np.arange(len(self.codes))
        return numbers

    def find(self, users: Any | None) -> Ints:
        """Places among `ids` of the users asked for, ascending; those not known are left out."""
        if users is None:
            return np.arange(len(self.ids))
        asked = id_values(users, "users", USER)
        if len(asked) == 0 or len(self.ids) == 0:
            return np.empty(0, np.int64)
        ours = known_ids("the model", self.column, self.ids)
        ids, (known, wanted) = encode_ids([ours, id_column("users", USER, asked)])
        back = np.full(len(ids), -1)
        back[known] = np.arange(len(known))
        places: Ints = np.unique(back[wanted])
        return places[places >= 0]
