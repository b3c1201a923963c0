"""What held-out units say: the exact metric along a direction, and the lift to expect next week.

**Along a direction** all scores of all lists move as score + t·slope: the curve of the metric tells
how far a level is carried.

**The forecast.** Gains are measured as a share of what is attained,

    s = gain / max(before, after)        lift = s / (1 − s) if s > 0, else s

which stays stable where the engine alone is near 0, and equals the lift where that is small.
Windows differ from each other by more than their users do: a gain varies from day to day. Its
variance around the mean,

    τ² = (prior's weight · prior² + (windows − 1) · observed) / (prior's weight + windows − 1)

is what was observed between the windows beyond the noise of their users, together with a prior,
which is all there is with a single window. The constants below were measured on two open logs with
seven pairs of log and engine (docs/method.md); they are the same for all shops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.counted import QUANTA, quanta_below
from trimtab.learn.units import HitLists
from trimtab.models.model import WIDTH_90
from trimtab.threads import run_ranges

_NARROW = 1e-9  # of the whole line
_LEAST = np.iinfo(np.int64).min


# The metric along a direction ---------------------------------------------------------------------


class LineCurve(NamedTuple):
    """The weighted sum of a metric along t in [low, high], in quanta.

    Between breakpoints the value is constant: `values[p]` holds from breakpoint p - 1 (from `low`
    for p = 0) to breakpoint p (to `high` for the last). Breakpoints where changes cancel are kept:
    exactly on them a tie may rank differently.
    """

    breakpoints: Floats  # ascending, each once
    values: Ints  # one more than breakpoints
    low: float
    high: float

    def at(self, t: float) -> int:
        """The value at a t that is not a breakpoint."""
        return int(self.values[np.searchsorted(self.breakpoints, t)])

    def best(self, start: float = 0.0) -> tuple[float, int]:
        """The middle of the best interval and its value; `start` unless another is strictly better.

        Of equal intervals, the one nearest to `start` wins.
        """
        edges = np.concatenate([[self.low], self.breakpoints, [self.high]])
        widths = np.diff(edges)
        middles = edges[:-1] + widths / 2
        # Very narrow intervals come from rounding: the crossings coincide.
        values = np.where(widths > _NARROW * (self.high - self.low), self.values, _LEAST)
        top = np.flatnonzero(values == values.max())
        nearest = top[np.argmin(np.abs(middles[top] - start))]
        if self.values[nearest] <= self.at(start):
            return start, self.at(start)
        return float(middles[nearest]), int(self.values[nearest])


def trace_line(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float
) -> LineCurve:
    """The curve of a metric when every listed score moves by t times its slope.

    Args:
        data: the units whose metric can change.
        slopes: one per list entry.
        k: slots that count.
        metric: "acc", "map" or "ndcg".
        low: smallest t.
        high: largest t.
    """
    crossings = data.n_hits * np.diff(data.lists.indptr)
    room = np.concatenate([[0], np.cumsum(crossings)]).astype(np.int64)
    at, delta = np.empty(room[-1]), np.empty(room[-1], np.int64)
    counts = room[:-1].copy()
    value = int(_trace(data, slopes, k, metric, low, high, at, delta, counts).sum())
    used = np.arange(room[-1]) < np.repeat(room[:-1] + counts, crossings)
    at, delta = at[used], delta[used]
    order = np.argsort(at)
    at, delta = at[order], delta[order]
    starts = np.flatnonzero(np.diff(at, prepend=-np.inf))
    changes = np.add.reduceat(delta, starts) if len(starts) else delta
    values = value + np.concatenate([[0], np.cumsum(changes)])
    return LineCurve(at[starts], values, low, high)


def values_at(data: HitLists, slopes: Floats, k: int, metric: str, t: float) -> Floats:
    """The weighted metric of each unit when every listed score has moved by t times its slope."""
    none = np.zeros(data.n_units, np.int64)
    nowhere = np.empty(0), np.empty(0, np.int64)
    # An end below the start: no breakpoint is passed.
    return _trace(data, slopes, k, metric, t, -np.inf, *nowhere, none) / QUANTA


def _trace(
    data: HitLists, slopes: Floats, k: int, metric: str, low: float, high: float,
    at: Floats, delta: Ints, counts: Ints,
) -> Ints:  # fmt: skip
    """The value of each unit at `low`, in quanta; writes its breakpoints."""
    from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
    from trimtab.kernels.levels import trace_units

    values = np.zeros(data.n_units, np.int64)
    run_ranges(
        trace_units, data.n_units, k, counts_hits_above(metric), low, high, QUANTA, *data.lists,
        slopes, data.hits, data.n_bought, data.weights, hit_value_table(metric, k), at, delta,
        counts, values,
    )  # fmt: skip
    return values


# The forecast -------------------------------------------------------------------------------------

_DAYS_AHEAD = 7.0  # what the forecast is for
_SPREAD_OF_USERS = 0.5  # with features of the window's own sales, which say least of other days
_PRIOR_WINDOWS = 3.0  # the prior counts as much as so many windows
# How much an uncertain gain shortens all levels: with features as of an instant, and with those of
# a window's own sales, whose gain may be over with the window.
_SHRINKAGE, _SHRINKAGE_OF_USERS = 0.5, 1.5
_FEW_UNITS = 60.0  # of so many units, it does so by 1 more
_MOST = 0.99  # share whose lift is told; beyond it, the engine alone has next to nothing


class Persistence(NamedTuple):
    """How far the lifts of what is held out carry over to the days that follow."""

    fading: float  # power of (days of a window / days ahead) by which a lift fades
    one_window: float  # share left of the lift of a window whose own users taught the coefficients
    # Spread of s between windows, over |s|·(1 − |s|): with windows held out, and with users of the
    # only window held out.
    spread: float
    spread_of_one_window: float
    averaging: float  # power of (days of a window / days ahead) by which the spread's square falls

    def mix(self, other: Persistence, share: float) -> Persistence:
        """Part of this and a share of another."""
        pairs = zip(self, other, strict=True)
        return Persistence(*((1.0 - share) * own + share * theirs for own, theirs in pairs))


TREND = Persistence(0.09, 0.8, 0.22, 0.35, 0.0)
# What users buy again and again lasts longer than a trend.
PERSONAL = Persistence(0.04, 1.0, 0.1, 0.2, 1.0)


class Lifts(NamedTuple):
    """Sums over the units of each fold: values before (b), gains (g), g·g, g·b and b·b, in quanta.

    `by_window`: folds are windows, rather than groups of users of all windows.
    """

    sums: Ints  # by [fold, sum]
    quanta: float
    by_window: bool

    @property
    def before(self) -> float:
        """The sum before."""
        return float(self.sums[:, 0].sum() / self.quanta)

    @property
    def gain(self) -> float:
        """The summed gain."""
        return float(self.sums[:, 1].sum() / self.quanta)

    @property
    def gain_error(self) -> float:
        """The standard error of the summed gain."""
        of_users = max(float(self.sums[:, 2].sum() / self.quanta), 0.0)
        if not self.by_window:
            return float(np.sqrt(of_users))
        before, gains = (self.sums[:, place] / self.quanta for place in (0, 1))
        expected = before * (gains.sum() / max(before.sum(), 1e-300))
        n = len(gains)
        of_windows = float(((gains - expected) ** 2).sum()) * n / (n - 1)
        return float(np.sqrt(max(of_users, of_windows)))

    @property
    def share(self) -> float:
        """The summed gain as a share of what is attained; NaN if nothing is."""
        attained = self.before + max(self.gain, 0.0)
        return self.gain / attained if attained > 0 else np.nan

    def by_fold(self) -> tuple[Floats, Floats, Floats]:
        """The share of each fold, its variance over users around that of all, and its weight."""
        before, gains, squares, products, base = self.sums.T / self.quanta
        attained = before + np.maximum(gains, 0.0)
        of_gain, of_before = 1.0 - max(self.share, 0.0), self.share
        spread = of_gain**2 * squares - 2.0 * of_gain * of_before * products + of_before**2 * base
        used = attained > 0
        gains, attained, spread = gains[used], attained[used], np.maximum(spread[used], 0.0)
        return gains / attained, spread / attained**2, attained / attained.sum()


def sum_lifts(
    before: Floats, after: Floats, folds: Ints | Codes, n_folds: int, by_window: bool
) -> Lifts:
    """Sum up what each unit gains.

    Args:
        before: value of each unit.
        after: the same with what is judged.
        folds: of units.
        n_folds: number of folds.
        by_window: folds are windows.
    """
    gains = after - before
    columns = (before, gains, gains * gains, gains * before, before * before)
    most = max(1.0, float(before.max(initial=0.0)), float(after.max(initial=0.0)))
    quanta = quanta_below(4.0 * max(len(gains), 1) * most**2)
    sums = np.zeros((n_folds, len(columns)), np.int64)
    for place, column in enumerate(columns):
        np.add.at(sums[:, place], folds, np.rint(column * quanta).astype(np.int64))
    return Lifts(sums, quanta, by_window)


class Forecast(NamedTuple):
    """The gain to expect on the days that follow, as a share of what will be attained."""

    z_score: float  # the gain in standard errors
    share: float  # nan if there is nothing to tell it from
    error: float  # standard error of the share that will come
    n_windows: int = 0  # held out; 0: users were held out instead
    shrinkage: float = _SHRINKAGE_OF_USERS
    is_told: bool = True  # False: kept to itself, because nothing is known of other days

    @property
    def lift(self) -> float:
        """The lift to expect."""
        return lift_of(self.share)

    def is_clear(self, n_units: float = np.inf) -> bool:
        """Whether the 90 % interval of the gain lies above 0.

        Args:
            n_units: with a hit; of a few, the error itself is not well known.
        """
        z_score = WIDTH_90 + _FEW_UNITS / (2.0 * WIDTH_90 * n_units)
        return self.z_score > z_score and self.share > WIDTH_90 * self.error

    def supported_share(self, n_units: int) -> float:
        """The share of all levels to keep: near 1 for a clear gain, 0 for an unclear one.

        Args:
            n_units: with a hit; of a few, the error itself is not well known.
        """
        if not self.z_score > 0:
            return 0.0
        return max(0.0, 1.0 - (self.shrinkage + _FEW_UNITS / n_units) / self.z_score**2)

    def figures(self) -> list[float]:
        """The lift and the bounds of its 90 % interval."""
        width = WIDTH_90 * self.error
        return [lift_of(share) for share in (self.share, self.share - width, self.share + width)]

    def interval(self) -> tuple[float | None, float | None, float | None]:
        """The lift and its 90 % interval; None for each if no clear gain can be told.

        Over an engine that has nothing, no lift can be told either.
        """
        if not (self.is_clear() and self.is_told and self.share < 1):
            return None, None, None
        lift, low, high = self.figures()
        return lift, low, high


def lift_of(share: float) -> float:
    """The lift by a gain that is a share of what is attained."""
    return share / (1.0 - min(share, _MOST)) if share > 0 else share


def share_of(lift: float) -> float:
    """The gain as a share of what is attained."""
    return lift / (1.0 + lift) if lift > 0 else lift


STRENGTHS = (0.25, 0.5, 0.75)  # below 1, that lifts are forecast for


def forecasts_by_strength(
    whole: Forecast, forecast: Callable[[float], Forecast]
) -> dict[str, list[float]]:
    """Forecast and interval by strength; empty if there is none.

    Args:
        whole: the forecast of what was learned.
        forecast: that of a part of it, by strength.
    """
    if whole.interval()[0] is None:
        return {}
    found = {f"{strength:g}": forecast(strength) for strength in STRENGTHS}
    return {name: own.figures() for name, own in {**found, "1": whole}.items()}


NO_FORECAST = Forecast(0.0, np.nan, np.nan)


def forecast_lift(
    lifts: Lifts, as_of: bool, window_days: float, persistence: Persistence = TREND
) -> Forecast:
    """The lift to expect from the lifts of what was held out.

    Args:
        lifts: of each fold.
        as_of: features were as of the start of each window.
        window_days: length of a window.
        persistence: how far lifts carry over.
    """
    if np.isnan(lifts.share):
        return NO_FORECAST
    shares, variances, weights = lifts.by_fold()
    room = abs(lifts.share) * (1.0 - abs(lifts.share))
    if lifts.by_window and len(shares) > 1:
        n_windows, of_users = len(shares), float(variances.mean())
        observed = max(float(shares.var(ddof=1)) - of_users, 0.0)
        prior = _PRIOR_WINDOWS * (persistence.spread * room) ** 2
        between = (prior + (n_windows - 1) * observed) / (_PRIOR_WINDOWS + n_windows - 1)
        # A gain that other days may undo is as unclear as one that other users may undo.
        of_mean = (of_users + between) / n_windows
        unclear = of_mean + between
    else:
        n_windows = 1
        of_users = float((variances * weights**2).sum())
        spread = persistence.spread_of_one_window if as_of else _SPREAD_OF_USERS
        between = (spread * room) ** 2
        of_mean = unclear = of_users
    # Where the engine alone has nothing, the share is 1 whatever the users gain.
    by_gain = lifts.gain / max(lifts.gain_error, 1e-300)
    z_score = min(lifts.share / max(float(np.sqrt(unclear)), 1e-300), by_gain)
    # Lists that are renewed more than once a day are judged on the window that follows.
    shorter = min(1.0, window_days / _DAYS_AHEAD) if window_days >= 1 else 1.0
    ahead = between * shorter**persistence.averaging
    error = float(np.sqrt(of_mean + ahead + of_users * shorter))
    is_told = lifts.by_window or window_days > 1  # one window of a day says nothing of others
    if not as_of:
        return Forecast(z_score, lifts.share, error, is_told=is_told)
    fading = shorter**persistence.fading * (1.0 if lifts.by_window else persistence.one_window)
    held_out = n_windows if lifts.by_window else 0
    share = share_of(fading * lift_of(lifts.share))
    return Forecast(z_score, share, error, held_out, _SHRINKAGE, is_told)
