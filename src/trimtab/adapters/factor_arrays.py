"""Any pair of user and item factors: the score is their dot product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.numbered_lists import MOST, recs_of
from trimtab.adapters.request import Request, hidden_sets
from trimtab.arrays import Floats, Ints, Lists
from trimtab.engines.sparse_mixture import close_lists
from trimtab.errors import DataError
from trimtab.tables.id_labels import Labels
from trimtab.threads import run_ranges


@dataclass(frozen=True)
class Factors:
    """A source of exact lists from factors, in double precision."""

    users: NDArray[Any]  # users x factors
    items: NDArray[Any]  # items x factors
    known: Any | None = None  # matrix of what users must not get
    at_once: int = 65_536

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return len(self.items)

    def lists(self, rows: Ints, n: int, items: Labels) -> Lists:
        """The n best items of each row, as codes."""
        from trimtab.kernels.compiling import compile_notice
        from trimtab.kernels.factor_products import rank_products

        blocks = _in_blocks(self.items[items.numbers])
        units = np.ascontiguousarray(self.users[rows], np.float64)
        codes = np.empty(len(rows) * n, np.int32)
        scores = np.empty(len(rows) * n)
        lengths = np.empty(len(rows), np.int64)
        with compile_notice():
            run_ranges(
                rank_products, len(rows), n, self.n_items, MOST, units, blocks,
                *hidden_sets(self.known, rows, items), codes, scores, lengths,
            )  # fmt: skip
        return close_lists(codes, scores, lengths, n)


def _in_blocks(items: NDArray[Any]) -> Floats:
    """Item factors as blocks x factors x BLOCK, filled up with zeros."""
    from trimtab.kernels.factor_products import BLOCK

    n_items, n_factors = items.shape
    n_blocks = -(-n_items // BLOCK)
    filled = np.zeros((n_blocks * BLOCK, n_factors))
    filled[:n_items] = items
    return np.ascontiguousarray(filled.reshape(n_blocks, BLOCK, n_factors).transpose(0, 2, 1))


def recs(model: Any, request: Request) -> Any:
    """Lists from (user_factors, item_factors)."""
    request.refuse_features("factors")
    users, items = (_read(name, f) for name, f in zip(_NAMES, model, strict=True))
    if users.shape[1] != items.shape[1]:
        raise DataError(
            f"user_factors has {users.shape[1]} columns, but item_factors {items.shape[1]}: both "
            f"need one for each factor; pass users x factors and items x factors"
        )
    return recs_of(Factors(users, items, request.known(len(users), len(items))), request)


_NAMES = ("user_factors", "item_factors")


def _read(name: str, factors: Any) -> NDArray[Any]:
    array = np.asarray(factors)
    if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} holds {array.dtype}: it must be numbers; cast the array")
    return array
