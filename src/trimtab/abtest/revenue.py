"""Revenue, which a few large orders can dominate: capped, and by bootstrap."""

from __future__ import annotations

import math

import numpy as np

from trimtab.abtest.readings import NAN, Reading, rates, welch
from trimtab.abtest.redistribution import Pair
from trimtab.abtest.settings import Settings
from trimtab.arrays import Floats

_MAX_DRAWN = 1 << 22  # numbers drawn at once
_LEAST_DRAWS = 20  # over alpha: draws needed to estimate p
_MOST_DRAWN = 100_000_000  # numbers that a small alpha may cost: at most half a minute


def winsorised(control: Pair, treatment: Pair, quantile: float, alpha: float) -> Reading:
    """Compare by `welch`, with revenue capped at a quantile of the units that have any."""
    both = np.concatenate([control[0], treatment[0]])
    paid = both[both > 0]
    most = float(np.quantile(paid, quantile)) if len(paid) else 0.0
    capped = [(np.minimum(money, most), per) for money, per in (control, treatment)]
    return welch(*rates(capped[0], capped[1]), alpha, f"capped at {most:,.2f}")


def choose_draws(control: Pair, treatment: Pair, settings: Settings) -> int:
    """Return the bootstrap draws; more for a small alpha, and 0 if those would take minutes."""
    draws = max(settings.draws, math.ceil(_LEAST_DRAWS / settings.alpha))
    if not settings.draws or draws == settings.draws:
        return settings.draws
    distinct = sum(np.unique(np.stack(sums), axis=1).shape[1] for sums in (control, treatment))
    return draws if draws * distinct <= _MOST_DRAWN else 0


def bootstrapped(control: Pair, treatment: Pair, draws: int, seed: int, alpha: float) -> Reading:
    """Compare resampled units: interval by percentiles, p by how often the sign changes."""
    random = np.random.default_rng(seed)
    first, second = (_resampled(random, *sums, draws) for sums in (control, treatment))
    differences = second - first
    with np.errstate(divide="ignore", invalid="ignore"):
        relatives = np.where(first > 0, second / first - 1, NAN)
    seen = [float(money.sum() / per.sum()) for money, per in (control, treatment)]
    difference = seen[1] - seen[0]
    tail = min((differences <= 0).sum(), (differences >= 0).sum())
    p = min(1.0, 2 * (int(tail) + 1) / (draws + 1))
    low, high = (float(end) for end in np.quantile(differences, [alpha / 2, 1 - alpha / 2]))
    relative_low, relative_high = NAN, NAN
    if np.isfinite(relatives).all():
        relative_low, relative_high = map(float, np.quantile(relatives, [alpha / 2, 1 - alpha / 2]))
    relative = difference / seen[0] if seen[0] > 0 else NAN
    return Reading(
        f"bootstrap of {draws:,}", difference, low, high, relative, relative_low, relative_high, p,
        float(differences.std(ddof=1)), math.inf,
    )  # fmt: skip


def _resampled(random: np.random.Generator, money: Floats, per: Floats, draws: int) -> Floats:
    """Return rates of resampled units; identical units are drawn together."""
    pairs, repeats = np.unique(np.stack([money, per]), axis=1, return_counts=True)
    rates = []
    step = max(1, _MAX_DRAWN // len(repeats))
    for begin in range(0, draws, step):
        size = min(step, draws - begin)
        times = random.multinomial(len(money), repeats / len(money), size=size)
        totals = times @ pairs.T
        rates.append(totals[:, 0] / np.maximum(totals[:, 1], np.finfo(float).tiny))
    return np.concatenate(rates)
