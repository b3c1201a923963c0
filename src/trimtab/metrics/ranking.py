"""The one total order, and the top k by it.

Score descending, then item id ascending; item codes follow the ids, so codes decide ties.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Flags, Floats, Lists, Sets
from trimtab.threads import run_ranges


def rank_lists(
    lists: Lists,
    k: int,
    bias: Floats,
    excluded: Flags | None = None,
    reaches_unlisted: bool = False,
    hidden: Sets | None = None,
) -> Lists:
    """The top k of every unit, best first, with the biases added to the scores.

    Args:
        lists: scored items by unit.
        k: places; those that nothing claims stay empty.
        bias: one number per item code.
        excluded: items that nobody gets.
        reaches_unlisted: whether items with a positive bias also reach units that do not list
            them, at a score of just the bias. Units with an empty list get nothing.
        hidden: items that a unit must not get.
    """
    from trimtab.kernels.top_k import select_top

    offset = np.array(bias, np.float64)
    if excluded is not None:
        offset[excluded] = -np.inf
    raised = np.empty(0, np.int32)
    if reaches_unlisted:
        positive = np.flatnonzero(offset > 0)
        raised = positive[np.argsort(-offset[positive], kind="stable")].astype(np.int32)
    # No more places than can be filled, however large k is.
    k = max(1, min(k, int(np.diff(lists.indptr).max(initial=0)) + len(raised)))
    none = Sets(np.zeros(1, np.int64), np.empty(0, np.int32))
    items = np.empty(lists.n_units * k, np.int32)
    scores = np.empty(lists.n_units * k)
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        select_top, lists.n_units, k, *lists, offset, raised, *(hidden or none),
        items, scores, lengths,
    )  # fmt: skip
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    if indptr[-1] < len(items):
        taken = (np.arange(k) < lengths[:, None]).ravel()
        items, scores = items[taken], scores[taken]
    return Lists(indptr, items, scores)
