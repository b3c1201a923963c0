"""Places kept for items that little is known of, given out by Thompson sampling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Lists, Sets
from trimtab.checks import require_whole
from trimtab.errors import SettingError
from trimtab.metrics.ranking import rank_lists
from trimtab.threads import run_ranges


class Chances(NamedTuple):
    """Of each item: its bias, how sure that is, and whether it may be explored."""

    bias: Floats
    spread: Floats
    open: Flags


def require_explore(explore: Any, k: int, seed: Any) -> None:
    """Refuse more places for exploration than there are."""
    require_whole("explore", explore, 0)
    require_whole("seed", seed, 0)
    if explore > k:
        raise SettingError(f"explore={explore}: must be at most k={k}, the places there are")


def explore_lists(
    lists: Lists, top: Lists, k: int, n_explored: int, chances: Chances, hidden: Sets | None,
    seed: int,
) -> Lists:  # fmt: skip
    """The top k with its last places given to open items, by scores with a bias drawn at random.

    Args:
        lists: scored items by unit, on the scale that biases add to.
        top: their top k with biases.
        k: places.
        n_explored: places to give away; those that no open item claims stay as they are.
        chances: of items.
        hidden: items that a unit must not get.
        seed: draws are the same for any order of the lists' entries.
    """
    from trimtab.kernels.top_k import merge_explored

    entries = np.flatnonzero(chances.open[lists.items])
    units = np.searchsorted(lists.indptr, entries, side="right") - 1
    order = np.lexsort((lists.items[entries], units))
    entries, units = entries[order], units[order]
    items = lists.items[entries]
    draws = np.random.default_rng([seed, 2]).standard_normal(len(entries))
    drawn = lists.scores[entries] + chances.bias[items] + chances.spread[items] * draws
    indptr = np.searchsorted(units, np.arange(lists.n_units + 1)).astype(np.int64)
    none = np.zeros(len(chances.bias))
    tried = rank_lists(Lists(indptr, items, drawn), k, none, hidden=hidden)
    # No more room than can be filled, however large k is.
    longest = sum(int(np.diff(rows.indptr).max(initial=0)) for rows in (top, tried))
    room = max(1, min(k, longest))
    out_items, out_scores = np.empty(lists.n_units * room, np.int32), np.empty(lists.n_units * room)
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        merge_explored, lists.n_units, k, room, n_explored, *top, tried.indptr, tried.items, *lists,
        chances.bias, out_items, out_scores, lengths,
    )  # fmt: skip
    taken = (np.arange(room) < lengths[:, None]).ravel()
    return Lists(np.concatenate([[0], np.cumsum(lengths)]), out_items[taken], out_scores[taken])
