"""The distribution of a difference without an effect: units are redistributed at random.

Without an effect, which units are in the treatment group is chance alone. Every redistribution of
the units over two buckets of the same sizes is then as likely as the one seen, so the statistic
of the test, a difference over its standard error, is compared with its values over random
redistributions (Chung and Romano, Annals of Statistics 41, 2013: because the statistic is divided
by its error, this also holds for large buckets that differ in variance only). This needs neither
buckets of equal size nor revenue without extremes; Welch's t-test with a small treatment group
and skewed revenue finds far too many losses. Where the share of the treatment differs, as between
the dates of a ramp, units are redistributed within strata of equal share only.

The two tails count separately: p is twice the smaller one. Ties count half (mid-p).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats

Pair = tuple[Floats, Floats]  # numerator and denominator, one row per unit
DRAWS = 2_000
LEAST_DIFFERENT = 5  # units in the smaller bucket, expected without an effect
_MOST_BLOCKS = 500  # in the smaller bucket; more units are moved in blocks
_MOST_BLOCKS_OF_STRATUM = 100  # there are several, of a few units each or more
_KEPT_STRATA = 128  # looks share those of all dates before
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
        strata: units are redistributed within a stratum only, and the strata then combined, by
            their shares of the denominator; None for a single one.
    """

    numerator: Floats
    denominator: Floats
    covariate: Floats | None
    slope: float
    treated: Flags
    strata: Floats | None = None


@dataclass(frozen=True)
class NoEffect:
    """Values of the statistic without an effect, ascending, the one seen among them."""

    values: Floats
    seen: float
    freedom: float

    def p(self) -> float:
        """Return the two-sided p-value."""
        return min(1.0, 2 * min(self.tails(self.seen)))

    def tails(self, statistic: float) -> tuple[float, float]:
        """Return the probabilities of a value as small, and of one as large."""
        return self._tail(-self.values[::-1], -statistic), self._tail(self.values, statistic)

    def ends(self, alpha: float) -> tuple[float, float]:
        """Return the values between which the statistic is not significant."""
        return -self._end(-self.values[::-1], alpha / 2), self._end(self.values, alpha / 2)

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
    differences, variances = np.zeros(draws + 1), np.zeros(draws + 1)
    for weight, found in _redistribute_all(units, draws, seed):
        if found is not None:
            differences += weight * found[0]
            variances += weight**2 * found[1]
    if not variances[0] > 0:
        return None
    statistics = differences / np.sqrt(variances)
    return NoEffect(np.sort(statistics), float(statistics[0]), freedom)


def _redistribute_all(
    units: Units, draws: int, seed: int
) -> Iterator[tuple[float, tuple[Floats, Floats] | None]]:
    """Yield the share of the denominator of each stratum, and its redistributions."""
    if units.strata is None:
        yield 1.0, _redistribute(units, draws, seed, _MOST_BLOCKS)
        return
    for stratum in np.unique(units.strata):
        rows = units.strata == stratum
        own = (units.numerator[rows], units.denominator[rows], units.treated[rows])
        key = int(np.random.SeedSequence([seed, int(stratum)]).generate_state(1, np.uint64)[0])
        found = _redistribute_stratum(*(values.tobytes() for values in own), draws, key)
        yield float(own[1].sum() / units.denominator.sum()), found


@lru_cache(maxsize=_KEPT_STRATA)
def _redistribute_stratum(
    numerator: bytes, denominator: bytes, treated: bytes, draws: int, seed: int
) -> tuple[Floats, Floats] | None:
    """Return the redistributions of a stratum, once for all looks that include it."""
    own, below = (np.frombuffer(values, np.float64) for values in (numerator, denominator))
    units = Units(own, below, None, 0.0, np.frombuffer(treated, np.bool_))
    return _redistribute(units, draws, seed, _MOST_BLOCKS_OF_STRATUM)


def _redistribute(units: Units, draws: int, seed: int, most: int) -> tuple[Floats, Floats] | None:
    """Return differences and their variances, the one seen first; None if nothing varies."""
    moments = _moments(units)
    sizes = int((~units.treated).sum()), int(units.treated.sum())
    total = moments.sum(axis=0)
    usual = _usual_variance(total, sum(sizes), units.slope)
    if not usual > 0 or min(sizes) == 0:
        return None
    own = moments[units.treated].sum(axis=0)[None]
    drawn = np.concatenate([own, _draw(moments, units.treated, draws, seed, most)])
    arms = [_estimate(sums, n, units.slope, usual)
            for sums, n in ((total - drawn, sizes[0]), (drawn, sizes[1]))]  # fmt: skip
    differences, variances = arms[1][0] - arms[0][0], arms[0][1] + arms[1][1]
    known = np.flatnonzero(np.isfinite(differences) & np.isfinite(variances) & (variances > 0))
    if not len(known) or known[0] > 0:
        return None
    # A bucket without anything in the denominator has no rate: draw another one in its place.
    taken = np.random.default_rng(seed).choice(known, draws + 1)
    taken[known] = known
    return differences[taken], variances[taken]


def expected_different(units: Units) -> float:
    """Return how many units with another rate than most the smaller bucket would have by chance.

    Most units usually have a rate of 0: this is then the number of units with a click or an order,
    times the share of units in the smaller bucket. Units with a denominator of 0 do not count.
    """
    known = units.denominator > 0
    if not known.any():
        return 0.0
    values, repeats = np.unique(
        units.numerator[known] / units.denominator[known], return_inverse=True
    )[:2]
    different = repeats != np.bincount(repeats, minlength=len(values)).argmax()
    treated = units.treated[known]
    strata = np.zeros(len(treated), np.int64)
    if units.strata is not None:
        strata = np.unique(units.strata[known], return_inverse=True)[1]
    shares = np.bincount(strata, treated) / np.bincount(strata)
    counts = np.bincount(strata, different)
    return float(min(counts @ shares, counts @ (1 - shares)))


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


def _draw(moments: Floats, treated: Flags, draws: int, seed: int, most: int) -> Floats:
    """Return sums over the treatment group of random redistributions."""
    from trimtab.kernels.redistribute import sum_redistributed

    random = np.random.default_rng(seed)
    small, large = (random.permutation(moments[side]) for side in _by_size(treated))
    size = max(1, len(small) // most)
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
