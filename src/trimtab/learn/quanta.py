"""Fixed-point quanta: metric sums are integers, so the order of adding changes no byte."""

from __future__ import annotations

import numpy as np

QUANTA = 2.0**32  # in one unit's metric


def quanta_below(most: float) -> float:
    """The largest power of two that keeps sums of up to `most` below 2**62."""
    return float(2.0 ** np.floor(61 - np.log2(max(1.0, most))))


def quanta_for(total_weight: float | None) -> float:
    """Quanta per unit of the metric; fewer for heavy weights. None: every unit weighs 1."""
    return QUANTA if total_weight is None else min(QUANTA, quanta_below(total_weight))
