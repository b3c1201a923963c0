"""The distribution of a difference without an effect: units are redistributed at random.

Without an effect, which units are in the treatment group is chance alone. Every redistribution of
the units over two buckets of the same sizes is then as likely as the one seen, so the statistic
of the test, a difference over its standard error, is compared with its values over random
redistributions (Chung and Romano, Annals of Statistics 41, 2013: because the statistic is divided
by its error, this also holds for large buckets that differ in variance only). This needs neither
buckets of equal size nor revenue without extremes; Welch's t-test with a small treatment group
and skewed revenue finds far too many losses.

The two tails count separately: p is twice the smaller one. Ties count half (mid-p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats

Pair = tuple[Floats, Floats]  # numerator and denominator, one row per unit
DRAWS = 2_000
LEAST_DIFFERENT = 5  # units in the smaller bucket, expected without an effect
_MOST_BLOCKS = 500  # in the smaller bucket; more units are moved in blocks
_TAIL = 10  # draws beyond a value that are needed to count them
NO_VARIANCE = 1e-9  # variance over the usual one that counts as none


class Units(NamedTuple):
    """What is measured on the units of both buckets.

    Attributes:
        numerator: one value per unit.
        denominator: one value per unit.
        covariate: one value per unit, linearised; None without any.
        slope: what 1 of the covariate adds to the rate.
        treated: whether a unit is in the treatment group.
    """

    numerator: Floats
    denominator: Floats
    covariate: Floats | None
    slope: float
    treated: Flags


@dataclass(frozen=True)
class NoEffect:
    """Values of the statistic without an effect, ascending, the one seen among them."""

    values: Floats
    seen: float
    freedom: float

    def p(self) -> float:
        """Return the two-sided p-value."""
        return min(1.0, 2 * min(self._tail(self.values, self.seen), self._tail(*self._mirrored())))

    def ends(self, alpha: float) -> tuple[float, float]:
        """Return the values between which the statistic is not significant."""
        return -self._end(-self.values[::-1], alpha / 2), self._end(self.values, alpha / 2)

    def _mirrored(self) -> tuple[Floats, float]:
        return -self.values[::-1], -self.seen

    def _tail(self, values: Floats, seen: float) -> float:
        """Return the probability of a value as large; beyond most values, by a t distribution."""
        from scipy.stats import t

        last = float(values[-_TAIL]) if len(values) > _TAIL else math.inf
        if seen <= last or last <= 0:
            below, upto = (np.searchsorted(values, seen, side) for side in ("left", "right"))
            return float(1 - (below + upto) / (2 * len(values)))
        usual = float(t.sf(seen, self.freedom) / t.sf(last, self.freedom))
        return self._tail(values, last) * usual

    def _end(self, values: Floats, tail: float) -> float:
        """Return the largest value that is not significant in the upper tail."""
        from scipy.stats import t

        last = float(values[-_TAIL]) if len(values) > _TAIL else math.inf
        reached = self._tail(values, last) if math.isfinite(last) else 0.0
        if last > 0 and reached >= tail:
            return float(t.isf(tail / reached * t.sf(last, self.freedom), self.freedom))
        own, first, repeats = np.unique(values, return_index=True, return_counts=True)
        tails = 1 - (2 * first + repeats) / (2 * len(values))
        return float(own[np.flatnonzero(tails >= tail)[-1]])


def without_effect(
    units: Units, freedom: float, draws: int = DRAWS, seed: int = 0
) -> NoEffect | None:
    """Return the distribution of the statistic without an effect; None if nothing varies.

    Args:
        units: the units of both buckets.
        freedom: degrees of freedom of the t distribution beyond the most extreme draws.
        draws: random redistributions.
        seed: their seed.
    """
    moments = _moments(units)
    sizes = int((~units.treated).sum()), int(units.treated.sum())
    total = moments.sum(axis=0)
    usual = _usual_variance(total, sum(sizes), units.slope)
    if not usual > 0 or min(sizes) == 0:
        return None
    own = moments[units.treated].sum(axis=0)[None]
    drawn = np.concatenate([own, _draw(moments, units.treated, draws, seed)])
    arms = [_estimate(sums, n, units.slope, usual)
            for sums, n in ((total - drawn, sizes[0]), (drawn, sizes[1]))]  # fmt: skip
    with np.errstate(invalid="ignore"):
        found = (arms[1][0] - arms[0][0]) / np.sqrt(arms[0][1] + arms[1][1])
    if not math.isfinite(found[0]):
        return None
    return NoEffect(np.sort(found[np.isfinite(found)]), float(found[0]), freedom)


def expected_different(control: Pair, treatment: Pair) -> float:
    """Return how many units with another rate than most the smaller bucket would have by chance.

    Most units usually have a rate of 0: this is then the number of units with a click or an order,
    times the share of units in the smaller bucket. Units with a denominator of 0 do not count.
    """
    sizes = [int((below > 0).sum()) for _, below in (control, treatment)]
    if min(sizes) == 0:
        return 0.0
    found = np.concatenate(
        [own[below > 0] / below[below > 0] for own, below in (control, treatment)]
    )
    _, repeats = np.unique(found, return_counts=True)
    return float(len(found) - repeats.max()) * min(sizes) / sum(sizes)


def _moments(units: Units) -> Floats:
    """Return the sums that a rate and its variance are made of, one row per unit."""
    y, d = units.numerator, units.denominator
    # Rates do not depend on where y is measured from; small numbers lose less precision.
    rate = y.sum() / d.sum() if d.sum() > 0 else 0.0
    z = y - rate * d
    found = [z, d, z * z, z * d, d * d]
    if (x := units.covariate) is not None:
        found += [x, z * x, d * x, x * x]
    return np.stack(found, axis=1)


def _estimate(sums: Floats, n: int, slope: float, usual: float) -> tuple[Floats, Floats]:
    """Return rates and their variances from sums over n units."""
    z, d, zz, zd, dd = sums.T[:5]
    x, zx, dx, xx = sums.T[5:] if sums.shape[1] > 5 else np.zeros((4, len(z)))
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, scale = z / d, n / d
        own = (zz - 2 * rate * zd + rate**2 * dd) * scale**2
        shared = (zx - rate * dx) * scale
        squares = own - 2 * slope * shared + slope**2 * (xx - x * x / n)
        variance = squares / (n * (n - 1)) if n > 1 else np.zeros(len(z))
        variance = np.where(variance > NO_VARIANCE * usual / n, variance, usual / n)
    return rate - slope * x / n, variance


def _usual_variance(total: Floats, n: int, slope: float) -> float:
    """Return the variance of one unit around the rate of both buckets together."""
    _, d, zz = total[:3]
    x, zx, _, xx = total[5:] if len(total) > 5 else np.zeros(4)
    if not d > 0 or n < 2:
        return 0.0
    scale = n / d
    return float(zz * scale**2 - 2 * slope * zx * scale + slope**2 * (xx - x * x / n)) / (n - 1)


def _draw(moments: Floats, treated: Flags, draws: int, seed: int) -> Floats:
    """Return sums over the treatment group of random redistributions."""
    from trimtab.kernels.redistribute import sum_redistributed

    random = np.random.default_rng(seed)
    small, large = (random.permutation(moments[side]) for side in _by_size(treated))
    size = max(1, len(small) // _MOST_BLOCKS)
    first, rest = _in_blocks(small, size)
    second, _ = _in_blocks(large, size)
    sums = np.zeros((draws, moments.shape[1]))
    blocks = np.concatenate([first, second])
    sum_redistributed(blocks, len(first), np.uint64(seed % 2**64), sums)
    sums += rest
    return sums if 2 * treated.sum() <= len(treated) else moments.sum(axis=0) - sums


def _by_size(treated: Flags) -> tuple[Flags, Flags]:
    return (treated, ~treated) if 2 * treated.sum() <= len(treated) else (~treated, treated)


def _in_blocks(moments: Floats, size: int) -> tuple[Floats, Floats]:
    """Return sums over blocks of units, and the sum over the rest."""
    whole = len(moments) // size * size
    blocks: Floats = moments[:whole].reshape(-1, size, moments.shape[1]).sum(axis=1)
    rest: Floats = moments[whole:].sum(axis=0)
    return blocks, rest
