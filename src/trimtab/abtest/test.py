"""The test of a metric: units are redistributed at random, as they might have been assigned.

A rate is a ratio of sums over units, R = sum(y) / sum(d). By the delta method its variance is the
variance of the mean of y - R·d, over mean(d)². The statistic is the difference of both rates over
its standard error. Without an effect, which units are treated is chance alone, so the statistic is
compared with its values over random assignments (Chung and Romano, Annals of Statistics 41, 2013:
because it is divided by its error, this also holds for large buckets that differ in variance only).
That needs neither buckets of equal size nor revenue without extremes. p, the interval, the interval
for every look and equivalence are all read off this one distribution. Its two tails count
separately: p is twice the smaller one. Ties count half (mid-p).

An assignment gives each unit a *path*: whether it is treated in each cell. Paths are permuted among
units in the same cells. If the hashes of users are known, they are permuted instead, and the
treatment's share of each cell is applied to them again.

A bucket in which nothing happened is not without variance: its units then count as varying like
those of both buckets together. Relative differences have Fieller's interval: all ratios r for which
R_treatment - r·R_control may be 0; it excludes 0 % exactly when that of the difference excludes 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.abtest.repeated_looks import radius
from trimtab.abtest.table import BEFORE, EMAIL, PER_USER, Metric, Rows
from trimtab.arrays import Flags, Floats, Ints

NAN = math.nan
DRAWS = 2_000
LEAST_DIFFERENT = 5  # units in the smaller bucket, expected without an effect
_MOST_BLOCKS = 500  # in the smaller bucket; more units are moved in blocks
_MOST_BLOCKS_OF_STRATUM = 100  # there are several, of a few units each or more
_TAIL = 10  # draws beyond a value that are needed to count them
_NO_VARIANCE = 1e-9  # variance over the usual one that counts as none
_N_MOMENTS = 6
_DIGITS = 9  # of a statistic; sums in another order differ in later ones


# Units -------------------------------------------------------------------------------------------


def take_sample(pair: Rows, ramp: bool) -> Rows:
    """Return the units of control and of one treatment, in cells if their shares change by date."""
    if ramp and pair.date_names:
        sides = (np.bincount(pair.dates[pair.buckets == b], minlength=pair.n_dates) for b in (0, 1))
        pair = pair.take((np.minimum(*sides) > 0)[pair.dates])  # on dates with both buckets
        return add_up(replace(pair, dates=pair.cells()))
    return add_up(replace(pair, dates=np.zeros_like(pair.dates)))


def add_up(rows: Rows) -> Rows:
    """Return one row for each unit in each cell where it is, sorted by unit; numbered from 0."""
    _, units = np.unique(rows.users, return_inverse=True)
    _, cells = np.unique(rows.dates, return_inverse=True)
    keys = units * (int(cells.max(initial=-1)) + 1) + cells
    _, first, own = np.unique(keys, return_index=True, return_inverse=True)
    columns = {name: _sum_column(name, own, values) for name, values in rows.columns.items()}
    return replace(replace(rows, users=units, dates=cells).take(first), columns=columns)


def comparable(sample: Rows, denominator: str) -> Flags:
    """Return the cells where both buckets have two units or more, and a rate."""
    usable = np.ones(sample.n_dates, bool)
    for side in (~sample.treated, sample.treated):
        cells, below = sample.dates[side], sample.columns[denominator][side]
        usable &= add_by(cells, sample.repeats[side], len(usable)) > 1
        usable &= add_by(cells, below, len(usable)) > 0
    return usable


def within(sample: Rows, chosen: Flags) -> Rows:
    """Return the units in some cells."""
    return sample if chosen.all() else add_up(sample.take(chosen[sample.dates]))


def add_by(groups: Ints, values: Any, n: int = 0) -> Floats:
    """Return sums of values by group."""
    return np.bincount(groups, values, n).astype(np.float64)


def _sum_column(name: str, groups: Ints, values: Floats) -> Floats:
    """Return sums by group; means of known values from before the test, which rows repeat."""
    if name != PER_USER and not name.startswith(BEFORE):
        return add_by(groups, values)
    known = ~np.isnan(values)
    n = int(groups.max(initial=-1)) + 1
    with np.errstate(invalid="ignore"):  # nan if none is known
        return add_by(groups[known], values[known], n) / np.bincount(groups[known], minlength=n)


# The test ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The result of the test of a metric: treatment minus control, with its intervals and p-value.

    Attributes:
        difference: difference of the rates.
        low: lower end of its interval.
        high: upper end of its interval.
        relative: difference over the rate of control; nan if that rate is not above 0.
        relative_low: lower end of its interval; nan if it is unbounded.
        relative_high: upper end of its interval; nan if it is unbounded.
        p: two-sided p-value; nan if untested.
        error: standard error of the difference.
        freedom: degrees of freedom of the t distribution far out.
        too_few: whether too little happened in the smaller bucket for any test.
        cuped: whether the rates are adjusted for what units did before the test.
        sequence: interval of the difference that holds at every look; None without a test.
        relative_sequence: the same of the relative difference.
    """

    difference: float
    low: float = NAN
    high: float = NAN
    relative: float = NAN
    relative_low: float = NAN
    relative_high: float = NAN
    p: float = NAN
    error: float = 0.0
    freedom: float = math.inf
    too_few: bool = False
    cuped: bool = False
    sequence: tuple[float, float] | None = None
    relative_sequence: tuple[float, float] | None = None


def compare(
    sample: Rows, metrics: Sequence[Metric], alpha: float, seed: int = 0,
    fraction: float | None = None, draws: int = DRAWS,
) -> list[Reading]:  # fmt: skip
    """Return the results of the tests of metrics.

    Args:
        sample: units of both buckets.
        metrics: the metrics.
        alpha: significance level.
        seed: seed of the random assignments.
        fraction: share of the planned units seen so far, for the interval for every look.
        draws: random assignments.
    """
    cells = [comparable(sample, metric.denominator) for metric in metrics]
    readings = [Reading(NAN)] * len(metrics)
    for own in {own.tobytes(): own for own in cells if own.any()}.values():
        places = [place for place, other in enumerate(cells) if (other == own).all()]
        tests = redistribute(within(sample, own), [metrics[at] for at in places], draws, seed)
        for place, test in zip(places, tests, strict=True):
            readings[place] = read_test(test, alpha, fraction)
    return readings


def read_test(test: Test, alpha: float, fraction: float | None) -> Reading:
    """Return what a test says at a significance level."""
    control, treatment = test.control, test.treatment
    difference = treatment.rate - control.rate
    relative = treatment.rate / control.rate - 1 if control.rate > 0 else NAN
    if not len(test.values):
        return Reading(difference, relative=relative, cuped=test.cuped)
    error = math.sqrt(control.variance + treatment.variance)
    one, always = _spans(control, treatment, *test.ends(alpha)), None
    if fraction is not None and not test.too_few:
        width = radius(error, fraction, alpha) / error
        always = _spans(control, treatment, *test.ends(math.erfc(width / math.sqrt(2))))
    return Reading(
        difference, *one[0], relative, *one[1], test.p(), error, test.freedom, test.too_few,
        test.cuped, always and always[0], always[1] if always and control.rate > 0 else None,
    )  # fmt: skip


def _spans(
    control: Estimate, treatment: Estimate, least: float, most: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the intervals of both differences, for the ends of the statistic."""
    difference = treatment.rate - control.rate
    error = math.sqrt(control.variance + treatment.variance)
    low, high = fieller(control, treatment, most)[0], fieller(control, treatment, -least)[1]
    return (difference - most * error, difference - least * error), (low, high)


def fieller(control: Estimate, treatment: Estimate, width: float) -> tuple[float, float]:
    """Return the interval of the relative difference, `width` standard errors to each side."""
    # (t - r·c)² <= width²·(vt + r²·vc), for r.
    square = control.rate**2 - width**2 * control.variance
    if not (control.rate > 0 and square > 0):
        return NAN, NAN
    half = treatment.rate * control.rate
    rest = treatment.rate**2 - width**2 * treatment.variance
    root = math.sqrt(max(half**2 - square * rest, 0.0))
    return (half - root) / square - 1, (half + root) / square - 1


# CUPED -------------------------------------------------------------------------------------------


def _adjust(sample: Rows, metric: Metric) -> Floats:
    """Return the numerator less what the same before the test explains of it (CUPED).

    The slope is that of a regression within buckets. What is subtracted has a mean of 0, so that
    only a difference between buckets before the test goes away. Unknown values are average.
    """
    y, d = sample.columns[metric.numerator], sample.columns[metric.denominator]
    if BEFORE + metric.numerator not in sample.columns:
        return y
    before = sample.columns[BEFORE + metric.numerator]
    per = sample.columns.get(BEFORE + metric.denominator, np.ones(len(y)))
    known = ~np.isnan(before + per)
    below = per[known].sum()
    before = before - (before[known].sum() / below if below > 0 else 0.0) * per  # like a residual
    spread = before[known].std() if known.any() else 0.0
    x = np.where(known, before - np.mean(before[known]), 0.0) / spread if spread > 0 else 0.0 * y
    groups = 2 * sample.dates + sample.treated
    sizes, tops, bottoms = np.bincount(groups), add_by(groups, y), add_by(groups, d)
    linear = (y - (tops / bottoms)[groups] * d) * (sizes / bottoms)[groups]
    within_groups = x - (add_by(groups, x) / sizes)[groups]
    slope = np.linalg.lstsq(within_groups[:, None], linear, rcond=1e-10)[0][0]
    adjusted: Floats = y - x * slope * d.mean()
    return adjusted


# The distribution without an effect --------------------------------------------------------------


class Estimate(NamedTuple):
    """A rate and its variance."""

    rate: float
    variance: float


@dataclass(frozen=True)
class Test:
    """The rates of both buckets, and the statistic without an effect.

    Attributes:
        control: rate of control.
        treatment: rate of the treatment.
        values: values of the statistic, ascending, the one seen among them; none if nothing varies.
        seen: the statistic.
        freedom: degrees of freedom of the t distribution far out.
        too_few: whether too little happened in the smaller bucket for any test.
        cuped: whether the rates are adjusted.
    """

    control: Estimate
    treatment: Estimate
    values: Floats
    seen: float = NAN
    freedom: float = math.inf
    too_few: bool = False
    cuped: bool = False

    def p(self) -> float:
        """Return the two-sided p-value."""
        return min(1.0, 2 * min(self._tail(own, seen) for own, seen in self._sides()))

    def ends(self, alpha: float) -> tuple[float, float]:
        """Return the values between which the statistic is not significant."""
        lower, upper = (self._end(own, alpha / 2) for own, _ in self._sides())
        return -lower, upper

    def _sides(self) -> tuple[tuple[Floats, float], tuple[Floats, float]]:
        """Return the values and the one seen, first as if all had the other sign."""
        return (-self.values[::-1], -self.seen), (self.values, self.seen)

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


def redistribute(sample: Rows, metrics: Sequence[Metric], draws: int, seed: int) -> Iterator[Test]:
    """Return the test of each metric, all by the same random assignments."""
    paths = _find_paths(sample)
    numbers = [[sample.columns[name] for name in metric[:2]] for metric in metrics]
    adjusted = [_adjust(sample, metric) for metric in metrics]
    rates = [y.sum() / d.sum() for y, (_, d) in zip(adjusted, numbers, strict=True)]
    moments = np.concatenate(  # rates do not depend on where y is measured from
        [moments_of(y, d, rate) for y, (_, d), rate in zip(adjusted, numbers, rates, strict=True)],
        axis=1,
    )
    total = sum_cells(moments, sample, np.ones(len(moments), bool))
    seen = sum_cells(moments, sample, sample.treated)
    draw = _draw_kinds if sample.unit == EMAIL else _draw_units
    treated = np.concatenate([seen[None], draw(moments, sample, paths, draws, seed)])
    shared = len(np.unique(sample.users)) < len(sample.users)
    for place, (y, d) in enumerate(numbers):
        own = slice(place * _N_MOMENTS, (place + 1) * _N_MOMENTS)
        test = _find_chance(total[:, own], treated[:, :, own], rates[place], shared, seed)
        too_few = _expected_different(sample, paths, y, d) < LEAST_DIFFERENT
        yield replace(test, too_few=too_few, cuped=adjusted[place] is not y)


def _find_chance(total: Floats, treated: Floats, rate: float, shared: bool, seed: int) -> Test:
    """Return both rates, and the statistic without an effect."""
    rates, variances, freedom = _combine(total, treated)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = np.round((rates[1] - rates[0]) / np.sqrt(variances[0] + variances[1]), _DIGITS)
    known = np.flatnonzero(np.isfinite(statistics))
    first, second = (
        Estimate(float(own[0] + rate), float(variance[0]))
        for own, variance in zip(rates, variances, strict=True)
    )
    if not len(known) or known[0] > 0:
        return Test(first, second, np.empty(0))
    # A bucket without anything in the denominator has no rate: draw another one in its place.
    taken = np.random.default_rng(seed).choice(known, len(statistics))
    taken[known] = known
    statistics = statistics[taken]
    if shared:
        # Cells share units, so that their errors do not add up: as the draws vary.
        scale = max(float(np.sqrt(np.mean(statistics[1:] ** 2))), _NO_VARIANCE)
        first, second = (own._replace(variance=own.variance * scale**2) for own in (first, second))
        statistics = statistics / scale
    return Test(first, second, np.sort(statistics), float(statistics[0]), freedom)


def _combine(total: Floats, treated: Floats) -> tuple[list[Floats], list[Floats], float]:
    """Return rates and variances of both buckets over all cells, and degrees of freedom.

    Cells weigh as much as their denominators, the same in both buckets. The degrees of freedom
    are Satterthwaite's, of the first assignment, which is the one seen.
    """
    weights = total[:, 2] / total[:, 2].sum()
    usual = estimate(total, np.zeros(len(total)))[1] * total[:, 0]
    rates, variances = [], []
    below = 0.0
    for sums in (total - treated, treated):
        rate, variance = estimate(sums, usual)
        rates.append(rate @ weights)
        variances.append(variance @ weights**2)
        below += float(((variance[0] * weights**2) ** 2 / (sums[0, :, 0] - 1)).sum())
    whole = float(variances[0][0] + variances[1][0])
    return rates, variances, whole**2 / below if below > 0 else math.inf


def moments_of(y: Floats, d: Floats, rate: float) -> Floats:
    """Return the numbers of each row that a rate and its variance are sums of."""
    z = y - rate * d
    z[np.abs(z) < 1e-12 * (np.abs(y) + np.abs(rate * d))] = 0.0
    return np.stack([np.ones(len(z)), z, d, z * z, z * d, d * d], axis=1)


def sum_cells(moments: Floats, sample: Rows, rows: Flags) -> Floats:
    """Return the sums of moments over some rows, by cell."""
    cells, repeats = sample.dates[rows], sample.repeats[rows]
    return np.stack([add_by(cells, own * repeats, sample.n_dates) for own in moments[rows].T], 1)


def estimate(sums: Floats, usual: Floats) -> tuple[Floats, Floats]:
    """Return rates and their variances from sums; a variance of 0 becomes the usual one."""
    n, z, d, zz, zd, dd = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, scale = z / d, n / d
        squares = np.maximum(zz - 2 * rate * zd + rate**2 * dd, 0.0) * scale**2
        variance = squares / (n * np.maximum(n - 1, 1))
        return rate, np.where(variance > _NO_VARIANCE * usual / n, variance, usual / n)


# Random assignments ------------------------------------------------------------------------------


class Paths(NamedTuple):
    """The path of each unit, whether a path is treated in each cell, and units' strata."""

    of_units: Ints
    assigned: Flags
    strata: Ints


def _draw_kinds(moments: Floats, sample: Rows, _: Paths, draws: int, seed: int) -> Floats:
    """Return sums over the treatment group where all units of a kind are alike, from totals."""
    repeats = sample.repeats.astype(np.int64)
    random = np.random.default_rng(seed)
    n_treated = int(repeats[sample.treated].sum())
    drawn = random.multivariate_hypergeometric(repeats, n_treated, draws, method="marginals")
    return (drawn @ moments)[:, None, :]


def _draw_units(moments: Floats, sample: Rows, found: Paths, draws: int, seed: int) -> Floats:
    """Return sums over treated rows of random assignments, by cell."""
    from trimtab.kernels.counting import sum_redistributed

    n_cells = sample.n_dates
    paths, assigned, strata = found
    moves: Flags = (assigned.sum(axis=1) > 0)[paths]
    order, blocks = _make_blocks(paths, moves, strata, np.random.default_rng(seed))
    stays = blocks[sample.users] < 0
    rest = sum_cells(moments, sample, stays & sample.treated)
    keys = (blocks[sample.users] * n_cells + sample.dates)[~stays]
    known, places = np.unique(keys, return_inverse=True)
    packed = np.stack([add_by(places, own, len(known)) for own in moments[~stays].T], axis=1)
    first = order[np.unique(blocks[order], return_index=True)[1]]
    first = first[blocks[first] >= 0]  # a unit of each block
    indptr = np.searchsorted(known // n_cells, np.arange(len(first) + 1))
    n_strata = int(strata.max()) + 1
    begins = np.searchsorted(strata[first], np.arange(n_strata + 1))
    moving = np.bincount(strata[first], moves[first], n_strata).astype(np.int64)
    sums = np.zeros((draws, n_cells, moments.shape[1]))
    sum_redistributed(np.arange(len(first)), packed, known % n_cells, indptr, paths[first],
                      assigned, begins, moving, np.uint64(seed % 2**64), sums)  # fmt: skip
    return sums + rest


def _find_paths(sample: Rows) -> Paths:
    """Return paths; they move within a stratum only: units in the same cells, or all if hashed."""
    n, n_cells = int(sample.users.max()) + 1, sample.n_dates
    if n_cells == 1:
        treated = sample.treated.astype(np.int64)
        return Paths(treated, np.array([[False], [True]]), np.zeros(n, np.int64))
    if sample.positions is not None:
        positions, shares = np.zeros(n), _find_shares(sample, sample.positions)
        positions[sample.users] = sample.positions
        edges, ranks = np.unique(shares, return_inverse=True)
        paths = np.searchsorted(edges, positions, side="right")
        assigned = np.arange(len(edges) + 1)[:, None] <= ranks
        return Paths(paths, assigned, np.zeros(n, np.int64))
    present, treated = np.zeros((n, n_cells), bool), np.zeros((n, n_cells), bool)
    present[sample.users, sample.dates] = True
    treated[sample.users, sample.dates] = sample.treated
    _, strata = np.unique(present, axis=0, return_inverse=True)
    assigned, paths = np.unique(treated, axis=0, return_inverse=True)
    return Paths(paths, assigned, strata)


def _find_shares(sample: Rows, positions: Floats) -> Floats:
    """Return the position below which units are treated, of each cell."""
    lowest, highest = np.ones(sample.n_dates), np.zeros(sample.n_dates)
    np.maximum.at(highest, sample.dates[sample.treated], positions[sample.treated])
    np.minimum.at(lowest, sample.dates[~sample.treated], positions[~sample.treated])
    return (lowest + highest) / 2


def _make_blocks(
    paths: Ints, moves: Flags, strata: Ints, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return units by stratum, those that move first, and the block of each.

    A block holds units of one path and stratum, which move together. Few units are blocks of one;
    units that fill no block have -1 and stay where they are.
    """
    order = np.lexsort((random.random(len(paths)), paths, ~moves, strata))
    smaller = np.minimum(*(np.bincount(strata, side) for side in (moves, ~moves)))
    most = _MOST_BLOCKS if len(smaller) == 1 else _MOST_BLOCKS_OF_STRATUM
    size = np.maximum(1, smaller.astype(np.int64) // most)[strata[order]]
    same = (np.diff(strata[order], prepend=-1) == 0) & (np.diff(paths[order], prepend=-1) == 0)
    groups = np.cumsum(~same) - 1
    starts, lengths = np.flatnonzero(~same), np.bincount(groups)
    place = (np.arange(len(order)) - starts[groups]) // size
    filled = place < lengths[groups] // size
    begins = filled & ((np.arange(len(order)) - starts[groups]) % size == 0)
    blocks = np.empty(len(order), np.int64)
    blocks[order] = np.where(filled, np.cumsum(begins) - 1, -1)
    return order, blocks


def _expected_different(sample: Rows, found: Paths, y: Floats, d: Floats) -> float:
    """Return how many units with another rate than most the smaller bucket would have by chance.

    Most units usually have a rate of 0: this is then the number of units with a click or an order,
    times the share of units in the smaller bucket. Units with a denominator of 0 do not count, nor
    do those that have nobody to swap with.
    """
    paths, _, strata = found
    tops, below = (add_by(sample.users, own) for own in (y, d))
    known = below > 0
    rates = np.divide(tops, below, out=np.full(len(tops), NAN), where=known)
    times = np.bincount(sample.users)
    weights = add_by(sample.users, sample.repeats) / times * known
    values, places = np.unique(rates[known], return_inverse=True)
    usual = values[np.bincount(places, weights[known]).argmax()]
    treated = add_by(sample.users, sample.treated) / times
    shares = add_by(strata, weights * treated) / np.maximum(add_by(strata, weights), 1)
    different = add_by(strata, weights * (rates != usual))
    lowest, highest = np.full(len(shares), len(paths)), np.full(len(shares), -1)
    np.minimum.at(lowest, strata, paths)
    np.maximum.at(highest, strata, paths)
    different = different * (lowest < highest)
    return float(min(different @ shares, different @ (1 - shares)))
