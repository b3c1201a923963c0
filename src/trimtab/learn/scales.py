"""The scale a fit learns on, and scores as the choice model takes them."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats, Lists
from trimtab.metrics.ranking import rank_lists
from trimtab.threads import run_ranges


def choose_scale(lists: Lists, k: int) -> str:
    """The log scale where the k-th scores are mostly above 0, the additive one otherwise."""
    _, kth = _ends(lists, k)
    return "log" if len(kth) and float(np.median(kth)) > 0 else "additive"


def model_unit(lists: Lists, scale: str, k: int) -> float:
    """What the choice model counts as 1: a factor of e, or what lies from first to k-th score."""
    if scale == "log":
        return 1.0
    best, kth = _ends(lists, k)
    unit = float(np.median(best - kth)) if len(kth) else 0.0
    return unit if unit > 0 else float(np.abs(lists.scores).max(initial=0.0)) or 1.0


def model_scores(lists: Lists, scale: str, unit: float) -> Floats:
    """Scores as the choice model takes them: in units below the best of the list."""
    if scale == "log":
        from trimtab.kernels.log_scores import model_logs

        logs = np.empty(len(lists.scores))
        run_ranges(model_logs, lists.n_units, lists.indptr, lists.scores, logs)
        return logs
    highest = np.zeros(lists.n_units)
    filled = np.diff(lists.indptr) > 0
    highest[filled] = np.maximum.reduceat(lists.scores, lists.indptr[:-1][filled])
    scores: Floats = (lists.scores - np.repeat(highest, np.diff(lists.indptr))) / unit
    return scores


def _ends(lists: Lists, k: int) -> tuple[Floats, Floats]:
    """The best and the k-th (or last) score of every list."""
    top = rank_lists(lists, k, np.zeros(int(lists.items.max(initial=0)) + 1))
    filled = np.diff(top.indptr) > 0
    return top.scores[top.indptr[:-1][filled]], top.scores[top.indptr[1:][filled] - 1]
