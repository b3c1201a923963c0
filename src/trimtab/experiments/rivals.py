"""Rival methods: simple ways to follow a trend without learning biases.

Some take lists of any engine and return them with other scores; others return an engine with other
settings, to be trained again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from trimtab.arrays import Floats, Ints
from trimtab.checks import require_number
from trimtab.engines.base import Engine
from trimtab.tables.columns import ITEM, SCORE
from trimtab.tables.frames import read_frame, write_frame
from trimtab.tables.lists import read_lists
from trimtab.tables.vocabulary import IdColumn, Vocabulary

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
    scores, items, counts = _read(recs, recent=recent, history=history)
    sums = np.add.reduceat(scores.values, scores.starts)
    sums = np.where(sums > 0, sums, 1.0)
    shares = scores.values / np.repeat(sums, scores.lengths)
    change = _shares(counts["recent"]) - _shares(counts["history"])
    return scores.write(shares + factor * change[items])


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
    scores, items, counts = _read(recs, recent=recent, shown=shown)
    bought, recommended = counts["recent"], counts["shown"]
    average = bought[recommended > 0].sum() / recommended.sum()
    if average == 0:
        return recs
    ratio = (bought + _PRIOR_LISTS * average) / (recommended + _PRIOR_LISTS)
    return scores.write(_multiplied(scores.values, ratio[items] ** gamma))


def recent_popularity(recs: Any, recent: Any, gamma: float = 0.1) -> Any:
    """Return lists with scores multiplied (below 0: divided) by (1 + recent purchases) ** gamma.

    Args:
        recs: user_id, item_id, score.
        recent: item_id of the purchases of the last days.
        gamma: strength; 0 changes nothing.
    """
    require_number("gamma", gamma, 0)
    scores, items, counts = _read(recs, recent=recent)
    return scores.write(_multiplied(scores.values, (1.0 + counts["recent"][items]) ** gamma))


class _Scores:
    """Scores of lists, which can be written back with new values."""

    def __init__(self, recs: Any) -> None:
        coded = read_lists(recs, "never", "error")
        self._coded = coded
        self.values: Floats = coded.lists.scores
        self.lengths: Ints = np.diff(coded.lists.indptr)
        self.starts: Ints = coded.lists.indptr[:-1]  # no list is empty here

    def write(self, values: Floats) -> Any:
        coded = self._coded
        units = np.repeat(np.arange(len(coded.units), dtype=np.int32), self.lengths)
        columns = coded.units.columns(units)
        columns[ITEM] = Vocabulary(coded.item_ids).take(coded.lists.items)
        columns[SCORE] = values
        return write_frame(columns, coded.table)

    @property
    def items(self) -> IdColumn:
        return Vocabulary(self._coded.item_ids).column

    @property
    def item_codes(self) -> Any:
        return self._coded.lists.items


def _read(recs: Any, **tables: Any) -> tuple[_Scores, Any, dict[str, Floats]]:
    """Return scores, their items as common codes, and how often each table has each item."""
    scores = _Scores(recs)
    columns = [read_frame(table, name, ITEM).ids(ITEM) for name, table in tables.items()]
    ids, (own, *others) = Vocabulary.encode(scores.items, *columns)
    counts = {
        name: np.bincount(codes, minlength=len(ids)).astype(np.float64)
        for name, codes in zip(tables, others, strict=True)
    }
    return scores, own[scores.item_codes], counts


def _multiplied(scores: Floats, factors: Floats) -> Floats:
    """Return scores times factors; scores below 0 are divided, so a larger factor raises both."""
    return np.where(scores >= 0, scores * factors, scores / factors)


def _shares(counts: Floats) -> Floats:
    shares: Floats = counts / counts.sum()
    return shares
