"""Alias tables of a catalogue, and the random streams drawn with them."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trimtab.coded import Codes, Floats, Ints
from trimtab.datasets.items import Items

if TYPE_CHECKING:
    from trimtab.kernels.sampling import Mixture

_N_QUANTILES = 4096
_ACTIVITY_SPREAD = 1.0


def stream_keys(seed: int, purpose: int, n: int) -> NDArray[np.uint64]:
    """Keys of `n` independent random streams for one purpose."""
    return np.random.SeedSequence([seed, purpose]).generate_state(n, np.uint64)


def lognormal_quantiles(spread: float, mean: float | None = None) -> Floats:
    """Quantiles of a lognormal of median 1, or of the given mean, at evenly spaced chances."""
    chances = (np.arange(_N_QUANTILES + 1) + 0.5) / (_N_QUANTILES + 1)
    values = np.exp([spread * NormalDist().inv_cdf(chance) for chance in chances])
    return values if mean is None else values * (mean / values.mean())


def activity_quantiles(mean: float) -> Floats:
    """Quantiles of the users' rates of buying, heavy-tailed."""
    return lognormal_quantiles(_ACTIVITY_SPREAD, mean)


def alias_table(weights: Floats, pointers: Ints | None = None) -> tuple[Codes, Floats]:
    """Each slot with its other one, and the chance of staying, by segments of `pointers`."""
    from trimtab.kernels.sampling import build_alias

    if pointers is None:
        pointers = np.array([0, len(weights)], np.int64)
    other = np.zeros(len(weights), np.int32)
    chance = np.ones(len(weights))
    build_alias(pointers, weights, chance, other)
    slots = np.arange(len(weights), dtype=np.int32)
    return np.stack([slots, other], axis=1), chance


def category_sums(items: Items, weights: Floats) -> Floats:
    """Sum of the weights in each category."""
    return np.bincount(items.category, weights, minlength=items.n_categories)


def mixture(items: Items, weights: Floats, power: float = 1.0) -> Mixture:
    """Tables that draw categories by weight, and items within them by weight ** power."""
    from trimtab.kernels.sampling import Mixture

    order = np.argsort(items.category, kind="stable").astype(np.int32)
    sizes = np.bincount(items.category, minlength=items.n_categories)
    pointers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    slots, chance = alias_table(weights[order] ** power, pointers)
    categories = alias_table(category_sums(items, weights))
    return Mixture(pointers, order[slots], chance, *categories)
