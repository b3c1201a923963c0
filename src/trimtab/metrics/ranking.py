"""The ranking order, and the top k by it.

Score descending, then item id ascending. Item codes have the order of the ids, so codes break ties.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Flags, Floats, Lists, Sets, close_lists, read_only
from trimtab.threads import run_ranges

NOTHING_HIDDEN = Sets(np.zeros(1, np.int64), np.empty(0, np.int32))


def rank_lists(
    lists: Lists,
    k: int,
    bias: Floats,
    excluded: Flags | None = None,
    reaches_unlisted: bool = False,
    hidden: Sets | None = None,
) -> Lists:
    """Return the top k of every unit, best first, with the biases added to the scores.

    Args:
        lists: scored items by unit.
        k: number of slots; a unit with fewer items gets fewer.
        bias: one number per item code.
        excluded: items to leave out for all units.
        reaches_unlisted: whether items with a positive bias are also added to lists that lack
            them, with the bias as their score. Empty lists stay empty.
        hidden: items to leave out for each unit.
    """
    from trimtab.kernels.top_k import select_top

    offset = offsets(bias, excluded)
    raised = np.empty(0, np.int32)
    if reaches_unlisted:
        positive = np.flatnonzero(offset > 0)
        raised = positive[np.argsort(-offset[positive], kind="stable")].astype(np.int32)
    # No more slots than can be filled, for any k.
    k = max(1, min(k, int(np.diff(lists.indptr).max(initial=0)) + len(raised)))
    items = np.empty(lists.n_units * k, np.int32)
    scores = np.empty(lists.n_units * k)
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        select_top, lists.n_units, k, lists.indptr, lists.items, read_only(lists.scores), offset,
        raised, *(hidden or NOTHING_HIDDEN), items, scores, lengths,
    )  # fmt: skip
    return close_lists(items, scores, lengths, k)


def offsets(bias: Floats, excluded: Flags | None) -> Floats:
    """Return the biases as kernels take them: -inf leaves an item out."""
    offset = np.array(bias, np.float64)
    if excluded is not None:
        offset[excluded] = -np.inf
    return offset
