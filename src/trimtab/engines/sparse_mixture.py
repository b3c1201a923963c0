"""Sparse rows of item scores, and lists from weighted sums of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, close_lists, entries_of
from trimtab.engines.purchases import pointers
from trimtab.threads import run_ranges


class Rows(NamedTuple):
    """Rows of (item, value), in CSR form; places number the items, most common first."""

    indptr: Ints
    places: Codes
    values: Floats
    item_of: Codes  # item code by place


class Mix(NamedTuple):
    """The rows that each unit adds up, and their weights, in CSR form."""

    indptr: Ints
    rows: Codes
    weights: Floats

    def take(self, units: Codes) -> Mix:
        """Return the mixes of the given units; an empty one for -1."""
        with_empty = np.append(self.indptr, self.indptr[-1])  # unit -1 is the last row
        indptr, entries = entries_of(with_empty, units)
        return Mix(indptr, self.rows[entries], self.weights[entries])


def mix_lists(mix: Mix, rows: Rows, n: int) -> Lists:
    """Return the n best items of each unit, best first, ties by item."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.row_mixtures import mix_rows

    n_units = len(mix.indptr) - 1
    n = max(1, min(n, len(rows.item_of)))
    items = np.empty(n_units * n, np.int32)
    scores = np.empty(n_units * n)
    lengths = np.zeros(n_units, np.int64)
    with compile_notice():
        run_ranges(mix_rows, n_units, n, *mix, *rows, items, scores, lengths)
    return close_lists(items, scores, lengths, n)


def stack_rows(first: Rows, second: Rows) -> Rows:
    """Return the rows of the first, then those of the second; both number items the same way."""
    indptr = np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]])
    places = np.concatenate([first.places, second.places])
    values = np.concatenate([first.values, second.values])
    return Rows(indptr, places, values, first.item_of)


def commonest_first(shares: Mix, n_items: int) -> Rows:
    """Return shares of items by group as rows, with items numbered by how many groups have them."""
    counts = np.bincount(shares.rows, minlength=n_items)
    item_of = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.int32)
    place_of = np.empty(n_items, np.int32)
    place_of[item_of] = np.arange(len(item_of), dtype=np.int32)
    return Rows(shares.indptr, place_of[shares.rows], shares.weights, item_of)


def share_rows(
    groups: Codes, members: Codes, weights: Floats, n_groups: int, n_members: int
) -> Mix:
    """Return each member's share of its group's weight, by group, members ascending."""
    key = groups.astype(np.int64) * n_members + members
    order = np.lexsort((weights, key))  # sums do not depend on the order of rows
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    sums = np.add.reduceat(weights[order], starts) if len(starts) else np.empty(0)
    group, member = np.divmod(key[order][starts], n_members)
    totals = np.bincount(group, sums, minlength=n_groups)
    values = np.divide(sums, totals[group], out=np.zeros(len(sums)), where=sums > 0)
    return Mix(pointers(group.astype(np.int32), n_groups), member.astype(np.int32), values)
