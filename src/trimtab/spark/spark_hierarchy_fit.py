"""The default fit on Spark: the same hierarchy as the local fit, its sums made in partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.bias import ItemBias
from trimtab.bias.scaled_scores import to_scale
from trimtab.learn.hierarchy.hierarchy_result import (
    FitContext,
    TopKCounts,
    build_result,
    count_top_k,
)
from trimtab.learn.hierarchy.levels import group_items, learn_hierarchy
from trimtab.learn.hierarchy.shared_inputs import SharedInputs, hit_value_quanta
from trimtab.learn.hierarchy.trends import choose_scale
from trimtab.learn.history import Histories
from trimtab.learn.inputs import read_categories
from trimtab.learn.quanta import quanta_for
from trimtab.learn.scales import Scale, scales_to_try
from trimtab.learn.units import learning_units, learning_windows
from trimtab.progress import Progress
from trimtab.spark.array_bytes import Arrays
from trimtab.spark.exact_median import exact_median
from trimtab.spark.fit_session import FitSession
from trimtab.spark.global_counts import GlobalCounts, sum_totals
from trimtab.spark.hierarchy_backend import (
    SparkHierarchyBackend,
    count_by_fold,
    count_hits,
    with_hits,
)
from trimtab.spark.history_counts import count_histories_on_spark
from trimtab.spark.partition import Partition
from trimtab.tables.columns import ITEM
from trimtab.tables.frames import Table, as_id_column
from trimtab.tables.ids import encode_ids


def fit_hierarchy_on_spark(session: FitSession, progress: Progress | None) -> ItemBias:
    """The biases that the hierarchy learns, with forecast and intervals."""
    learner = session.learner
    counts = session.count_and_check("additive")
    totals = sum_totals(session.units, learner.k, learner.metric, counts)
    known = count_histories_on_spark(session)
    categories = _read_categories(session)
    windows, histories = learning_windows(_count_windows(session), known)
    typical = totals.buyers_weight / max(counts.n_buyers, 1) or 1.0
    backend = _make_backend(session, counts, typical, windows, histories, categories)
    scales = _scales(session, counts)
    scale = scales[0] if len(scales) == 1 else choose_scale(backend.sample("trend"), scales)
    learned = learn_hierarchy(_on_scale(session, backend, scale, typical, windows), progress)
    context = FitContext(
        item_ids=session.item_ids,
        window=session.window,
        scale=scale.name,
        score_unit=scale.unit,
        support=counts.support,
        listed=counts.listed,
        lengths=counts.lengths,
        sold_before=histories.before[-1].long if histories.before else None,
        categories=categories,
        n_users=counts.n_buyers,
        n_skipped=session.units.n_units - counts.n_buyers,
        weight=totals.buyers_weight,
        quanta=quanta_for(totals.weight),
    )

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        given = (learner.k, learner.metric, bias, len(session.item_ids), context.quanta)
        return TopKCounts(*session.units.run(count_partition_top_k, scale.name, *given))

    return build_result(learner, learned, context, top_k_counts)


def _scales(session: FitSession, counts: GlobalCounts) -> list[Scale]:
    """The scales to choose from, by medians over all partitions."""
    setting, k = session.learner.scale, session.learner.k
    kth = gap = np.nan
    if setting == "auto":
        kth = exact_median(session.units, "kth", k, counts.n_filled)
    if setting in ("auto", "additive"):
        gap = exact_median(session.units, "gap", k, counts.n_filled)
    return scales_to_try(setting, kth, gap, counts.largest)


def _make_backend(
    session: FitSession, counts: GlobalCounts, typical: float, windows: Codes,
    histories: Histories, categories: Ints | None,
) -> SparkHierarchyBackend:  # fmt: skip
    """The units with hits in partitions with the engine's scores, and what all of them share."""
    learner, units = session.learner, session.units
    k, metric, seed = learner.k, learner.metric, learner.seed
    n_windows = int(windows.max(initial=0)) + 1
    bought, listed, shown = units.run(
        count_by_fold, seed, windows, k, n_windows, len(session.item_ids)
    )
    hits = session.derive("hits", with_hits, "additive", k, typical, windows)
    quanta = hit_value_quanta(units.n_units, counts.heaviest / typical, k)
    shared = SharedInputs(
        "additive", 1.0, k, metric, seed, bought, listed, shown, histories,
        None if categories is None else group_items(categories),
        count_hits(hits, k, metric, quanta), quanta,
    )  # fmt: skip
    return SparkHierarchyBackend(hits, shared)


def _on_scale(
    session: FitSession, backend: SparkHierarchyBackend, scale: Scale, typical: float,
    windows: Codes,
) -> SparkHierarchyBackend:  # fmt: skip
    """The units on another scale than that of the engine's scores."""
    shared = replace(backend.shared, scale=scale.name, score_unit=scale.unit)
    if scale.name == "additive":
        return SparkHierarchyBackend(backend.units, shared)
    units = session.derive("scaled", with_hits, scale.name, shared.k, typical, windows)
    return SparkHierarchyBackend(units, shared)


def _count_windows(session: FitSession) -> Ints:
    """Learning units of each window."""
    if len(session.windows) == 1:
        return np.ones(1, np.int64)
    (counts,) = session.units.run(count_partition_windows, len(session.windows))
    found: Ints = counts
    return found


def _read_categories(session: FitSession) -> Ints | None:
    """The category of each item, read on the driver: the table has one row per item."""
    if session.tables.items is None:
        return None
    table = Table("items", session.tables.items.toArrow(), None, False)
    known = as_id_column("all tables", ITEM, session.item_ids)
    _, (_, codes) = encode_ids([known, table.ids(ITEM)])
    return read_categories(table, codes, len(session.item_ids))


def count_partition_windows(partition: Partition, n_windows: int) -> Arrays:
    """Learning units of a partition, by window."""
    learning = learning_units(partition.lists, partition.bought, partition.weights)
    return [np.bincount(partition.windows[learning], minlength=n_windows)]


def count_partition_top_k(
    partition: Partition, scale: str, k: int, metric: str, bias: Floats | None, n_items: int,
    quanta: float,
) -> Arrays:  # fmt: skip
    """What the top k of a partition's units show."""
    lists = to_scale(partition.lists, scale, k).lists
    given = (k, metric, bias, n_items, quanta)
    return list(count_top_k(lists, partition.bought, partition.weights, *given))
