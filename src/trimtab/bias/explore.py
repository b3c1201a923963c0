"""Fill the last slots of a list with little-known items, by Thompson sampling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Lists, Sets, close_lists
from trimtab.checks import require_whole
from trimtab.metrics.ranking import rank_lists
from trimtab.threads import run_ranges


class ExploreItems(NamedTuple):
    """The bias of each item, its standard error, and whether the item may be explored."""

    bias: Floats
    standard_error: Floats
    allowed: Flags


def require_explore(explore: Any, k: int, seed: Any) -> None:
    """Raise unless `explore` is between 0 and k."""
    require_whole("explore", explore, 0, k, "k")
    require_whole("seed", seed, 0)


def explore_lists(
    lists: Lists, top: Lists, k: int, n_explored: int, explored: ExploreItems,
    hidden: Sets | None, seed: int,
) -> Lists:  # fmt: skip
    """Return the top k with explored items in its last slots, ranked with biases drawn at random.

    Args:
        lists: scored items by unit, on the scale of the biases.
        top: their top k with biases.
        k: number of slots.
        n_explored: slots for explored items; slots that cannot be filled stay as they are.
        explored: items to explore.
        hidden: items to leave out for each unit.
        seed: random seed; the order of entries in the lists does not matter.
    """
    from trimtab.kernels.top_k import merge_explored

    entries = np.flatnonzero(explored.allowed[lists.items])
    units = np.searchsorted(lists.indptr, entries, side="right") - 1
    order = np.lexsort((lists.items[entries], units))
    entries, units = entries[order], units[order]
    items = lists.items[entries]
    draws = np.random.default_rng([seed, 2]).standard_normal(len(entries))
    errors = explored.standard_error[items] * draws
    drawn = lists.scores[entries] + explored.bias[items] + errors
    indptr = np.searchsorted(units, np.arange(lists.n_units + 1)).astype(np.int64)
    no_bias = np.zeros(len(explored.bias))
    tried = rank_lists(Lists(indptr, items, drawn), k, no_bias, hidden=hidden)
    # No more slots than can be filled, for any k.
    longest = sum(int(np.diff(rows.indptr).max(initial=0)) for rows in (top, tried))
    n_slots = max(1, min(k, longest))
    top_items = np.empty(lists.n_units * n_slots, np.int32)
    top_scores = np.empty(lists.n_units * n_slots)
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        merge_explored, lists.n_units, k, n_slots, n_explored, *top, tried.indptr, tried.items,
        *lists, explored.bias, top_items, top_scores, lengths,
    )  # fmt: skip
    return close_lists(top_items, top_scores, lengths, n_slots)
