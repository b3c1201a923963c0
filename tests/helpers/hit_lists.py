"""Units with a hit, of lists and purchases alone."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats, Lists, Sets
from trimtab.learn.units import HitLists, Units


def find_hits(
    lists: Lists, bought: Sets, weights: Floats | None = None, relevance: Floats | None = None
) -> HitLists:
    """The units of one window that bought something on their list."""
    n_units = lists.n_units
    by_unit = np.ones(n_units) if weights is None else weights
    none = np.zeros(n_units, np.uint64), np.zeros(n_units, np.int64), np.arange(n_units)
    return Units(lists, bought, by_unit, by_unit, relevance, None, *none).with_hits
