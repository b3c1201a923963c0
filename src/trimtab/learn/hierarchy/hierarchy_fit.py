"""The default fit: chooses scale and unit, learns the hierarchy, and builds the result."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.arrays import Floats, Lists
from trimtab.learn.hierarchy.hierarchy_result import (
    FitContext,
    TopKCounts,
    build_result,
    count_top_k,
)
from trimtab.learn.hierarchy.levels import HierarchyInputs, Learned, LocalBackend, learn_hierarchy
from trimtab.learn.hierarchy.shared_inputs import SharedInputs
from trimtab.learn.hierarchy.trends import choose_scale
from trimtab.learn.history import Histories
from trimtab.learn.inputs import FitInputs, UnitGains
from trimtab.learn.quanta import quanta_for
from trimtab.learn.scales import Scale, largest_of, median_of, scales_to_try
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import learning_units, learning_windows, weights_around_one
from trimtab.models import ItemBias
from trimtab.models.list_ranking import count_lengths
from trimtab.models.scaled_scores import ends_of_lists, to_scale
from trimtab.progress import Progress


class BiasFit(NamedTuple):
    """The biases of a fit, how they were learned, and what all units share."""

    bias: ItemBias
    learned: Learned
    shared: SharedInputs  # on the scale of the biases


class HierarchyFit(NamedTuple):
    """A fit, and what it was made from."""

    fit: BiasFit
    inputs: HierarchyInputs


def fit_hierarchy(
    settings: LearnerSettings, inputs: FitInputs, progress: Progress | None
) -> HierarchyFit:
    """The biases that the hierarchy learns, with forecast and intervals."""
    k, metric = settings.k, settings.metric
    units = inputs.unit_gains(metric, k)
    prepared = _prepare(inputs, units)
    backend = LocalBackend.on_engine_scores(prepared, k, metric, settings.seed)
    scale = choose_scale(backend.sample("trend"), _scales(settings, inputs.lists))
    backend = backend.on_scale(scale)
    learned = learn_hierarchy(backend, progress)
    context = describe_fit(inputs, prepared.histories, scale, units)
    scaled = to_scale(inputs.lists, scale.name, k).lists

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        return count_top_k(
            inputs.lists if bias is None else scaled, inputs.bought, units.gains, k, metric, bias,
            inputs.n_items, context.quanta, units.relevance,
        )  # fmt: skip

    bias = build_result(settings, learned, context, top_k_counts)
    return HierarchyFit(BiasFit(bias, learned, backend.shared), prepared)


def _scales(settings: LearnerSettings, lists: Lists) -> list[Scale]:
    """The scales to choose from."""
    best, kth = ends_of_lists(lists, settings.k)
    return scales_to_try(
        settings.scale, median_of(kth), median_of(best - kth), largest_of(lists.scores)
    )


def _prepare(inputs: FitInputs, units: UnitGains) -> HierarchyInputs:
    """The windows and weights that count."""
    learning = learning_units(inputs.lists, inputs.bought, units.gains)
    n_windows = int(inputs.windows.max(initial=0)) + 1
    counts = np.bincount(inputs.windows[learning], minlength=n_windows)
    numbers, histories = learning_windows(counts, inputs.histories)
    return HierarchyInputs(
        lists=inputs.lists,
        bought=inputs.bought,
        weights=weights_around_one(units.gains, inputs.bought),
        users=inputs.units.user_codes,
        windows=numbers[inputs.windows],
        histories=histories,
        categories=inputs.categories,
        n_items=inputs.n_items,
        relevance=units.relevance,
        sales=inputs.weighted.sales,
    )


def describe_fit(
    inputs: FitInputs, histories: Histories, scale: Scale, units: UnitGains
) -> FitContext:
    """Return what is known of all units together.

    Args:
        inputs: of the fit.
        histories: before the windows learned from.
        scale: of the biases.
        units: how much units and their hits count.
    """
    buys = np.diff(inputs.bought.indptr) > 0
    return FitContext(
        item_ids=inputs.item_ids,
        window=inputs.window,
        scale=scale.name,
        score_unit=scale.unit,
        support=np.bincount(inputs.bought.items, minlength=inputs.n_items),
        listed=np.bincount(inputs.lists.items, minlength=inputs.n_items),
        lengths=count_lengths(inputs.lists),
        sold_before=histories.before[-1].long if histories.before else None,
        categories=inputs.categories,
        n_users=int(buys.sum()),
        n_skipped=int((~buys).sum()),
        weight=float(units.weights[buys].sum()),
        quanta=quanta_for(float(units.gains.sum())),
    )
