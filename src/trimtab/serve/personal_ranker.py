"""Ranking of one list by a user's recent items: the same result as `Reranker.apply`.

Only the items that occur in a request are coded, so its time does not depend on the table's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec import UnsetType

from trimtab.arrays import Codes, Flags, Floats, Lists, Sets
from trimtab.errors import StoreError
from trimtab.kernels.list_sources import TRENDING
from trimtab.models import Reranker
from trimtab.models.reranker import RankedItems
from trimtab.models.widening import MOST_ADDED, TERMS, Purchases, sum_purchases
from trimtab.serve.ranker import SCORE_TOO_LARGE, Ranker, as_set, one_list
from trimtab.serve.recent_items import RecentItems, read_recent
from trimtab.serve.refusals import RefusalError
from trimtab.serve.wire import Item, RecentItem, RecentUse, RerankRequest

_THE_USER = np.zeros(1, np.int32)


class PersonalList(NamedTuple):
    """A ranked list, and what became of the recent items."""

    items: list[Item]
    use: RecentUse


@dataclass(frozen=True)
class PersonalRanker:
    """A reranker ready to rank the lists of users with recent items."""

    by_bias: Ranker  # for users without
    reranker: Reranker
    item_part: Floats  # by row; the last one is for row -1, items not in the table
    trending: list[Any]  # ids of items to add to every list, best first

    def rank(self, asked: RerankRequest) -> PersonalList:
        """Return the top k of a list, best first; by the biases if no recent item can be used.

        The caller has checked the request.
        """
        recent = read_recent(asked, self.reranker)
        is_known = self._find_known(asked, recent)
        n_known = int(np.count_nonzero(is_known))
        use = RecentUse(n_known, len(recent.ids) - n_known, recent.later)
        if n_known == 0 or not asked.items or not self.reranker.learned:
            use.used = 0
            return PersonalList(self.by_bias.rank(asked), use)
        ids = [item for item, known in zip(recent.ids, is_known, strict=True) if known]
        known = RecentItems(ids, recent.days[is_known], recent.counts[is_known], recent.later)
        return PersonalList(self._rank(asked, known), use)

    def _find_known(self, asked: RerankRequest, recent: RecentItems) -> Flags:
        """Return whether each recent item was learned or is listed."""
        listed = {item.item_id for item in asked.items}
        is_known: Flags = self.by_bias.lookup.find(recent.ids) >= 0
        is_known |= np.array([item in listed for item in recent.ids], bool)
        return is_known

    def _rank(self, asked: RerankRequest, recent: RecentItems) -> list[Item]:
        listed: list[Any] = [item.item_id for item in asked.items]
        ids = sorted({*listed, *recent.ids, *self.trending})
        code_of = {item: code for code, item in enumerate(ids)}
        lists = one_list(_codes(listed, code_of), np.array([item.score for item in asked.items]))
        items = self._align(asked, ids, lists.items, _codes(self.trending, code_of))
        bought = _sum_up(recent, code_of)
        hidden, depth = _hidden(asked, code_of), self.by_bias.depth_for(asked)
        try:
            with np.errstate(over="raise", invalid="raise"):
                top = self.reranker.rank_units(
                    items, lists, _THE_USER, bought, hidden, asked.k, depth
                )
        except FloatingPointError:
            raise RefusalError(422, SCORE_TOO_LARGE) from None
        return _to_items(top, ids)

    def _align(
        self, asked: RerankRequest, ids: list[Any], listed: Codes, trending: Codes
    ) -> RankedItems:
        """Return what is known of the items that occur in a request."""
        rows = self.by_bias.lookup.find(ids)
        excluded = self.by_bias.excluded[rows]
        allowed = as_set(asked.allowed)
        if allowed is not None:
            excluded |= [item not in allowed for item in ids]
        may_add = self.reranker.may_add(listed, excluded)
        bias, item_part = self.by_bias.bias[rows], self.item_part[rows]
        return RankedItems(bias, item_part, excluded, may_add, trending)


def make_personal_ranker(reranker: Reranker, by_bias: Ranker) -> PersonalRanker:
    """Return a ranker for a reranker; what it learned must be complete and finite.

    Args:
        reranker: The reranker.
        by_bias: Ranks by the reranker's biases.
    """
    names = {"score", *TERMS, *reranker.summary.sources}
    values = {learned.name: learned.value for learned in reranker.learned}
    if values and not names <= values.keys():
        missing = ", ".join(sorted(names - values.keys()))
        raise StoreError(f"the reranker has no coefficient {missing}: publish the version again")
    if not (np.isfinite(reranker.item_part).all() and np.isfinite([*values.values()]).all()):
        raise StoreError("a number of the reranker is not finite: publish the version again")
    if reranker.bias.unlisted != "never":
        raise StoreError(
            f"unlisted={reranker.bias.unlisted!r}: not supported in a reranker; upgrade trimtab"
        )
    n_trending = MOST_ADDED if reranker.sources & TRENDING else 0
    trending = by_bias.lookup.ids_at(reranker.trending[:n_trending].astype(np.int64))
    made = PersonalRanker(by_bias, reranker, np.append(reranker.item_part, 0.0), trending)
    _warm_up(made)
    return made


def _warm_up(ranker: PersonalRanker) -> None:
    """Compile or load the kernels now, so no request waits for that."""
    ids: list[Any] = ["a", "b"] if ranker.by_bias.lookup.id_type is str else [1, 2]
    listed = [Item(ids[0], 2.0), Item(ids[1], 1.0)]
    recent = [RecentItem(ids[0], days_ago=0.0)]
    ranker.rank(RerankRequest(listed, exclude=ids[:1], depth=1, recent=recent))


def _sum_up(recent: RecentItems, code_of: dict[Any, int]) -> Purchases:
    codes = _codes(recent.ids, code_of)
    users = np.zeros(len(codes), np.int32)
    return sum_purchases(users, codes, recent.days, 1, recent.counts)


def _hidden(asked: RerankRequest, code_of: dict[Any, int]) -> Sets | None:
    """Return the items to leave out, as far as they occur; None if there are none."""
    if isinstance(asked.exclude, UnsetType):
        return None
    codes = np.unique(_codes([item for item in asked.exclude if item in code_of], code_of))
    return Sets(np.array([0, len(codes)], np.int64), codes) if len(codes) else None


def _codes(ids: list[Any], code_of: dict[Any, int]) -> Codes:
    return np.array([code_of[item] for item in ids], np.int32)


def _to_items(top: Lists, ids: list[Any]) -> list[Item]:
    if not np.isfinite(top.scores).all():
        raise RefusalError(422, SCORE_TOO_LARGE)
    return list(map(Item, map(ids.__getitem__, top.items.tolist()), top.scores.tolist()))
