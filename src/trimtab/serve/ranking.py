"""Ranking of one list: the same result as `ItemBias.apply` or `Reranker.apply`, to the bit.

Only the items that occur in a request are coded, so its time does not depend on the table's size.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import UnsetType

from trimtab.arrays import TRENDING, Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.checks import SCALES, UNLISTED
from trimtab.errors import StoreError
from trimtab.metrics.per_user import rank_lists
from trimtab.models import ItemBias, Reranker
from trimtab.models.list_ranking import (
    append_rest,
    choose_depth,
    split_lists,
    to_scale,
    to_scores,
)
from trimtab.models.reranker import RankedItems
from trimtab.models.widening import MOST_ADDED, TERMS, Purchases, days_before, sum_purchases
from trimtab.serve.wire import (
    Item,
    RecentItem,
    RecentUse,
    RefusalError,
    RerankRequest,
    read_as_of,
    read_timestamp,
    recent_of,
)
from trimtab.tables.times import DAY

SCORE_TOO_LARGE = "a score plus its bias is too large for a number: send smaller scores"
_LARGE_SCORE = 1e9
_MOST_DAYS = 1 << 20  # more days count as this many
_MAX_ID = 2**63 - 1
_CHUNK = 2_000  # ids at a time: requests wait a few hundred microseconds for each chunk
_THE_USER = np.zeros(1, np.int32)
_NO_ROWS = np.empty(0, np.int64)


class Lookup:
    """Finds the rows of item ids in a bias table; ids must be in ascending order."""

    def __init__(self, item_ids: Any) -> None:
        self.id_type = int if isinstance(item_ids, np.ndarray) else str
        self._ids = item_ids
        self._rows: dict[Any, int] = {}
        last = None
        for start in range(0, len(item_ids), _CHUNK):
            ids = _to_list(item_ids[start : start + _CHUNK])
            if (last is not None and ids[0] <= last) or ids != sorted(set(ids)):
                raise StoreError(
                    "item ids of the bias table are not in ascending order: publish it again"
                )
            last = ids[-1]
            self._rows.update(zip(ids, range(start, start + len(ids)), strict=True))
            time.sleep(0)  # releases the interpreter's lock
        if isinstance(last, int) and last > _MAX_ID:
            raise StoreError(
                f"item id {last} of the bias table is larger than {_MAX_ID}, the largest that a "
                f"request may have: publish the ids as text"
            )

    def find(self, ids: Collection[Any]) -> Ints:
        """Return the rows of ids, -1 for unknown ones."""
        row_of = self._rows.get
        return np.array([row_of(item, -1) for item in ids], np.int64)

    def ids_at(self, rows: Ints) -> list[Any]:
        """Return the ids at rows."""
        return _to_list(self._ids.take(rows if self.id_type is int else pa.array(rows)))


def _to_list(ids: Any) -> list[Any]:
    found: list[Any] = ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist()
    return found


@dataclass(frozen=True)
class Ranker:
    """Biases ready to be applied to lists."""

    lookup: Lookup
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
        added = self._find_unlisted(rows, asked)
        ids += self.lookup.ids_at(added)
        rows = np.concatenate([rows, added])
        barred = self.excluded[rows]
        if not isinstance(asked.exclude, UnsetType):
            hidden = set(asked.exclude)
            barred |= [item in hidden for item in ids]
        barred |= _not_allowed(asked, ids)
        return self._top(ids, scores, self.bias[rows], barred, asked.k, self.depth_for(asked))

    def depth_for(self, asked: RerankRequest) -> int | None:
        """Return how many items of a list are re-ranked; None for all."""
        if isinstance(asked.depth, UnsetType):
            return self.depth
        return None if isinstance(asked.depth, str) else asked.depth

    def _find_unlisted(self, listed: Ints, asked: RerankRequest) -> Ints:
        """Return the rows of unlisted items that can enter: at most k, or all of `allowed`."""
        if not len(self.raised):
            return _NO_ROWS
        if not isinstance(asked.allowed, UnsetType):
            known = self.lookup.find(set(asked.allowed))
            candidates = known[(self.bias[known] > 0) & ~self.excluded[known]]
            return candidates[~np.isin(candidates, listed)]
        taken = listed
        if not isinstance(asked.exclude, UnsetType):
            taken = np.concatenate([listed, self.lookup.find(set(asked.exclude))])
        candidates = self.raised[: asked.k + len(taken)]
        return candidates[~np.isin(candidates, taken)][: asked.k]

    def _top(
        self, ids: list[Any], scores: Floats, bias: Floats, barred: Flags, k: int,
        depth: int | None,
    ) -> list[Item]:  # fmt: skip
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
        codes = np.empty(len(ids), np.int32)
        codes[order] = np.arange(len(ids), dtype=np.int32)
        best, rest = split_lists(one_list(codes[: len(scores)], scores), depth)
        lists, units = to_scale(best, self.scale, self.learned_k)
        added = codes[len(scores) :]  # an unlisted item scores only its bias
        if len(added):
            keys = np.concatenate([lists.scores, np.zeros(len(added))])
            lists = one_list(np.concatenate([lists.items, added]), keys)
        top = rank_lists(lists, k, bias[order], barred[order])
        top = top._replace(scores=to_scores(top, units))
        if rest is not None:
            top = append_rest(top, rest, k, barred[order])
        return _to_items(top, [ids[place] for place in order.tolist()])


def make_ranker(bias: ItemBias, lookup: Lookup) -> Ranker:
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


def warm_up() -> None:
    """Compile or load the kernels now, so no request waits for that."""
    lists = one_list(np.arange(2, dtype=np.int32), np.ones(2))
    best, _ = split_lists(lists, 1)
    for scale in SCALES:
        scaled, units = to_scale(best, scale, 1)
        to_scores(rank_lists(scaled, 1, np.zeros(2), np.zeros(2, bool)), units)


@dataclass(frozen=True)
class PersonalRanker:
    """A reranker ready to rank the lists of users with recent items."""

    by_bias: Ranker  # for users without
    reranker: Reranker
    item_part: Floats  # by row; the last one is for row -1, items not in the table
    trending: list[Any]  # ids of items to add to every list, best first

    def rank(self, asked: RerankRequest) -> tuple[list[Item], RecentUse]:
        """Return the top k of a list, best first, and what became of the recent items.

        The list is ranked by the biases if no recent item can be used. The caller has checked the
        request.
        """
        instant, recent = self._choose_instant(asked), recent_of(asked)
        times = np.array([self._time_of(entry, instant) for entry in recent], np.int64)
        listed = {item.item_id for item in asked.items}
        ids = [entry.item_id for entry in recent]
        is_known = self.by_bias.lookup.find(ids) >= 0
        is_known |= np.array([item in listed for item in ids], bool)
        is_early = times < instant
        used = np.flatnonzero(is_early & is_known)
        n_early = int(np.count_nonzero(is_early))
        use = RecentUse(len(used), n_early - len(used), len(recent) - n_early)
        if len(used) == 0 or not asked.items or not self.reranker.learned:
            use.used = 0
            return self.by_bias.rank(asked), use
        entries = [recent[place] for place in used.tolist()]
        return self._rank(asked, entries, days_before(instant, times[used])), use

    def _rank(self, asked: RerankRequest, recent: list[RecentItem], days: Ints) -> list[Item]:
        listed: list[Any] = [item.item_id for item in asked.items]
        bought: list[Any] = [entry.item_id for entry in recent]
        ids = sorted({*listed, *bought, *self.trending})
        code_of = {item: code for code, item in enumerate(ids)}
        lists = one_list(_codes(listed, code_of), np.array([item.score for item in asked.items]))
        items = self._align(asked, ids, lists.items, _codes(self.trending, code_of))
        purchases = _sum_up(_codes(bought, code_of), days, recent)
        hidden, depth = _hidden(asked, code_of), self.by_bias.depth_for(asked)
        try:
            with np.errstate(over="raise", invalid="raise"):
                top = self.reranker.rank_units(
                    items, lists, _THE_USER, purchases, hidden, asked.k, depth
                )
        except FloatingPointError:
            raise RefusalError(422, SCORE_TOO_LARGE) from None
        return _to_items(top, ids)

    def _align(
        self, asked: RerankRequest, ids: list[Any], listed: Codes, trending: Codes
    ) -> RankedItems:
        """Return what is known of the items that occur in a request."""
        rows = self.by_bias.lookup.find(ids)
        excluded = self.by_bias.excluded[rows] | _not_allowed(asked, ids)
        may_add = self.reranker.may_add(listed, excluded)
        bias, item_part = self.by_bias.bias[rows], self.item_part[rows]
        return RankedItems(bias, item_part, excluded, may_add, trending)

    def _choose_instant(self, asked: RerankRequest) -> int:
        """Return the instant of a request; now, or the end of what was learned from if later.

        Where times have no time zone, the clock is not used: all entries are then in days.
        """
        has_zone, learned_until = self.reranker.has_zone, self.reranker.learned_until
        if not isinstance(asked.as_of, UnsetType):
            return read_as_of(asked.as_of, has_zone, learned_until)
        return max(time.time_ns() // 1000 if has_zone else 0, learned_until)

    def _time_of(self, entry: RecentItem, instant: int) -> int:
        """Return a time on the day of an entry, in microseconds of UTC."""
        if isinstance(entry.days_ago, UnsetType):
            return read_timestamp(entry, self.reranker.has_zone)
        return instant - 1 - int(min(entry.days_ago, _MOST_DAYS)) * DAY


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
    ids: list[Any] = ["a", "b"] if by_bias.lookup.id_type is str else [1, 2]
    recent = [RecentItem(ids[0], days_ago=0.0)]
    listed = [Item(ids[0], 2.0), Item(ids[1], 1.0)]
    made.rank(RerankRequest(listed, exclude=ids[:1], depth=1, recent=recent))  # compiles kernels
    return made


def one_list(codes: Codes, scores: Floats) -> Lists:
    """Return the lists of one unit."""
    return Lists(np.array([0, len(codes)], np.int64), codes, scores)


def _not_allowed(asked: RerankRequest, ids: list[Any]) -> Flags:
    """Return which items must not be shown because others are allowed."""
    if isinstance(asked.allowed, UnsetType):
        return np.zeros(len(ids), bool)
    allowed = set(asked.allowed)
    return np.array([item not in allowed for item in ids], bool)


def _sum_up(codes: Codes, days: Ints, recent: list[RecentItem]) -> Purchases:
    counts = np.array([entry.count for entry in recent], np.float64)
    return sum_purchases(np.zeros(len(codes), np.int32), codes, days, 1, counts)


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
