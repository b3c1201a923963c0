"""Sparse rows of item scores, and lists that mix them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.engines.purchases import pointers
from trimtab.threads import run_ranges


class Rows(NamedTuple):
    """Rows of (item, value), in CSR form; items by their place among all, commonest first."""

    indptr: Ints
    places: Codes
    values: Floats
    item_of: Codes  # by place


class Mix(NamedTuple):
    """Which rows each unit mixes, and with what weights, in CSR form."""

    indptr: Ints
    rows: Codes
    weights: Floats

    def take(self, units: Codes) -> Mix:
        """The mixes of the given units; none for -1."""
        starts = self.indptr[units]
        lengths = np.where(units < 0, 0, self.indptr[units + 1] - starts)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - starts, lengths)
        return Mix(indptr, self.rows[places], self.weights[places])


def mix_lists(mix: Mix, rows: Rows, n: int) -> Lists:
    """The n best items of each unit, best first, ties by item."""
    from trimtab.kernels.compiling import compile_notice
    from trimtab.kernels.row_mixtures import mix_rows

    n_units = len(mix.indptr) - 1
    n = max(1, min(n, len(rows.item_of)))
    items = np.empty(n_units * n, np.int32)
    scores = np.empty(n_units * n)
    lengths = np.zeros(n_units, np.int64)
    with compile_notice():
        run_ranges(
            mix_rows, n_units, n, *mix, *rows, items, scores, lengths
        )  # fmt: skip
    return close_lists(items, scores, lengths, n)


def close_lists(items: Codes, scores: Floats, lengths: Ints, n: int) -> Lists:
    """Lists from rows of n places each, of which only the first `lengths` are taken."""
    taken = (np.arange(n) < lengths[:, None]).ravel()
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Lists(indptr, items[taken], scores[taken])


def stack_rows(first: Rows, second: Rows) -> Rows:
    """Rows of the second after those of the first, which number items alike."""
    indptr = np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]])
    places = np.concatenate([first.places, second.places])
    values = np.concatenate([first.values, second.values])
    return Rows(indptr, places, values, first.item_of)


def commonest_first(shares: Mix, n_items: int) -> Rows:
    """Shares of items by group as rows, items by how many groups have them."""
    counts = np.bincount(shares.rows, minlength=n_items)
    item_of = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].astype(np.int32)
    place_of = np.empty(n_items, np.int32)
    place_of[item_of] = np.arange(len(item_of), dtype=np.int32)
    return Rows(shares.indptr, place_of[shares.rows], shares.weights, item_of)


def share_rows(
    groups: Codes, members: Codes, weights: Floats, n_groups: int, n_members: int
) -> Mix:
    """Share of each member in its group's weight, by group, members ascending."""
    key = groups.astype(np.int64) * n_members + members
    order = np.lexsort((weights, key))  # sums do not depend on the order of rows
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    sums = np.add.reduceat(weights[order], starts) if len(starts) else np.empty(0)
    group, member = np.divmod(key[order][starts], n_members)
    totals = np.bincount(group, sums, minlength=n_groups)
    values = np.divide(sums, totals[group], out=np.zeros(len(sums)), where=sums > 0)
    return Mix(pointers(group.astype(np.int32), n_groups), member.astype(np.int32), values)
