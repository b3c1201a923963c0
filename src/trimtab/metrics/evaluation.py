"""Judges a table of recommendations against what was bought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Floats, Lists, Sets
from trimtab.checks import require_columns, require_k
from trimtab.errors import DataError
from trimtab.metrics.per_user import UnitMetrics, mean_metrics, unit_metrics
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, WINDOW
from trimtab.tables.frames import (
    encode_units,
    group_scored,
    group_sets,
    read_frame,
    read_scores,
    read_weights,
)
from trimtab.tables.ids import encode_ids


def evaluate(
    topk: Any, truth: Any, k: int = 10, weights: Any | None = None
) -> dict[str, float | int]:
    """ACC@k, MAP@k and NDCG@k of recommendations.

    Args:
        topk: user_id, item_id and rank (from 1), or score where there is no rank; rows beyond k do
            not count. Ties in rank or score go to the smaller item id.
        truth: user_id, item_id: what was bought; repeated rows count once.
        k: places that count.
        weights: user_id, weight; users not in it weigh 1.

    Returns:
        `acc`, `map`, `ndcg` (means over users who bought something; those without a list count as
        0), `n_users` (how many those are) and `n_skipped` (users with a list who bought nothing).

    Example:
        >>> import pyarrow as pa
        >>> topk = pa.table({"user_id": [1, 1], "item_id": [7, 8], "rank": [1, 2]})
        >>> truth = pa.table({"user_id": [1], "item_id": [8]})
        >>> evaluate(topk, truth, k=2)["acc"]
        0.5
    """
    judged, by_unit = _judge(topk, truth, k, weights, may_miss=False)
    return mean_metrics(judged.metrics, by_unit)


@dataclass(frozen=True)
class Judged:
    """Lists and purchases on common codes, and the metrics of each unit (nan: bought nothing)."""

    metrics: UnitMetrics
    top: Lists  # the first k, in rank order
    bought: Sets
    n_items: int

    def buyers(self) -> UnitMetrics:
        """The metrics of those who bought something, in ascending order of their ids."""
        acc, average_precision, ndcg, n_relevant = self.metrics
        bought = n_relevant > 0
        return UnitMetrics(acc[bought], average_precision[bought], ndcg[bought], n_relevant[bought])

    def shown_to_buyers(self) -> Codes:
        """Items in the lists of those who bought something, one entry a place."""
        bought = np.repeat(self.metrics.n_relevant > 0, np.diff(self.top.indptr))
        return self.top.items[bought]


def judge_units(topk: Any, truth: Any, k: int = 10) -> Judged:
    """What `evaluate` takes means of, unit by unit; the arguments are the same.

    Lists that nobody in `truth` has, or no lists at all, are judged too: every hit is missed.
    """
    return _judge(topk, truth, k, None, may_miss=True)[0]


def _judge(
    topk: Any, truth: Any, k: int, weights: Any | None, may_miss: bool
) -> tuple[Judged, Floats | None]:
    require_k(k)
    top = read_frame(
        topk, "topk", USER, ITEM, optional=(RANK, SCORE, WINDOW), may_be_empty=may_miss
    )
    if not top.has(RANK):
        require_columns("topk", top.columns.column_names, [SCORE])
    bought = read_frame(truth, "truth", USER, ITEM, optional=(WINDOW,))
    units, (top_units, bought_units) = encode_units(top, bought)
    item_ids, (top_items, bought_items) = encode_ids([top.ids(ITEM), bought.ids(ITEM)])
    height = -read_scores(top, RANK)[0] if top.has(RANK) else read_scores(top, SCORE)[0]
    lists = group_scored(top_units, top_items, height, len(units))
    ranked = rank_lists(lists, k, np.zeros(len(item_ids)))
    sets = group_sets(bought_units, bought_items, len(units))
    if not may_miss and not np.isin(bought_units, top_units).any():
        raise DataError(
            f"no {USER} of truth is in topk (truth has {units.label(bought_units[0])}, topk "
            f"{units.label(top_units[0])}): they must share users; check that both use the same ids"
        )
    bought_any = np.diff(sets.indptr) > 0
    by_unit = None if weights is None else read_weights(weights, units, bought_any, "topk")
    return Judged(unit_metrics(ranked, sets, k), ranked, sets, len(item_ids)), by_unit
