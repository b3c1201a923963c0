"""The ranking of lists: by the choice model for users with purchases, by biases for the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, entries_of
from trimtab.metrics.ranking import rank_lists
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import append_rest, split_lists
from trimtab.models.model import Coefficient, Model, RerankSummary
from trimtab.models.scaled_scores import model_scores, rank_on_scale, to_scale
from trimtab.models.widening import SOURCES, TERMS, Purchases, WiderLists, widen
from trimtab.tables.lists import group_sets

_BLOCK = 16_384  # units whose wider lists are in memory at once


@dataclass(frozen=True, eq=False)
class RerankTable(Model):
    """What a Reranker has learned; arrays are by item, in the order of the biases."""

    bias: ItemBias
    item_part: Floats  # what the choice model says of each item, for users with purchases
    trending: Codes  # items that sold most, best first; indices of items
    learned: tuple[Coefficient, ...]  # empty: all users are ranked by the biases
    summary: RerankSummary
    settings: Mapping[str, Any]
    may_repeat: bool  # whether items that the user already bought may be added
    score_unit: float  # the size, in scores, of 1 in the choice model
    learned_until: int  # end of the newest window, in microseconds of UTC
    has_zone: bool  # whether timestamps had a time zone

    @property
    def sources(self) -> int:
        """The sources of wider lists."""
        return sum(SOURCES[name] for name in self.summary.sources)

    def score(self, wide: WiderLists, item_part: Floats) -> Lists:
        """Return wider lists with the scores of the choice model.

        Args:
            wide: with the scores that the choice model uses.
            item_part: by item code of these lists.
        """
        parts = (part for _, part in self.parts(wide, item_part))
        scores = next(parts)
        for part in parts:
            scores += part
        return wide.lists._replace(scores=scores)

    def parts(self, wide: WiderLists, item_part: Floats) -> Iterator[tuple[str, Floats]]:
        """Yield the parts of the choice model's scores, each with its name; as for `score`."""
        values = {coefficient.name: coefficient.value for coefficient in self.learned}
        yield "score", values["score"] * wide.lists.scores
        yield "item", item_part[wide.lists.items]
        for place, name in enumerate(TERMS):
            yield name, values[name] * wide.terms[:, place]
        for place, name in enumerate(self.summary.sources):
            yield name, values[name] * wide.added(self.sources)[:, place]


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
    return append_rest(top, rest, k, items.excluded, own)


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
