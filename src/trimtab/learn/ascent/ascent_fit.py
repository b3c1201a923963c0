"""The ascent: counts everybody, ascends on the units that can gain or lose, and counts again."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from trimtab.arrays import Floats
from trimtab.errors import DataError, SettingError
from trimtab.learn.ascent.cycles import Solution, ascend
from trimtab.learn.counted import Counted
from trimtab.learn.counts import TopK, count_top_k, sum_counts
from trimtab.learn.scales import penalty_unit
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import join_learning, take_learning
from trimtab.models.item_bias import ItemBias
from trimtab.models.list_ranking import common_depth
from trimtab.models.model import Summary
from trimtab.models.scaled_scores import to_scale
from trimtab.progress import Progress
from trimtab.tables.columns import ITEM, SCORE, WEIGHT
from trimtab.tables.vocabulary import Vocabulary


def fit_ascent(
    settings: LearnerSettings, counted: Counted, start: ItemBias | None, progress: Progress | None
) -> ItemBias:
    """The biases that the ascent finds, item by item."""
    plan, counts, scale = counted.plan, counted.counts, settings.ascent_scale
    if plan.event_scale is not None and plan.event_scale.differ:
        raise DataError(
            f"column '{WEIGHT}' of recent has different weights, but the ascent counts all "
            f"purchases alike; use method='hierarchy', or drop the column"
        )
    if scale == "log":
        _require_positive_scores(-float(counts.largest[1]))
    choice, _ = counted.choose_units()
    parts = counted.parts.map(take_learning, plan, choice._replace(typical=1.0), False)
    units = join_learning(list(parts))
    weights = None if np.all(units.weights == 1.0) else units.weights
    largest = float(counts.largest[0])
    unit = 1.0
    if scale == "additive":
        unit = penalty_unit((counts.median_ends(full)[0] for full in (True, False)), largest)
    solution = ascend(
        to_scale(units.lists, scale, settings.k).lists, units.bought, plan.n_items,
        settings.ascent, weights, _align_start(start, plan.item_ids, scale), unit, progress,
        counts.support, counts.before.shown,
    )  # fmt: skip
    reaches = settings.unlisted == "zero"
    given = (plan, scale, solution.bias, solution.excluded, reaches)
    after: TopK = sum_counts(counted.parts.map(count_top_k, *given))
    return _build_result(settings, counted, solution, after)


def _require_positive_scores(lowest: float) -> None:
    if lowest <= 0:
        raise DataError(
            f"column '{SCORE}' of recs has {lowest:g}: the ascent with scale='log' needs scores "
            f"above 0; drop those rows or use scale='additive'"
        )


def _align_start(start: ItemBias | None, item_ids: object, scale: str) -> Floats | None:
    """The biases to start from, by item code."""
    if start is None:
        return None
    if start.scale != scale:
        raise SettingError(
            f"start has scale='{start.scale}', but the learner has scale='{scale}': they must be "
            f"equal; leave out start"
        )
    codes = Vocabulary(item_ids).codes(Vocabulary(start.item_ids, "start", ITEM).column)
    biases = np.zeros(len(item_ids))  # type: ignore[arg-type]
    biases[codes[codes >= 0]] = start.bias[codes >= 0]
    return biases


def _build_result(
    settings: LearnerSettings, counted: Counted, solution: Solution, after: TopK
) -> ItemBias:
    """What the ascent found, as an `ItemBias`."""
    plan, counts = counted.plan, counted.counts
    weight = plan.quanta * counts.weight_of_buyers(plan)
    n_items = plan.n_items
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        before=float(counts.before.hit_values.sum() / weight),
        after=float(after.hit_values.sum() / weight),
        objective_before=float(solution.objective_before),
        objective_after=float(solution.objective_after),
        n_users=counts.n_buyers,
        n_skipped=counted.survey.n_units - counts.n_buyers,
        n_items=n_items,
        n_candidates=len(solution.order),
        n_excluded=int(solution.excluded.sum()),
        cycles=solution.cycles,
        updates=solution.updates,
        converged=bool(solution.converged),
        unit=float(solution.unit),
    )
    return ItemBias(
        item_ids=plan.item_ids,
        bias=solution.bias,
        excluded=solution.excluded,
        gain=solution.gain,
        support=counts.support,
        low=np.full(n_items, np.nan),
        high=np.full(n_items, np.nan),
        trend=np.zeros(n_items),
        category=np.zeros(n_items),
        fresh=np.zeros(n_items, bool),
        scale=settings.ascent_scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=counted.window,
        # Unlisted items can enter any list, so there is no depth below which nothing moves.
        depth=None if settings.unlisted == "zero" else common_depth(counts.lengths),
    )
