"""One list at a time, as `ItemBias.apply` ranks it: to the last bit, without reading the table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UnsetType

from trimtab.arrays import Flags, Floats, Ints, Lists
from trimtab.bias import ItemBias
from trimtab.bias.scales import Scaled, to_scale, to_scores
from trimtab.checks import UNLISTED
from trimtab.errors import StoreError
from trimtab.metrics.ranking import rank_lists
from trimtab.serve.lookup import Lookup
from trimtab.serve.refusals import RefusalError
from trimtab.serve.shapes import Item, RerankRequest

_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Ranker:
    """Biases that are ready to be added to a list."""

    lookup: Lookup
    bias: Floats  # by row; one more at the end, for row -1: items that the table does not know
    excluded: Flags  # likewise
    scale: str
    raised: Ints  # rows that come in without being listed, in ranking order

    def rank(self, asked: RerankRequest) -> list[Item]:
        """The top k of a list, best first; of an empty one nothing.

        Its ids must have been checked: of the table's kind, each item once.
        """
        if not asked.items:
            return []
        ids: list[Any] = [item.item_id for item in asked.items]
        scores = np.array([item.score for item in asked.items])
        rows = self.lookup.find(ids)
        hidden, allowed = _as_set(asked.exclude), _as_set(asked.allowed)
        added = self._added(rows, asked.k, hidden, allowed)
        ids += self.lookup.ids_at(added)
        rows = np.concatenate([rows, added])
        barred = self.excluded[rows]
        if hidden is not None:
            barred |= [item in hidden for item in ids]
        if allowed is not None:
            barred |= [item not in allowed for item in ids]
        return self._top(ids, scores, self.bias[rows], barred, asked.k)

    def _added(
        self, listed: Ints, k: int, hidden: Collection[Any] | None, allowed: Collection[Any] | None
    ) -> Ints:
        """Rows that come in without being listed: more than can be shown only of `allowed`."""
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
        self, ids: list[Any], scores: Floats, bias: Floats, barred: Flags, k: int
    ) -> list[Item]:
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
        codes = np.empty(len(ids), np.int32)
        codes[order] = np.arange(len(ids), dtype=np.int32)
        lists, exponents = self._scaled(codes, scores)
        top = rank_lists(lists, k, bias[order], barred[order])
        found = to_scores(top, exponents)
        if not np.isfinite(found).all():
            raise RefusalError(
                422, "a score with its bias is beyond what a number can hold: send smaller scores"
            )
        chosen = map(ids.__getitem__, order[top.items].tolist())
        return list(map(Item, chosen, found.tolist()))

    def _scaled(self, codes: Any, scores: Floats) -> Scaled:
        """The list on the scale of the biases; what is not listed has a score of just its bias."""
        n_listed = len(scores)
        listed = Lists(np.array([0, n_listed], np.int64), codes[:n_listed], scores)
        lists, exponents = to_scale(listed, self.scale)
        if n_listed == len(codes):
            return Scaled(lists, exponents)
        keys = np.concatenate([lists.scores, np.zeros(len(codes) - n_listed)])
        return Scaled(Lists(np.array([0, len(codes)], np.int64), codes, keys), exponents)


def make_ranker(bias: ItemBias, lookup: Lookup) -> Ranker:
    """What a bias table needs to be, to rank a list quickly; refuses biases that are no numbers."""
    if bias.scale not in ("additive", "log") or bias.unlisted not in UNLISTED:
        raise StoreError(
            f"scale={bias.scale!r}, unlisted={bias.unlisted!r}: unknown here; upgrade trimtab"
        )
    if not np.isfinite(bias.bias).all():
        raise StoreError("a bias is not a finite number: publish a version that is whole")
    raised = _NO_ROWS
    if bias.unlisted == "zero":
        positive = np.flatnonzero((bias.bias > 0) & ~bias.excluded)
        raised = positive[np.argsort(-bias.bias[positive], kind="stable")]
    return Ranker(
        lookup, np.append(bias.bias, 0.0), np.append(bias.excluded, False), bias.scale, raised
    )


def warm_up() -> None:
    """Compile, or load, what ranking needs, so that no request waits for it."""
    lists = Lists(np.array([0, 2], np.int64), np.arange(2, dtype=np.int32), np.ones(2))
    for scale in ("additive", "log"):
        scaled, exponents = to_scale(lists, scale)
        to_scores(rank_lists(scaled, 1, np.zeros(2), np.zeros(2, bool)), exponents)


def _as_set(ids: list[Any] | UnsetType) -> set[Any] | None:
    return None if isinstance(ids, UnsetType) else set(ids)
