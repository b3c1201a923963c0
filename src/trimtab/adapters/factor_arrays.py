"""Lists from any pair of user and item factors; the score is their dot product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.numbered_lists import SCORE_LIMIT, recs_from_source
from trimtab.adapters.request import Request, known_sets
from trimtab.arrays import Ints, Lists, close_lists, split_into_blocks
from trimtab.errors import DataError
from trimtab.threads import run_ranges


@dataclass(frozen=True)
class FactorSource:
    """A source of exact lists from factors, in double precision."""

    users: NDArray[Any]  # users x factors
    items: NDArray[Any]  # items x factors
    known: Any | None = None  # user-item matrix of items to leave out
    users_per_block: int = 65_536

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    def lists(self, rows: Ints, n: int, items: NumberedIds) -> Lists:
        """Return the n best items of each user, as codes."""
        from trimtab.kernels.compiling import compile_notice
        from trimtab.kernels.factor_products import BLOCK, rank_products

        blocks = split_into_blocks(self.items[items.numbers].astype(np.float64), BLOCK)
        units = np.ascontiguousarray(self.users[rows], np.float64)
        codes = np.empty(len(rows) * n, np.int32)
        scores = np.empty(len(rows) * n)
        lengths = np.empty(len(rows), np.int64)
        with compile_notice():
            run_ranges(
                rank_products, len(rows), n, self.n_items, SCORE_LIMIT, units, blocks,
                *known_sets(self.known, rows, items), codes, scores, lengths,
            )  # fmt: skip
        return close_lists(codes, scores, lengths, n)


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from (user_factors, item_factors)."""
    request.refuse_features("factors")
    users, items = (_read(name, f) for name, f in zip(_NAMES, model, strict=True))
    if users.shape[1] != items.shape[1]:
        raise DataError(
            f"user_factors has {users.shape[1]} columns; item_factors has {items.shape[1]}: both "
            f"need one column per factor"
        )
    return recs_from_source(
        FactorSource(users, items, request.known_matrix(len(users), len(items))), request
    )


_NAMES = ("user_factors", "item_factors")


def _read(name: str, factors: Any) -> NDArray[Any]:
    array = np.asarray(factors)
    if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} holds {array.dtype}: it must be numeric; cast the array")
    return array
