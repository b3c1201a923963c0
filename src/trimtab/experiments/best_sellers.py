"""Best sellers for everyone: the rival that needs neither an engine nor learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.arrays import Ints
from trimtab.checks import MOST_K, require_k
from trimtab.learn.personal_units import repeats_own
from trimtab.metrics.evaluation import evaluate_units
from trimtab.tables.columns import ITEM, SCORE, USER
from trimtab.tables.frames import read_frame, write_frame
from trimtab.tables.vocabulary import Vocabulary


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
