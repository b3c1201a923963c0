"""Ranking the engine's lists: scales of biases, depth, items to leave out, reserved slots.

Biases are added on a scale: the scores, their logs, or the scale of each list. Lists are re-ranked
as deep as the lists that the biases were learned on. Items below that depth were not there when the
biases were learned, so no bias was tested on them. They follow after the re-ranked items, in the
engine's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets, close_lists, read_only
from trimtab.checks import require_whole
from trimtab.errors import DataError, SettingError, warn
from trimtab.metrics.per_user import rank_lists
from trimtab.models.model import WIDTH_90, BiasTable, LeftOut, Ranked
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, read_frame, write_frame
from trimtab.tables.lists import CodedRecs, group_sets, longest_list, warn_if_short
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import run_ranges

ALL = "all"
SCORE_TOO_LARGE = "a score of recs plus its bias is too large for a number; divide the scores"

# Scales -----------------------------------------------------------------------------------------


class Scaled(NamedTuple):
    """Lists on the scale of the biases, and what turns their keys back into scores."""

    lists: Lists
    # By list: the exponent of its logs; or its best score, and half of what counts as 1 on it.
    units: tuple[Any, ...]


def to_scale(lists: Lists, scale: str, k: int, in_place: bool = False) -> Scaled:
    """Return lists on a scale.

    Args:
        lists: scored items by unit.
        scale: "additive", "log" or "list".
        k: the learner's number of slots, which the scale "list" depends on.
        in_place: whether the scores may be overwritten, which spares as much memory again.
    """
    if scale == "additive":
        return Scaled(lists, ())
    from trimtab.kernels.ranking import list_keys, log_keys

    keys, n = lists.scores if in_place else np.empty(len(lists.scores)), lists.n_units
    given = (lists.indptr, read_only(lists.scores), keys)
    if scale == "list":
        best_and_half_gap = np.empty(n), np.empty(n)
        run_ranges(list_keys, n, k, *given, *best_and_half_gap)
        return Scaled(lists._replace(scores=keys), best_and_half_gap)
    exponents = np.empty(n, np.int64)
    run_ranges(log_keys, n, *given, exponents)
    return Scaled(lists._replace(scores=keys), (exponents,))


def to_scores(top: Lists, units: tuple[Any, ...]) -> Floats:
    """Return the scores of lists that biases were added to."""
    if not units:
        return top.scores
    from trimtab.kernels.ranking import scores_of_keys, scores_of_list_keys

    scores, kernel = np.empty(len(top.scores)), scores_of_list_keys if units[1:] else scores_of_keys
    run_ranges(kernel, top.n_units, top.indptr, top.scores, *units, scores)
    return scores


def rank_on_scale(
    lists: Lists, scale: str, learned_k: int, k: int, bias: Floats, excluded: Flags,
    depth: int | None = None, hidden: Sets | None = None, reaches_unlisted: bool = False,
    reserve: Callable[[Lists, Lists], Lists] | None = None,
) -> Lists:  # fmt: skip
    """Return the top k of every unit with biases added on a scale, with their scores.

    Scores that can be written to may be overwritten, which spares as much memory again.

    Args:
        lists: scored items by unit.
        scale: "additive", "log" or "list".
        learned_k: the learner's number of slots.
        k: slots, as for `rank_lists`.
        bias: one number per item code.
        excluded: items to leave out for all units.
        depth: how deep lists are re-ranked; None for whole lists.
        hidden: items to leave out for each unit.
        reaches_unlisted: as for `rank_lists`.
        reserve: takes the lists on the scale and the top k, and gives slots to other items.
    """
    best, rest = split_lists(lists, depth)
    scaled, units = to_scale(best, scale, learned_k, best.scores.flags.writeable)
    top = rank_lists(scaled, k, bias, excluded, reaches_unlisted, hidden)
    top = top if reserve is None else reserve(scaled, top)
    return append_rest(top._replace(scores=to_scores(top, units)), rest, k, excluded, hidden)


def model_scores(lists: Lists, scale: str, unit: float, k: int) -> Floats:
    """Scores as the choice model uses them: in units below the best score of the list.

    On the additive scale the unit is each list's own gap from first to k-th score: with one unit
    for all, users with small scores look as if the engine knew nothing about them, and biases
    become too large. How far to go is decided later, on the scores themselves.
    """
    if scale == "log":
        from trimtab.kernels.ranking import model_logs

        logs = np.empty(len(lists.scores))
        run_ranges(model_logs, lists.n_units, lists.indptr, lists.scores, logs)
        return logs
    filled = np.diff(lists.indptr) > 0
    best, units = np.zeros(lists.n_units), np.full(lists.n_units, unit)
    best[filled] = np.maximum.reduceat(lists.scores, lists.indptr[:-1][filled])
    if scale == "additive":
        top = rank_lists(lists, k, np.zeros(int(lists.items.max(initial=0)) + 1))
        gaps = best[filled] - top.scores[top.indptr[1:][filled] - 1]
        units[filled] = np.where(gaps > 0, gaps, unit)
    lengths = np.diff(lists.indptr)
    scores: Floats = (lists.scores - np.repeat(best, lengths)) / np.repeat(units, lengths)
    return scores


# Depth ------------------------------------------------------------------------------------------


def common_depth(counts: Ints) -> int:
    """Return the depth of lists: the smallest length that at least 95 % of them do not exceed.

    A few lists can be much longer than all others, so the longest says little.

    Args:
        counts: number of lists by length; at least one list must not be empty, and empty ones do
            not count.
    """
    up_to = np.cumsum(counts[1:])
    return int(np.searchsorted(up_to, -(-19 * up_to[-1] // 20))) + 1


def choose_depth(bias: BiasTable, depth: Any) -> int | None:
    """Return how deep lists are re-ranked; None for whole lists.

    Args:
        bias: biases with their own depth.
        depth: a number, "all", or None for the biases' own depth.
    """
    if depth is None:
        return None if bias.unlisted == "zero" else bias.depth
    if depth == ALL:
        return None
    if isinstance(depth, str):
        raise SettingError(f"depth={depth!r}: must be a whole number, or {ALL!r}")
    require_whole("depth", depth, 1)
    if bias.unlisted == "zero":
        raise SettingError(
            f"depth={depth}: does not work with unlisted='zero', where items below any depth can "
            f"enter the list; leave out depth"
        )
    return int(depth)


def split_lists(lists: Lists, depth: int | None) -> tuple[Lists, Lists | None]:
    """Return the best entries of each list by the engine's scores, and the rest, if there is any.

    Equal scores rank by item, as everywhere.
    """
    lengths = np.diff(lists.indptr)
    if depth is None or lengths.max(initial=0) <= depth:
        return lists, None
    from trimtab.kernels.ranking import mark_best

    is_best = np.empty(len(lists.items), bool)
    run_ranges(mark_best, lists.n_units, depth, *lists, is_best)
    n_best = np.minimum(lengths, depth)
    return _choose(lists, n_best, is_best), _choose(lists, lengths - n_best, ~is_best)


def _choose(lists: Lists, lengths: Ints, chosen: Flags) -> Lists:
    """Return lists with some of their entries, by unit so many."""
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Lists(indptr, lists.items[chosen], lists.scores[chosen])


def append_rest(
    top: Lists, rest: Lists | None, k: int, excluded: Flags, hidden: Sets | None = None
) -> Lists:
    """Return the top k with free slots filled from the rest, in the engine's order.

    An appended item keeps the engine's score, unless the last re-ranked item's is lower: then it
    gets that one, so that scores never rise from one rank to the next.

    Args:
        top: re-ranked items, at most k per unit, with their scores in the engine's units.
        rest: what lies below the depth, with the engine's scores; None for nothing.
        k: number of slots.
        excluded: items to leave out for all units.
        hidden: items to leave out for each unit.
    """
    if rest is None:
        return top
    lengths = np.diff(top.indptr)
    units = np.flatnonzero((lengths < k) & (np.diff(rest.indptr) > 0))
    if len(units) == 0:
        return top
    free = k - lengths[units]
    ranked = rank_lists(
        rest.take(units), int(free.max()), np.zeros(len(excluded)), excluded,
        hidden=None if hidden is None else hidden.take(units),
    )  # fmt: skip
    limits = np.full(len(units), np.inf)
    filled = lengths[units] > 0
    limits[filled] = top.scores[top.indptr[1:][units[filled]] - 1]
    found = np.diff(ranked.indptr)
    ranked = ranked._replace(scores=np.minimum(ranked.scores, np.repeat(limits, found)))
    fits = np.arange(len(ranked.items)) < np.repeat(ranked.indptr[:-1] + free, found)
    added = _choose(ranked, np.minimum(found, free), fits)
    return join_lists([(np.arange(top.n_units), top), (units, added)], top.n_units)


def join_lists(parts: Sequence[tuple[Ints, Lists]], n_units: int) -> Lists:
    """Return the lists of all units; entries of a unit follow in the order of the parts.

    Args:
        parts: some units, each once, and their lists.
        n_units: number of all units.
    """
    lengths = np.zeros(n_units, np.int64)
    for units, lists in parts:
        lengths[units] += np.diff(lists.indptr)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    items, scores, free = np.empty(indptr[-1], np.int32), np.empty(indptr[-1]), indptr[:-1].copy()
    for units, lists in parts:
        found = np.diff(lists.indptr)
        places = np.arange(len(lists.items)) + np.repeat(free[units] - lists.indptr[:-1], found)
        items[places], scores[places] = lists.items, lists.scores
        free[units] += found
    return Lists(indptr, items, scores)


# Tables in and out ------------------------------------------------------------------------------


def spread(values: Any, codes: Codes, size: int, otherwise: Any = 0) -> Any:
    """Return values at their codes, and another value everywhere else."""
    found = np.full(size, otherwise, values.dtype)
    found[codes] = values
    return found


@dataclass(frozen=True)
class AlignedLists:
    """The engine's lists with the items of a bias table: all in one vocabulary."""

    coded: CodedRecs
    items: Vocabulary
    lists: Lists  # with codes of these items
    listed: Codes  # codes of all items that are on a list, here or elsewhere
    known: Codes  # item codes of the bias table
    bias: Floats
    excluded: Flags  # must not be shown
    hidden: Sets | None  # must not be shown, by unit

    def finish(self, top: Lists, left_out: LeftOut) -> Ranked:
        """Return ranked lists as a table of the caller's type; raise if a score is not finite."""
        if not np.isfinite([top.scores.min(initial=0.0), top.scores.max(initial=0.0)]).all():
            raise DataError(SCORE_TOO_LARGE)
        lengths = np.diff(top.indptr)
        units = np.repeat(np.arange(top.n_units, dtype=np.int32), lengths)
        ranks = np.arange(1, len(units) + 1) - np.repeat(top.indptr[:-1], lengths)
        columns = self.coded.units.columns(units)
        columns |= {ITEM: self.items.take(top.items), SCORE: top.scores, RANK: ranks}
        table = write_frame(columns, self.coded.table)
        unknown = Vocabulary(self.items.take(np.setdiff1d(self.listed, self.known)))
        return Ranked(
            table, np.bincount(np.diff(self.lists.indptr)), longest_list(top), unknown, left_out
        )


def align_lists(
    bias: BiasTable, coded: CodedRecs, exclude: Any | None = None, allowed: Any | None = None,
    elsewhere: Any | None = None,
) -> AlignedLists:  # fmt: skip
    """Return lists and biases by the same codes, and what must not be shown.

    The items of the given lists are overwritten by their new codes. `elsewhere` are ids of items on
    the lists of others.
    """
    from trimtab.kernels.counting import look_up

    columns = [Vocabulary(coded.item_ids).column, bias.vocabulary.column]
    if elsewhere is not None:
        columns.append(Vocabulary(elsewhere).column)
    items, (own, known, *others) = Vocabulary.encode(*columns)
    listed, codes = np.concatenate([own, *others]), coded.lists.items
    if len(items) > len(own):  # otherwise the codes stay the same
        run_ranges(look_up, len(codes), codes, 0, own, codes)
    excluded = spread(bias.excluded, known, len(items))
    if allowed is not None:
        shown = items.codes(read_frame(allowed, "allowed", ITEM).ids(ITEM))
        excluded |= ~np.isin(np.arange(len(items)), shown)
    hidden = None if exclude is None else _read_hidden(exclude, coded, items)
    by_item = spread(bias.bias, known, len(items))
    return AlignedLists(coded, items, coded.lists, listed, known, by_item, excluded, hidden)


def _read_hidden(exclude: Any, coded: CodedRecs, items: Vocabulary) -> Sets | None:
    """Return the items to leave out for each unit; pairs with unknown ids are ignored."""
    pairs = read_frame(exclude, "exclude", USER, ITEM, may_be_empty=True)
    if len(pairs) == 0:
        return None
    users = Vocabulary(coded.units.users, "recs", USER)
    of_user, of_item = users.codes(pairs.ids(USER)), items.codes(pairs.ids(ITEM))
    known = (of_user >= 0) & (of_item >= 0)
    by_user = group_sets(of_user[known], of_item[known], len(users))
    return by_user.take(coded.units.user_codes)


def warn_of(
    model: Any, ranked: Ranked, k: int, depth: int | str | None, of_later: bool = True
) -> None:
    """Warn of the lists of all users together, and of events that came too late for them.

    Up to 5 % of the lists may be deeper than those that the biases were learned on, as among those.
    """
    if ranked.longest < k or not model.needs_events:  # which adds to lists
        warn_if_short(len(ranked.lengths) - 1, k)
    usual = choose_depth(model.item_bias, None) if depth is None else None
    if usual is not None and ranked.lengths[1:].any() and common_depth(ranked.lengths) > usual:
        warn(
            f"lists of up to {len(ranked.lengths) - 1} items; biases were learned on lists of "
            f"{usual}: only the best {usual} of each list were re-ranked; pass depth=... to change "
            f"that"
        )
    if of_later and ranked.left_out.later:
        warn(
            f"{ranked.left_out.later} events of history are at or after as_of and were left out; "
            f"pass what is known at as_of"
        )


# Reserved slots ---------------------------------------------------------------------------------


def explore_lists(
    bias: BiasTable, aligned: AlignedLists, lists: Lists, top: Lists, k: int, n_explored: int,
    seed: int,
) -> Lists:  # fmt: skip
    """Return the top k with little-known items in its last slots, by Thompson sampling.

    They are ranked with biases drawn at random. Slots that cannot be filled stay as they are. The
    order of entries in the lists, which are on the scale of the biases, does not matter.
    """
    from trimtab.kernels.ranking import merge_explored

    drawn = _draw_biases(bias, aligned, lists, seed)
    tried = rank_lists(drawn, k, np.zeros(len(aligned.bias)), hidden=aligned.hidden)
    # No more slots than can be filled, for any k.
    n_slots = max(1, min(k, longest_list(top) + longest_list(tried)))
    items = np.empty(lists.n_units * n_slots, np.int32)
    scores = np.empty(lists.n_units * n_slots)
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        merge_explored, lists.n_units, k, n_slots, n_explored, *top, tried.indptr, tried.items,
        *lists, aligned.bias, items, scores, lengths,
    )  # fmt: skip
    return close_lists(items, scores, lengths, n_slots)


def _draw_biases(bias: BiasTable, aligned: AlignedLists, lists: Lists, seed: int) -> Lists:
    """Return the entries with little data, with biases drawn at random."""
    n_items = len(aligned.items)
    fresh = spread(bias.fresh, aligned.known, n_items, True) & ~aligned.excluded
    errors = (bias.high - bias.low) / (2 * WIDTH_90)
    widest = float(np.nanmax(errors)) if np.isfinite(errors).any() else 0.0
    errors = spread(np.nan_to_num(errors), aligned.known, n_items, widest)
    entries = np.flatnonzero(fresh[lists.items])
    units = np.searchsorted(lists.indptr, entries, side="right") - 1
    order = np.lexsort((lists.items[entries], units))
    entries, units = entries[order], units[order]
    items = lists.items[entries]
    draws = np.random.default_rng([seed, 2]).standard_normal(len(entries))
    drawn = lists.scores[entries] + aligned.bias[items] + errors[items] * draws
    indptr = np.searchsorted(units, np.arange(lists.n_units + 1)).astype(np.int64)
    return Lists(indptr, items, drawn)
