"""The scale that biases are added on: the scores, their logs, or the scale of each list."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets, close_lists, read_only
from trimtab.metrics.ranking import NOTHING_HIDDEN, offsets, rank_lists
from trimtab.threads import run_ranges


class ListUnits(NamedTuple):
    """The best score of each list, and half of what counts as 1 on it."""

    best: Floats
    half_gap: Floats


class Scaled(NamedTuple):
    """Lists on the scale of the biases, and what turns their keys back into scores."""

    lists: Lists
    units: Ints | ListUnits | None  # exponents of logs, units of lists, or nothing


def to_scale(lists: Lists, scale: str, k: int, in_place: bool = False) -> Scaled:
    """Return lists on a scale.

    Args:
        lists: scored items by unit.
        scale: "additive", "log" or "list".
        k: the learner's number of slots, which the scale "list" depends on.
        in_place: whether the scores may be overwritten, which spares as much memory again.
    """
    if scale == "additive":
        return Scaled(lists, None)
    keys = lists.scores if in_place else np.empty(len(lists.scores))
    scores = read_only(lists.scores)
    from trimtab.kernels.score_keys import list_keys, log_keys

    units: Ints | ListUnits
    if scale == "list":
        units = ListUnits(np.empty(lists.n_units), np.empty(lists.n_units))
        run_ranges(list_keys, lists.n_units, k, lists.indptr, scores, keys, *units)
    else:
        units = np.empty(lists.n_units, np.int64)
        run_ranges(log_keys, lists.n_units, lists.indptr, scores, keys, units)
    return Scaled(lists._replace(scores=keys), units)


def to_scores(top: Lists, units: Ints | ListUnits | None) -> Floats:
    """Return the scores of lists that biases were added to."""
    if units is None:
        return top.scores
    from trimtab.kernels.score_keys import scores_of_keys, scores_of_list_keys

    scores, given = np.empty(len(top.scores)), (top.indptr, top.scores)
    if isinstance(units, ListUnits):
        run_ranges(scores_of_list_keys, top.n_units, *given, *units, scores)
    else:
        run_ranges(scores_of_keys, top.n_units, *given, units, scores)
    return scores


def rank_on_scale(
    lists: Lists, scale: str, learned_k: int, k: int, bias: Floats, excluded: Flags,
    reaches_unlisted: bool = False, hidden: Sets | None = None, in_place: bool = False,
) -> Lists:  # fmt: skip
    """Return the top k of every unit with biases added on a scale, with their scores.

    Args:
        lists: scored items by unit.
        scale: "additive", "log" or "list".
        learned_k: the learner's number of slots.
        k: slots, as for `rank_lists`.
        bias: one number per item code.
        excluded: items to leave out for all units.
        reaches_unlisted: as for `rank_lists`.
        hidden: items to leave out for each unit.
        in_place: whether the scores may be overwritten.
    """
    if scale == "log" and not reaches_unlisted:
        top, units = _rank_by_logs(lists, k, offsets(bias, excluded), hidden or NOTHING_HIDDEN)
    else:
        scaled, units = to_scale(lists, scale, learned_k, in_place)
        top = rank_lists(scaled, k, bias, excluded, reaches_unlisted, hidden)
    return top._replace(scores=to_scores(top, units))


def _rank_by_logs(lists: Lists, k: int, offset: Floats, hidden: Sets) -> Scaled:
    """Return what `to_scale` and `rank_lists` would, with logarithms of few scores only."""
    from trimtab.kernels.score_keys import select_top_by_logs

    k = max(1, min(k, int(np.diff(lists.indptr).max(initial=0))))
    items, keys = np.empty(lists.n_units * k, np.int32), np.empty(lists.n_units * k)
    lengths, exponents = np.empty((2, lists.n_units), np.int64)
    scores = read_only(lists.scores)
    run_ranges(
        select_top_by_logs, lists.n_units, k, lists.indptr, lists.items, scores,
        scores.view(np.int64), offset, *hidden, items, keys, lengths, exponents,
    )  # fmt: skip
    return Scaled(close_lists(items, keys, lengths, k), exponents)


def ends_of_lists(lists: Lists, k: int) -> tuple[Floats, Floats]:
    """The best and the k-th (or last) score of every list that is not empty."""
    top = rank_lists(lists, k, np.zeros(int(lists.items.max(initial=0)) + 1))
    filled = np.diff(top.indptr) > 0
    return top.scores[top.indptr[:-1][filled]], top.scores[top.indptr[1:][filled] - 1]


def model_scores(lists: Lists, scale: str, unit: float, k: int) -> Floats:
    """Scores as the choice model uses them: in units below the best score of the list.

    On the additive scale the unit is each list's own gap from first to k-th score: with one unit
    for all, users with small scores look as if the engine knew nothing about them, and biases
    become too large. How far to go is decided later, on the scores themselves.
    """
    if scale == "log":
        from trimtab.kernels.score_keys import model_logs

        logs = np.empty(len(lists.scores))
        run_ranges(model_logs, lists.n_units, lists.indptr, lists.scores, logs)
        return logs
    highest, units = np.zeros(lists.n_units), np.full(lists.n_units, unit)
    filled = np.diff(lists.indptr) > 0
    highest[filled] = np.maximum.reduceat(lists.scores, lists.indptr[:-1][filled])
    if scale == "additive":
        best, kth = ends_of_lists(lists, k)
        units[filled] = np.where(best > kth, best - kth, unit)
    lengths = np.diff(lists.indptr)
    scores: Floats = (lists.scores - np.repeat(highest, lengths)) / np.repeat(units, lengths)
    return scores
