"""Sparse rows of item scores, and lists from weighted sums of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, close_lists, entries_of
from trimtab.engines.base import pointers
from trimtab.threads import run_ranges


class Sparse(NamedTuple):
    """A matrix in CSR form: the scores of items by row, or the weights of rows by user."""

    indptr: Ints
    columns: Codes
    values: Floats

    def take(self, rows: Codes) -> Sparse:
        """Return the given rows; an empty one for -1."""
        with_empty = np.append(self.indptr, self.indptr[-1])  # row -1 is the last one
        indptr, entries = entries_of(with_empty, rows)
        return Sparse(indptr, self.columns[entries], self.values[entries])


def mix_lists(weights: Sparse, rows: Sparse, n_items: int, n: int) -> Lists:
    """Return the n best items of each user, by the weighted sum of rows, ties by item."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.row_mixtures import mix_rows

    n_users = len(weights.indptr) - 1
    n = min(n, n_items)
    items = np.empty(n_users * n, np.int32)
    scores = np.empty(n_users * n)
    lengths = np.zeros(n_users, np.int64)
    with compile_notice():
        run_ranges(mix_rows, n_users, n, n_items, *weights, *rows, items, scores, lengths)
    return close_lists(items, scores, lengths, n)


def sum_entries(
    rows: Codes | Ints, columns: Codes | Ints, values: Floats, n_rows: int, n_columns: int
) -> Sparse:
    """Return a matrix from entries in any order, repeated ones summed."""
    key = rows.astype(np.int64) * n_columns + columns
    order = np.lexsort((values, key))  # sums do not depend on the order of entries
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    sums = np.add.reduceat(values[order], starts) if len(starts) else np.empty(0)
    row, column = np.divmod(key[starts], n_columns)
    return Sparse(pointers(row, n_rows), column.astype(np.int32), sums)


def share_rows(
    groups: Codes, members: Codes, weights: Floats, n_groups: int, n_members: int
) -> Sparse:
    """Return each member's share of its group's weight, by group, members ascending."""
    sums = sum_entries(groups, members, weights, n_groups, n_members)
    group = np.repeat(np.arange(n_groups), np.diff(sums.indptr))
    totals = np.bincount(group, sums.values, minlength=n_groups)[group]
    shares = np.divide(sums.values, totals, out=np.zeros(len(totals)), where=sums.values > 0)
    return sums._replace(values=shares)
