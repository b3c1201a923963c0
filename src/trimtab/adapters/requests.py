"""The arguments of `recs_from`, the matrix that most libraries train on, and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.checks import require_scipy_sparse
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, USER, read_frame
from trimtab.tables.vocabulary import Vocabulary


class UserItems(NamedTuple):
    """A matrix of how often each user bought each item, and the ids of its rows and columns."""

    matrix: Any  # scipy.sparse.csr_matrix of float64, users x items
    user_ids: Any  # id of each row, ascending: int64 array or Arrow strings
    item_ids: Any  # id of each column, ascending


def user_items(events: Any) -> UserItems:
    """Return how often each user bought each item, as a sparse matrix with its ids.

    Args:
        events: user_id, item_id; other columns are ignored.

    Returns:
        `matrix`, a SciPy CSR matrix of counts, users x items; `user_ids` by row and `item_ids` by
        column, both ascending. Pass it to `recs_from` as `data=`; it includes the ids.

    Example:
        >>> import pyarrow as pa
        >>> bought = user_items(pa.table({"user_id": [7, 7, 9], "item_id": ["b", "b", "a"]}))
        >>> bought.matrix.toarray().tolist(), bought.user_ids.tolist()
        ([[0.0, 2.0], [1.0, 0.0]], [7, 9])
    """
    table = read_frame(events, "events", USER, ITEM)
    users, (user_codes,) = Vocabulary.encode(table.ids(USER))
    items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
    entries = (np.ones(len(table)), (user_codes, item_codes))
    sparse = require_scipy_sparse("a sparse matrix")
    return UserItems(sparse.csr_matrix(entries, (len(users), len(items))), users.ids, items.ids)


@dataclass
class Request:
    """The arguments of `recs_from`, without the model; ids of `UserItems` where none were given."""

    users: Any | None
    n: int
    data: Any | None
    user_ids: Any | None
    item_ids: Any | None
    user_features: Any | None
    item_features: Any | None
    exclude_known: bool

    def __post_init__(self) -> None:
        if isinstance(self.data, UserItems):
            self.user_ids = self.data.user_ids if self.user_ids is None else self.user_ids
            self.item_ids = self.data.item_ids if self.item_ids is None else self.item_ids
            self.data = self.data.matrix

    def matrix(self, what: str, n_users: int | None = None, n_items: int | None = None) -> Any:
        """Return `data` as a CSR matrix, users x items; raise if it is missing or misshapen."""
        if self.data is None:
            raise DataError(
                f"data=None: {what} the user-item matrix that the model was trained on; pass a "
                f"scipy.sparse matrix or trimtab.user_items(events)"
            )
        if not is_sparse(self.data):
            raise DataError(
                f"data is a {type(self.data).__name__}: it must be a scipy.sparse matrix, users x "
                f"items; pass trimtab.user_items(events)"
            )
        shape = tuple(self.data.shape)
        if shape != (n_users or shape[0], n_items or shape[1]):
            raise DataError(
                f"data has {shape[0]} users and {shape[1]} items, but the model has {n_users} and "
                f"{n_items}; pass the matrix that the model was trained on"
            )
        return require_scipy_sparse("a sparse matrix").csr_matrix(self.data)

    def known_matrix(self, n_users: int, n_items: int) -> Any | None:
        """Return the matrix of items that users already have, or None if they may stay."""
        if self.data is None and not self.exclude_known:
            return None
        matrix = self.matrix("exclude_known=True needs", n_users, n_items)
        return matrix if self.exclude_known else None

    def dataset(self, library: str, name: str, *parts: str) -> tuple[Any, ...]:
        """Return attributes of a library's dataset; raise if `data` is missing or something else.

        Args:
            library: which models need it, as in "RecTools models".
            name: its class.
            parts: the attributes.
        """
        if not all(hasattr(self.data, part) for part in parts):
            given = "missing" if self.data is None else f"a {type(self.data).__name__}"
            raise DataError(f"data is {given}: {library} need their training dataset, a {name}")
        return tuple(getattr(self.data, part) for part in parts)


def is_sparse(value: Any) -> bool:
    """Return whether a value is a SciPy sparse matrix or array, without importing SciPy."""
    return any(kind.__module__.startswith("scipy.sparse") for kind in type(value).__mro__)
