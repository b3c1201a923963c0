"""Lists of some of all users, ranked by a Reranker, and the warnings of all users together."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Ints
from trimtab.bias.depth import choose_depth, count_lengths, warn_if_deeper
from trimtab.bias.ranked_parts import RankedPart
from trimtab.bias.ranked_tables import (
    SCORE_TOO_LARGE,
    AlignedItems,
    align_items,
    read_allowed,
    read_excluded_pairs,
    write_top,
)
from trimtab.checks import require_k
from trimtab.errors import DataError
from trimtab.rerank.events import LeftOut, UserEvents, choose_instant, no_events, read_events
from trimtab.rerank.rerank_lists import RankedItems, may_be_added, rank_units
from trimtab.rerank.rerank_table import RerankTable
from trimtab.tables.lists import CodedRecs, longest_list, read_lists, warn_if_short


def rank_part(
    table: RerankTable, recs: Any, k: int, *, history: Any | None = None, as_of: Any | None = None,
    exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
    depth: int | str | None = None,
) -> tuple[RankedPart, LeftOut]:  # fmt: skip
    """Return what `Reranker.apply_and_count` returns, for some of all users and without warnings.

    What depends on the lists of others is up to `users_in_parts.with_listed_items`.
    """
    require_k(k)
    deepest = choose_depth(table.bias, depth)
    coded = read_lists(recs, "never", duplicates)
    aligned = align_items(table.bias, coded)
    hidden = None if exclude is None else read_excluded_pairs(exclude, coded, aligned.ids)
    events = read_part_events(table, history, as_of, coded, aligned.ids)
    items = ranked_items(table, aligned, allowed)
    users, bought = coded.units.user_codes, events.purchases
    try:
        with np.errstate(over="raise", invalid="raise"):
            top = rank_units(table, items, aligned.lists, users, bought, hidden, k, deepest)
    except FloatingPointError:
        raise DataError(SCORE_TOO_LARGE) from None
    lengths, longest = count_lengths(coded.lists), longest_list(top)
    written = write_top(top, coded, aligned.ids)
    return RankedPart(written, lengths, longest, aligned.unknown()), events.left_out


def warn_of_lengths(
    table: RerankTable, lengths: Ints, longest: int, k: int, depth: int | str | None
) -> None:
    """Warn of lists that are too short, or deeper than what the biases were learned on.

    Args:
        table: what the Reranker has learned.
        lengths: number of the engine's lists by length.
        longest: length of the longest ranked list.
        k: as for `Reranker.apply`.
        depth: as for `Reranker.apply`.
    """
    if depth is None:
        warn_if_deeper(lengths, choose_depth(table.bias, depth))
    if longest < k:
        warn_if_short(len(lengths) - 1, k)


def ranked_items(table: RerankTable, aligned: AlignedItems, allowed: Any | None) -> RankedItems:
    """Return what is known of items; `allowed` as for `Reranker.apply`."""
    excluded = aligned.excluded
    if allowed is not None:
        excluded = excluded | ~read_allowed(allowed, aligned.ids)
    may_add = may_be_added(table.settings["widen"], len(aligned.ids), aligned.listed)
    item_part = np.zeros(len(aligned.ids))
    item_part[aligned.known] = table.item_part
    return RankedItems(
        aligned.bias, item_part, excluded, may_add & ~excluded, aligned.known[table.trending]
    )


def read_part_events(
    table: RerankTable, history: Any | None, as_of: Any | None, coded: CodedRecs, item_ids: Any
) -> UserEvents:
    """Return what the users of lists bought before an instant; nothing if there is no history."""
    users = coded.units.users
    if history is None:
        choose_instant(as_of, np.empty(0, np.int64), table)  # checks it
        return no_events(len(users))
    return read_events(history, as_of, users, item_ids, table)
