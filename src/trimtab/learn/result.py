"""The hierarchy's biases as an `ItemBias`: gains, intervals, forecast and warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from trimtab.arrays import Flags, Floats, Ints
from trimtab.errors import GuardWarning, SimilarListsWarning, warn
from trimtab.learn.counted import Counted
from trimtab.learn.counts import Counts, TopK
from trimtab.learn.features import Shared
from trimtab.learn.levels import FEWEST_UNITS, Learned
from trimtab.learn.sales import Histories
from trimtab.learn.settings import LearnerSettings
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import WIDTH_90, Summary

HIERARCHY = "hierarchy"
_MOST_SHOWN = 10
_MORE_SLOTS, _TIMES_MORE = 0.1, 1.5  # limits on how much the share of the most shown items may grow
_FEW = 10  # lists, or sales
ONE_DAY = (
    "one window of one day says nothing of other days: there is no forecast; learn from more days "
    "before you ship"
)
_FAR_BELOW = 0.5  # of the forecast; what a fit has seen should gain more than what it has not


def build_result(
    settings: LearnerSettings, learned: Learned, counted: Counted, shared: Shared,
    count_after: Callable[[Floats], TopK],
) -> ItemBias:  # fmt: skip
    """What was learned, as an `ItemBias`; warns before anyone ships biases that may not help.

    Args:
        settings: of the learner.
        learned: by levels.
        counted: tables of the fit.
        shared: by all units learned from.
        count_after: counts what the top k of everybody show with given biases.
    """
    plan, counts, before = counted.plan, counted.counts, counted.counts.before
    fresh = _find_fresh(counts, shared.histories)
    bias, learned = _centre(learned, before.shown, fresh, counted.categories)
    after = count_after(bias)
    value_before, value_after = (own.hit_values / plan.quanta for own in (before, after))
    weight = counts.weight_of_buyers(plan)
    forecast, low, high = learned.forecast.interval()
    n_items = len(bias)
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(value_before.sum() / weight),
        after=float(value_after.sum() / weight),
        objective_before=float(value_before.sum()),
        objective_after=float(value_after.sum()),
        n_users=counts.n_buyers,
        n_skipped=counted.survey.n_units - counts.n_buyers,
        n_items=n_items,
        n_candidates=n_items,
        n_excluded=0,
        cycles=1,
        updates=int(np.count_nonzero(bias)),
        converged=learned.converged,
        unit=shared.score_unit,
        method=HIERARCHY,
        forecast=forecast,
        forecast_low=low,
        forecast_high=high,
        forecast_windows=learned.forecast.n_windows,
        n_windows=learned.n_windows,
        concentration_before=_concentration(before.shown),
        concentration_after=_concentration(after.shown),
        kept=learned.kept,
        coefficients=learned.coefficients,
        forecast_by_strength=dict(learned.by_strength),
    )
    _warn_before_shipping(summary, learned)
    width = WIDTH_90 * learned.error
    return ItemBias(
        item_ids=plan.item_ids,
        bias=bias,
        excluded=np.zeros(n_items, bool),
        gain=value_after - value_before,
        support=counts.support,
        low=bias - width,
        high=bias + width,
        trend=learned.trend,
        category=learned.category,
        fresh=fresh,
        scale=shared.scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=counted.window,
        depth=common_depth(counts.lengths),
    )


def _find_fresh(counts: Counts, histories: Histories) -> Flags:
    """Items that were listed and sold too rarely for their bias to be known."""
    sold = counts.support.astype(np.float64)
    if histories.before:
        sold = sold + histories.before[-1].long
    return (counts.listed < _FEW) & (sold < _FEW)


def _centre(learned: Learned, shown: Ints, fresh: Flags, categories: Any) -> tuple[Floats, Learned]:
    """Biases that are 0 on average over what the engine shows; fresh items get their category's.

    Only differences change a ranking. Items that the table does not know have bias 0: centring
    makes that neither an advantage nor a disadvantage.
    """
    trend, category, own = learned.trend, learned.category, learned.own
    share_shown = shown / max(float(shown.sum()), 1.0)
    trend = trend - float((share_shown * (trend + category + own)).sum())
    total = trend + category + own
    if fresh.any():
        pooled = np.zeros(len(total))
        if categories is not None:
            pooled = _pooled(total, shown * ~fresh, categories)
        trend = np.where(fresh, 0.0, trend)
        category = np.where(fresh, pooled, category)
        total = np.where(fresh, pooled, total)
    return total, learned._replace(trend=trend, category=category, own=total - trend - category)


def _pooled(total: Floats, shown: Ints, categories: Ints) -> Floats:
    """The mean bias of each item's category over what is shown; shrunk to 0 if that is little."""
    group = np.where(categories < 0, categories.max(initial=-1) + 1, categories)
    sums = np.bincount(group, shown * total)
    counts = np.bincount(group, shown)
    means = sums / (counts + _FEW)
    return np.where(categories < 0, 0.0, means[group])


def _concentration(shown: Ints) -> float:
    """The share of all slots that the most shown items take."""
    if len(shown) <= _MOST_SHOWN:
        return 1.0
    most = np.partition(shown, -_MOST_SHOWN)[-_MOST_SHOWN:]
    return float(most.sum() / max(int(shown.sum()), 1))


def _warn_before_shipping(summary: Summary, learned: Learned) -> None:
    """Warn of biases that may not help, or that show everybody the same items."""
    name = f"{summary.metric.upper()}@{summary.k}"
    advice = "keep the current biases, or learn from more users or days"
    if learned.too_little:
        warn(
            f"too little to tell: {learned.n_hit_units} users bought something that was listed to "
            f"them, at least {FEWEST_UNITS} are needed; all biases set to 0; {advice}",
            GuardWarning,
        )
    elif not summary.converged:
        warn(f"the trend did not converge; all biases set to 0; {advice}", GuardWarning)
    elif not any(summary.kept.values()):
        warn(
            f"no clear gain in {name} on held-out data; all biases set to 0; {advice}",
            GuardWarning,
        )
    elif not learned.forecast.is_told:
        warn(ONE_DAY, GuardWarning)
    elif not (learned.forecast.is_clear() or np.isnan(learned.forecast.share)):
        warn(f"no clear gain in {name} on held-out data; {advice}", GuardWarning)
    elif summary.forecast is not None and learned.fitted_lift < _FAR_BELOW * summary.forecast:
        warn(
            f"the lift in {name} of the users learned from, {learned.fitted_lift:+.1%}, is far "
            f"below the forecast, {summary.forecast:+.1%}: the fit does not describe them; "
            f"{advice}",
            GuardWarning,
        )
    before, after = summary.concentration_before or 0.0, summary.concentration_after or 0.0
    if after > before + _MORE_SLOTS and after > _TIMES_MORE * before:
        warn(
            f"the {_MOST_SHOWN} most shown items would take {after:.0%} of all slots, up from "
            f"{before:.0%}: lists would become too similar; look at the largest biases before "
            f"shipping",
            SimilarListsWarning,
        )
