"""The hierarchy's biases as an `ItemBias`: gains, intervals, forecast, and what to warn of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Flags, Floats, Ints, Lists, Sets
from trimtab.bias.item_bias import ItemBias
from trimtab.bias.scales import to_scale
from trimtab.bias.table import WIDTH_90, Summary
from trimtab.errors import GuardWarning, warn
from trimtab.kernels.hit_value import hit_value_table
from trimtab.learn.ascent.setup import quanta_for
from trimtab.learn.hierarchy.levels import (
    Forecast,
    HierarchyInputs,
    Learned,
    LocalBackend,
    learn_hierarchy,
)
from trimtab.learn.inputs import FitInputs
from trimtab.learn.scales import choose_scale, model_unit
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import learning_units, learning_windows, weights_around_one
from trimtab.metrics.ranking import rank_lists
from trimtab.progress import Progress

# A forecast meets other users, and other days: twice the variance again.
_OTHER_DAYS = np.sqrt(3.0)
_MOST_SHOWN = 10
_MORE_PLACES, _TIMES_MORE = 0.1, 1.5  # by which the most shown items' share may grow
_LITTLE = 10  # lists, or sales


class TopKCounts(NamedTuple):
    """What top k's show; sums over parts of the units add up."""

    shown: Ints  # by item: places it takes
    worth: Ints  # by item: what its hits are worth in the weighted sum of the metric, in quanta


class FitContext(NamedTuple):
    """What all units together say, besides what is learned."""

    item_ids: Any
    window: Mapping[str, Any]
    scale: str
    unit: float
    support: Ints  # by item: units that bought it
    listed: Ints  # lists that have it
    sold_before: Floats | None  # in the long run, if that is known
    categories: Ints | None
    n_users: int  # units that bought something
    n_skipped: int
    weight: float  # of those that bought something
    quanta: float  # in a worth of 1


def fit_hierarchy(
    settings: LearnerSettings, coded: FitInputs, progress: Progress | None
) -> ItemBias:
    """Learn the hierarchy and tell how it went."""
    k, metric = settings.k, settings.metric
    scale = choose_scale(coded.lists, k) if settings.scale == "auto" else settings.scale
    lists = to_scale(coded.lists, scale).lists
    weights = np.ones(len(coded.units)) if coded.weights is None else coded.weights
    learning = learning_units(coded.lists, coded.bought, weights)
    n_windows = int(coded.windows.max(initial=0)) + 1
    used, history = learning_windows(
        np.bincount(coded.windows[learning], minlength=n_windows), coded.history
    )
    unit, relative = model_unit(lists, scale, k), weights_around_one(weights, coded.bought)
    evidence = HierarchyInputs(
        lists, scale, unit, coded.bought, relative,
        coded.units.user_codes, used[coded.windows], history, coded.categories, coded.n_items,
    )  # fmt: skip
    learned = learn_hierarchy(LocalBackend(evidence, k, metric, settings.seed), progress)
    judged = np.diff(coded.bought.indptr) > 0
    context = FitContext(
        coded.item_ids, coded.window, scale, evidence.unit,
        support=np.bincount(coded.bought.items, minlength=coded.n_items),
        listed=np.bincount(lists.items, minlength=coded.n_items),
        sold_before=coded.history[-1].long if coded.history else None,
        categories=coded.categories,
        n_users=int(judged.sum()),
        n_skipped=int((~judged).sum()),
        weight=float(weights[judged].sum()),
        quanta=quanta_for(float(weights.sum())),
    )  # fmt: skip

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        return count_top_k(
            lists, coded.bought, weights, k, metric, bias, coded.n_items, context.quanta
        )

    return build_result(settings, learned, context, top_k_counts)


def build_result(
    settings: LearnerSettings,
    learned: Learned,
    context: FitContext,
    top_k_counts: Callable[[Floats | None], TopKCounts],
) -> ItemBias:
    """What was learned, as an `ItemBias`, with what there is to warn of.

    Args:
        settings: of the learner.
        learned: by the hierarchy.
        context: of all units.
        top_k_counts: what lists show with some biases, or with none.
    """
    before = top_k_counts(None)
    fresh = _find_fresh(context)
    bias, learned = _centre(learned, before.shown, fresh, context.categories)
    after = top_k_counts(bias)
    worth_before, worth_after = (view.worth / context.quanta for view in (before, after))
    forecast, low, high = _interval(learned.forecast)
    n_items = len(bias)
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(worth_before.sum() / context.weight),
        after=float(worth_after.sum() / context.weight),
        objective_before=float(worth_before.sum()),
        objective_after=float(worth_after.sum()),
        n_users=context.n_users,
        n_skipped=context.n_skipped,
        n_items=n_items,
        n_candidates=n_items,
        n_excluded=0,
        cycles=1,
        updates=int(np.count_nonzero(bias)),
        converged=True,
        unit=context.unit,
        method="hierarchy",
        forecast=forecast,
        forecast_low=low,
        forecast_high=high,
        concentration_before=_concentration(before.shown),
        concentration_after=_concentration(after.shown),
        kept=learned.kept,
        coefficients=learned.coefficients,
    )
    _warn_of(summary)
    width = WIDTH_90 * learned.error
    return ItemBias(
        item_ids=context.item_ids,
        bias=bias,
        excluded=np.zeros(n_items, bool),
        gain=worth_after - worth_before,
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
    )


def count_top_k(
    lists: Lists, bought: Sets, weights: Floats, k: int, metric: str, bias: Floats | None,
    n_items: int, quanta: float,
) -> TopKCounts:  # fmt: skip
    """What the top k's of one part's units show."""
    from trimtab.kernels.choice_sums import add_hit_values

    top = rank_lists(lists, k, np.zeros(n_items) if bias is None else bias)
    worth = np.zeros(n_items, np.int64)
    add_hit_values(
        0, top.n_units, k, metric == "map", top.indptr, top.items, *bought, weights,
        hit_value_table(metric, k), quanta, worth,
    )  # fmt: skip
    return TopKCounts(np.bincount(top.items, minlength=n_items), worth)


def _find_fresh(context: FitContext) -> Flags:
    """Items that were listed and sold too little to be context."""
    sold = context.support.astype(np.float64)
    if context.sold_before is not None:
        sold = sold + context.sold_before
    return (context.listed < _LITTLE) & (sold < _LITTLE)


def _centre(learned: Learned, shown: Ints, fresh: Flags, categories: Any) -> tuple[Floats, Learned]:
    """Biases with 0 for what the engine shows on average; fresh items pooled by category.

    Only differences matter to a ranking, so that items the table does not know, at 0, are neither
    favoured nor held back.
    """
    trend, category, own = learned.trend, learned.category, learned.own
    partition = shown / max(float(shown.sum()), 1.0)
    trend = trend - float((partition * (trend + category + own)).sum())
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
    """The mean bias of an item's category, by what is shown; drawn to 0 where that is little."""
    group = np.where(categories < 0, categories.max(initial=-1) + 1, categories)
    sums = np.bincount(group, shown * total)
    counts = np.bincount(group, shown)
    means = sums / (counts + _LITTLE)
    return np.where(categories < 0, 0.0, means[group])


def _interval(forecast: Forecast) -> tuple[float | None, float | None, float | None]:
    """The lift to come and its 90 % interval; nothing if there was nothing to lift."""
    if np.isnan(forecast.lift):
        return None, None, None
    width = WIDTH_90 * _OTHER_DAYS * forecast.error
    return forecast.lift, float(forecast.lift - width), float(forecast.lift + width)


def _concentration(shown: Ints) -> float:
    """Partition of all places that the most shown items take."""
    if len(shown) <= _MOST_SHOWN:
        return 1.0
    most = np.partition(shown, -_MOST_SHOWN)[-_MOST_SHOWN:]
    return float(most.sum() / max(int(shown.sum()), 1))


def _warn_of(summary: Summary) -> None:
    """Say so before anyone ships biases that may not help, or show everybody the same."""
    name = f"{summary.metric.upper()}@{summary.k}"
    advice = "keep what you have for now, or learn from more users or days"
    if not any(summary.kept.values()):
        warn(
            f"held-out users bear out no lift of {name}, so that every bias is 0; {advice}",
            GuardWarning,
        )
    elif summary.forecast is not None and summary.forecast <= 0:
        warn(
            f"the forecast is no lift of {name}: {summary.forecast:+.1%} (90 % interval "
            f"{summary.forecast_low:+.1%} to {summary.forecast_high:+.1%}); {advice}",
            GuardWarning,
        )
    before, after = summary.concentration_before or 0.0, summary.concentration_after or 0.0
    if after > before + _MORE_PLACES and after > _TIMES_MORE * before:
        warn(
            f"the {_MOST_SHOWN} most shown items would take {after:.0%} of all places, up from "
            f"{before:.0%}: lists grow alike; look at the largest biases before shipping",
            GuardWarning,
        )
