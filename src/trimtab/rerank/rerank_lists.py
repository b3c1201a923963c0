"""The ranking of lists: by the choice model for users with purchases, by biases for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, entries_of
from trimtab.bias.depth import append_rest, split_lists
from trimtab.bias.scaled_scores import model_scores, rank_on_scale, to_scale
from trimtab.metrics.ranking import rank_lists
from trimtab.rerank.purchases_by_user import Purchases
from trimtab.rerank.rerank_table import RerankTable
from trimtab.rerank.widening import WiderLists, widen
from trimtab.tables.lists import group_sets

WIDEN = ("any", "listed", "none")  # what may be added to lists
_BLOCK = 16_384  # units whose wider lists are in memory at once


@dataclass(frozen=True)
class RankedItems:
    """What is known of items, by code."""

    bias: Floats
    item_part: Floats  # for users with purchases
    excluded: Flags  # not to be shown
    may_add: Flags  # may be added to lists
    trending: Codes  # best first


def may_be_added(widen: str, n_items: int, listed: Codes) -> Flags:
    """Return whether items may be added to lists, before any are excluded.

    Args:
        widen: the setting of the learner.
        n_items: number of items.
        listed: items on some list.
    """
    flags = np.full(n_items, widen != "listed")
    flags[listed] = True
    return flags


def rank_units(
    table: RerankTable, items: RankedItems, lists: Lists, users: Codes, purchases: Purchases,
    hidden: Sets | None, k: int, depth: int | None,
) -> Lists:  # fmt: skip
    """Return the top k of every unit, best first.

    Args:
        table: what the Reranker has learned.
        items: what is known of items.
        lists: the engine's lists.
        users: row of each unit's user in the purchases.
        purchases: by user.
        hidden: items to leave out for each unit.
        k: number of slots.
        depth: how deep lists are re-ranked; None for whole lists.
    """
    personal = purchases.lengths[users] > 0
    if not table.learned:
        personal[:] = False
    parts = []
    by_bias = np.flatnonzero(~personal)
    if len(by_bias):
        parts.append((by_bias, _rank_by_bias(table, items, lists, hidden, by_bias, k, depth)))
    chosen = np.flatnonzero(personal)
    for first in range(0, len(chosen), _BLOCK):
        block = chosen[first : first + _BLOCK]
        wide, rest = widen_block(table, items, lists.take(block), users[block], purchases, depth)
        scored = table.score(wide, items.item_part)
        own = None if hidden is None else hidden.take(block)
        top = rank_lists(scored, k, np.zeros(len(items.bias)), items.excluded, hidden=own)
        if rest is not None:
            top = append_rest(top, rest, k, items.excluded, _hide_shown(top, own))
        parts.append((block, top))
    return _join(parts, lists.n_units)


def widen_block(
    table: RerankTable, items: RankedItems, lists: Lists, users: Codes, purchases: Purchases,
    depth: int | None,
) -> tuple[WiderLists, Lists | None]:  # fmt: skip
    """Return the wider lists of some units, and what lies below the depth."""
    best, rest = split_lists(lists, depth)
    scale, k = table.bias.scale, table.summary.k
    scores = model_scores(to_scale(best, scale, k).lists, scale, table.score_unit, k)
    model = best._replace(scores=scores)
    wide = widen(model, users, purchases, items.may_add, items.trending, table.sources)
    return wide if table.may_repeat else wide.without_repeats(), rest


def _rank_by_bias(
    table: RerankTable, items: RankedItems, lists: Lists, hidden: Sets | None, units: Ints, k: int,
    depth: int | None,
) -> Lists:  # fmt: skip
    best, rest = split_lists(lists.take(units), depth)
    own = None if hidden is None else hidden.take(units)
    top = rank_on_scale(
        best, table.bias.scale, table.summary.k, k, items.bias, items.excluded, hidden=own
    )
    return top if rest is None else append_rest(top, rest, k, items.excluded, own)


def _hide_shown(top: Lists, hidden: Sets | None) -> Sets:
    """Return what must not be shown again: an item below the depth may have been added."""
    units = np.repeat(np.arange(top.n_units, dtype=np.int32), np.diff(top.indptr))
    items = top.items
    if hidden is not None:
        of_hidden = np.repeat(np.arange(top.n_units, dtype=np.int32), np.diff(hidden.indptr))
        units, items = np.concatenate([units, of_hidden]), np.concatenate([items, hidden.items])
    return group_sets(units, items, top.n_units)


def _join(parts: list[tuple[Ints, Lists]], n_units: int) -> Lists:
    """Return the lists of all units, in their order."""
    order = np.empty(n_units, np.int64)
    order[np.concatenate([units for units, _ in parts])] = np.arange(n_units)
    lengths = np.concatenate([np.diff(top.indptr) for _, top in parts])
    joined = Lists(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([top.items for _, top in parts]),
        np.concatenate([top.scores for _, top in parts]),
    )
    indptr, entries = entries_of(joined.indptr, order)
    return Lists(indptr, joined.items[entries], joined.scores[entries])
