"""The tables around a ranking: items aligned with biases, pairs to leave out, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Lists, Sets, find_positions
from trimtab.bias.table import WIDTH_90, BiasTable
from trimtab.errors import DataError
from trimtab.tables.columns import ITEM, RANK, SCORE, USER
from trimtab.tables.frames import read_frame, write_frame
from trimtab.tables.lists import CodedRecs, group_sets
from trimtab.tables.vocabulary import as_id_column, encode_ids, take_ids
from trimtab.threads import run_ranges

SCORE_TOO_LARGE = "a score of recs plus its bias is too large for a number; divide the scores"


@dataclass(frozen=True)
class AlignedItems:
    """The columns of a bias table for its own items and those of lists."""

    ids: Any
    lists: Lists  # with codes of these items
    listed: Codes  # codes of all items that are on a list
    known: Codes  # item codes of the bias table
    bias: Floats
    excluded: Flags
    fresh: Flags
    standard_error: Floats

    def unknown(self) -> Any:
        """Return the ids of listed items that are not in the bias table."""
        is_known = np.zeros(len(self.ids), bool)
        is_known[self.known] = True
        return take_ids(self.ids, self.listed[~is_known[self.listed]])


def align_items(table: BiasTable, coded: CodedRecs) -> AlignedItems:
    """Return the columns of a bias table for its own items and those of lists.

    The items of the given lists are overwritten by their new codes.
    """
    from trimtab.kernels.coding import recode

    ours = as_id_column("the bias table", ITEM, table.item_ids)
    theirs = as_id_column("recs", ITEM, coded.item_ids)
    ids, (from_recs, known) = encode_ids([theirs, ours])
    bias = np.zeros(len(ids))
    bias[known] = table.bias
    excluded = np.zeros(len(ids), bool)
    excluded[known] = table.excluded
    fresh = np.ones(len(ids), bool)
    fresh[known] = table.fresh
    errors = (table.high - table.low) / (2 * WIDTH_90)
    widest = float(np.nanmax(errors)) if np.isfinite(errors).any() else 0.0
    standard_error = np.full(len(ids), widest)
    standard_error[known] = np.nan_to_num(errors)
    # Without other items in the bias table, the codes stay the same.
    codes = coded.lists.items
    if len(ids) > len(coded.item_ids):
        run_ranges(recode, len(codes), codes, from_recs, codes)
    return AlignedItems(ids, coded.lists, from_recs, known, bias, excluded, fresh, standard_error)


def read_excluded_pairs(exclude: Any, coded: CodedRecs, item_ids: Any) -> Sets | None:
    """Return the items to leave out for each unit; pairs with unknown ids are ignored."""
    pairs = read_frame(exclude, "exclude", USER, ITEM, may_be_empty=True)
    if len(pairs) == 0:
        return None
    users = as_id_column("recs", USER, coded.units.users)
    _, (known_users, pair_users) = encode_ids([users, pairs.ids(USER)])
    _, (known_items, pair_items) = encode_ids(
        [as_id_column("recs", ITEM, item_ids), pairs.ids(ITEM)]
    )
    user_codes = find_positions(known_users, pair_users)
    item_codes = find_positions(known_items, pair_items)
    known = (user_codes >= 0) & (item_codes >= 0)
    by_user = group_sets(user_codes[known], item_codes[known], len(coded.units.users))
    return by_user.take(coded.units.user_codes)


def read_allowed(allowed: Any, item_ids: Any) -> Flags:
    """Return whether each item is in the caller's table."""
    table = read_frame(allowed, "allowed", ITEM)
    _, (known, given) = encode_ids([as_id_column("recs", ITEM, item_ids), table.ids(ITEM)])
    flags: Flags = find_positions(given, known) >= 0
    return flags


def write_top(top: Lists, coded: CodedRecs, item_ids: Any) -> Any:
    """Return ranked lists as a table of the caller's type; raise if a score is not finite."""
    from trimtab.kernels.coding import spread_units

    if not np.isfinite([top.scores.min(initial=0.0), top.scores.max(initial=0.0)]).all():
        raise DataError(SCORE_TOO_LARGE)
    units, ranks = np.empty(len(top.items), np.int32), np.empty(len(top.items), np.int64)
    run_ranges(spread_units, top.n_units, top.indptr, units, ranks)
    columns = coded.units.columns(units)
    columns[ITEM] = take_ids(item_ids, top.items)
    columns[SCORE] = top.scores
    columns[RANK] = ranks
    return write_frame(columns, coded.table)
