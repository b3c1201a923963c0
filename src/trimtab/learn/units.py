"""Which units and windows can be learned from, and how much each unit weighs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.learn.history import Histories


def learning_units(lists: Lists, bought: Sets, weights: Floats | None) -> Flags:
    """Units that can gain or lose: those with a list, a purchase and a weight above 0."""
    learning: Flags = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    return learning if weights is None else learning & (weights > 0)


def learning_windows(counts: Ints, histories: Histories) -> tuple[Codes, Histories]:
    """New numbers for the windows to learn from, and the histories before these.

    The other windows, without learning units or with too little known before them, get -1.

    Args:
        counts: learning units by window.
        histories: before each window and before now.
    """
    used = counts > 0
    if histories.now is not None:
        usable = np.array(histories.usable)
        if used.any() and usable[used][-1]:
            used = used & usable
        else:
            histories = replace(histories, now=None)
    numbers = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    chosen = np.flatnonzero(used)
    before = tuple(histories.before[window] for window in chosen if histories.before)
    starts = tuple(histories.starts[window] for window in chosen if histories.starts)
    return numbers, replace(histories, before=before or histories.before[-1:], starts=starts)


def weights_around_one(weights: Floats, bought: Sets) -> Floats:
    """Weights scaled to a mean of 1 over the units that bought something."""
    scaled = weights / max(float(weights.max(initial=0.0)), 1e-300)
    mean = float(scaled[np.diff(bought.indptr) > 0].mean())
    return scaled / mean if mean > 0 else scaled
