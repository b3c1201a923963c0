"""What a fit counts before the ascent, of lists and purchases alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Floats, Lists, Sets
from trimtab.learn.ascent import penalty_unit
from trimtab.metrics.per_user import rank_lists


def count_for_ascent(
    lists: Lists, bought: Sets, n_items: int, k: int, weights: Floats | None = None
) -> dict[str, Any]:
    """Arguments of `ascend`; the unit is the median k-th score."""
    top = rank_lists(lists, k, np.zeros(n_items))
    lengths = np.diff(top.indptr)
    chosen = (top.scores[top.indptr[1:][lengths >= n] - 1] for n in (k, 1))
    medians = (np.median(scores) if len(scores) else np.nan for scores in chosen)
    return {
        "weights": np.ones(lists.n_units) if weights is None else weights,
        "start": None,
        "unit": penalty_unit(medians, float(np.abs(lists.scores).max(initial=0.0))),
        "support": np.bincount(bought.items, minlength=n_items),
        "exposure": np.bincount(top.items, minlength=n_items),
    }
