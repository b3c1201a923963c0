"""The hierarchy's biases as an `ItemBias`: gains, intervals, forecast and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets
from trimtab.errors import GuardWarning, SimilarListsWarning, warn
from trimtab.kernels.hit_value import counts_hits_above, hit_value_table
from trimtab.learn.hierarchy.levels import FEWEST_UNITS, Learned
from trimtab.learn.settings import LearnerSettings
from trimtab.metrics.ranking import rank_lists
from trimtab.models import ItemBias, Summary
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import WIDTH_90

HIERARCHY = "hierarchy"
_MOST_SHOWN = 10
_MORE_SLOTS, _TIMES_MORE = 0.1, 1.5  # limits on how much the share of the most shown items may grow
_FEW = 10  # lists, or sales
ONE_DAY = (
    "one window of one day says nothing of other days: there is no forecast; learn from more days "
    "before you ship"
)
_FAR_BELOW = 0.5  # of the forecast; what a fit has seen should gain more than what it has not


class TopKCounts(NamedTuple):
    """What the top k of some units show; counts of several parts add up."""

    shown: Ints  # by item: slots it takes
    hit_values: Ints  # by item: the part of the weighted metric that its hits make, in quanta


class FitContext(NamedTuple):
    """What is known of all units together, besides what is learned."""

    item_ids: Any
    window: Mapping[str, Any]
    scale: str
    score_unit: float
    support: Ints  # by item: units that bought it
    listed: Ints  # lists that contain it
    lengths: Ints  # by length: number of lists
    sold_before: Floats | None  # sales in the history, if there is one
    categories: Ints | None
    n_users: int  # units that bought something
    n_skipped: int
    weight: float  # of those that bought something
    quanta: float  # per unit of the metric


def build_result(
    settings: LearnerSettings,
    learned: Learned,
    context: FitContext,
    top_k_counts: Callable[[Floats | None], TopKCounts],
    method: str = HIERARCHY,
) -> ItemBias:
    """What was learned, as an `ItemBias`; warns before anyone ships biases that may not help.

    Args:
        settings: of the learner.
        learned: by the hierarchy.
        context: of all units.
        top_k_counts: what the top k show with given biases, or with none.
        method: that learned; only the hierarchy pools items with little data.
    """
    before = top_k_counts(None)
    fresh = _find_fresh(context)
    pooled = fresh if method == HIERARCHY else np.zeros_like(fresh)
    bias, learned = _centre(learned, before.shown, pooled, context.categories)
    after = top_k_counts(bias)
    value_before, value_after = (counts.hit_values / context.quanta for counts in (before, after))
    forecast, low, high = learned.forecast.interval()
    n_items = len(bias)
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(value_before.sum() / context.weight),
        after=float(value_after.sum() / context.weight),
        objective_before=float(value_before.sum()),
        objective_after=float(value_after.sum()),
        n_users=context.n_users,
        n_skipped=context.n_skipped,
        n_items=n_items,
        n_candidates=n_items,
        n_excluded=0,
        cycles=1,
        updates=int(np.count_nonzero(bias)),
        converged=learned.converged,
        unit=context.score_unit,
        method=method,
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
        item_ids=context.item_ids,
        bias=bias,
        excluded=np.zeros(n_items, bool),
        gain=value_after - value_before,
        support=context.support.astype(np.int64),
        low=bias - width,
        high=bias + width,
        trend=learned.trend,
        category=learned.category,
        fresh=fresh,
        scale=context.scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=context.window,
        depth=common_depth(context.lengths),
    )


def count_top_k(
    lists: Lists, bought: Sets, weights: Floats, k: int, metric: str, bias: Floats | None,
    n_items: int, quanta: float, relevance: Floats | None = None,
) -> TopKCounts:  # fmt: skip
    """What the top k of some units show with given biases, or with none.

    Without biases, the scores must be the engine's own.
    """
    top = rank_lists(lists, k, np.zeros(n_items) if bias is None else bias)
    return count_ranked(top, bought, weights, k, metric, n_items, quanta, relevance)


def count_ranked(
    top: Lists, bought: Sets, weights: Floats, k: int, metric: str, n_items: int, quanta: float,
    relevance: Floats | None = None,
) -> TopKCounts:  # fmt: skip
    """What some units are shown, given their top k."""
    from trimtab.kernels.choice_sums import add_hit_values

    hit_values = np.zeros(n_items, np.int64)
    each = np.ones(len(bought.items), bool) if relevance is None else relevance
    add_hit_values(
        0, top.n_units, k, counts_hits_above(metric), top.indptr, top.items, *bought, each, weights,
        hit_value_table(metric, k), quanta, hit_values,
    )  # fmt: skip
    return TopKCounts(np.bincount(top.items, minlength=n_items), hit_values)


def _find_fresh(context: FitContext) -> Flags:
    """Items that were listed and sold too rarely for their bias to be known."""
    sold = context.support.astype(np.float64)
    if context.sold_before is not None:
        sold = sold + context.sold_before
    return (context.listed < _FEW) & (sold < _FEW)


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
