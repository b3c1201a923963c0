"""A Reranker for users in parts: what all lists together decide, and only what ranking needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats
from trimtab.rerank.reranker import Reranker
from trimtab.tables.columns import ITEM
from trimtab.tables.vocabulary import as_id_column, encode_ids

_NO_FLOATS, _NO_FLAGS, _NO_INTS = np.empty(0), np.empty(0, bool), np.empty(0, np.int64)


def with_listed_items(reranker: Reranker, listed: Any) -> Reranker:
    """A Reranker that ranks some users' lists as if all users' lists were in the same table.

    Two things depend on the lists of others: purchases of an item that was not learned count if it
    is on anybody's list, and with `widen="listed"` only items on some list are added.

    Args:
        reranker: as learned.
        listed: ids of all items on lists, in any order: integers or Arrow strings.
    """
    bias = reranker.bias
    ours = as_id_column("the bias table", ITEM, bias.item_ids)
    ids, (known, on_lists) = encode_ids([ours, as_id_column("recs", ITEM, listed)])

    def spread(values: Any) -> Any:
        found = np.zeros(len(ids), values.dtype)
        found[known] = values
        return found

    names = ("bias", "gain", "support", "low", "high", "trend", "category", "fresh")
    columns = {name: spread(getattr(bias, name)) for name in names}
    excluded, settings = spread(bias.excluded), dict(reranker.settings)
    if settings["widen"] == "listed":
        is_listed = np.zeros(len(ids), bool)
        is_listed[on_lists] = True
        excluded, settings["widen"] = excluded | ~is_listed, "any"
    return replace(
        reranker, bias=replace(bias, item_ids=ids, excluded=excluded, **columns),
        item_part=spread(reranker.item_part), trending=known[reranker.trending], settings=settings,
    )  # fmt: skip


class RankingParts(NamedTuple):
    """What a Reranker needs to rank, to be sent to many machines: three numbers per item."""

    item_ids: Any
    bias: Floats
    item_part: Floats
    excluded: Flags
    trending: Codes
    rest: Reranker  # without items

    @staticmethod
    def of(reranker: Reranker) -> RankingParts:
        """The parts of a Reranker."""
        bias = reranker.bias
        empty = replace(
            bias, item_ids=_NO_INTS, bias=_NO_FLOATS, excluded=_NO_FLAGS, gain=_NO_FLOATS,
            support=_NO_INTS, low=_NO_FLOATS, high=_NO_FLOATS, trend=_NO_FLOATS,
            category=_NO_FLOATS, fresh=_NO_FLAGS,
        )  # fmt: skip
        rest = replace(reranker, bias=empty, item_part=_NO_FLOATS, trending=reranker.trending[:0])
        return RankingParts(
            bias.item_ids, bias.bias, reranker.item_part, bias.excluded, reranker.trending, rest
        )

    def build(self) -> Reranker:
        """A Reranker that ranks like the whole one; what else is known of items is 0."""
        n_items = len(self.bias)
        zeros, none = np.broadcast_to(0.0, n_items), np.broadcast_to(False, n_items)
        bias = replace(
            self.rest.bias, item_ids=self.item_ids, bias=self.bias, excluded=self.excluded,
            gain=zeros, support=np.broadcast_to(0, n_items), low=zeros, high=zeros, trend=zeros,
            category=zeros, fresh=none,
        )  # fmt: skip
        return replace(self.rest, bias=bias, item_part=self.item_part, trending=self.trending)
