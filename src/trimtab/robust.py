"""The hierarchy's biases as an `ItemBias`: gains, intervals, forecast, and what to warn of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trimtab.bias import WIDTH_90, ItemBias, Summary, warn
from trimtab.coded import Codes, Flags, Floats, Ints, Lists, Sets
from trimtab.errors import GuardWarning
from trimtab.features import History
from trimtab.ground import learning_units, quanta_for
from trimtab.hierarchy import Evidence, Forecast, Learned, OnePanel, learn_hierarchy
from trimtab.kernels.worth import worth_table
from trimtab.progress import Progress
from trimtab.ranking import rank_lists
from trimtab.reading import Coded
from trimtab.scales import choose_scale, model_unit, to_scale

if TYPE_CHECKING:
    from trimtab.learn import BiasLearner

# A forecast meets other users, and other days: twice the variance again.
_OTHER_DAYS = np.sqrt(3.0)
_MOST_SHOWN = 10
_MORE_PLACES, _TIMES_MORE = 0.1, 1.5  # by which the most shown items' share may grow
_LITTLE = 10  # lists, or sales


class View(NamedTuple):
    """What top k's show; sums over parts of the units add up."""

    shown: Ints  # by item: places it takes
    worth: Ints  # by item: what its hits are worth in the weighted sum of the metric, in quanta


class Known(NamedTuple):
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


def learn_robust(learner: BiasLearner, coded: Coded, progress: Progress | None) -> ItemBias:
    """Learn the hierarchy and tell how it went."""
    k, metric = learner.k, learner.metric
    scale = choose_scale(coded.lists, k) if learner.scale == "auto" else learner.scale
    lists = to_scale(coded.lists, scale).lists
    weights = np.ones(len(coded.units)) if coded.weights is None else coded.weights
    learning = learning_units(coded.lists, coded.bought, weights)
    n_windows = int(coded.windows.max(initial=0)) + 1
    used, history = learning_windows(
        np.bincount(coded.windows[learning], minlength=n_windows), coded.history
    )
    evidence = Evidence(
        lists, scale, model_unit(lists, scale, k), coded.bought, _around_one(weights, coded.bought),
        coded.units.user_codes, used[coded.windows], history, coded.categories, coded.n_items,
    )  # fmt: skip
    learned = learn_hierarchy(OnePanel(evidence, k, metric, learner.seed), progress)
    judged = np.diff(coded.bought.indptr) > 0
    known = Known(
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

    def look(bias: Floats | None) -> View:
        return view_part(lists, coded.bought, weights, k, metric, bias, coded.n_items, known.quanta)

    return tell(learner, learned, known, look)


def tell(
    learner: BiasLearner, learned: Learned, known: Known, look: Callable[[Floats | None], View]
) -> ItemBias:
    """What was learned, as an `ItemBias`, with what there is to warn of.

    Args:
        learner: its settings.
        learned: by the hierarchy.
        known: of all units.
        look: what lists show with some biases, or with none.
    """
    before = look(None)
    fresh = _find_fresh(known)
    bias, learned = _centre(learned, before.shown, fresh, known.categories)
    after = look(bias)
    worth_before, worth_after = (view.worth / known.quanta for view in (before, after))
    forecast, low, high = _interval(learned.forecast)
    n_items = len(bias)
    summary = Summary(
        metric=learner.metric,
        k=learner.k,
        before=float(worth_before.sum() / known.weight),
        after=float(worth_after.sum() / known.weight),
        objective_before=float(worth_before.sum()),
        objective_after=float(worth_after.sum()),
        n_users=known.n_users,
        n_skipped=known.n_skipped,
        n_items=n_items,
        n_candidates=n_items,
        n_excluded=0,
        cycles=1,
        updates=int(np.count_nonzero(bias)),
        converged=True,
        unit=known.unit,
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
        item_ids=known.item_ids,
        bias=bias,
        excluded=np.zeros(n_items, bool),
        gain=worth_after - worth_before,
        support=known.support.astype(np.int64),
        low=bias - width,
        high=bias + width,
        trend=learned.trend,
        category=learned.category,
        fresh=fresh,
        scale=known.scale,
        unlisted=learner.unlisted,
        summary=summary,
        settings=asdict(learner),
        window=known.window,
    )


def view_part(
    lists: Lists, bought: Sets, weights: Floats, k: int, metric: str, bias: Floats | None,
    n_items: int, quanta: float,
) -> View:  # fmt: skip
    """What the top k's of one part's units show."""
    from trimtab.kernels.choice import add_hit_worth

    top = rank_lists(lists, k, np.zeros(n_items) if bias is None else bias)
    worth = np.zeros(n_items, np.int64)
    add_hit_worth(
        0, top.n_units, k, metric == "map", top.indptr, top.items, *bought, weights,
        worth_table(metric, k), quanta, worth,
    )  # fmt: skip
    return View(np.bincount(top.items, minlength=n_items), worth)


def learning_windows(
    counts: Ints, history: tuple[History, ...]
) -> tuple[Codes, tuple[History, ...]]:
    """Windows numbered anew, those that teach only, and the history before each of these.

    Units of other windows teach nothing; they are put with the newest.

    Args:
        counts: by window, units that can learn.
        history: before each window, or nothing.
    """
    used = counts > 0
    n_used = max(1, int(used.sum()))
    renumbered = np.where(used, np.cumsum(used) - 1, n_used - 1).astype(np.int32)
    if not history:
        return renumbered, ()
    return renumbered, tuple(history[window] for window in np.flatnonzero(used)) or history[-1:]


def _around_one(weights: Floats, bought: Sets) -> Floats:
    """Weights with a mean of 1 over units that bought something, whatever they are measured in."""
    scaled = weights / max(float(weights.max(initial=0.0)), 1e-300)
    mean = float(scaled[np.diff(bought.indptr) > 0].mean())
    return scaled / mean if mean > 0 else scaled


def _find_fresh(known: Known) -> Flags:
    """Items that were listed and sold too little to be known."""
    sold = known.support.astype(np.float64)
    if known.sold_before is not None:
        sold = sold + known.sold_before
    return (known.listed < _LITTLE) & (sold < _LITTLE)


def _centre(learned: Learned, shown: Ints, fresh: Flags, categories: Any) -> tuple[Floats, Learned]:
    """Biases with 0 for what the engine shows on average; fresh items pooled by category.

    Only differences matter to a ranking, so that items the table does not know, at 0, are neither
    favoured nor held back.
    """
    trend, category, own = learned.trend, learned.category, learned.own
    share = shown / max(float(shown.sum()), 1.0)
    trend = trend - float((share * (trend + category + own)).sum())
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
    """Share of all places that the most shown items take."""
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
