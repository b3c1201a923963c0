"""What moved between two versions, largest moves first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Codes, Flags, Floats
from trimtab.bias import ItemBias
from trimtab.errors import DataError
from trimtab.store import Version
from trimtab.tables.columns import ITEM, NAME
from trimtab.tables.frames import known_ids, take_ids
from trimtab.tables.ids import encode_ids


def diff(before: Version, after: Version) -> pa.Table:
    """One row an item whose bias, or whose exclusion, differs; an item not known counts as 0.

    Returns:
        item_id, name (the id again where none is known), before, after, move (after less before),
        excluded_before, excluded_after. Items that were excluded or let in again come first, then
        by the size of the move, then by id.

    Raises:
        DataError: one version adds its biases, the other multiplies by them.
    """
    old, new = before.bias(), after.bias()
    if old.scale != new.scale:
        raise DataError(
            f"version {before.number} has scale='{old.scale}', version {after.number} "
            f"scale='{new.scale}': their biases cannot be compared"
        )
    ids, (old_codes, new_codes) = encode_ids(
        [
            known_ids(f"version {version.number}", ITEM, bias.item_ids)
            for version, bias in ((before, old), (after, new))
        ]
    )
    first, was = _spread(old, old_codes, len(ids))
    second, is_now = _spread(new, new_codes, len(ids))
    move = second - first
    rows = np.flatnonzero((move != 0) | (was != is_now))
    rows = rows[np.lexsort((rows, -np.abs(move[rows]), was[rows] == is_now[rows]))]
    shown = pa.array(take_ids(ids, rows.astype(np.int32)))
    return pa.table(
        {
            ITEM: shown,
            NAME: _names(shown, after, before),
            "before": first[rows],
            "after": second[rows],
            "move": move[rows],
            "excluded_before": was[rows],
            "excluded_after": is_now[rows],
        }
    )


def _spread(bias: ItemBias, codes: Codes, n_items: int) -> tuple[Floats, Flags]:
    """Biases and exclusions by the codes of both versions' items."""
    values, excluded = np.zeros(n_items), np.zeros(n_items, bool)
    values[codes], excluded[codes] = bias.bias, bias.excluded
    return values, excluded


def _names(ids: pa.Array, *versions: Version) -> pa.Array:
    """Names of items, by the first version that knows them; the id where none does."""
    names = pa.nulls(len(ids), pa.string())
    for version in versions:
        known = version.names()
        if known is not None:
            rows = pc.index_in(ids, known[ITEM].combine_chunks().cast(ids.type))
            names = pc.coalesce(names, known[NAME].combine_chunks().cast(pa.string()).take(rows))
    return pc.coalesce(names, ids.cast(pa.string()))
