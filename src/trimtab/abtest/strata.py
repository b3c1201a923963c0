"""Several dates combined: units are compared with those that joined on the same date.

A unit joins on its first date. Whatever share of the units that joined then is treated, which of
them are is chance alone, so a share that changes from date to date does not look like an effect.
The weight of a date is its share of the denominator over both buckets, the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from trimtab.abtest.readings import NAN, Estimate, rates
from trimtab.abtest.redistribution import Pair
from trimtab.abtest.samples import JOINED, Sample, Sums

Arms = tuple[Sums, Sums]


def keep_comparable(arms: Arms, denominator: str) -> Arms:
    """Return the units that joined on dates with two units or more in each bucket."""
    joined = [arm[JOINED].astype(np.int64) for arm in arms]
    n = int(max(own.max(initial=-1) for own in joined)) + 1
    usable = np.ones(n, bool)
    for arm, own in zip(arms, joined, strict=True):
        usable &= np.bincount(own, minlength=n) > 1
        usable &= np.bincount(own, arm[denominator], n) > 0
    first, second = (
        {name: values[usable[own]] for name, values in arm.items()}
        for arm, own in zip(arms, joined, strict=True)
    )
    return first, second


def split(
    arms: Arms, numerator: str, denominator: str
) -> Iterator[tuple[float, tuple[Pair, Pair]]]:
    """Yield the weight of each date, and the units of both buckets that joined on it.

    Units without dates are as if they had joined on the same one.
    """
    dates = [arm.get(JOINED, np.zeros(len(arm[numerator]))) for arm in arms]
    total = sum(float(arm[denominator].sum()) for arm in arms)
    for date in np.unique(np.concatenate(dates)):
        first, second = (
            (arm[numerator][own == date], arm[denominator][own == date])
            for arm, own in zip(arms, dates, strict=True)
        )
        part = float(first[1].sum() + second[1].sum())
        yield part / total if total > 0 else NAN, (first, second)


def combine(parts: Iterable[tuple[float, tuple[Pair, Pair]]]) -> tuple[Estimate, Estimate]:
    """Return both rates over dates; nan without any."""
    found = [(weight, rates(*pairs)) for weight, pairs in parts]
    first, second = (_add([(w, both[side]) for w, both in found]) for side in (0, 1))
    return first, second


def _add(parts: list[tuple[float, Estimate]]) -> Estimate:
    """Return the weighted sum of rates; its n gives Satterthwaite's degrees of freedom."""
    if len(parts) == 1:
        return parts[0][1]
    variances = [weight**2 * own.variance for weight, own in parts]
    below = sum(v**2 / (own.n - 1) for v, (_, own) in zip(variances, parts, strict=True))
    n = 1 + sum(variances) ** 2 / below if below > 0 else NAN
    rate = sum(weight * own.rate for weight, own in parts) if parts else NAN
    return Estimate(rate, sum(variances) if parts else NAN, n)


def share_left_out(sample: Sample) -> float:
    """Return the share of emails or users that cannot be compared by date."""
    base = sample.base
    kept = keep_comparable(sample.arms_by_date(), base)
    whole, part = (sum(arm[base].sum() for arm in arms) for arms in (sample.arms(), kept))
    return float(1 - part / whole)
