"""Which units and windows can be learned from, and how much each unit weighs."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets

_Before = TypeVar("_Before")


def learning_units(lists: Lists, bought: Sets, weights: Floats | None) -> Flags:
    """Units that can gain or lose: those with a list, a purchase and a weight above 0."""
    learning: Flags = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    return learning if weights is None else learning & (weights > 0)


def learning_windows(
    counts: Ints, history: tuple[_Before, ...]
) -> tuple[Codes, tuple[_Before, ...]]:
    """New numbers for the windows with learning units, and the history before each of these.

    The other windows get the number of the newest; nothing is learned from their units.

    Args:
        counts: learning units by window.
        history: before each window, or empty.
    """
    used = counts > 0
    n_used = max(1, int(used.sum()))
    renumbered = np.where(used, np.cumsum(used) - 1, n_used - 1).astype(np.int32)
    if not history:
        return renumbered, ()
    return renumbered, tuple(history[window] for window in np.flatnonzero(used)) or history[-1:]


def weights_around_one(weights: Floats, bought: Sets) -> Floats:
    """Weights scaled to a mean of 1 over the units that bought something."""
    scaled = weights / max(float(weights.max(initial=0.0)), 1e-300)
    mean = float(scaled[np.diff(bought.indptr) > 0].mean())
    return scaled / mean if mean > 0 else scaled
