"""The ids of a model's numbered users or items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from trimtab.arrays import Codes, Ints
from trimtab.errors import DataError, warn
from trimtab.tables.columns import USER
from trimtab.tables.frames import id_values
from trimtab.tables.vocabulary import Vocabulary, id_column


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
        ids, (codes,) = Vocabulary.encode(id_column(name, column, given))
        if len(ids) < size:
            repeated = ids[np.bincount(codes).argmax()]
            raise DataError(f"{name} has {repeated} more than once; ids must be distinct")
        return NumberedIds(column, ids.ids, codes)

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
        asked, _ = Vocabulary.encode(id_column("users", USER, wanted))
        known = Vocabulary(self.ids, "the model", self.column).codes(asked.column)
        positions = known[known >= 0].astype(np.int64)  # they ascend, as both have the same order
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
