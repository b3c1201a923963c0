"""Shared parts of the generators: random streams, tables to draw from, and kernel calls."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import Codes, Floats, Ints
from trimtab.datasets.generated_items import Items
from trimtab.threads import run_ranges

if TYPE_CHECKING:
    from trimtab.kernels.random_draws import Mixture

_N_QUANTILES = 1024
_ACTIVITY_SPREAD = 1.0


def stream_keys(seed: int, purpose: int, n: int) -> NDArray[np.uint64]:
    """Return keys of `n` independent random streams for one purpose."""
    return np.random.SeedSequence([seed, purpose]).generate_state(n, np.uint64).astype(np.uint64)


def lognormal_quantiles(spread: float, mean: float | None = None) -> Floats:
    """Return evenly spaced quantiles of a lognormal of median 1, or of the given mean."""
    chances = (np.arange(_N_QUANTILES + 1) + 0.5) / (_N_QUANTILES + 1)
    values = np.exp([spread * NormalDist().inv_cdf(chance) for chance in chances])
    return values if mean is None else values * (mean / values.mean())


def activity_quantiles(mean: float) -> Floats:
    """Return quantiles of the users' purchase rates, heavy-tailed."""
    return lognormal_quantiles(_ACTIVITY_SPREAD, mean)


def alias_slots(weights: Floats, pointers: Ints | None = None) -> Codes:
    """Return an alias table that draws an index by its weight, for each segment of `pointers`."""
    from trimtab.kernels.random_draws import build_alias

    if pointers is None:
        pointers = np.array([0, len(weights)], np.int64)
    other = np.zeros(len(weights), np.int32)
    chance = np.ones(len(weights))
    build_alias(pointers, weights, chance, other)
    thresholds = np.minimum(chance * 2.0**31, 2.0**31 - 1).astype(np.int32)
    own = np.arange(len(weights), dtype=np.int32)
    return np.stack([thresholds, own, other], axis=1)


def category_sums(items: Items, weights: Floats) -> Floats:
    """Return the sum of the weights in each category."""
    sums = np.bincount(items.category, weights, minlength=items.n_categories)
    return sums.astype(np.float64)


def mixture(items: Items, weights: Floats, power: float = 1.0) -> Mixture:
    """Return tables that draw categories by weight, and items within them by weight ** power."""
    from trimtab.kernels.random_draws import Mixture

    order = np.argsort(items.category, kind="stable").astype(np.int32)
    sizes = np.bincount(items.category, minlength=items.n_categories)
    pointers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    slots = alias_slots(weights[order] ** power, pointers)
    slots[:, 1:] = order[slots[:, 1:]]
    return Mixture(pointers, slots, alias_slots(category_sums(items, weights)))


def run_compiled(kernel: Any, n: int, *arrays: Any) -> None:
    """Run a kernel over 0..n, after compiling it under a notice."""
    from trimtab.kernels.compiling import compile_notice

    with compile_notice():
        kernel(0, 0, *arrays)
    run_ranges(kernel, n, *arrays)
