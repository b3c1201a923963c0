"""The default learner on Spark: the same hierarchy, its sums made in partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.bias import ItemBias
from trimtab.coded import Floats, Ints
from trimtab.frames import Table, known_ids
from trimtab.ground import learning_units, quanta_for
from trimtab.hierarchy import group_items, learn_hierarchy
from trimtab.ids import encode_ids
from trimtab.panel import Brief, worth_quanta
from trimtab.progress import Progress
from trimtab.reading import read_categories
from trimtab.robust import Known, View, learning_windows, tell, view_part
from trimtab.scales import to_scale
from trimtab.schema import ITEM
from trimtab.spark.arrays import Arrays
from trimtab.spark.facts import Facts, exact_median, sum_totals
from trimtab.spark.history import count_history
from trimtab.spark.panels import SparkPanels, count_by_fold, take_all, with_hits
from trimtab.spark.share import Share
from trimtab.spark.stage import Stage

if TYPE_CHECKING:
    from trimtab.spark.learn import SparkBiasLearner


def learn_robust(learner: SparkBiasLearner, stage: Stage, progress: Progress | None) -> ItemBias:
    """Learn the hierarchy and tell how it went."""
    k, metric, n_items = learner.k, learner.metric, len(stage.item_ids)
    facts = stage.count_facts("additive")
    scale, unit = _choose_scale(learner, stage, facts)
    population = stage.population
    totals = sum_totals(population, k, metric, facts)
    by_window = np.ones(1, np.int64)
    if len(stage.windows) > 1:
        (by_window,) = population.run(count_windows, len(stage.windows))
    found = count_history(stage)
    windows, history = learning_windows(by_window, found)
    categories = _read_categories(stage)
    typical = totals.judged_weight / max(facts.n_judged, 1) or 1.0
    n_windows = int(windows.max(initial=0)) + 1
    counts = population.run(count_by_fold, learner.seed, windows, n_windows, n_items)
    hits = stage.derive("hits", with_hits, scale, typical, windows)
    quanta = worth_quanta(population.n_units, facts.heaviest / typical, k)
    brief = Brief(
        scale, unit, k, metric, learner.seed, counts[0], counts[1], history,
        None if categories is None else group_items(categories),
        take_all(hits, k, metric, quanta), quanta,
    )  # fmt: skip
    learned = learn_hierarchy(SparkPanels(hits, brief), progress)
    known = Known(
        stage.item_ids, stage.window, scale, unit,
        support=facts.support,
        listed=facts.listed,
        sold_before=found[-1].long if found else None,
        categories=categories,
        n_users=facts.n_judged,
        n_skipped=population.n_units - facts.n_judged,
        weight=totals.judged_weight,
        quanta=quanta_for(totals.weight),
    )  # fmt: skip

    def look(bias: Floats | None) -> View:
        return View(*population.run(view_share, scale, k, metric, bias, n_items, known.quanta))

    return tell(learner, learned, known, look)


def _choose_scale(learner: SparkBiasLearner, stage: Stage, facts: Facts) -> tuple[str, float]:
    """As `scales.choose_scale` and `scales.model_unit`, over all partitions."""
    scale, k = learner.scale, learner.k
    if scale == "auto":
        middle = exact_median(stage.population, "kth", k, facts.n_filled)
        scale = "log" if middle > 0 else "additive"
    if scale == "log":
        return scale, 1.0
    gap = exact_median(stage.population, "gap", k, facts.n_filled)
    return scale, gap if gap > 0 else facts.largest or 1.0


def _read_categories(stage: Stage) -> Ints | None:
    """The category of each item; there are as many as items, not as users."""
    if stage.tables.items is None:
        return None
    table = Table("items", stage.tables.items.toArrow(), None, False)
    known = known_ids("all tables", ITEM, stage.item_ids)
    _, (_, codes) = encode_ids([known, table.ids(ITEM)])
    return read_categories(table, codes, len(stage.item_ids))


def count_windows(share: Share, n_windows: int) -> Arrays:
    """Units of a partition that can learn, by window."""
    learning = learning_units(share.lists, share.bought, share.weights)
    return [np.bincount(share.windows[learning], minlength=n_windows)]


def view_share(
    share: Share, scale: str, k: int, metric: str, bias: Floats | None, n_items: int, quanta: float
) -> Arrays:
    """What the top k's of a partition's units show."""
    lists = to_scale(share.lists, scale).lists
    given = (k, metric, bias, n_items, quanta)
    return list(view_part(lists, share.bought, share.weights, *given))
