"""Any sparse matrix of scores, users x items: its explicit entries are the lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.adapters.numbered_lists import Found, recs_of
from trimtab.adapters.request import Request
from trimtab.adapters.training_matrix import scipy_sparse
from trimtab.arrays import Flags, Ints, Lists
from trimtab.errors import DataError
from trimtab.tables.id_labels import Labels


@dataclass(frozen=True)
class SparseScores:
    """A source of lists from rows of a sparse matrix."""

    rows_of: Callable[[Ints], Any]  # numbers of users to a CSR matrix with a row for each
    n_users: int
    n_items: int
    known: Any | None = None  # matrix of what users must not get
    at_once: int = 1024

    def lists(self, rows: Ints, n: int, items: Labels) -> Lists:
        """The n best items of each row, as codes."""
        block = self.rows_of(rows)
        units = np.repeat(np.arange(len(rows)), np.diff(block.indptr))
        found = Found(units, block.indices, block.data)
        if self.known is not None:
            hidden = _among(found, self.known[rows], self.n_items)
            found = Found(*(values[~hidden] for values in found))
        return found.coded(items).ranked(len(rows), n, self.n_items)


def _among(found: Found, known: Any, n_items: int) -> Flags:
    """Which of the entries a matrix with the same rows has too."""
    units = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr))
    return np.isin(found.units * n_items + found.items, units * n_items + known.indices)


def recs(model: Any, request: Request) -> Any:
    """Lists from the explicit entries of a score matrix; repeated entries are added up."""
    request.refuse_features("a score matrix")
    if len(model.shape) != 2:
        raise DataError(f"the score matrix has {len(model.shape)} axes: it must be users x items")
    if not (np.issubdtype(model.dtype, np.floating) or np.issubdtype(model.dtype, np.integer)):
        raise DataError(f"the score matrix holds {model.dtype}: it must be numbers; cast it")
    n_users, n_items = model.shape
    scores = scipy_sparse().csr_matrix(model)

    def rows_of(rows: Ints) -> Any:
        block = scores[rows].astype(np.float64)
        block.sum_duplicates()
        return block

    known = request.known(n_users, n_items)
    return recs_of(SparseScores(rows_of, n_users, n_items, known), request)
