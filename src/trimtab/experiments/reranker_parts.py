"""What each part of a reranker gains on the days after a date, found by leaving it out.

    trend       the biases, against the engine alone
    personal    the user's own purchases, on the engine's lists, against the biases
    trending    the whole reranker, against the same without trending items added
    own         the whole reranker, against the same without the user's own items added

A gain is a difference of two lifts over the engine alone. Both sources can add the same hit, so the
gains need not add up to the lift of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats
from trimtab.experiments.results import LEVEL
from trimtab.metrics.intervals import Interval, lift_intervals
from trimtab.models.reranker import Reranker
from trimtab.models.widening import SOURCES

TREND, PERSONAL = "trend", "personal"
PARTS = (TREND, PERSONAL, *SOURCES)


class PartGain(NamedTuple):
    """What a part adds to the lift over the engine alone."""

    part: str
    used: bool  # whether the reranker has learned it
    gain: Interval


def find_gains(
    reranker: Reranker, judge: Callable[[Reranker], Floats], alone: Floats, n_draws: int, seed: int
) -> list[PartGain]:
    """Return what each of `PARTS` gains.

    Args:
        reranker: the whole.
        judge: returns the metric of every buyer with the lists of a reranker.
        alone: the same buyers' metric with the engine alone.
        n_draws: bootstrap samples.
        seed: random seed of the bootstrap.
    """
    sources = reranker.summary.sources
    whole, trend = judge(reranker), judge(reranker.without(PERSONAL))
    listed = judge(reduce(Reranker.without, sources, reranker)) if sources else whole
    pairs = {TREND: (alone, trend), PERSONAL: (trend, listed)}
    for name in SOURCES:
        pairs[name] = (judge(reranker.without(name)) if name in sources else whole, whole)
    changed = np.stack([alone + (after - before) for before, after in pairs.values()], axis=1)
    base = np.tile(alone[:, None], len(pairs))
    used = {TREND: bool(reranker.bias.bias.any()), PERSONAL: bool(reranker.learned)}
    return [
        PartGain(part, used.get(part, part in sources), gain)
        for part, gain in zip(
            pairs, lift_intervals(changed, base, n_draws, seed, LEVEL), strict=True
        )
    ]
