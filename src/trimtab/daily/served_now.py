"""Versions of a store: the one served now as a refresh finds it, and what two differ in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Flags, Floats
from trimtab.errors import DataError, RefusedError, StoreError, warn
from trimtab.models import ItemBias
from trimtab.models.model import text_columns
from trimtab.replay.dated_lists import DatedLists
from trimtab.replay.shop import ShopData
from trimtab.store import Store, Version
from trimtab.tables.columns import ITEM, NAME
from trimtab.tables.vocabulary import Vocabulary, id_column


class ServedNow(NamedTuple):
    """The version served now; nothing is known of it but its number if it is damaged."""

    number: int | None  # None if nothing was published yet
    bias: ItemBias | None = None
    as_of: str = ""  # the day it is for
    tz: str | None = None  # None if it was published by hand
    method: str | None = None  # that learned it; None if it does not say

    @staticmethod
    def read(store: Store, number: int | None) -> ServedNow:
        """Read the biases of a version; a damaged one is no error."""
        if number is None:
            return ServedNow(None)
        found = ServedNow(number)
        try:
            version = store.version(number)
            told = version.manifest
            found = found._replace(as_of=version.as_of, tz=told.get("tz"))
            return found._replace(bias=version.bias(), method=told.get("method", {}).get("used"))
        except StoreError as error:
            warn(f"version {number}, the current one, is damaged: {error}")
        return found

    def require_older_than(self, data: ShopData) -> None:
        """Refuse to replace the biases of a newer day."""
        if str(data.as_of) < self.as_of:
            raise RefusedError(
                f"as_of={data.as_of}: version {self.number}, the current one, is for a later day, "
                f"{self.as_of}: not published; pass accept=['older'] to publish anyway"
            )

    def text_in_csv(self, lists: DatedLists, data: ShopData) -> tuple[str, ...]:
        """Return the columns that are read as text because the served ids are text.

        Only if all tables are CSV files, which do not say whether '12' is a number.
        """
        are_csv = ["events" in data.from_csv, *map(lists.is_csv, lists.days)]
        return text_columns(self.bias) if all(are_csv) else ()

    def require_type_of(self, recs: pa.Table) -> None:
        """Refuse lists whose item ids are of another type than those served."""
        if self.bias is None:
            return
        served = "integers" if isinstance(self.bias.item_ids, np.ndarray) else "strings"
        found = id_column("lists", ITEM, recs[ITEM].slice(0, 1)).kind
        if found != served:
            raise RefusedError(
                f"{ITEM} holds {found}, but {served} in version {self.number}, the current one: a "
                f"service would refuse all requests with {served}: not published; restore the "
                f"type of the ids, or pass accept=['id-type']"
            )


def diff(before: Version, after: Version) -> pa.Table:
    """Return one row per item whose bias or exclusion differs; an unknown item counts as 0.

    Returns:
        item_id, name (the id if there is none), before, after, move (after minus before),
        excluded_before, excluded_after. Items whose exclusion changed come first, then by the size
        of the move, then by id.

    Raises:
        DataError: the biases of the versions are on different scales.
    """
    old, new = before.bias(), after.bias()
    if old.scale != new.scale:
        raise DataError(
            f"version {before.number} has scale='{old.scale}', but version {after.number} has "
            f"scale='{new.scale}': their biases cannot be compared"
        )
    if new.scale == "list" and old.summary.k != new.summary.k:
        raise DataError(
            f"version {before.number} has k={old.summary.k}, but version {after.number} has "
            f"k={new.summary.k}: their biases, on the scale of each list, cannot be compared"
        )
    ids, (old_codes, new_codes) = Vocabulary.encode(
        *(
            Vocabulary(bias.item_ids, f"version {version.number}", ITEM).column
            for version, bias in ((before, old), (after, new))
        )
    )
    old_bias, was_excluded = _by_code(old, old_codes, len(ids))
    new_bias, is_excluded = _by_code(new, new_codes, len(ids))
    move = new_bias - old_bias
    rows = np.flatnonzero((move != 0) | (was_excluded != is_excluded))
    same = was_excluded[rows] == is_excluded[rows]
    rows = rows[np.lexsort((rows, -np.abs(move[rows]), same))]
    shown = pa.array(ids.take(rows.astype(np.int32)))
    return pa.table(
        {
            ITEM: shown,
            NAME: _names(shown, after, before),
            "before": old_bias[rows],
            "after": new_bias[rows],
            "move": move[rows],
            "excluded_before": was_excluded[rows],
            "excluded_after": is_excluded[rows],
        }
    )


def _by_code(bias: ItemBias, codes: Codes, n_items: int) -> tuple[Floats, Flags]:
    """Return biases and exclusions by the codes of both versions' items."""
    values, excluded = np.zeros(n_items), np.zeros(n_items, bool)
    values[codes], excluded[codes] = bias.bias, bias.excluded
    return values, excluded


def _names(ids: pa.Array, *versions: Version) -> pa.Array:
    """Return item names from the first version that has them; otherwise the ids."""
    names = pa.nulls(len(ids), pa.string())
    for version in versions:
        known = version.names()
        if known is not None:
            # One chunk each; ids are compared as text, in case one version has numbers.
            own = pc.index_in(ids.cast(pa.string()), known[ITEM].combine_chunks().cast(pa.string()))
            names = pc.coalesce(names, known[NAME].combine_chunks().take(own))
    return pc.coalesce(names, ids.cast(pa.string()))
