"""Biases from counts of one window, each before it is multiplied by gamma.

    ratio        log of (bought / recommended), over the average ratio
    recent       log of (1 + bought)
    difference   share of the window's purchases less share of earlier purchases, over the mean
                 absolute difference

Each buyer of an item counts once, or by the weight of the event. The ratio counts ten more lists at
the average rate, so an item without data has the average ratio.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats
from trimtab.checks import COUNT_METHODS

_PRIOR_LISTS = 10
RATIO, RECENT, DIFFERENCE = COUNT_METHODS
SCALES = {RATIO: "log", RECENT: "log", DIFFERENCE: "list"}
GAMMAS = {
    RATIO: (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0),
    RECENT: (0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    DIFFERENCE: (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
}


class WindowCounts(NamedTuple):
    """Counts of items."""

    bought: Floats  # buyers in the window
    listed: Floats  # lists made before the window
    sold_before: Floats | None  # purchases before the window, if known


def count_bias(method: str, counts: WindowCounts) -> Floats:
    """Return the biases for a gamma of 1."""
    bought, listed, sold_before = counts
    if method == RECENT:
        counted: Floats = np.log1p(bought)
        return counted
    if method == RATIO:
        average = bought[listed > 0].sum() / max(float(listed.sum()), 1.0)
        if average == 0:
            return np.zeros(len(bought))
        ratio = (bought + _PRIOR_LISTS * average) / (listed + _PRIOR_LISTS)
        logs: Floats = np.log(ratio / average)
        return logs
    assert sold_before is not None
    change = _shares(bought) - _shares(sold_before)
    size = float(np.abs(change[listed > 0]).mean()) if np.any(listed > 0) else 0.0
    return change / size if size > 0 else np.zeros(len(change))


def _shares(counts: Floats) -> Floats:
    shares: Floats = counts / max(float(counts.sum()), 1.0)
    return shares
