"""Concentration: how much of what is published falls on a few items, and how much may."""

from __future__ import annotations

import math
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.errors import RefusedError
from trimtab.models import Model
from trimtab.replay.large_lists import count_users
from trimtab.replay.outcome import rank_as_engine
from trimtab.tables.columns import ITEM, USER

_MOST_SHOWN = 10  # items whose shares are added up
_TIMES_BOUGHT = 7.0  # their share of slots, over the share of purchases of the ten most bought
_MORE_SLOTS, _TIMES_ENGINE = 0.1, 1.5  # what lists may add to the engine's own share


class Concentration(NamedTuple):
    """How much of what is shown, or bought, falls on a few items."""

    ten_items: float  # share of all slots, or purchases, of the ten most frequent items
    one_item: float  # largest share of lists, or buyers, with the same item

    @staticmethod
    def of(rows: pa.Table) -> Concentration:
        """Return that of lists or purchases: user_id, item_id."""
        if rows.num_rows == 0:
            return Concentration(0.0, 0.0)
        most = np.sort(_count(rows))[-_MOST_SHOWN:].sum()
        holders = _count(rows.group_by([USER, ITEM]).aggregate([])).max()
        return Concentration(float(most / rows.num_rows), float(holders / count_users(rows)))


def _count(rows: pa.Table) -> Any:
    return rows[ITEM].value_counts().field("counts").to_numpy()


class Shown(NamedTuple):
    """Concentration of the engine's own lists, of those to publish, and of what was bought."""

    engine: Concentration
    finished: Concentration
    bought: Concentration

    @staticmethod
    def measure(
        model: Model, lists: pa.Table, top: pa.Table, k: int, bought: Concentration,
        **options: Any,
    ) -> Shown:  # fmt: skip
        """Return the concentration of lists to publish and of the engine's own.

        Args:
            model: what was learned.
            lists: the engine's lists.
            top: what is published of them.
            k: number of slots.
            bought: what people bought.
            options: what may be shown, and `duplicates`, as for `Model.rank`.
        """
        engine = rank_as_engine(model, lists, k, **options)
        return Shown(Concentration.of(engine), Concentration.of(top), bought)

    def limit(self) -> float:
        """Return the largest share of slots that the ten most shown items may take by default.

        What people buy explains lists that hold little else, and an engine may do as it did. Lists
        hold best sellers more often than people buy them, as everybody may want them: on films
        nearly 6 times as often, in shops 5 times.
        """
        engine = self.engine.ten_items
        explained = _TIMES_BOUGHT * self.bought.ten_items
        return min(max(explained, _TIMES_ENGINE * engine, engine + _MORE_SLOTS), 1.0)

    def require_below(self, most: float | None, day: date) -> None:
        """Refuse lists of a day whose ten most shown items take more than a share of all slots.

        Args:
            most: this share; None for the default.
            day: of the lists.
        """
        limit, found = self.limit() if most is None else most, self.finished.ten_items
        if found > limit:
            raise RefusedError(
                f"lists of {day}: the ten most shown items would take {found:.0%} of all slots, "
                f"above the limit of {limit:.0%}; the engine's own lists give its ten "
                f"{self.engine.ten_items:.0%}, and the ten most bought make up "
                f"{self.bought.ten_items:.0%} of purchases: not published; look at these lists, or "
                f"pass max_concentration={math.ceil(100 * found) / 100:g}"
            )

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says."""
        return {name: own._asdict() for name, own in self._asdict().items()}
