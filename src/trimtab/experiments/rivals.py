"""What Trimtab is compared with: the free ways to follow a trend without learning biases.

Rivals that re-score take lists of any engine and give them back with other scores; rivals that
retrain give another engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.checks import require_number
from trimtab.engines.base import Engine
from trimtab.tables.columns import ITEM, SCORE
from trimtab.tables.frames import known_ids, read_frame, take_ids, write_frame
from trimtab.tables.ids import IdColumn, encode_ids
from trimtab.tables.rec_lists import read_lists

_PRIOR_LISTS = 10
AnyEngine = TypeVar("AnyEngine", bound=Engine)


def truncate(engine: AnyEngine, days: float = 14) -> AnyEngine:
    """The engine learning from the last days only; its own window stands if that is shorter."""
    own = engine.window_days
    return replace(engine, window_days=days if own is None else min(own, days))


def decay(engine: AnyEngine, days: float = 60) -> AnyEngine:
    """The engine with events weighed by exp(-age / days)."""
    return replace(engine, decay_days=days)


def distribution_difference(recs: Any, recent: Any, history: Any, factor: float = 1.0) -> Any:
    """Lists with factor x (recent share - long-run share) of each item added to its score.

    Scores are first divided by the user's sum of them, so that both are shares; users whose
    scores sum to 0 or less keep them as they are.

    Args:
        recs: user_id, item_id, score.
        recent: item_id: purchases of the last days.
        history: item_id: purchases of the long run.
        factor: how much the difference counts.
    """
    require_number("factor", factor, 0)
    scores, items, others = _read(recs, recent=recent, history=history)
    sums = np.add.reduceat(scores.values, scores.starts)
    sums = np.where(sums > 0, sums, 1.0)
    shares = scores.values / np.repeat(sums, scores.lengths)
    change = _shares(others["recent"]) - _shares(others["history"])
    return scores.write(shares + factor * change[items])


def popularity_ratio(recs: Any, shown: Any, recent: Any, gamma: float = 0.2) -> Any:
    """Lists with each score times (bought / recommended) ** gamma.

    How often an item was recommended is the number of lists it is in. To both counts come those of
    ten more lists at the average rate, so that without evidence the ratio is the average one.
    Scores below 0 are divided by it instead, so that a higher ratio always lifts.

    Args:
        recs: user_id, item_id, score.
        shown: item_id: lists made before the recent window.
        recent: item_id: purchases of the window.
        gamma: 0 changes nothing.
    """
    require_number("gamma", gamma, 0)
    scores, items, counts = _read(recs, recent=recent, shown=shown)
    bought, recommended = counts["recent"], counts["shown"]
    average = bought[recommended > 0].sum() / recommended.sum()
    if average == 0:
        return recs
    ratio = (bought + _PRIOR_LISTS * average) / (recommended + _PRIOR_LISTS)
    return scores.write(_multiplied(scores.values, ratio[items] ** gamma))


def recent_popularity(recs: Any, recent: Any, gamma: float = 0.1) -> Any:
    """Lists with each score times (1 + recent purchases) ** gamma; below 0, divided by it.

    Args:
        recs: user_id, item_id, score.
        recent: item_id: purchases of the last days.
        gamma: 0 changes nothing.
    """
    require_number("gamma", gamma, 0)
    scores, items, counts = _read(recs, recent=recent)
    return scores.write(_multiplied(scores.values, (1.0 + counts["recent"][items]) ** gamma))


class _Scores:
    """Scores of a table of lists by unit, that can be written back with others in their place."""

    def __init__(self, recs: Any) -> None:
        coded = read_lists(recs, "never", "error")
        self._coded = coded
        self.values: Floats = coded.lists.scores
        self.lengths: Ints = np.diff(coded.lists.indptr)
        self.starts: Ints = coded.lists.indptr[:-1]  # no unit's list is empty here

    def write(self, values: Floats) -> Any:
        coded = self._coded
        units = np.repeat(np.arange(len(coded.units), dtype=np.int32), self.lengths)
        columns = coded.units.columns(units)
        columns[ITEM] = take_ids(coded.item_ids, coded.lists.items)
        columns[SCORE] = values
        return write_frame(columns, coded.table)

    @property
    def items(self) -> IdColumn:
        return known_ids("recs", ITEM, self._coded.item_ids)

    @property
    def item_codes(self) -> Any:
        return self._coded.lists.items


def _read(recs: Any, **tables: Any) -> tuple[_Scores, Any, dict[str, Floats]]:
    """Scores, their items as common codes, and how often each table has each item."""
    scores = _Scores(recs)
    columns = [read_frame(table, name, ITEM).ids(ITEM) for name, table in tables.items()]
    ids, (own, *others) = encode_ids([scores.items, *columns])
    counts = {
        name: np.bincount(codes, minlength=len(ids)).astype(np.float64)
        for name, codes in zip(tables, others, strict=True)
    }
    return scores, own[scores.item_codes], counts


def _multiplied(scores: Floats, factors: Floats) -> Floats:
    """Scores times factors; those below 0 divided, so that a larger factor always lifts."""
    return np.where(scores >= 0, scores * factors, scores / factors)


def _shares(counts: Floats) -> Floats:
    shares: Floats = counts / counts.sum()
    return shares
