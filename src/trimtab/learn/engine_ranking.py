"""The engine's own ranking of every unit, before any bias."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints, Lists, Sets
from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
from trimtab.threads import run_ranges


class EngineRanking(NamedTuple):
    """The engine's own ranking of every unit."""

    kth_score: Floats  # the last score of a list shorter than k; nan for an empty list
    value: Floats  # the metric; nan where nothing was bought
    exposure: Ints


def rank_by_engine(lists: Lists, bought: Sets, k: int, metric: str, n_items: int) -> EngineRanking:
    """Rank every unit by the engine's scores."""
    from trimtab.kernels import unbiased_ranking

    kth_score = np.empty(lists.n_units)
    value = np.empty(lists.n_units)
    hit_values = hit_value_table(metric, k)
    parts: list[Ints] = []

    def rank(start: int, stop: int) -> None:
        exposure = np.zeros(n_items, np.int64)
        unbiased_ranking.rank_by_engine(
            start,
            stop,
            k,
            counts_hits_above(metric),
            *lists,
            *bought,
            hit_values,
            kth_score,
            value,
            exposure,
        )
        parts.append(exposure)

    run_ranges(rank, lists.n_units)
    return EngineRanking(kth_score, value, np.sum(parts, axis=0))
