"""Lists from the explicit entries of a sparse matrix of scores, users x items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.numbered_lists import ScoredRows, recs_from_source
from trimtab.adapters.request import Request
from trimtab.arrays import Flags, Ints, Lists
from trimtab.checks import require_scipy_sparse
from trimtab.errors import DataError


@dataclass(frozen=True)
class SparseSource:
    """A source of lists from rows of a sparse matrix."""

    rows_of: Callable[[Ints], Any]  # user numbers to a CSR matrix with one row per user
    n_users: int
    n_items: int
    known: Any | None = None  # user-item matrix of items to leave out
    users_per_block: int = 1024

    def lists(self, rows: Ints, n: int, items: NumberedIds) -> Lists:
        """Return the n best items of each user, as codes."""
        block = self.rows_of(rows)
        units = np.repeat(np.arange(len(rows)), np.diff(block.indptr))
        found = ScoredRows(units, block.indices, block.data)
        if self.known is not None:
            hidden = _is_known(found, self.known[rows], self.n_items)
            found = ScoredRows(*(values[~hidden] for values in found))
        return found.with_codes(items).rank(len(rows), n, self.n_items)


def _is_known(found: ScoredRows, known: Any, n_items: int) -> Flags:
    """Return whether each entry is also in a matrix with the same rows."""
    units = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    return np.isin(found.units * n_items + found.items, units * n_items + known.indices)


def make_recs(model: Any, request: Request) -> Any:
    """Return lists from the explicit entries of a score matrix; repeated entries are summed."""
    request.refuse_features("a score matrix")
    if len(model.shape) != 2:
        raise DataError(f"the score matrix has {len(model.shape)} axes: it must be users x items")
    if not (np.issubdtype(model.dtype, np.floating) or np.issubdtype(model.dtype, np.integer)):
        raise DataError(f"the score matrix holds {model.dtype}: it must be numeric; cast it")
    n_users, n_items = model.shape
    scores = require_scipy_sparse("a sparse matrix").csr_matrix(model)

    def rows_of(rows: Ints) -> Any:
        block = scores[rows].astype(np.float64)
        block.sum_duplicates()
        return block

    known = request.known_matrix(n_users, n_items)
    return recs_from_source(SparseSource(rows_of, n_users, n_items, known), request)
