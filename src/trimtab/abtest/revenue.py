"""Revenue, which a few large orders can dominate: capped, and by bootstrap."""

from __future__ import annotations

import math

import numpy as np

from trimtab.abtest.metrics import Metric, estimate_rates
from trimtab.abtest.readings import NAN, Reading, welch
from trimtab.abtest.settings import Settings
from trimtab.abtest.strata import Arms, split
from trimtab.arrays import Floats

_MAX_DRAWN = 1 << 22  # numbers drawn at once
_LEAST_DRAWS = 20  # over alpha: draws needed to estimate p
_MOST_DRAWN = 100_000_000  # numbers that a small alpha may cost: at most half a minute


def winsorised(arms: Arms, metric: Metric, quantile: float, alpha: float) -> Reading:
    """Compare by `welch`, with amounts capped at a quantile of the units that have any."""
    both = np.concatenate([arm[metric.numerator] for arm in arms])
    paid = both[both > 0]
    most = float(np.quantile(paid, quantile)) if len(paid) else 0.0
    name = metric.numerator
    first, second = ({**arm, name: np.minimum(arm[name], most)} for arm in arms)
    return welch(*estimate_rates(metric, (first, second)), alpha, f"capped at {most:,.2f}")


def choose_draws(arms: Arms, metric: Metric, settings: Settings) -> int:
    """Return the bootstrap draws; more for a small alpha, and 0 if those would take minutes."""
    draws = max(settings.draws, math.ceil(_LEAST_DRAWS / settings.alpha))
    if not settings.draws or draws == settings.draws:
        return settings.draws
    pairs = (np.stack([arm[name] for name in metric[:2]]) for arm in arms)
    distinct = sum(np.unique(sums, axis=1).shape[1] for sums in pairs)
    return draws if draws * distinct <= _MOST_DRAWN else 0


def bootstrapped(arms: Arms, metric: Metric, draws: int, seed: int, alpha: float) -> Reading:
    """Compare resampled units: interval by percentiles, p by how often the sign changes."""
    random = np.random.default_rng(seed)
    parts = list(split(arms, *metric[:2]))
    first, second = (
        np.sum(
            [weight * _resampled(random, *pairs[side], draws) for weight, pairs in parts], axis=0
        )
        for side in (0, 1)
    )
    differences = second - first
    with np.errstate(divide="ignore", invalid="ignore"):
        relatives = np.where(first > 0, second / first - 1, NAN)
    seen = [own.rate for own in estimate_rates(metric, arms)]
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
