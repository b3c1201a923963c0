"""Evaluate recommendations against purchases.

Users are judged in parts: `judge` for each part, `+`, then `finish`. Tables in memory are one part.
Neither the number of parts nor their order changes a digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trimtab.arrays import Codes, Floats, Lists, Sets
from trimtab.checks import require_columns, require_k
from trimtab.errors import DataError, warn
from trimtab.metrics.intervals import lift_intervals
from trimtab.metrics.per_user import (
    ALL_METRICS,
    UnitMetrics,
    largest_weights,
    lift,
    rank_lists,
    read_event_weights,
    unit_metrics,
    weigh_purchases,
    weighted_mean,
)
from trimtab.parts.packing import packable
from trimtab.tables.columns import (
    ITEM,
    RANK,
    SCORE,
    USER,
    WEIGHT,
    WINDOW,
    read_frame,
    read_scores,
)
from trimtab.tables.lists import Units, encode_units, group_scored, group_sets, read_weights
from trimtab.tables.vocabulary import Vocabulary

_MOST_DRAWS, _FEWEST_DRAWS, _MOST_NUMBERS = 1_000, 200, 200_000_000
_SEED = 0
_SKIPPED, _MISSING = "n_skipped", "n_missing"


def evaluate(
    topk: Any,
    truth: Any,
    k: int = 10,
    weights: Any | None = None,
    *,
    weight: str | None = None,
    baseline: Any | None = None,
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

    Returns:
        Means over users who bought something, where users without a list count as 0: `acc`, `map`,
        `ndcg`, `hit_rate` (users with a hit), `recall` (share of their purchases that are hits) and
        `mrr` (one over the rank of the first hit). Of all lists: `coverage`, the share of the items
        of all tables that are in some top k. `n_users` is the number of users who bought something,
        `n_skipped` that of users with a list who bought nothing.

        With a baseline, for each metric also `ndcg_baseline` (its value there) and `ndcg_lift`
        (0.1 is 10 % more; nan over 0); and `ndcg_low` and `ndcg_high`, the 90 % interval of the
        lift by a bootstrap over users (not for coverage).

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
    tables = {"topk": topk} if baseline is None else {"topk": topk, "baseline": baseline}
    return finish(judge({**tables, "truth": truth}, k, weight), weights)


@packable
class Judged(NamedTuple):
    """Lists of some users, judged by their purchases; the parts of all users add up to the whole.

    Attributes:
        buyers: one row per unit that bought something: its ids, the `weight` of its heaviest
            purchase, and its metrics with each table of lists, like `topk ndcg`.
        items: ids of all items, and how many slots each has in each table of lists.
        lowest: by table of lists, the ids of the lowest unit with a list.
        counts: units that bought nothing (n_skipped); those that bought something: with a list in
            one of two tables only (n_missing), and with a list in each table.
    """

    buyers: pa.Table
    items: pa.Table
    lowest: dict[str, list[Any]]
    counts: dict[str, int]

    @property
    def names(self) -> list[str]:
        """Names of the tables of lists."""
        return list(self.items.column_names[1:])

    def __add__(self, other: Judged) -> Judged:  # type: ignore[override]
        """Return what is judged of the users of both."""
        items = pa.concat_tables([self.items, other.items]).group_by(ITEM, use_threads=False)
        summed = items.aggregate([(name, "sum") for name in self.names])
        named = summed.select([ITEM, *(f"{name}_sum" for name in self.names)])
        lowest = {**self.lowest, **other.lowest}
        for name in self.lowest.keys() & other.lowest.keys():
            lowest[name] = min(self.lowest[name], other.lowest[name])
        return Judged(
            pa.concat_tables([self.buyers, other.buyers]),
            named.rename_columns(self.items.column_names),
            lowest,
            {name: n + other.counts[name] for name, n in self.counts.items()},
        )


def judge(tables: Mapping[str, Any], k: int, weight: str | None, is_part: bool = False) -> Judged:
    """Judge the lists of some users.

    Args:
        tables: of lists, "topk" and perhaps "baseline", and "truth": purchases of the same users.
        k: slots.
        weight: column of `truth` that purchases count by; None: all alike.
        is_part: whether there may be other users, so that tables may have no rows.
    """
    coded = _code_tables(tables, k, weight, is_part)
    buys = np.diff(coded.bought.indptr) > 0
    buyers = coded.units.columns(np.flatnonzero(buys))
    buyers[WEIGHT] = coded.heaviest[buys]
    items, lowest, counts = {ITEM: coded.items.ids}, {}, {_SKIPPED: int(np.sum(~buys))}
    has_list = np.stack([np.diff(top.indptr) > 0 for top in coded.lists.values()])
    for (name, top), listed in zip(coded.lists.items(), has_list, strict=True):
        metrics = coded.measure(name, k)._asdict()
        buyers |= {f"{name} {metric}": values[buys] for metric, values in metrics.items()}
        items[name] = np.bincount(top.items, minlength=len(coded.items))
        counts[name] = int(np.sum(buys & listed))
        if listed.any():
            ids = coded.units.columns(np.flatnonzero(listed)[:1]).values()
            lowest[name] = [pa.array(column)[0].as_py() for column in ids]
    counts[_MISSING] = int(np.sum(has_list.any(axis=0) & ~has_list.all(axis=0) & buys))
    return Judged(pa.table(buyers), pa.table(items), lowest, counts)


def finish(
    judged: Judged, weights: Any | None, weight: str | None = None
) -> dict[str, float | int]:
    """Return what `evaluate` returns of all users together.

    Args:
        judged: all users.
        weights: of users, as `evaluate` takes them.
        weight: column that purchases count by, for errors.
    """
    if len(judged.buyers) == 0:
        raise DataError(
            f"column '{weight}' of truth is 0 in every row: at least one event must have a weight "
            f"above 0"
        )
    units, (rows,) = encode_units(read_frame(judged.buyers, "topk", USER, optional=(WINDOW,)))
    order = np.argsort(rows)
    _require_common_users(judged, units.label(0))
    unit_weights: Floats = judged.buyers[WEIGHT].to_numpy()[order]
    if weights is not None:
        every = np.ones(len(units), bool)
        unit_weights = unit_weights * read_weights(weights, units, every, "topk")
    unit_weights, users = _over_largest(unit_weights), units.user_codes
    figures: dict[str, dict[str, float]] = {}
    sums: list[Any] = []  # of each metric, by [user, metric]
    for name in judged.names:
        columns = [judged.buyers[f"{name} {each}"].to_numpy()[order] for each in ALL_METRICS]
        means = [weighted_mean(values, unit_weights) for values in columns]
        sums.append(np.stack([np.bincount(users, unit_weights * v) for v in columns], axis=1))
        figures[name] = {
            **dict(zip(ALL_METRICS, means, strict=True)),
            "coverage": float(np.mean(judged.items[name].to_numpy() > 0)),
            "n_users": len(order), _SKIPPED: judged.counts[_SKIPPED],
        }  # fmt: skip
    if len(figures) == 1:
        return figures["topk"]
    if judged.counts[_MISSING]:
        warn(
            f"{judged.counts[_MISSING]} of {len(judged.buyers)} users who bought something have a "
            f"list in only one of {' and '.join(judged.names)}, and count as 0 in the other; "
            f"compare lists of the same users"
        )
    return figures["topk"] | dict(_lifts(figures["topk"], figures["baseline"], *sums))


class UnitEvaluation(NamedTuple):
    """Units that bought something, in ascending order of their ids, and what they were shown."""

    metrics: UnitMetrics
    weights: Floats  # the heaviest purchase of each, over the heaviest of all
    shown: Codes  # items in their lists, one entry per slot
    bought: Sets  # items of all units
    n_items: int

    def weighted_buyers(self, metric: str) -> Floats:
        """Return a metric of each unit times its weight."""
        return getattr(self.metrics, metric) * self.weights

    def means(self) -> dict[str, float]:
        """Return the weighted mean of each metric, and `n_users`."""
        found = {n: weighted_mean(v, self.weights) for n, v in self.metrics._asdict().items()}
        return {**found, "n_users": len(self.weights)}


def evaluate_units(topk: Any, truth: Any, k: int = 10, weight: str | None = None) -> UnitEvaluation:
    """Return the metrics of each unit; the arguments are those of `evaluate`.

    `topk` may be empty or share no user with `truth`; the metrics are 0 then.
    """
    coded = _code_tables({"topk": topk, "truth": truth}, k, weight, is_part=True)
    top, buys = coded.lists["topk"], np.diff(coded.bought.indptr) > 0
    return UnitEvaluation(
        UnitMetrics(*(values[buys] for values in coded.measure("topk", k))),
        _over_largest(coded.heaviest[buys]),
        top.items[np.repeat(buys, np.diff(top.indptr))],
        coded.bought,
        len(coded.items),
    )


# Tables to codes ---------------------------------------------------------------------------------


class _Coded(NamedTuple):
    """The tables of an evaluation, with common codes."""

    units: Units
    items: Vocabulary
    lists: dict[str, Lists]  # the first k, in rank order
    bought: Sets
    relevance: Floats  # of each purchase, over the heaviest of its unit
    heaviest: Floats  # weight, by unit; 1 for a unit that bought nothing

    def measure(self, name: str, k: int) -> UnitMetrics:
        """Return the metrics of each unit with the lists of one table."""
        return unit_metrics(self.lists[name], self.bought, k, self.relevance)


def _code_tables(given: Mapping[str, Any], k: int, weight: str | None, is_part: bool) -> _Coded:
    require_k(k)
    tables = [
        read_frame(frame, name, USER, ITEM, optional=(RANK, SCORE, WINDOW), may_be_empty=is_part)
        for name, frame in given.items()
        if name != "truth"
    ]
    for table in tables:
        if not table.has(RANK):
            require_columns(table.name, table.columns.column_names, [SCORE], table.own)
    needed = dict.fromkeys((USER, ITEM) if weight is None else (USER, ITEM, weight))
    bought = read_frame(given["truth"], "truth", *needed, optional=(WINDOW,), may_be_empty=is_part)
    weights = None
    if weight is not None and len(bought):
        bought, weights = read_event_weights(bought, weight, is_part)
    units, unit_codes = encode_units(*tables, bought)
    items, item_codes = Vocabulary.encode(*(table.ids(ITEM) for table in (*tables, bought)))
    sets = group_sets(unit_codes[-1], item_codes[-1], len(units))
    each = np.ones(len(sets.items))
    if weights is not None:
        each = largest_weights(unit_codes[-1], item_codes[-1], weights)
    ranked = {}
    for table, rows, codes in zip(tables, unit_codes, item_codes, strict=False):
        height = -read_scores(table, RANK) if table.has(RANK) else read_scores(table)
        scored = group_scored(rows, codes, height, len(units))
        ranked[table.name] = rank_lists(scored, k, np.zeros(len(items)))
    return _Coded(units, items, ranked, sets, *weigh_purchases(sets, each))


# All users together ------------------------------------------------------------------------------


def _require_common_users(judged: Judged, buyer: str) -> None:
    """Raise if no buyer has a list; it shows a buyer and a user with a list."""
    for name in (name for name in judged.names if not judged.counts[name]):
        ids = zip((USER, WINDOW), judged.lowest[name], strict=False)
        listed = " in ".join(f"{column} {value}" for column, value in ids)
        raise DataError(
            f"no {USER} of truth is in {name} (truth has {buyer}, {name} {listed}): they must "
            f"share users; check that both use the same ids"
        )


def _over_largest(weights: Floats) -> Floats:
    """Return weights over the largest: those that are all alike change no digit."""
    return weights / weights.max(initial=0.0) if len(weights) else weights


def _lifts(
    figures: Mapping[str, float], before: Mapping[str, float], values: Floats, base: Floats
) -> Iterator[tuple[str, float]]:
    """Yield each metric of the baseline, and the lift over it with its interval.

    Args:
        figures: means of the lists.
        before: means of the baseline.
        values: sums of the metrics that have intervals, by [user, metric].
        base: the same of the baseline.
    """
    n_draws = int(np.clip(_MOST_NUMBERS // len(base), _FEWEST_DRAWS, _MOST_DRAWS))
    found = lift_intervals(values, base, n_draws, _SEED)
    intervals = dict(zip(ALL_METRICS, found, strict=True))
    for name in (name for name in figures if not name.startswith("n_")):
        yield f"{name}_baseline", before[name]
        yield f"{name}_lift", round(lift(figures[name], before[name]), 12)
        if name in intervals:
            yield f"{name}_low", intervals[name].low
            yield f"{name}_high", intervals[name].high
