"""The ascent from coded tables to an `ItemBias`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from trimtab.arrays import Floats
from trimtab.learn.ascent.cycles import Solution, ascend
from trimtab.learn.input_checks import require_positive_scores
from trimtab.learn.inputs import FitInputs, align_start
from trimtab.learn.settings import LearnerSettings
from trimtab.models import ItemBias, Summary
from trimtab.models.list_ranking import common_depth, count_lengths
from trimtab.models.scaled_scores import to_scale
from trimtab.progress import Progress


def fit_ascent(
    settings: LearnerSettings,
    inputs: FitInputs,
    start: ItemBias | None,
    progress: Progress | None,
) -> ItemBias:
    """The biases that the ascent finds, item by item."""
    scale = settings.ascent_scale
    if scale == "log":
        require_positive_scores(float(inputs.lists.scores.min(initial=1.0)))
    inputs = replace(inputs, lists=to_scale(inputs.lists, scale, settings.k).lists)
    solution = solve(settings, inputs, align_start(start, inputs.item_ids, scale), progress)
    return _build_result(settings, inputs, solution)


def solve(
    settings: LearnerSettings,
    inputs: FitInputs,
    start: Floats | None,
    progress: Progress | None,
) -> Solution:
    """The biases by item code."""
    data = inputs.lists, inputs.bought, inputs.n_items
    unit = None if settings.ascent_scale == "additive" else 1.0
    return ascend(*data, settings.ascent, inputs.weights, start, unit, progress)


def _mean_metrics(inputs: FitInputs, solution: Solution) -> dict[str, Any]:
    """The weighted mean of the metric before and after, and the number of users behind it."""
    buys = np.diff(inputs.bought.indptr) > 0
    weights = np.ones(len(buys)) if inputs.weights is None else inputs.weights
    total = float(weights[buys].sum())
    before, after = (
        float((values * weights)[buys].sum() / total)
        for values in (solution.before, solution.after)
    )
    n_users = int(buys.sum())
    return {
        "before": before, "after": after, "n_users": n_users, "n_skipped": len(buys) - n_users
    }  # fmt: skip


def _build_result(settings: LearnerSettings, inputs: FitInputs, solution: Solution) -> ItemBias:
    """What the ascent found, as an `ItemBias`."""
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        **_mean_metrics(inputs, solution),
        objective_before=float(solution.objective_before),
        objective_after=float(solution.objective_after),
        n_items=len(solution.bias),
        n_candidates=len(solution.order),
        n_excluded=int(solution.excluded.sum()),
        cycles=solution.cycles,
        updates=solution.updates,
        converged=bool(solution.converged),
        unit=float(solution.unit),
    )
    none = np.zeros(len(solution.bias))
    return ItemBias(
        item_ids=inputs.item_ids,
        bias=solution.bias,
        excluded=solution.excluded,
        gain=solution.gain,
        support=solution.support.astype(np.int64),
        low=np.full(len(none), np.nan),
        high=np.full(len(none), np.nan),
        trend=none,
        category=none.copy(),
        fresh=np.zeros(len(none), bool),
        scale=settings.ascent_scale,
        unlisted=settings.unlisted,
        summary=summary,
        settings=asdict(settings),
        window=inputs.window,
        # Unlisted items can enter any list, so there is no depth below which nothing moves.
        depth=None if settings.unlisted == "zero" else common_depth(count_lengths(inputs.lists)),
    )
