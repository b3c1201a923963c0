"""The ascent from coded tables to an `ItemBias`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.bias import ItemBias, Summary
from trimtab.bias.depth import common_depth, count_lengths
from trimtab.bias.scaled_scores import to_scale
from trimtab.learn.ascent.cycles import Solution, ascend
from trimtab.learn.input_checks import require_positive_scores
from trimtab.learn.inputs import FitInputs, align_start
from trimtab.learn.settings import LearnerSettings
from trimtab.progress import Progress


class MetricMeans(NamedTuple):
    """The weighted mean of the metric before and after, and the number of users behind it."""

    before: float
    after: float
    n_users: int
    n_skipped: int


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
    means = _mean_metrics(inputs, solution)
    lengths = count_lengths(inputs.lists)
    return build_ascent_result(settings, inputs.item_ids, inputs.window, lengths, solution, means)


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


def _mean_metrics(inputs: FitInputs, solution: Solution) -> MetricMeans:
    buys = np.diff(inputs.bought.indptr) > 0
    weights = np.ones(len(buys)) if inputs.weights is None else inputs.weights
    total = float(weights[buys].sum())
    before, after = (
        float((values * weights)[buys].sum() / total)
        for values in (solution.before, solution.after)
    )
    return MetricMeans(before, after, int(buys.sum()), int((~buys).sum()))


def build_ascent_result(
    settings: LearnerSettings,
    item_ids: Any,
    window: Mapping[str, Any],
    lengths: Ints,
    solution: Solution,
    means: MetricMeans,
) -> ItemBias:
    """What the ascent found, as an `ItemBias`.

    Args:
        settings: of the learner.
        item_ids: by item code.
        window: what is known of the purchases.
        lengths: number of lists by length.
        solution: of the ascent.
        means: of the metric.
    """
    summary = Summary(
        metric=settings.metric,
        k=settings.k,
        **means._asdict(),
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
        item_ids=item_ids,
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
        window=window,
        # Unlisted items can enter any list, so there is no depth below which nothing moves.
        depth=None if settings.unlisted == "zero" else common_depth(lengths),
    )
