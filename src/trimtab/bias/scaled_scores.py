"""The scale that biases are added on: the scores, their logs, or the scale of each list."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints, Lists
from trimtab.metrics.ranking import rank_lists
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
    if scale == "list":
        from trimtab.kernels.list_scores import list_keys

        units = ListUnits(np.empty(lists.n_units), np.empty(lists.n_units))
        run_ranges(list_keys, lists.n_units, k, lists.indptr, lists.scores, keys, *units)
        return Scaled(lists._replace(scores=keys), units)
    from trimtab.kernels.log_scores import log_keys

    exponents = np.empty(lists.n_units, np.int64)
    run_ranges(log_keys, lists.n_units, lists.indptr, lists.scores, keys, exponents)
    return Scaled(lists._replace(scores=keys), exponents)


def to_scores(top: Lists, units: Ints | ListUnits | None) -> Floats:
    """Return the scores of lists that biases were added to."""
    if units is None:
        return top.scores
    scores = np.empty(len(top.scores))
    if isinstance(units, ListUnits):
        from trimtab.kernels.list_scores import scores_of_list_keys

        run_ranges(scores_of_list_keys, top.n_units, top.indptr, top.scores, *units, scores)
        return scores
    from trimtab.kernels.log_scores import scores_of_keys

    run_ranges(scores_of_keys, top.n_units, top.indptr, top.scores, units, scores)
    return scores


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
        from trimtab.kernels.log_scores import model_logs

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
