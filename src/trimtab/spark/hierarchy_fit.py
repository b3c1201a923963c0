"""The default learner on Spark: the same hierarchy, its sums made in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.bias import ItemBias
from trimtab.bias.scales import to_scale
from trimtab.learn.ascent.setup import quanta_for
from trimtab.learn.hierarchy.levels import group_items, learn_hierarchy
from trimtab.learn.hierarchy.result import FitContext, TopKCounts, build_result, count_top_k
from trimtab.learn.hierarchy.unit_data import SharedInputs, hit_value_quanta
from trimtab.learn.inputs import read_categories
from trimtab.learn.units import learning_units, learning_windows
from trimtab.progress import Progress
from trimtab.spark.array_bytes import Arrays
from trimtab.spark.global_counts import GlobalCounts, exact_median, sum_totals
from trimtab.spark.hierarchy_backend import (
    SparkHierarchyBackend,
    count_all,
    count_by_fold,
    with_hits,
)
from trimtab.spark.history_counts import count_history
from trimtab.spark.partition import Partition
from trimtab.spark.session import FitSession
from trimtab.tables.columns import ITEM
from trimtab.tables.frames import Table, known_ids
from trimtab.tables.ids import encode_ids

if TYPE_CHECKING:
    from trimtab.spark.bias_fit import SparkBiasLearner


def fit_hierarchy(
    learner: SparkBiasLearner, session: FitSession, progress: Progress | None
) -> ItemBias:
    """Learn the hierarchy and tell how it went."""
    k, metric, n_items = learner.k, learner.metric, len(session.item_ids)
    counts = session.count_globally("additive")
    scale, unit = _choose_scale(learner, session, counts)
    units = session.units
    totals = sum_totals(units, k, metric, counts)
    by_window = np.ones(1, np.int64)
    if len(session.windows) > 1:
        (by_window,) = units.run(count_windows, len(session.windows))
    found = count_history(session)
    windows, history = learning_windows(by_window, found)
    categories = _read_categories(session)
    typical = totals.judged_weight / max(counts.n_judged, 1) or 1.0
    n_windows = int(windows.max(initial=0)) + 1
    bought, listed = units.run(count_by_fold, learner.seed, windows, n_windows, n_items)
    hits = session.derive("hits", with_hits, scale, typical, windows)
    quanta = hit_value_quanta(units.n_units, counts.heaviest / typical, k)
    shared = SharedInputs(
        scale, unit, k, metric, learner.seed, bought, listed, history,
        None if categories is None else group_items(categories),
        count_all(hits, k, metric, quanta), quanta,
    )  # fmt: skip
    learned = learn_hierarchy(SparkHierarchyBackend(hits, shared), progress)
    context = FitContext(
        session.item_ids, session.window, scale, unit,
        support=counts.support,
        listed=counts.listed,
        sold_before=found[-1].long if found else None,
        categories=categories,
        n_users=counts.n_judged,
        n_skipped=units.n_units - counts.n_judged,
        weight=totals.judged_weight,
        quanta=quanta_for(totals.weight),
    )  # fmt: skip

    def top_k_counts(bias: Floats | None) -> TopKCounts:
        return TopKCounts(
            *units.run(count_partition_top_k, scale, k, metric, bias, n_items, context.quanta)
        )

    return build_result(learner, learned, context, top_k_counts)


def _choose_scale(
    learner: SparkBiasLearner, session: FitSession, counts: GlobalCounts
) -> tuple[str, float]:
    """As `scales.choose_scale` and `scales.model_unit`, over all partitions."""
    scale, k = learner.scale, learner.k
    if scale == "auto":
        middle = exact_median(session.units, "kth", k, counts.n_filled)
        scale = "log" if middle > 0 else "additive"
    if scale == "log":
        return scale, 1.0
    gap = exact_median(session.units, "gap", k, counts.n_filled)
    return scale, gap if gap > 0 else counts.largest or 1.0


def _read_categories(session: FitSession) -> Ints | None:
    """The category of each item; there are as many as items, not as users."""
    if session.tables.items is None:
        return None
    table = Table("items", session.tables.items.toArrow(), None, False)
    known = known_ids("all tables", ITEM, session.item_ids)
    _, (_, codes) = encode_ids([known, table.ids(ITEM)])
    return read_categories(table, codes, len(session.item_ids))


def count_windows(partition: Partition, n_windows: int) -> Arrays:
    """Units of a partition that can learn, by window."""
    learning = learning_units(partition.lists, partition.bought, partition.weights)
    return [np.bincount(partition.windows[learning], minlength=n_windows)]


def count_partition_top_k(
    partition: Partition,
    scale: str,
    k: int,
    metric: str,
    bias: Floats | None,
    n_items: int,
    quanta: float,
) -> Arrays:
    """What the top k's of a partition's units show."""
    lists = to_scale(partition.lists, scale).lists
    given = (k, metric, bias, n_items, quanta)
    return list(count_top_k(lists, partition.bought, partition.weights, *given))
