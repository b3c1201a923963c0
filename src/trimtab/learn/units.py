"""Which units and windows teach, and how much each unit weighs."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from trimtab.arrays import Codes, Flags, Floats, Ints, Lists, Sets

_Before = TypeVar("_Before")


def learning_units(lists: Lists, bought: Sets, weights: Floats | None) -> Flags:
    """Units that can gain or lose: with a list, a purchase and a weight."""
    learning: Flags = (np.diff(bought.indptr) > 0) & (np.diff(lists.indptr) > 0)
    return learning if weights is None else learning & (weights > 0)


def learning_windows(
    counts: Ints, history: tuple[_Before, ...]
) -> tuple[Codes, tuple[_Before, ...]]:
    """Windows numbered anew, those that teach only, and the history before each of these.

    Units of other windows teach nothing; they are put with the newest.

    Args:
        counts: by window, units that can learn.
        history: before each window, or nothing.
    """
    used = counts > 0
    n_used = max(1, int(used.sum()))
    renumbered = np.where(used, np.cumsum(used) - 1, n_used - 1).astype(np.int32)
    if not history:
        return renumbered, ()
    return renumbered, tuple(history[window] for window in np.flatnonzero(used)) or history[-1:]


def weights_around_one(weights: Floats, bought: Sets) -> Floats:
    """Weights with a mean of 1 over units that bought something, whatever they are measured in."""
    scaled = weights / max(float(weights.max(initial=0.0)), 1e-300)
    mean = float(scaled[np.diff(bought.indptr) > 0].mean())
    return scaled / mean if mean > 0 else scaled
