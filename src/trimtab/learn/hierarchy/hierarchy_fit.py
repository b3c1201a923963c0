"""The default fit: chooses scale and unit, learns the hierarchy, and builds the result."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Floats
from trimtab.bias import ItemBias
from trimtab.bias.depth import count_lengths
from trimtab.bias.scaled_scores import to_scale
from trimtab.learn.hierarchy.hierarchy_result import (
    FitContext,
    TopKCounts,
    build_result,
    count_top_k,
)
from trimtab.learn.hierarchy.levels import HierarchyInputs, LocalBackend, learn_hierarchy
from trimtab.learn.inputs import FitInputs
from trimtab.learn.quanta import quanta_for
from trimtab.learn.scales import choose_scale, ends_of_lists, largest_of, median_of, model_unit
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import learning_units, learning_windows, weights_around_one
from trimtab.progress import Progress


def fit_hierarchy(
    settings: LearnerSettings, inputs: FitInputs, progress: Progress | None
) -> ItemBias:
    """The biases that the hierarchy learns, with forecast and intervals."""
    k, metric = settings.k, settings.metric
    weights = np.ones(len(inputs.units)) if inputs.weights is None else inputs.weights
    prepared = _prepare(settings, inputs, weights)
    learned = learn_hierarchy(LocalBackend(prepared, k, metric, settings.seed), progress)
    context = _describe(inputs, prepared, weights)

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        return count_top_k(
            prepared.lists, inputs.bought, weights, k, metric, bias, inputs.n_items, context.quanta
        )

    return build_result(settings, learned, context, top_k_counts)


def _prepare(settings: LearnerSettings, inputs: FitInputs, weights: Floats) -> HierarchyInputs:
    """Lists on the scale to learn on, and the windows and weights that count."""
    best, kth = ends_of_lists(inputs.lists, settings.k)
    scale = choose_scale(median_of(kth)) if settings.scale == "auto" else settings.scale
    lists = to_scale(inputs.lists, scale, settings.k).lists
    unit = model_unit(scale, median_of(best - kth), largest_of(inputs.lists.scores))
    learning = learning_units(inputs.lists, inputs.bought, weights)
    n_windows = int(inputs.windows.max(initial=0)) + 1
    counts = np.bincount(inputs.windows[learning], minlength=n_windows)
    numbers, history = learning_windows(counts, inputs.history)
    return HierarchyInputs(
        lists=lists,
        scale=scale,
        score_unit=unit,
        bought=inputs.bought,
        weights=weights_around_one(weights, inputs.bought),
        users=inputs.units.user_codes,
        windows=numbers[inputs.windows],
        history=history,
        categories=inputs.categories,
        n_items=inputs.n_items,
    )


def _describe(inputs: FitInputs, prepared: HierarchyInputs, weights: Floats) -> FitContext:
    buys = np.diff(inputs.bought.indptr) > 0
    return FitContext(
        item_ids=inputs.item_ids,
        window=inputs.window,
        scale=prepared.scale,
        score_unit=prepared.score_unit,
        support=np.bincount(inputs.bought.items, minlength=inputs.n_items),
        listed=np.bincount(prepared.lists.items, minlength=inputs.n_items),
        lengths=count_lengths(prepared.lists),
        sold_before=inputs.history[-1].long if inputs.history else None,
        categories=inputs.categories,
        n_users=int(buys.sum()),
        n_skipped=int((~buys).sum()),
        weight=float(weights[buys].sum()),
        quanta=quanta_for(float(weights.sum())),
    )
