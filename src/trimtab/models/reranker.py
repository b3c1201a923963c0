"""Reranker: ranks lists by trend and by each user's own purchases, and adds to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from trimtab.checks import require_choice, require_k
from trimtab.errors import DataError
from trimtab.models.bias_table import COLUMNS
from trimtab.models.events import read_events
from trimtab.models.explain import Explanation, ListPlace, coefficient_table, read_user_list
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import (
    SCORE_TOO_LARGE,
    AlignedLists,
    align_lists,
    choose_depth,
    spread,
    warn_of,
)
from trimtab.models.model import LeftOut, Ranked, forecast_at, require_strength
from trimtab.models.personal_ranking import RankedItems, RerankTable, may_be_added, rank_units
from trimtab.models.saved import load_reranker, save_reranker
from trimtab.models.widening import SOURCES
from trimtab.tables.lists import read_lists
from trimtab.tables.vocabulary import Vocabulary

PARTS = ("personal", *SOURCES)  # that can be left out


@dataclass(frozen=True, eq=False, repr=False)
class Reranker(RerankTable):
    """Ranks lists by trend and by what each user did of late; learned by `RerankLearner.fit`.

    `reranker.bias` is its item part, an `ItemBias`: users without events are ranked by it, and it
    can be served alone. Immutable.
    """

    needs_events: ClassVar[bool] = True

    def apply(
        self,
        recs: Any,
        k: int = 10,
        *,
        history: Any | None = None,
        as_of: Any | None = None,
        exclude: Any | None = None,
        allowed: Any | None = None,
        duplicates: str = "error",
        depth: int | str | None = None,
    ) -> Any:
        """Return the top k of every user.

        Args:
            recs: user_id, item_id, score (and window, if there are several): the engine's lists.
            k: slots per user; a user with fewer items gets fewer rows.
            history: user_id, item_id, timestamp: what users bought before `as_of`. Users without
                such events are ranked by the biases. Events of other users, of items that were
                neither learned nor listed, and events at or after `as_of` are left out (see
                `count_left_out`).
            as_of: the instant that the lists are for, a datetime, a date or ISO text; not before
                the end of what the reranker learned from. By default the end of what is known;
                refused if the latest event is after the present time, or one of very few that are
                more than 30 days after all others.
            exclude: user_id, item_id of pairs that must not be shown, added items included.
            allowed: item_id of the only items that may be shown, added items included.
            duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the
                scores by "max", "mean" or "sum".
            depth: number of items, the best of each list by the engine's score, that are
                re-ranked; "all" for whole lists; by default as for `ItemBias.apply`.

        Returns:
            user_id, item_id, score, rank (from 1), ordered by user and rank, in the same type of
            frame as `recs`. Scores order the items of one user; they are not comparable between
            users.
        """
        ranked = self.rank(
            recs, k, history=history, as_of=as_of, exclude=exclude, allowed=allowed,
            duplicates=duplicates, depth=depth,
        )  # fmt: skip
        warn_of(self, ranked, k, depth)
        return ranked.top

    def rank(
        self, recs: Any, k: int = 10, *, history: Any | None = None, as_of: Any | None = None,
        exclude: Any | None = None, allowed: Any | None = None, duplicates: str = "error",
        depth: int | str | None = None,
    ) -> Ranked:  # fmt: skip
        """Return what `apply` returns, for some of all users, with figures instead of warnings.

        What depends on the lists of others is up to `prepare`.
        """
        require_k(k)
        deepest = choose_depth(self.bias, depth)
        coded = read_lists(recs, "never", duplicates)
        aligned = align_lists(self.bias, coded, exclude, allowed)
        bought, left_out = read_events(self, history, as_of, aligned)
        try:
            with np.errstate(over="raise", invalid="raise"):
                top = rank_units(
                    self, self._items(aligned), aligned.lists, coded.units.user_codes,
                    bought, aligned.hidden, k, deepest,
                )  # fmt: skip
        except FloatingPointError:
            raise DataError(SCORE_TOO_LARGE) from None
        return aligned.finish(top, left_out)

    def _items(self, aligned: AlignedLists) -> RankedItems:
        n_items, known = len(aligned.items), aligned.known
        may_add = may_be_added(self.settings["widen"], n_items, aligned.listed)
        item_part = spread(self.item_part, known, n_items)
        return RankedItems(
            aligned.bias, item_part, aligned.excluded, may_add & ~aligned.excluded,
            known[self.trending],
        )  # fmt: skip

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

    def prepare(self, listed: Any) -> Reranker:
        """Return a reranker that ranks some users' lists as if all were in the same table.

        Two things depend on the lists of others: purchases of an item that was not learned count if
        it is on anybody's list, and with `widen="listed"` only items on some list are added.

        Args:
            listed: ids of all items on lists, in any order: integers or Arrow strings.
        """
        bias, settings = self.bias, dict(self.settings)
        items, (known, on_lists) = Vocabulary.encode(
            bias.vocabulary.column, Vocabulary(listed).column
        )
        columns = {name: spread(getattr(bias, name), known, len(items)) for name in COLUMNS}
        if settings["widen"] == "listed":
            columns["excluded"] |= ~np.isin(np.arange(len(items)), on_lists)
            settings["widen"] = "any"
        return replace(
            self, bias=replace(bias, item_ids=items.ids, **columns), settings=settings,
            item_part=spread(self.item_part, known, len(items)), trending=known[self.trending],
        )  # fmt: skip

    def explain(
        self,
        user: Any,
        item: Any,
        recs: Any,
        *,
        history: Any | None = None,
        as_of: Any | None = None,
        duplicates: str = "error",
        depth: int | str | None = None,
        window: Any | None = None,
    ) -> Explanation:
        """Return why an item stands where it does on a user's list.

        Args:
            user: user_id.
            item: item_id, on the user's list or added to it.
            recs: the engine's lists, as for `apply`; those of other users are ignored.
            history: as for `apply`.
            as_of: as for `apply`.
            duplicates: as for `apply`.
            depth: as for `apply`.
            window: the list's window, if `recs` has several; by default the user's last one.

        Returns:
            The ranks by the engine and by the reranker, the parts of the item's score, and the
            items that passed it, each with the part in which it is furthest ahead; printed, one
            line each.
        """
        aligned = align_lists(self.bias, read_user_list(recs, user, window, duplicates))
        bought, _ = read_events(self, history, as_of, aligned)
        deepest = choose_depth(self.bias, depth)
        return ListPlace(self, aligned, self._items(aligned), bought, deepest).explain(user, item)

    def count_left_out(self, recs: Any, history: Any, as_of: Any | None = None) -> LeftOut:
        """Return the numbers of events that `apply` would leave out, by reason."""
        aligned = align_lists(self.bias, read_lists(recs, "never", "max"))
        return read_events(self, history, as_of, aligned)[1]

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

    def with_strength(self, strength: float) -> Reranker:
        """Return a reranker that ranks between the engine and what was learned.

        Everything learned is multiplied by the strength. The engine's score counts as much as
        learned at 1, and at least 1 towards 0. The forecast is that of the strength.

        Args:
            strength: from 0 (the engine's own lists) to 1 (as learned).
        """
        strength = require_strength(strength)
        if strength == 1:
            return self
        summary = replace(
            self.summary, strength=strength * self.summary.strength, lifts={},
            sources=self.summary.sources if strength else (), forecast_by_strength={},
            **forecast_at(strength, self.summary.forecast_by_strength)._asdict(),
        )  # fmt: skip
        learned = tuple(own.at_strength(strength) for own in self.learned) if strength else ()
        return replace(
            self, bias=self.bias.with_strength(strength), item_part=strength * self.item_part,
            learned=learned, summary=summary,
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
