"""Ranking of one list: the same result as `ItemBias.apply`, without a pass over the table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UnsetType

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists
from trimtab.checks import SCALES, UNLISTED
from trimtab.errors import StoreError
from trimtab.metrics.ranking import rank_lists
from trimtab.models import ItemBias
from trimtab.models.list_ranking import append_rest, choose_depth, split_lists
from trimtab.models.scaled_scores import Scaled, to_scale, to_scores
from trimtab.serve.lookup import ItemLookup
from trimtab.serve.refusals import RefusalError
from trimtab.serve.wire import Item, RerankRequest

SCORE_TOO_LARGE = "a score plus its bias is too large for a number: send smaller scores"
_LARGE_SCORE = 1e9
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Ranker:
    """Biases ready to be applied to lists."""

    lookup: ItemLookup
    bias: Floats  # by row; the last one is for row -1, items not in the table
    excluded: Flags  # as `bias`
    scale: str
    learned_k: int  # slots that the biases were learned for
    raised: Ints  # rows that can enter without being listed, in ranking order
    depth: int | None  # items of a list that are re-ranked; None for all

    def rank(self, asked: RerankRequest) -> list[Item]:
        """Return the top k of a list, best first; nothing for an empty list.

        The caller has checked that the ids are of the table's type and not repeated.
        """
        if not asked.items:
            return []
        ids: list[Any] = [item.item_id for item in asked.items]
        scores = np.array([item.score for item in asked.items])
        rows = self.lookup.find(ids)
        hidden, allowed = as_set(asked.exclude), as_set(asked.allowed)
        added = self._find_unlisted(rows, asked.k, hidden, allowed)
        ids += self.lookup.ids_at(added)
        rows = np.concatenate([rows, added])
        barred = self.excluded[rows]
        if hidden is not None:
            barred |= [item in hidden for item in ids]
        if allowed is not None:
            barred |= [item not in allowed for item in ids]
        return self._top(ids, scores, self.bias[rows], barred, asked.k, self.depth_for(asked))

    def depth_for(self, asked: RerankRequest) -> int | None:
        """Return how many items of a list are re-ranked; None for all."""
        if isinstance(asked.depth, UnsetType):
            return self.depth
        return None if isinstance(asked.depth, str) else asked.depth

    def _find_unlisted(
        self, listed: Ints, k: int, hidden: Collection[Any] | None, allowed: Collection[Any] | None
    ) -> Ints:
        """Return the rows of unlisted items that can enter: at most k, or all of `allowed`."""
        if not len(self.raised):
            return _NO_ROWS
        if allowed is not None:
            known = self.lookup.find(list(allowed))
            candidates = known[(self.bias[known] > 0) & ~self.excluded[known]]
            return candidates[~np.isin(candidates, listed)]
        taken = listed
        if hidden is not None:
            taken = np.concatenate([listed, self.lookup.find(list(hidden))])
        candidates = self.raised[: k + len(taken)]
        return candidates[~np.isin(candidates, taken)][:k]

    def _top(
        self, ids: list[Any], scores: Floats, bias: Floats, barred: Flags, k: int,
        depth: int | None,
    ) -> list[Item]:  # fmt: skip
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
        codes = np.empty(len(ids), np.int32)
        codes[order] = np.arange(len(ids), dtype=np.int32)
        best, rest = split_lists(one_list(codes[: len(scores)], scores), depth)
        lists, units = self._scaled(best, codes[len(scores) :])
        top = rank_lists(lists, k, bias[order], barred[order])
        top = top._replace(scores=to_scores(top, units))
        if rest is not None:
            top = append_rest(top, rest, k, barred[order])
        if not np.isfinite(top.scores).all():
            raise RefusalError(422, SCORE_TOO_LARGE)
        chosen = map(ids.__getitem__, order[top.items].tolist())
        return list(map(Item, chosen, top.scores.tolist()))

    def _scaled(self, listed: Lists, added: Codes) -> Scaled:
        """Return the list on the scale of the biases; an unlisted item scores only its bias."""
        lists, units = to_scale(listed, self.scale, self.learned_k)
        if len(added) == 0:
            return Scaled(lists, units)
        codes = np.concatenate([lists.items, added])
        keys = np.concatenate([lists.scores, np.zeros(len(added))])
        return Scaled(one_list(codes, keys), units)


def make_ranker(bias: ItemBias, lookup: ItemLookup) -> Ranker:
    """Return a ranker for a bias table; its biases must be finite."""
    if bias.scale not in SCALES or bias.unlisted not in UNLISTED:
        raise StoreError(
            f"scale={bias.scale!r}, unlisted={bias.unlisted!r}: not supported; upgrade trimtab"
        )
    if not np.isfinite(bias.bias).all():
        raise StoreError("a bias is not a finite number: publish the version again")
    raised = _NO_ROWS
    if bias.unlisted == "zero":
        positive = np.flatnonzero((bias.bias > 0) & ~bias.excluded)
        raised = positive[np.argsort(-bias.bias[positive], kind="stable")]
    made = Ranker(
        lookup, np.append(bias.bias, 0.0), np.append(bias.excluded, False), bias.scale,
        bias.summary.k, raised, choose_depth(bias, None),
    )  # fmt: skip
    _require_usable(made)
    return made


def _require_usable(ranker: Ranker) -> None:
    """Refuse biases so large that ordinary scores would no longer be numbers."""
    shown = np.flatnonzero(~ranker.excluded[:-1])
    if len(shown) == 0:
        return
    row = shown[[ranker.bias[shown].argmax()]]
    (item_id,) = ranker.lookup.ids_at(row)
    try:
        ranker.rank(RerankRequest([Item(item_id, _LARGE_SCORE)]))
    except RefusalError:
        raise StoreError(
            f"bias {ranker.bias[row[0]]:g} of item {item_id}: too large to be added to scores; "
            f"publish the version again with smaller biases"
        ) from None


def one_list(codes: Codes, scores: Floats) -> Lists:
    """Return the lists of one unit."""
    return Lists(np.array([0, len(codes)], np.int64), codes, scores)


def warm_up() -> None:
    """Compile or load the kernels now, so no request waits for that."""
    lists = one_list(np.arange(2, dtype=np.int32), np.ones(2))
    best, _ = split_lists(lists, 1)
    for scale in SCALES:
        scaled, units = to_scale(best, scale, 1)
        to_scores(rank_lists(scaled, 1, np.zeros(2), np.zeros(2, bool)), units)


def as_set(ids: list[Any] | UnsetType) -> set[Any] | None:
    """Return ids of a request as a set; None if they were left out."""
    return None if isinstance(ids, UnsetType) else set(ids)
