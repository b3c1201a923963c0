"""The arguments of `recs_from`, and the checks that adapters share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.training_matrix import UserItems
from trimtab.arrays import Ints, Sets
from trimtab.checks import require_scipy_sparse
from trimtab.errors import DataError, SettingError
from trimtab.tables.lists import group_sets


@dataclass(frozen=True)
class Request:
    """The arguments of `recs_from`, without the model."""

    users: Any | None
    n: int
    data: Any | None
    user_ids: Any | None
    item_ids: Any | None
    user_features: Any | None
    item_features: Any | None
    exclude_known: bool

    def refuse(self, what: str, reasons: dict[str, str]) -> None:
        """Raise if an argument does not apply to this kind of model.

        Args:
            what: the kind of model.
            reasons: what to do instead, by argument.
        """
        for name, instead in reasons.items():
            value = getattr(self, name)
            if value is not None and value is not False:
                shown = "True" if value is True else f"a {type(value).__name__}"
                raise SettingError(f"{name}={shown}: not used with {what}; {instead}")

    def refuse_features(self, what: str) -> None:
        """Raise if features are given, which only LightFM uses."""
        reason = "leave it out: only LightFM uses features"
        self.refuse(what, {"user_features": reason, "item_features": reason})

    def with_ids(self) -> Request:
        """Return the request with the ids of `UserItems` where none were given."""
        if not isinstance(self.data, UserItems):
            return self
        return replace(
            self,
            data=self.data.matrix,
            user_ids=self.data.user_ids if self.user_ids is None else self.user_ids,
            item_ids=self.data.item_ids if self.item_ids is None else self.item_ids,
        )

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

    def dataset(self, what: str, *parts: str) -> tuple[Any, ...]:
        """Return the parts of a library's dataset; raise if `data` is missing or something else.

        Args:
            what: which models need it, and its class.
            parts: attribute names.
        """
        if not all(hasattr(self.data, part) for part in parts):
            given = "missing" if self.data is None else f"a {type(self.data).__name__}"
            raise DataError(f"data is {given}: {what}")
        return tuple(getattr(self.data, part) for part in parts)

    def known_matrix(self, n_users: int, n_items: int) -> Any | None:
        """Return the matrix of items that users already have, or None if they may stay."""
        if self.data is None and not self.exclude_known:
            return None
        matrix = self.matrix("exclude_known=True needs", n_users, n_items)
        return matrix if self.exclude_known else None


def is_sparse(value: Any) -> bool:
    """Return whether a value is a SciPy sparse matrix or array, without importing SciPy."""
    return any(kind.__module__.startswith("scipy.sparse") for kind in type(value).__mro__)


def known_sets(known: Any | None, rows: Ints, items: NumberedIds) -> Sets:
    """Return the items that each user already has, as codes; empty sets without a matrix."""
    if known is None:
        return Sets(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32))
    block = known[rows]
    units = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(block.indptr))
    return group_sets(units, items.codes[block.indices], len(rows))
