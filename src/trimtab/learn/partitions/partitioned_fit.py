"""The default fit on users in partitions: the local hierarchy, its sums made in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.learn.hierarchy.hierarchy_fit import BiasFit
from trimtab.learn.hierarchy.hierarchy_result import (
    FitContext,
    TopKCounts,
    build_result,
    count_top_k,
)
from trimtab.learn.hierarchy.levels import LocalBackend, group_items, learn_hierarchy
from trimtab.learn.hierarchy.shared_inputs import SharedInputs, hit_value_quanta
from trimtab.learn.hierarchy.trends import choose_scale
from trimtab.learn.history import Histories
from trimtab.learn.partitions.exact_median import exact_medians
from trimtab.learn.partitions.global_counts import GlobalCounts, Totals
from trimtab.learn.partitions.hierarchy_backend import (
    PartitionedBackend,
    count_hits,
    unit_data,
    with_hits,
)
from trimtab.learn.partitions.partition import Partition
from trimtab.learn.partitions.partitioned_units import AllUnits, Arrays, FewUnits
from trimtab.learn.partitions.unit_survey import MEDIANS, Survey
from trimtab.learn.quanta import quanta_for
from trimtab.learn.scales import Scale, scales_to_try
from trimtab.learn.settings import LearnerSettings
from trimtab.learn.units import learning_windows
from trimtab.models.scaled_scores import to_scale
from trimtab.progress import Progress

_FEW_ENTRIES = 20_000_000  # on lists with hits that may come to one place: 260 MB


@dataclass(frozen=True)
class PartitionedInputs:
    """The tables of a fit, with users in partitions.

    Args:
        units: lists and purchases.
        item_ids: of all tables, ascending.
        n_windows: number of windows.
        window: number of purchases, first and last timestamp.
        survey: of all units.
        totals: weighted sums over all units.
        histories: sales before each window and before now.
        categories: of items; -1 for unknown.
    """

    units: AllUnits
    item_ids: Any
    n_windows: int
    window: dict[str, Any]
    survey: Survey
    totals: Totals
    histories: Histories
    categories: Ints | None

    @property
    def counts(self) -> GlobalCounts:
        """Counts over all units, with the engine's scores."""
        return self.survey.counts

    @property
    def typical_weight(self) -> float:
        """The weight that counts as 1."""
        return self.totals.buyers_weight / max(self.counts.n_buyers, 1) or 1.0


class PartitionedFit(NamedTuple):
    """A fit, and which windows it learned from."""

    fit: BiasFit
    windows: Codes  # new number of each window; -1: not learned from


def fit_partitioned(
    settings: LearnerSettings, inputs: PartitionedInputs, progress: Progress | None
) -> PartitionedFit:
    """The biases that the hierarchy learns, with forecast and intervals."""
    windows, histories = learning_windows(_count_windows(inputs), inputs.histories)
    backend = _make_backend(settings, inputs, windows, histories)
    scales = _scales(settings, inputs)
    scale = scales[0] if len(scales) == 1 else choose_scale(backend.sample("trend"), scales)
    backend = backend.on_scale(scale)
    learned = learn_hierarchy(backend, progress)
    context = _describe_fit(inputs, histories, scale)

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        if bias is None and inputs.survey.quanta == context.quanta:
            return inputs.survey.before
        given = (settings.k, settings.metric, bias, len(inputs.item_ids), context.quanta)
        return TopKCounts(*inputs.units.run(count_partition_top_k, scale.name, *given))

    bias = build_result(settings, learned, context, top_k_counts)
    return PartitionedFit(BiasFit(bias, learned, backend.shared), windows)


def _describe_fit(inputs: PartitionedInputs, histories: Histories, scale: Scale) -> FitContext:
    counts = inputs.counts
    return FitContext(
        item_ids=inputs.item_ids,
        window=inputs.window,
        scale=scale.name,
        score_unit=scale.unit,
        support=counts.support,
        listed=counts.listed,
        lengths=counts.lengths,
        sold_before=histories.before[-1].long if histories.before else None,
        categories=inputs.categories,
        n_users=counts.n_buyers,
        n_skipped=inputs.units.n_units - counts.n_buyers,
        weight=inputs.totals.buyers_weight,
        quanta=quanta_for(inputs.totals.weight),
    )


def _scales(settings: LearnerSettings, inputs: PartitionedInputs) -> list[Scale]:
    """The scales to choose from, by medians over all partitions."""
    setting, k, counts = settings.scale, settings.k, inputs.counts
    medians = dict.fromkeys(MEDIANS, np.nan)
    if setting in ("auto", "additive"):
        digits = inputs.survey.digits
        found = exact_medians(inputs.units, MEDIANS, k, counts.n_filled, digits)
        medians = dict(zip(MEDIANS, found, strict=True))
    kth = medians["kth"] if setting == "auto" else np.nan
    return scales_to_try(setting, kth, medians["gap"], counts.largest)


def _make_backend(
    settings: LearnerSettings, inputs: PartitionedInputs, windows: Codes, histories: Histories
) -> LocalBackend | PartitionedBackend:
    """The units with hits with the engine's scores, and what all of them share."""
    k, metric, seed, units = settings.k, settings.metric, settings.seed, inputs.units
    typical, categories = inputs.typical_weight, inputs.categories
    hits = units.derive("hits", with_hits, typical, windows)
    quanta = hit_value_quanta(units.n_units, inputs.counts.heaviest / typical, k)
    counts, n_entries = count_hits(hits, k, metric, quanta)
    shared = SharedInputs(
        "additive", 1.0, k, metric, seed, *inputs.survey.of_windows(windows), histories,
        None if categories is None else group_items(categories),
        counts, quanta,
    ).with_listed_range()  # fmt: skip
    if isinstance(hits, FewUnits) or n_entries <= _FEW_ENTRIES:
        return LocalBackend(unit_data(hits.bring_together(), shared))
    return PartitionedBackend(hits, shared)


def _count_windows(inputs: PartitionedInputs) -> Ints:
    """Learning units of each window."""
    counts = np.zeros(inputs.n_windows, np.int64)
    counts[: len(inputs.counts.learning)] = inputs.counts.learning
    return counts


def count_partition_top_k(
    partition: Partition, scale: str, k: int, metric: str, bias: Floats | None, n_items: int,
    quanta: float,
) -> Arrays:  # fmt: skip
    """What the top k of a partition's units show."""
    lists = partition.lists if bias is None else to_scale(partition.lists, scale, k).lists
    given = (k, metric, bias, n_items, quanta)
    return list(count_top_k(lists, partition.bought, partition.weights, *given))
