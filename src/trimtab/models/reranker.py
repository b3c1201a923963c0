"""Reranker: ranks lists by trend and by each user's own purchases, and adds to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Flags, Floats, Lists, Sets, find_positions
from trimtab.checks import require_choice
from trimtab.errors import DataError
from trimtab.metrics.per_user import rank_lists
from trimtab.models.applying import Model
from trimtab.models.explain import coefficient_table, read_user
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import (
    SCORE_TOO_LARGE,
    AlignedLists,
    align_lists,
    append_rest,
    choose_depth,
    join_lists,
    model_scores,
    rank_on_scale,
    split_lists,
    spread,
    to_scale,
)
from trimtab.models.model import Coefficient, LeftOut, RerankSummary
from trimtab.models.saved import load_reranker, save_reranker
from trimtab.models.widening import SOURCES, TERMS, Purchases, WiderLists, read_events, widen
from trimtab.tables.columns import ITEM, RANK
from trimtab.tables.lists import group_sets, read_lists

PARTS = ("personal", *SOURCES)  # that can be left out
_BLOCK = 16_384  # units whose wider lists are in memory at once
_THE_USER = np.zeros(1, np.int32)


class RankedItems(NamedTuple):
    """What is known of items, by code."""

    bias: Floats
    item_part: Floats  # for users with purchases
    bought_part: Floats  # for those who bought the item
    excluded: Flags  # not to be shown
    may_add: Flags  # may be added to lists
    trending: Codes  # best first


@dataclass(frozen=True, eq=False, repr=False)
class Reranker(Model):
    """Ranks lists by trend and by what each user did of late; learned by `RerankLearner.fit`.

    `reranker.bias` is its item part, an `ItemBias`: users without events are ranked by it, and it
    can be served alone. Immutable.
    """

    bias: ItemBias
    item_part: Floats  # by item of the biases: what the choice model says, for users with purchases
    bought_part: Floats  # the same for users who bought the item before; added to it
    trending: Codes  # items that sold most, best first; indices of items
    learned: tuple[Coefficient, ...]  # empty: all users are ranked by the biases
    summary: RerankSummary
    settings: Mapping[str, Any]
    may_repeat: bool  # whether items that the user already bought may be added
    score_unit: float  # the size, in scores, of 1 in the choice model
    learned_until: int  # end of the newest window, in microseconds of UTC
    has_zone: bool  # whether timestamps had a time zone
    window_length: int  # of the windows that it learned from, in microseconds
    needs_events: ClassVar[bool] = True

    def _rank(
        self, aligned: AlignedLists, k: int, depth: int | None, history: Any, as_of: Any,
        explore: int, seed: int,
    ) -> tuple[Lists, LeftOut]:  # fmt: skip
        bought, left_out = self._read_events(history, as_of, aligned)
        users = aligned.coded.units.user_codes
        try:
            with np.errstate(over="raise", invalid="raise"):
                top = self.rank_units(
                    self._items(aligned), aligned.lists, users, bought, aligned.hidden, k, depth
                )
        except FloatingPointError:
            raise DataError(SCORE_TOO_LARGE) from None
        return top, left_out

    def _read_events(
        self, history: Any, as_of: Any, aligned: AlignedLists
    ) -> tuple[Purchases, LeftOut]:
        return read_events(
            history, as_of, aligned, self.learned_until, self.has_zone, self.window_length
        )

    def _items(self, aligned: AlignedLists) -> RankedItems:
        item_part, bought_part = (
            spread(own, aligned.known, len(aligned.items))
            for own in (self.item_part, self.bought_part)
        )
        may_add = self.may_add(aligned.listed, aligned.excluded)
        trending = aligned.known[self.trending]
        return RankedItems(
            aligned.bias, item_part, bought_part, aligned.excluded, may_add, trending
        )

    def may_add(self, listed: Codes, excluded: Flags) -> Flags:
        """Return whether items may be added to lists, given those that are on some list."""
        flags = np.full(len(excluded), self.settings.get("widen") != "listed")
        flags[listed] = True
        return flags & ~excluded

    def rank_units(
        self, items: RankedItems, lists: Lists, users: Codes, purchases: Purchases,
        hidden: Sets | None, k: int, depth: int | None,
    ) -> Lists:  # fmt: skip
        """Return the top k of every unit: by the biases for users without purchases.

        Args:
            items: what is known of items.
            lists: the engine's lists.
            users: row of each unit's user in the purchases.
            purchases: by user.
            hidden: items to leave out for each unit.
            k: number of slots.
            depth: how deep lists are re-ranked; None for whole lists.
        """
        personal = purchases.lengths[users] > 0 if self.learned else np.zeros(len(users), bool)
        chosen, others = np.flatnonzero(personal), np.flatnonzero(~personal)
        parts = []
        for first in range(0, len(chosen), _BLOCK):
            block = chosen[first : first + _BLOCK]
            wide, rest = self._widen(items, lists.take(block), users[block], purchases, depth)
            own = None if hidden is None else hidden.take(block)
            scored = self.score(wide, items)
            top = rank_lists(scored, k, np.zeros(len(items.bias)), items.excluded, hidden=own)
            if rest is not None:
                top = append_rest(top, rest, k, items.excluded, _hide_shown(top, own))
            parts.append((block, top))
        if len(others):
            own = None if hidden is None else hidden.take(others)
            top = rank_on_scale(
                lists.take(others), self.bias.scale, self.summary.k, k, items.bias, items.excluded,
                depth, own,
            )  # fmt: skip
            parts.append((others, top))
        return join_lists(parts, lists.n_units)

    def _widen(
        self, items: RankedItems, lists: Lists, users: Codes, purchases: Purchases,
        depth: int | None,
    ) -> tuple[WiderLists, Lists | None]:  # fmt: skip
        """Return the wider lists of some units, and what lies below the depth."""
        best, rest = split_lists(lists, depth)
        scale, k = self.bias.scale, self.summary.k
        scores = model_scores(to_scale(best, scale, k).lists, scale, self.score_unit, k)
        model = best._replace(scores=scores)
        wide = widen(model, users, purchases, items.may_add, items.trending, self.sources)
        return wide if self.may_repeat else wide.without_repeats(), rest

    def score(self, wide: WiderLists, items: RankedItems) -> Lists:
        """Return wider lists with the scores of the choice model."""
        parts = (part for _, part in self._score_parts(wide, items))
        return wide.lists._replace(scores=reduce(np.add, parts))

    def _score_parts(self, wide: WiderLists, items: RankedItems) -> Iterator[tuple[str, Floats]]:
        """Yield the parts of the choice model's scores, each with its name."""
        values = defaultdict(float, {own.name: own.value for own in self.learned})
        yield "score", values["score"] * wide.lists.scores
        yield "item", items.item_part[wide.lists.items]
        for name, term in zip(TERMS, wide.terms.T, strict=True):
            part = values[name] * term
            if name == TERMS[0]:  # with what depends on the item
                part += items.bought_part[wide.lists.items] * term
            yield name, part
        sources = (name for name in SOURCES if name in self.summary.sources)
        for name, added in zip(sources, wide.added(self.sources).T, strict=True):
            yield name, values[name] * added

    @property
    def sources(self) -> int:
        """The sources of wider lists."""
        return sum(SOURCES[name] for name in {*self.summary.sources})

    @property
    def item_bias(self) -> ItemBias:
        """The biases, which rank users without events."""
        return self.bias

    @property
    def adds_items(self) -> bool:
        """Whether lists are widened."""
        return bool(self.sources)

    @property
    def changes_lists(self) -> bool:
        """Whether anything was learned, of items or of users."""
        return bool(self.learned) or self.bias.changes_lists

    def explain(
        self, user: Any, recs: Any, *, history: Any | None = None, as_of: Any | None = None,
        duplicates: str = "error", depth: int | str | None = None,
    ) -> pa.Table:  # fmt: skip
        """Return a user's finished list, with the ranks of both and the parts of each score.

        Args:
            user: user_id.
            recs: the engine's lists, as for `apply`. The user's last one is explained, if there are
                several windows.
            history: as for `apply`.
            as_of: as for `apply`.
            duplicates: as for `apply`.
            depth: as for `apply`.

        Returns:
            One row per item, best first: item_id, rank, engine_rank (null for an added item), and
            the parts that add up to what the item is ranked by: `score`, the engine's, and `item`
            and one for each personal and added coefficient; or `score` and `bias`, for a user who
            is ranked by the biases. Items below the depth have no parts.
        """
        own, listed = read_user(recs, user)
        coded = read_lists(own, "never", duplicates)
        aligned = align_lists(self.bias, coded, elsewhere=listed)
        bought, _ = self._read_events(history, as_of, aligned)
        items, deepest = self._items(aligned), choose_depth(self.bias, depth)
        lists = aligned.lists.take(np.array([len(coded.units) - 1]))
        longest = len(lists.items) + len(items.trending) + int(bought.lengths[0])
        engine = rank_lists(lists, longest, np.zeros(len(items.bias)))
        top = self.rank_units(items, lists, _THE_USER, bought, None, longest, deepest).items
        if self.learned and bought.lengths[0]:
            wide, _ = self._widen(items, lists, _THE_USER, bought, deepest)
            best, parts = wide.lists, dict(self._score_parts(wide, items))
        else:
            best = split_lists(lists, deepest)[0]
            scaled = to_scale(best, self.bias.scale, self.summary.k).lists
            parts = {"score": scaled.scores, "bias": items.bias[best.items]}
        came, scored = find_positions(engine.items, top), find_positions(best.items, top)
        ranks = {RANK: np.arange(1, len(top) + 1), "engine_rank": pa.array(came + 1, mask=came < 0)}
        columns = {name: pa.array(part[scored], mask=scored < 0) for name, part in parts.items()}
        return pa.table({ITEM: aligned.items.take(top), **ranks, **columns})

    def without(self, part: str) -> Reranker:
        """Return a reranker that leaves out a part, to see what the part gains.

        It has no forecast: that of the whole does not hold for it.

        Args:
            part: "trending" or "own": nothing is added from that source; "personal": all users are
                ranked by the biases, and nothing is added.
        """
        require_choice("part", part, PARTS)
        is_left = part != "personal"
        summary = replace(
            self.summary,
            kept=self.summary.kept if is_left else 0.0,
            sources=tuple(name for name in self.summary.sources if is_left and name != part),
            forecast=None, forecast_low=None, forecast_high=None, forecast_windows=0, lifts={},
            forecast_by_strength={},
        )  # fmt: skip
        learned = tuple(own for own in self.learned if is_left and own.name != part)
        return replace(self, learned=learned, summary=summary)

    def _at_strength(self, strength: float, summary: RerankSummary) -> Reranker:
        sources = summary.sources if strength else ()
        learned = tuple(own.at_strength(strength) for own in self.learned) if strength else ()
        return replace(
            self, bias=self.bias.with_strength(strength), item_part=strength * self.item_part,
            bought_part=strength * self.bought_part,
            learned=learned, summary=replace(summary, lifts={}, sources=sources),
        )  # fmt: skip

    def coefficients(self) -> pa.Table:
        """Return an Arrow table with one row per coefficient: name, kind, value, error, meaning.

        The table is empty if all users are ranked by the biases.
        """
        return coefficient_table(self.learned, self.bias.scale)

    def save(self, folder: str | Path) -> None:
        """Save to a folder. Readers see the old version or the new one, never a mixture."""
        save_reranker(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> Reranker:
        """Load a saved reranker, or that of a store's served version, and verify its checksum."""
        found = load_reranker(Path(folder))
        return Reranker(**{**found, "bias": ItemBias(**found["bias"])})

    def __len__(self) -> int:
        return len(self.item_part)

    def __repr__(self) -> str:
        sources = ", ".join(self.summary.sources) or "none"
        return (
            f"Reranker({len(self)} items; kept {self.summary.kept:.2f}; added items: {sources}; "
            f"{self.summary.metric}@{self.summary.k})"
        )


def _hide_shown(top: Lists, hidden: Sets | None) -> Sets:
    """Return what must not be shown again: an item below the depth may have been added."""
    every = [Sets(top.indptr, top.items), *([] if hidden is None else [hidden])]
    numbers = np.arange(top.n_units, dtype=np.int32)
    units = np.concatenate([np.repeat(numbers, np.diff(own.indptr)) for own in every])
    return group_sets(units, np.concatenate([own.items for own in every]), top.n_units)
