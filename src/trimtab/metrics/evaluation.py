"""Evaluate recommendations against purchases."""

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
    """Return ACC@k, MAP@k and NDCG@k of recommendations.

    Args:
        topk: user_id, item_id and rank (from 1), or score instead of rank; rows beyond k are
            ignored. Ties in rank or score go to the smaller item id.
        truth: user_id, item_id of purchases; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; the default weight is 1.

    Returns:
        `acc`, `map`, `ndcg` (means over users who bought something; users without a list count as
        0), `n_users` (number of those users) and `n_skipped` (users with a list who bought
        nothing).

    Example:
        >>> import pyarrow as pa
        >>> topk = pa.table({"user_id": [1, 1], "item_id": [7, 8], "rank": [1, 2]})
        >>> truth = pa.table({"user_id": [1], "item_id": [8]})
        >>> evaluate(topk, truth, k=2)["acc"]
        0.5
    """
    evaluation, unit_weights = _evaluate(topk, truth, k, weights, may_share_no_user=False)
    return mean_metrics(evaluation.metrics, unit_weights)


@dataclass(frozen=True)
class UnitEvaluation:
    """Top lists and purchases with common codes, and the metrics of each unit."""

    metrics: UnitMetrics
    top: Lists  # the first k, in rank order
    bought: Sets
    n_items: int

    def buyers(self) -> UnitMetrics:
        """Return the metrics of units that bought something, in ascending order of their ids."""
        acc, average_precision, ndcg, n_relevant = self.metrics
        bought = n_relevant > 0
        return UnitMetrics(acc[bought], average_precision[bought], ndcg[bought], n_relevant[bought])

    def shown_to_buyers(self) -> Codes:
        """Return the items in the lists of units that bought something, one entry per slot."""
        bought = np.repeat(self.metrics.n_relevant > 0, np.diff(self.top.indptr))
        return self.top.items[bought]


def evaluate_units(topk: Any, truth: Any, k: int = 10) -> UnitEvaluation:
    """Return the metrics of each unit; the arguments are those of `evaluate`.

    `topk` may be empty or share no user with `truth`; the metrics are 0 then.
    """
    return _evaluate(topk, truth, k, None, may_share_no_user=True)[0]


def _evaluate(
    topk: Any, truth: Any, k: int, weights: Any | None, may_share_no_user: bool
) -> tuple[UnitEvaluation, Floats | None]:
    """Return the metrics and the weight of each unit."""
    require_k(k)
    top = read_frame(
        topk, "topk", USER, ITEM, optional=(RANK, SCORE, WINDOW), may_be_empty=may_share_no_user
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
    if not may_share_no_user and not np.isin(bought_units, top_units).any():
        raise DataError(
            f"no {USER} of truth is in topk (truth has {units.label(bought_units[0])}, topk "
            f"{units.label(top_units[0])}): they must share users; check that both use the same ids"
        )
    bought_any = np.diff(sets.indptr) > 0
    unit_weights = None if weights is None else read_weights(weights, units, bought_any, "topk")
    metrics = unit_metrics(ranked, sets, k)
    return UnitEvaluation(metrics, ranked, sets, len(item_ids)), unit_weights
