"""Lists of some of all users, ranked by biases, and the warnings of all users together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.arrays import Ints
from trimtab.bias.depth import (
    append_rest,
    choose_depth,
    count_lengths,
    split_lists,
    warn_if_deeper,
)
from trimtab.bias.explore import ExploreItems, explore_lists, require_explore
from trimtab.bias.ranked_tables import align_items, read_allowed, read_excluded_pairs, write_top
from trimtab.bias.scaled_scores import rank_on_scale, to_scale, to_scores
from trimtab.bias.table import BiasTable
from trimtab.checks import require_k
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.lists import longest_list, read_lists, warn_if_short


@dataclass(frozen=True)
class RankedPart:
    """Ranked lists of some of all users, and what is needed to warn of all together."""

    top: Any  # in the caller's type of frame
    lengths: Ints  # number of the engine's lists by length
    longest: int  # of the ranked lists
    unknown: Any  # items on the engine's lists that are not in the bias table


def rank_part(
    bias: BiasTable, recs: Any, k: int, *, exclude: Any | None = None, allowed: Any | None = None,
    duplicates: str = "error", explore: int = 0, seed: int = 0, depth: int | str | None = None,
) -> RankedPart:  # fmt: skip
    """Return what `ItemBias.apply` returns, for some of all users and without warnings."""
    require_k(k)
    require_explore(explore, k, seed)
    deepest = choose_depth(bias, depth)
    coded = read_lists(recs, bias.unlisted, duplicates)
    items = align_items(bias, coded)
    hidden = None if exclude is None else read_excluded_pairs(exclude, coded, items.ids)
    excluded = items.excluded
    if allowed is not None:
        excluded = excluded | ~read_allowed(allowed, items.ids)
    best, rest = split_lists(items.lists, deepest)
    reaches, is_ours = bias.unlisted == "zero", best.scores.flags.writeable
    if explore:
        lists, units = to_scale(best, bias.scale, bias.summary.k, is_ours)
        top = rank_lists(lists, k, items.bias, excluded, reaches, hidden)
        explored = ExploreItems(items.bias, items.standard_error, items.fresh & ~excluded)
        top = explore_lists(lists, top, k, explore, explored, hidden, seed)
        top = top._replace(scores=to_scores(top, units))
    else:
        top = rank_on_scale(
            best, bias.scale, bias.summary.k, k, items.bias, excluded, reaches, hidden, is_ours
        )
    if rest is not None:
        top = append_rest(top, rest, k, excluded, hidden)
    written = write_top(top, coded, items.ids)
    return RankedPart(written, count_lengths(coded.lists), longest_list(top), items.unknown())


def warn_of_lengths(bias: BiasTable, lengths: Ints, k: int, depth: int | str | None) -> None:
    """Warn of lists that are too short, or deeper than what the biases were learned on.

    Args:
        bias: the biases.
        lengths: number of the engine's lists by length.
        k: as for `ItemBias.apply`.
        depth: as for `ItemBias.apply`.
    """
    warn_if_short(len(lengths) - 1, k)
    if depth is None:
        warn_if_deeper(lengths, choose_depth(bias, depth))
