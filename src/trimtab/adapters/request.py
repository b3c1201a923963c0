"""What `recs_from` was asked for, and the checks that adapters share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.adapters.training_matrix import UserItems, scipy_sparse
from trimtab.arrays import Ints, Sets
from trimtab.errors import DataError, SettingError
from trimtab.tables.frames import group_sets
from trimtab.tables.id_labels import Labels


@dataclass(frozen=True)
class Request:
    """The arguments of `recs_from`, beside the model."""

    users: Any | None
    n: int
    data: Any | None
    user_ids: Any | None
    item_ids: Any | None
    user_features: Any | None
    item_features: Any | None
    exclude_known: bool

    def refuse(self, what: str, reasons: dict[str, str]) -> None:
        """Refuse arguments that mean nothing for this kind of model.

        Args:
            what: the kind of model.
            reasons: by argument, what to do instead.
        """
        for name, instead in reasons.items():
            value = getattr(self, name)
            if value is not None and value is not False:
                shown = "True" if value is True else f"a {type(value).__name__}"
                raise SettingError(f"{name}={shown}: not for {what}; {instead}")

    def refuse_features(self, what: str) -> None:
        """Refuse features, which only LightFM has."""
        reason = "leave it out: only LightFM has features beside its model"
        self.refuse(what, {"user_features": reason, "item_features": reason})

    def with_labels(self) -> Request:
        """The same, with the ids of `UserItems` where none were given."""
        if not isinstance(self.data, UserItems):
            return self
        return replace(
            self,
            data=self.data.matrix,
            user_ids=self.data.user_ids if self.user_ids is None else self.user_ids,
            item_ids=self.data.item_ids if self.item_ids is None else self.item_ids,
        )

    def matrix(self, what: str, n_users: int | None = None, n_items: int | None = None) -> Any:
        """`data` as a CSR matrix, users x items; refuses its absence and other shapes."""
        if self.data is None:
            raise DataError(
                f"{what} data=, the user-item matrix that the model was trained on: a "
                f"scipy.sparse matrix, or what trimtab.user_items(events) gives"
            )
        if not is_sparse(self.data):
            raise DataError(
                f"data is a {type(self.data).__name__}: it must be a scipy.sparse matrix, users x "
                f"items; trimtab.user_items(events) gives one"
            )
        shape = tuple(self.data.shape)
        if shape != (n_users or shape[0], n_items or shape[1]):
            raise DataError(
                f"data has {shape[0]} users and {shape[1]} items, but the model {n_users} and "
                f"{n_items}; pass the matrix that the model was trained on"
            )
        return scipy_sparse().csr_matrix(self.data)

    def dataset(self, what: str, *parts: str) -> tuple[Any, ...]:
        """The parts of a library's own dataset; refuses its absence and anything else.

        Args:
            what: who needs it, and what it is.
            parts: names of attributes.
        """
        if not all(hasattr(self.data, part) for part in parts):
            given = "missing" if self.data is None else f"a {type(self.data).__name__}"
            raise DataError(f"data is {given}: {what}")
        return tuple(getattr(self.data, part) for part in parts)

    def known(self, n_users: int, n_items: int) -> Any | None:
        """The matrix of what users have already, if it is to be left out."""
        if self.data is None and not self.exclude_known:
            return None
        matrix = self.matrix("exclude_known=True needs", n_users, n_items)
        return matrix if self.exclude_known else None


def is_sparse(value: Any) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays; SciPy is not imported for that."""
    return any(kind.__module__.startswith("scipy.sparse") for kind in type(value).__mro__)


def hidden_sets(known: Any | None, rows: Ints, items: Labels) -> Sets:
    """What each of the rows must not get, as codes; nothing without a matrix."""
    if known is None:
        return Sets(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32))
    block = known[rows]
    units = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(block.indptr))
    return group_sets(units, items.codes[block.indices], len(rows))
