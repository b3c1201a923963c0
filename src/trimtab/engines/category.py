"""Category: recommend what sells now in the categories that a user buys from.

    P(i | u) = Σ_c P(i | c) · P(c | u)

P(c | u) is the share of category c in all of the user's purchases. P(i | c) is the share of item i
in the purchases of c in the last `window_days`, so it follows the current sales. Items without a
category form one category.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Lists
from trimtab.engines.base import Engine, Events
from trimtab.engines.sparse_mixture import Mix, Rows, commonest_first, mix_lists, share_rows
from trimtab.errors import SettingError
from trimtab.tables.columns import CATEGORY, ITEM
from trimtab.tables.frames import column_names, read_frame
from trimtab.tables.vocabulary import as_id_column, encode_ids, id_column


class _Model(NamedTuple):
    user_categories: Mix  # P(c | u)
    category_items: Rows  # P(i | c)


@dataclass(kw_only=True)
class Category(Engine):
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

    def _learn(self, events: Events, item_ids: Any) -> _Model:
        category_of, n_categories = self._categories(item_ids)
        user_categories = share_rows(
            events.users, category_of[events.items], events.weights(self.decay_days),
            events.n_users, n_categories,
        )  # fmt: skip
        recent = events.since(self.window_days)
        popular = share_rows(
            category_of[recent.items], recent.items, recent.weights(self.decay_days),
            n_categories, events.n_items,
        )  # fmt: skip
        return _Model(user_categories, commonest_first(popular, events.n_items))

    def _score(self, model: _Model, users: Codes, n: int) -> Lists:
        return mix_lists(model.user_categories.take(users), model.category_items, n)

    def _categories(self, item_ids: Any) -> tuple[Codes, int]:
        """Return each item's category code (the last if it has none), and the number of codes."""
        table = read_frame(self.items, "items", ITEM, self.level)
        labels = table.columns[self.level].combine_chunks().cast(pa.string()).dictionary_encode()
        codes = labels.indices.fill_null(len(labels.dictionary)).to_numpy().astype(np.int32)
        ours = as_id_column("events", ITEM, item_ids)
        theirs = id_column("items", ITEM, table.columns[ITEM])
        ids, (our_codes, their_codes) = encode_ids([ours, theirs])
        found = np.full(len(ids), len(labels.dictionary), np.int32)
        found[their_codes] = codes
        return found[our_codes], len(labels.dictionary) + 1
