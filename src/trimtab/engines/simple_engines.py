"""Engines from shares of purchases: by category, of the whole shop, and of the user's own.

`Category` recommends what sells now in the categories that a user buys from:

    P(i | u) = Σ_c P(i | c) · P(c | u)

P(c | u) is the share of category c in all of the user's purchases. P(i | c) is the share of item i
in the purchases of c in the last `window_days`, so it follows the current sales. Items without a
category form one category. `Popularity` and `Repeat` are baselines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Lists
from trimtab.engines.base import Engine, Events, Sparse, mix_lists, share_rows
from trimtab.errors import SettingError
from trimtab.tables.columns import CATEGORY, ITEM, column_names, read_frame
from trimtab.tables.vocabulary import Vocabulary


class _Model(NamedTuple):
    profiles: Sparse  # weights of groups by user
    shares: Sparse  # of items by group
    n_items: int


@dataclass(kw_only=True)
class _ShareEngine(Engine):
    """An engine from the shares of items in groups of purchases."""

    def _make_model(self, profiles: Sparse, events: Events, groups: Codes, n_groups: int) -> _Model:
        recent = events._replace(users=groups).since(self.window_days)
        weights = recent.weights(self.decay_days)
        shares = share_rows(recent.users, recent.items, weights, n_groups, events.n_items)
        return _Model(profiles, shares, events.n_items)

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        return mix_lists(model.profiles.take(users), model.shares, model.n_items, n)


@dataclass(kw_only=True)
class Category(_ShareEngine):
    """Engine that recommends what sells in a user's categories.

    Args:
        items: item_id and one column for each level of the taxonomy.
        level: column to use.
        window_days: days of item sales to use; None for all.
    """

    items: Any
    level: str = CATEGORY
    window_days: float | None = 28

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = [column for column in column_names(self.items, "items") if column != ITEM]
        if self.level not in levels:
            found = ", ".join(levels) or "none"
            raise SettingError(
                f"level={self.level!r}: must be a column of items that groups them; found {found}"
            )

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        category_of, n_categories = self._categories(items)
        categories = category_of[events.items]
        weights = events.weights(self.decay_days)
        profiles = share_rows(events.users, categories, weights, events.n_users, n_categories)
        return self._make_model(profiles, events, categories, n_categories)

    def _categories(self, items: Vocabulary) -> tuple[Codes, int]:
        """Return each item's category code (the last if it has none), and the number of codes."""
        table = read_frame(self.items, "items", ITEM, self.level)
        labels = table.columns[self.level].combine_chunks().cast(pa.string()).dictionary_encode()
        without = len(labels.dictionary)
        codes = labels.indices.fill_null(without).to_numpy().astype(np.int32)
        category_of = np.full(len(items) + 1, without, np.int32)  # the last: not in the events
        category_of[items.codes(table.ids(ITEM))] = codes
        return category_of[:-1], without + 1


@dataclass(kw_only=True)
class Popularity(_ShareEngine):
    """Engine with the same list for everybody: the score is an item's share of all purchases."""

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        everybody = Sparse(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
        return self._make_model(everybody, events, np.zeros_like(events.users), 1)

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        _, items, scores = mix_lists(*model, n)
        indptr = np.arange(len(users) + 1) * len(items)
        return Lists(indptr, np.tile(items, len(users)), np.tile(scores, len(users)))


@dataclass(kw_only=True)
class Repeat(_ShareEngine):
    """Engine of repeat purchases: the score is an item's share of the user's purchases."""

    def _learn(self, events: Events, items: Vocabulary) -> _Model:
        each = np.arange(events.n_users, dtype=np.int32)
        alone = Sparse(np.arange(events.n_users + 1), each, np.ones(events.n_users))
        return self._make_model(alone, events, events.users, events.n_users)
