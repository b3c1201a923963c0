"""How deep lists are re-ranked: as deep as the lists that the biases were learned on.

Items below that depth were not there when the biases were learned, so no bias was tested on them.
They follow after the re-ranked items, in the engine's order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Ints, Lists, Sets
from trimtab.bias.table import BiasTable
from trimtab.checks import require_whole
from trimtab.errors import SettingError, warn
from trimtab.metrics.ranking import rank_lists
from trimtab.threads import run_ranges

ALL = "all"
_LEAST_FOR_INDEX, _LEAST_TIMES_K = 500, 20
_LEAST_SHARE_ADDITIVE = 0.25  # of the items; docs/index-serving.md has what was measured


def common_depth(counts: Ints) -> int:
    """Return the depth of lists: the smallest length that at least 95 % of them do not exceed.

    A few lists can be much longer than all others, so the longest says little.

    Args:
        counts: number of lists by length; at least one list must not be empty, and empty ones do
            not count.
    """
    up_to = np.cumsum(counts[1:])
    return int(np.searchsorted(up_to, -(-19 * up_to[-1] // 20))) + 1


def count_lengths(lists: Lists) -> Ints:
    """Return the number of lists by length."""
    return np.bincount(np.diff(lists.indptr))


def choose_depth(bias: BiasTable, depth: Any) -> int | None:
    """Return how deep lists are re-ranked; None for whole lists.

    Args:
        bias: biases with their own depth.
        depth: a number, "all", or None for the biases' own depth.
    """
    if depth is None:
        return None if bias.unlisted == "zero" else bias.depth
    if isinstance(depth, str):
        if depth != ALL:
            raise SettingError(f"depth={depth!r}: must be a whole number, or {ALL!r}")
        return None
    require_whole("depth", depth, 1)
    if bias.unlisted == "zero":
        raise SettingError(
            f"depth={depth}: does not work with unlisted='zero', where items below any depth can "
            f"enter the list; leave out depth"
        )
    return int(depth)


class SplitLists(NamedTuple):
    """Lists down to a depth, and what lies below it; None if that is nothing."""

    best: Lists
    rest: Lists | None


def split_lists(lists: Lists, depth: int | None) -> SplitLists:
    """Return the best entries of each list and the rest, by the engine's scores.

    Equal scores rank by item, as everywhere.
    """
    lengths = np.diff(lists.indptr)
    if depth is None or lengths.max(initial=0) <= depth:
        return SplitLists(lists, None)
    from trimtab.kernels.top_k import mark_best

    is_best = np.empty(len(lists.items), bool)
    run_ranges(mark_best, lists.n_units, depth, *lists, is_best)
    n_best = np.minimum(lengths, depth)
    return SplitLists(_choose(lists, n_best, is_best), _choose(lists, lengths - n_best, ~is_best))


def _choose(lists: Lists, lengths: Ints, chosen: Flags) -> Lists:
    return Lists(_ends(lengths), lists.items[chosen], lists.scores[chosen])


def _ends(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)])


def warn_if_deeper(counts: Ints, depth: int | None) -> None:
    """Warn if lists are deeper than those that the biases were learned on.

    Up to 5 % of the lists may be deeper, as among those that set the depth.

    Args:
        counts: number of lists by length.
        depth: of the lists that the biases were learned on.
    """
    if depth is not None and counts[1:].any() and common_depth(counts) > depth:
        warn(
            f"lists of up to {len(counts) - 1} items; biases were learned on lists of {depth}: "
            f"only the best {depth} of each list were re-ranked; pass depth=... to change that"
        )


def require_deep(bias: BiasTable, n_items: int) -> None:
    """Raise if biases were learned on lists too short for an index, which ranks all items.

    An additive bias can lift an item for every user, however low the engine ranks it; a log bias
    leaves low scores low. So additive biases need lists with a good part of all items.
    """
    depth = bias.depth
    least = depth_for_index(bias.scale, bias.summary.k, n_items)
    if depth is None or depth >= least:
        return
    least_of_log = depth_for_index("log", bias.summary.k, n_items)
    scale = "with scale='log', which needs less depth, " if least_of_log < least else ""
    raise SettingError(
        f"biases were learned on lists of {depth}, but an index ranks all {n_items} items: "
        f"scale={bias.scale!r} needs lists of at least {least}; learn {scale}on "
        f"tt.recs_from(model, n={max(least_of_log, 1000)}), or pass allow_shallow=True if "
        f"what the index returns gains on later purchases by tt.evaluate"
    )


def depth_for_index(scale: str, k: int, n_items: int) -> int:
    """Return the least depth of lists for biases that an index of so many items serves."""
    least = max(_LEAST_FOR_INDEX, _LEAST_TIMES_K * k)
    if scale == "additive":
        least = max(least, math.ceil(_LEAST_SHARE_ADDITIVE * n_items))
    return min(least, n_items)


def append_rest(
    top: Lists, rest: Lists, k: int, excluded: Flags, hidden: Sets | None = None
) -> Lists:
    """Return the top k with free slots filled from the rest, in the engine's order.

    An appended item keeps the engine's score, unless the last re-ranked item's is lower: then it
    gets that one, so that scores never rise from one rank to the next.

    Args:
        top: re-ranked items, at most k per unit, with their scores in the engine's units.
        rest: what lies below the depth, with the engine's scores.
        k: number of slots.
        excluded: items to leave out for all units.
        hidden: items to leave out for each unit.
    """
    lengths = np.diff(top.indptr)
    units = np.flatnonzero((lengths < k) & (np.diff(rest.indptr) > 0))
    if len(units) == 0:
        return top
    free = k - lengths[units]
    ranked = rank_lists(
        rest.take(units), int(free.max()), np.zeros(len(excluded)), excluded,
        hidden=None if hidden is None else hidden.take(units),
    )  # fmt: skip
    added = np.minimum(np.diff(ranked.indptr), free)
    return _join(top, ranked, units, added)


def _join(top: Lists, ranked: Lists, units: Ints, added: Ints) -> Lists:
    """Return the lists with the first `added` entries of `ranked` after those of some units."""
    lengths = np.diff(top.indptr)
    totals = lengths.copy()
    totals[units] += added
    indptr = _ends(totals)
    items, scores = np.empty(indptr[-1], np.int32), np.empty(indptr[-1])
    own = np.arange(len(top.items)) + np.repeat(indptr[:-1] - top.indptr[:-1], lengths)
    items[own], scores[own] = top.items, top.scores
    limits = np.full(len(units), np.inf)
    filled = lengths[units] > 0
    limits[filled] = top.scores[top.indptr[1:][units[filled]] - 1]
    step = np.arange(int(added.sum())) - np.repeat(_ends(added)[:-1], added)
    new = np.repeat(indptr[:-1][units] + lengths[units], added) + step
    source = np.repeat(ranked.indptr[:-1], added) + step
    items[new] = ranked.items[source]
    scores[new] = np.minimum(ranked.scores[source], np.repeat(limits, added))
    return Lists(indptr, items, scores)
