"""The fit of biases from counts: gamma, forecast and result.

What the counts of a window gain is judged on the next window, on lists made in between: as they
will be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets, take_entries
from trimtab.errors import DataError, SettingError
from trimtab.learn.counts.count_biases import (
    DIFFERENCE,
    GAMMAS,
    SCALES,
    WindowCounts,
    count_bias,
)
from trimtab.learn.hierarchy.forecasts import (
    NO_FORECAST,
    Forecast,
    forecast_lift,
    forecasts_by_strength,
    sum_lifts,
)
from trimtab.learn.hierarchy.hierarchy_fit import describe_fit
from trimtab.learn.hierarchy.hierarchy_result import TopKCounts, build_result, count_top_k
from trimtab.learn.hierarchy.levels import FEWEST_UNITS, Learned
from trimtab.learn.inputs import FitInputs, UnitGains
from trimtab.learn.quanta import quanta_below
from trimtab.learn.scales import Scale
from trimtab.learn.settings import LearnerSettings
from trimtab.metrics.per_user import unit_metrics
from trimtab.metrics.ranking import rank_lists
from trimtab.models import ItemBias
from trimtab.models.scaled_scores import to_scale


def fit_counts(settings: LearnerSettings, inputs: FitInputs) -> ItemBias:
    """Return the biases that counts of the newest window give."""
    units = inputs.unit_gains(settings.metric, settings.k)
    windows = _Windows(settings, inputs, units)
    gammas = windows.choose_gammas()
    share = 1.0 if windows.n_hit_units >= FEWEST_UNITS else 0.0
    if share and settings.gamma is None:
        share = windows.forecast(gammas).supported_share(windows.n_hit_units)
    forecast = windows.forecast(gammas, share) if share else NO_FORECAST
    if settings.gamma is None and not forecast.is_clear(windows.n_hit_units):
        share, forecast = 0.0, NO_FORECAST
    scale = Scale(SCALES[settings.method], 1.0)
    scaled = to_scale(inputs.lists, scale.name, settings.k).lists
    context = describe_fit(inputs, inputs.histories, scale, units)
    gamma = share * gammas.last
    bias = gamma * windows.biases[-1]

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        return count_top_k(
            inputs.lists if bias is None else scaled, inputs.bought, units.gains, settings.k,
            settings.metric, bias, inputs.n_items, context.quanta, units.relevance,
        )  # fmt: skip

    nothing = np.zeros(inputs.n_items)
    learned = Learned(
        trend=bias,
        category=nothing,
        own=nothing,
        error=np.full(inputs.n_items, np.nan),
        coefficients={"gamma": gamma},
        kept={settings.method: share},
        forecast=forecast,
        n_windows=windows.n_windows,
        n_hit_units=windows.n_hit_units,
        by_strength=forecasts_by_strength(
            forecast, lambda strength: windows.forecast(gammas, share * strength)
        ),
    )
    return build_result(settings, learned, context, top_k_counts, settings.method)


class _Gammas(NamedTuple):
    """Gammas for tonight, and for each window held out."""

    last: float
    of_windows: list[float]


class _HeldOut(NamedTuple):
    """The units of a window that bought something listed to them."""

    lists: Lists  # on the scale of the biases
    bought: Sets
    weights: Floats
    relevance: Floats | None  # of purchases

    def values(self, top: Lists, k: int, metric: str) -> Floats:
        """The weighted metric of each unit with given top lists."""
        found: Floats = getattr(unit_metrics(top, self.bought, k, self.relevance), metric)
        return self.weights * found


class _Windows:
    """The windows of a fit: counts of each, judged on the next."""

    def __init__(self, settings: LearnerSettings, inputs: FitInputs, units: UnitGains) -> None:
        self._settings, self._inputs = settings, inputs
        self._weights, self._relevance = units.weights, units.relevance
        self.n_windows = int(inputs.windows.max(initial=0)) + 1
        hit = _find_hit_units(inputs.lists, inputs.bought, inputs.n_items) & (units.weights > 0)
        of_windows = ((inputs.windows == window) & hit for window in range(self.n_windows))
        self._hit_units = [np.flatnonzero(own) for own in of_windows]
        counts = [self._count(window) for window in range(self.n_windows)]
        self.biases = [count_bias(settings.method, own) for own in counts]

    def _count(self, window: int) -> WindowCounts:
        inputs = self._inputs
        chosen = np.flatnonzero(inputs.windows == window)
        sales = take_entries(inputs.bought.indptr, inputs.weighted.sales, chosen)
        bought, listed = (
            np.bincount(own.take(chosen).items, each, minlength=inputs.n_items).astype(np.float64)
            for own, each in ((inputs.bought, sales), (inputs.lists, None))
        )
        before = inputs.histories.before
        if self._settings.method == DIFFERENCE and len(before) != self.n_windows:
            raise DataError(
                "history is missing: method='difference' compares the window with what sold "
                "before; pass history with timestamps, or use method='ratio'"
            )
        return WindowCounts(bought, listed, before[window].long if before else None)

    @cached_property
    def held_out(self) -> list[_HeldOut]:
        """The units of each window but the first."""
        inputs, settings = self._inputs, self._settings
        found = []
        for chosen in self._hit_units[1:]:
            lists = to_scale(inputs.lists.take(chosen), SCALES[settings.method], settings.k).lists
            relevance = take_entries(inputs.bought.indptr, self._relevance, chosen)
            bought = inputs.bought.take(chosen)
            found.append(_HeldOut(lists, bought, self._weights[chosen], relevance))
        return found

    @property
    def n_hit_units(self) -> int:
        """Units with a hit; those of windows held out, if gamma is to be chosen."""
        first = 1 if self._settings.gamma is None else 0
        return sum(map(len, self._hit_units[first:]))

    def choose_gammas(self) -> _Gammas:
        """Return the best gamma, and for each window held out the best by the others."""
        asked = self._settings.gamma
        if asked is not None:
            return _Gammas(asked, [asked] * len(self.held_out))
        tried = GAMMAS[self._settings.method]
        if self.n_windows == 1:
            raise SettingError(
                f"gamma=None: it is chosen on held-out windows, and there are purchases of one "
                f"window; pass gamma={tried[2]}, or lists and purchases of several windows"
            )
        totals = np.array(
            [
                [self._values(place, gamma).sum() for place in range(len(self.held_out))]
                for gamma in tried
            ]
        )
        chosen = _choose_without_each(totals)
        return _Gammas(tried[int(totals.sum(axis=1).argmax())], [tried[own] for own in chosen])

    def forecast(self, gammas: _Gammas, share: float = 1.0) -> Forecast:
        """Return the lift to expect from a share of the biases."""
        if not self.held_out:
            return NO_FORECAST
        places = range(len(self.held_out))
        before = [self._values(place, 0.0) for place in places]
        after = [self._values(place, share * gammas.of_windows[place]) for place in places]
        return self._forecast(before, after)

    def _values(self, place: int, gamma: float) -> Floats:
        """The weighted metric of each unit held out, with the biases of the window before."""
        units, k, metric = self.held_out[place], self._settings.k, self._settings.metric
        top = rank_lists(units.lists, k, gamma * self.biases[place])
        return units.values(top, k, metric)

    def _forecast(self, before: Sequence[Floats], after: Sequence[Floats]) -> Forecast:
        folds = np.repeat(np.arange(len(before)), [len(own) for own in before])
        heaviest = max(1.0, float(self._weights.max(initial=0.0)))
        quanta = quanta_below(4.0 * max(len(folds), 1) * heaviest**2)
        n_folds = len(before)
        lifts = sum_lifts(
            np.concatenate(before), np.concatenate(after), folds, n_folds, quanta, n_folds > 1
        )
        return forecast_lift(lifts, True, self._inputs.histories.window_days)


def _choose_without_each(totals: Floats) -> Ints:
    """The best row for each column by the other columns; by all if there is only one.

    Args:
        totals: summed metric by [gamma, window].
    """
    others = totals.sum(axis=1, keepdims=True) - totals
    chosen: Ints = (others if totals.shape[1] > 1 else totals).argmax(axis=0)
    return chosen


def _find_hit_units(lists: Lists, bought: Sets, n_items: int) -> Flags:
    """Units whose list holds something that they bought."""
    units = np.repeat(np.arange(lists.n_units), np.diff(lists.indptr))
    buyers = np.repeat(np.arange(bought.n_units), np.diff(bought.indptr))
    listed = np.isin(units * n_items + lists.items, buyers * n_items + bought.items)
    hit: Flags = np.bincount(units[listed], minlength=lists.n_units) > 0
    return hit
