"""Rival methods: simple ways to follow a trend without learning biases.

Some take lists of any engine and return them with other scores; others return an engine with other
settings, to be trained again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.checks import MOST_K, require_k, require_number
from trimtab.engines.base import Engine
from trimtab.learn.personal_units import repeats_own
from trimtab.metrics.evaluation import evaluate_units
from trimtab.tables.columns import ITEM, SCORE, USER, read_frame, write_frame
from trimtab.tables.lists import read_lists
from trimtab.tables.vocabulary import Vocabulary

_PRIOR_LISTS = 10
AnyEngine = TypeVar("AnyEngine", bound=Engine)


def truncate(engine: AnyEngine, days: float = 14) -> AnyEngine:
    """Return the engine limited to the last days; its own window stays if it is shorter."""
    own = engine.window_days
    return replace(engine, window_days=days if own is None else min(own, days))


def decay(engine: AnyEngine, days: float = 60) -> AnyEngine:
    """Return the engine with events weighted by exp(-age / days)."""
    return replace(engine, decay_days=days)


def distribution_difference(recs: Any, recent: Any, history: Any, factor: float = 1.0) -> Any:
    """Return lists with factor x (recent share - long-run share) of each item added to its score.

    Each user's scores are first divided by their sum, so both are shares; users with a sum of 0 or
    less keep their scores.

    Args:
        recs: user_id, item_id, score.
        recent: item_id of the purchases of the last days.
        history: item_id of the long-run purchases.
        factor: weight of the difference.
    """
    require_number("factor", factor, 0)

    def change(lists: Lists, items: Codes, lately: Floats, usually: Floats) -> Floats:
        sums = np.add.reduceat(lists.scores, lists.indptr[:-1])  # no list is empty here
        sums = np.where(sums > 0, sums, 1.0)
        shares: Floats = lists.scores / np.repeat(sums, np.diff(lists.indptr))
        more: Floats = lately / lately.sum() - usually / usually.sum()
        return shares + factor * more[items]

    return _rescore(recs, change, recent=recent, history=history)


def popularity_ratio(recs: Any, shown: Any, recent: Any, gamma: float = 0.2) -> Any:
    """Return lists with each score multiplied by (bought / recommended) ** gamma.

    An item counts as recommended once per list it is in. Both counts include ten more lists at the
    average rate, so an item without data has the average ratio. Scores below 0 are divided by the
    factor, so a higher ratio always raises the item.

    Args:
        recs: user_id, item_id, score.
        shown: item_id of lists made before the recent window.
        recent: item_id of the purchases in the window.
        gamma: strength; 0 changes nothing.
    """
    require_number("gamma", gamma, 0)

    def change(lists: Lists, items: Codes, bought: Floats, listed: Floats) -> Floats:
        average = bought[listed > 0].sum() / listed.sum()
        if average == 0:
            return lists.scores
        ratio = (bought + _PRIOR_LISTS * average) / (listed + _PRIOR_LISTS)
        return _multiplied(lists.scores, ratio[items] ** gamma)

    return _rescore(recs, change, recent=recent, shown=shown)


def recent_popularity(recs: Any, recent: Any, gamma: float = 0.1) -> Any:
    """Return lists with scores multiplied (below 0: divided) by (1 + recent purchases) ** gamma.

    Args:
        recs: user_id, item_id, score.
        recent: item_id of the purchases of the last days.
        gamma: strength; 0 changes nothing.
    """
    require_number("gamma", gamma, 0)

    def change(lists: Lists, items: Codes, bought: Floats) -> Floats:
        return _multiplied(lists.scores, (1.0 + bought[items]) ** gamma)

    return _rescore(recs, change, recent=recent)


def _rescore(recs: Any, change: Callable[..., Floats], **tables: Any) -> Any:
    """Return lists with other scores.

    Args:
        recs: user_id, item_id, score.
        change: gets the lists, the items of their entries as codes, and how often each table has
            each item; returns the new scores.
        tables: item_id.
    """
    coded = read_lists(recs, "never", "error")
    ids = [read_frame(table, name, ITEM).ids(ITEM) for name, table in tables.items()]
    listed = Vocabulary(coded.item_ids)
    every, (own, *others) = Vocabulary.encode(listed.column, *ids)
    counts = [np.bincount(codes, minlength=len(every)).astype(np.float64) for codes in others]
    lists = coded.lists
    units = np.repeat(np.arange(len(coded.units), dtype=np.int32), np.diff(lists.indptr))
    columns = coded.units.columns(units)
    columns[ITEM] = listed.take(lists.items)
    columns[SCORE] = change(lists, own[lists.items], *counts)
    return write_frame(columns, coded.table)


def _multiplied(scores: Floats, factors: Floats) -> Floats:
    """Return scores times factors; scores below 0 are divided, so a larger factor raises both."""
    return np.where(scores >= 0, scores * factors, scores / factors)


def best_sellers(recs: Any, recent: Any, k: int = 10, own: Any | None = None) -> Any:
    """Return the k items that were bought most often, best first, for each user with a list.

    Args:
        recs: user_id, item_id, score: an engine's lists; only their users get one.
        recent: item_id of the purchases of the last days; without any, nobody gets a list.
        k: number of slots.
        own: user_id, item_id of what users already have, to leave out of their lists; None: all
            users get the same list.

    Returns:
        user_id, item_id, score, in the same type of frame as `recs`; the score is the number of
        purchases, and ties go to the smaller item id.

    Example:
        >>> import pyarrow as pa
        >>> recs = pa.table({"user_id": [1, 2], "item_id": [7, 7], "score": [0.5, 0.5]})
        >>> recent = pa.table({"item_id": [9, 8, 9, 7]})
        >>> has = pa.table({"user_id": [2], "item_id": [9]})
        >>> best_sellers(recs, recent, k=2, own=has)["item_id"].to_pylist()
        [9, 7, 7, 8]
    """
    require_k(k)
    table = read_frame(recs, "recs", USER, ITEM)
    user_ids, _ = Vocabulary.encode(table.ids(USER))
    sold = read_frame(recent, "recent", ITEM, may_be_empty=True)
    item_ids, (codes,) = Vocabulary.encode(sold.ids(ITEM))
    counts = np.bincount(codes, minlength=len(item_ids))
    order = np.argsort(-counts, kind="stable")  # codes ascend with ids
    ranked = Vocabulary(item_ids.take(order))  # by rank, not by id
    rows = places = np.empty(0, np.int64)
    if own is not None and len(order):
        rows, places = _places_of_own(user_ids, ranked, own)
    users, shown = _fill_slots(rows, places, len(user_ids), len(order), k)
    columns = {
        USER: user_ids.take(users),
        ITEM: ranked.take(shown),
        SCORE: counts[order][shown].astype(np.float64),
    }
    return write_frame(columns, table)


def lists_hold_own(recs: Any, own: Any) -> bool:
    """Return whether lists hold what their users already have, by the Reranker's rule.

    Args:
        recs: user_id, item_id of an engine's lists.
        own: user_id, item_id of all purchases before them.
    """
    found = evaluate_units(recs, own, MOST_K)  # ACC times k: entries that the user has
    n_users = np.count_nonzero(np.diff(found.bought.indptr))
    buyers = np.bincount(found.bought.items, minlength=found.n_items)
    by_chance = float(buyers[found.shown].sum()) / n_users
    return repeats_own(MOST_K * float(found.metrics.acc.sum()), by_chance)


def _places_of_own(user_ids: Vocabulary, ranked: Vocabulary, own: Any) -> tuple[Ints, Ints]:
    """Return the users who have some of the ranked items, and the ranks of these, in order."""
    table = read_frame(own, "own", USER, ITEM)
    rows, places = user_ids.codes(table.ids(USER)), ranked.codes(table.ids(ITEM))
    both = (rows >= 0) & (places >= 0)
    pairs = np.unique(rows[both].astype(np.int64) * len(ranked) + places[both])
    return pairs // len(ranked), pairs % len(ranked)


def _fill_slots(rows: Ints, places: Ints, n_users: int, n_ranked: int, k: int) -> tuple[Ints, Ints]:
    """Return user and rank of every slot: the first k ranks that a user does not have.

    Args:
        rows: user of each item that is left out.
        places: its rank; ranks ascend for each user, and users ascend.
        n_users: number of users.
        n_ranked: number of ranks.
        k: slots per user.
    """
    n_before = np.arange(len(rows)) - np.searchsorted(rows, rows)  # left out at better ranks
    passed = places - n_before < k  # would be in the first k slots
    rows, places = rows[passed], places[passed]
    lengths = np.minimum(k + np.bincount(rows, minlength=n_users), n_ranked)
    ends = np.cumsum(lengths)
    users = np.repeat(np.arange(n_users), lengths)
    ranks = np.arange(len(users)) - np.repeat(ends - lengths, lengths)
    kept = np.ones(len(users), bool)
    kept[(ends - lengths)[rows] + places] = False
    return users[kept], ranks[kept]
