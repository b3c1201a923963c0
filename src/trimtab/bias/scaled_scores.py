"""The scale that biases are added on: the scores, or their logs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints, Lists
from trimtab.threads import run_ranges


class Scaled(NamedTuple):
    """Lists on the scale of the biases, and the exponents that turn logs back into scores."""

    lists: Lists
    exponents: Ints | None


def to_scale(lists: Lists, scale: str) -> Scaled:
    """Return lists on a scale."""
    if scale == "additive":
        return Scaled(lists, None)
    from trimtab.kernels.log_scores import log_keys

    keys, exponents = np.empty(len(lists.scores)), np.empty(lists.n_units, np.int64)
    run_ranges(log_keys, lists.n_units, lists.indptr, lists.scores, keys, exponents)
    return Scaled(lists._replace(scores=keys), exponents)


def to_scores(top: Lists, exponents: Ints | None) -> Floats:
    """Return the scores of lists that biases were added to."""
    if exponents is None:
        return top.scores
    from trimtab.kernels.log_scores import scores_of_keys

    scores = np.empty(len(top.scores))
    run_ranges(scores_of_keys, top.n_units, top.indptr, top.scores, exponents, scores)
    return scores
