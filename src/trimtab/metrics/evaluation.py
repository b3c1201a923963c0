"""Evaluate recommendations against purchases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists, Sets
from trimtab.checks import METRICS
from trimtab.metrics.bootstrap import lift_intervals
from trimtab.metrics.coded_tables import CodedTables, code_tables, warn_of_missing_lists
from trimtab.metrics.event_weights import EventWeights
from trimtab.metrics.hit_metrics import (
    HIT_METRICS,
    find_hits,
    hit_metrics,
    mean_novelty,
    share_shown,
    weighted_metrics,
)
from trimtab.metrics.per_user import UnitMetrics, lift, mean_metrics, unit_metrics, weighted_mean

LEVEL = 0.9  # of the interval of a lift, as of forecasts; backtests have 95 %
_MOST_DRAWS, _FEWEST_DRAWS, _MOST_NUMBERS = 1_000, 200, 200_000_000
_SEED = 0


def evaluate(
    topk: Any,
    truth: Any,
    k: int = 10,
    weights: Any | None = None,
    *,
    weight: str | None = None,
    baseline: Any | None = None,
    history: Any | None = None,
) -> dict[str, float | int]:
    """Return the metrics of recommendations, and their lift over other recommendations.

    Args:
        topk: user_id, item_id and rank (from 1), or score instead of rank; rows beyond k are
            ignored. Ties in rank or score go to the smaller item id.
        truth: user_id, item_id of purchases; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; the default weight of a user is 1.
        weight: a column of `truth` with the weight of each purchase, like its revenue: hits count
            by it, and a user by the heaviest purchase. Of repeated rows the heaviest counts;
            rows with 0 are ignored. By default all purchases count alike.
        baseline: other lists for the same users, with the columns of `topk`, to compare with.
        history: earlier sales, one row each or with a column `count`, for novelty.

    Returns:
        Means over users who bought something, where users without a list count as 0: `acc`, `map`,
        `ndcg`, `hit_rate` (users with a hit), `recall` (share of their purchases that are hits) and
        `mrr` (one over the rank of the first hit). Of all lists: `coverage`, the share of the items
        of all tables that are in some top k; and with `history` `novelty`, the mean over slots of
        -log2(the item's share of all sales), in bits, where items without a sale count as sold
        once. `n_users` is the number of users who bought something, `n_skipped` that of users with
        a list who bought nothing.

        With a baseline, for each metric also `ndcg_baseline` (its value there) and `ndcg_lift`
        (0.1 is 10 % more; nan over 0); and `ndcg_low` and `ndcg_high`, the 90 % interval of the
        lift by a bootstrap over users (not for coverage and novelty).

    Example:
        >>> import pyarrow as pa
        >>> topk = pa.table({"user_id": [1, 1], "item_id": [7, 8], "rank": [1, 2]})
        >>> truth = pa.table({"user_id": [1], "item_id": [8]})
        >>> evaluate(topk, truth, k=2)["acc"]
        0.5
        >>> other = pa.table({"user_id": [1, 1], "item_id": [8, 7], "rank": [1, 2]})
        >>> evaluate(other, truth, k=2, baseline=topk)["mrr_lift"]
        1.0
    """
    lists = {"topk": topk} if baseline is None else {"topk": topk, "baseline": baseline}
    coded = code_tables(lists, truth, k, weight, history)
    coded.require_common_users()
    unit_weights = coded.unit_weights(weights)
    buyers = Buyers(
        coded.units.user_codes[coded.buys],
        None if unit_weights is None else unit_weights[coded.buys],
        int(np.count_nonzero(~coded.buys)),
    )
    ours, *others = (judge(coded, name) for name in lists)
    if not others:
        return summarize(ours, buyers, coded.sales)
    warn_of_missing_lists(coded.count_missing_lists(), len(buyers.user_codes), lists)
    return compare(ours, others[0], buyers, coded.sales)


@dataclass(frozen=True)
class UnitEvaluation:
    """Top lists and purchases with common codes, and the metrics of each unit."""

    metrics: UnitMetrics
    top: Lists  # the first k, in rank order
    bought: Sets
    n_items: int
    event_weights: EventWeights | None = None  # of the purchases

    def buyers(self) -> UnitMetrics:
        """Return the metrics of units that bought something, in ascending order of their ids."""
        acc, average_precision, ndcg, n_relevant = self.metrics
        bought = n_relevant > 0
        return UnitMetrics(acc[bought], average_precision[bought], ndcg[bought], n_relevant[bought])

    def hit_metrics(self) -> dict[str, Floats]:
        """Return hit rate, recall and MRR of each unit; nan for units that bought nothing."""
        hits = find_hits(self.top, self.bought, self.n_items)
        relevance = None if self.event_weights is None else self.event_weights.relevance
        return hit_metrics(hits, self.bought, relevance)

    def weighted_buyers(self, metric: str) -> Floats:
        """Return a metric of units that bought something, each times its heaviest purchase."""
        values: Floats = getattr(self.buyers(), metric)
        if self.event_weights is None:
            return values
        return values * self.event_weights.heaviest[self.metrics.n_relevant > 0]

    def means(self) -> dict[str, float]:
        """Return the means of `mean_metrics`; a unit counts by its heaviest event."""
        weights = None if self.event_weights is None else self.event_weights.heaviest
        return mean_metrics(self.metrics, weights)

    def shown_to_buyers(self) -> Codes:
        """Return the items in the lists of units that bought something, one entry per slot."""
        bought = np.repeat(self.metrics.n_relevant > 0, np.diff(self.top.indptr))
        return self.top.items[bought]


def evaluate_units(topk: Any, truth: Any, k: int = 10, weight: str | None = None) -> UnitEvaluation:
    """Return the metrics of each unit; the arguments are those of `evaluate`.

    `topk` may be empty or share no user with `truth`; the metrics are 0 then.
    """
    coded = code_tables({"topk": topk}, truth, k, weight, None, may_be_empty=True)
    return _evaluate(coded, "topk")


def _evaluate(coded: CodedTables, name: str) -> UnitEvaluation:
    """Return the metrics of each unit with the lists of one table."""
    top, bought, n_items = coded.lists[name], coded.bought, coded.n_items
    if coded.event_weights is None:
        return UnitEvaluation(unit_metrics(top, bought, coded.k), top, bought, n_items)
    relevance = coded.event_weights.relevance
    found = weighted_metrics(find_hits(top, bought, n_items), bought, relevance, coded.k)
    metrics = UnitMetrics(**found, n_relevant=np.diff(bought.indptr))
    return UnitEvaluation(metrics, top, bought, n_items, coded.event_weights)


class Judged(NamedTuple):
    """The metrics of the lists of one table."""

    values: dict[str, Floats]  # by metric, of each unit that bought something
    shown: Ints  # number of slots by item


class Buyers(NamedTuple):
    """The units that bought something, in ascending order of their ids."""

    user_codes: Codes
    weights: Floats | None  # None if all count alike
    n_skipped: int  # other units


def judge(coded: CodedTables, name: str) -> Judged:
    """Return the metrics of the lists of one table."""
    found = _evaluate(coded, name)
    values = {metric: getattr(found.metrics, metric) for metric in METRICS} | found.hit_metrics()
    bought = {metric: column[coded.buys] for metric, column in values.items()}
    return Judged(bought, np.bincount(found.top.items, minlength=coded.n_items))


def summarize(judged: Judged, buyers: Buyers, sales: Floats | None) -> dict[str, float | int]:
    """Return the means of all metrics, and the numbers of users.

    Args:
        judged: lists.
        buyers: users who bought something.
        sales: by item, for novelty.
    """
    means: dict[str, float | int] = {
        metric: weighted_mean(judged.values[metric], buyers.weights)
        for metric in (*METRICS, *HIT_METRICS)
    }
    means["coverage"] = share_shown(judged.shown)
    if sales is not None:
        means["novelty"] = mean_novelty(judged.shown, sales)
    return means | {"n_users": len(buyers.user_codes), "n_skipped": buyers.n_skipped}


def compare(
    ours: Judged, theirs: Judged, buyers: Buyers, sales: Floats | None
) -> dict[str, float | int]:
    """Return what `summarize` returns of lists, and their lift over others."""
    figures, before = (summarize(judged, buyers, sales) for judged in (ours, theirs))
    values, base = (_sum_by_user(judged, buyers) for judged in (ours, theirs))
    return figures | _lifts(figures, before, values, base)


def _sum_by_user(judged: Judged, buyers: Buyers) -> Floats:
    """Return the sum of each metric over the units of each user who bought something."""
    each = np.ones(len(buyers.user_codes)) if buyers.weights is None else buyers.weights
    users = np.unique(buyers.user_codes, return_inverse=True)[1]
    columns = (judged.values[metric] for metric in (*METRICS, *HIT_METRICS))
    return np.stack([np.bincount(users, each * column) for column in columns], axis=1)


def _lifts(
    figures: Mapping[str, float], before: Mapping[str, float], values: Floats, base: Floats
) -> dict[str, float | int]:
    """Return each metric of the baseline, and the lift over it with its interval.

    Args:
        figures: means of the lists.
        before: means of the baseline.
        values: sums of the metrics that have intervals, by [user, metric].
        base: the same of the baseline.
    """
    n_draws = int(np.clip(_MOST_NUMBERS // len(base), _FEWEST_DRAWS, _MOST_DRAWS))
    found = lift_intervals(values, base, n_draws, _SEED, LEVEL)
    intervals = dict(zip((*METRICS, *HIT_METRICS), found, strict=True))
    lifts: dict[str, float | int] = {}
    for name in (name for name in figures if not name.startswith("n_")):
        lifts[f"{name}_baseline"] = before[name]
        lifts[f"{name}_lift"] = round(lift(figures[name], before[name]), 12)
        if name in intervals:
            lifts[f"{name}_low"] = intervals[name].low
            lifts[f"{name}_high"] = intervals[name].high
    return lifts
