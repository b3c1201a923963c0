"""Tables of a fit coded and counted."""

from __future__ import annotations

import warnings
from typing import Any

import trimtab as tt
from trimtab.learn.counted import Counted, count_tables
from trimtab.learn.learners import divide
from trimtab.learn.sales import USUAL_WINDOW, Events, Grid, History, count_sales, history_before
from trimtab.tables.times import DAY

DEFAULT = tt.BiasLearner()


def count(
    recs: Any, recent: Any, learner: Any = DEFAULT, duplicates: str = "error", **tables: Any
) -> Counted:
    """What a fit in memory counts before it learns."""
    divided = divide(learner, duplicates, recs=recs, recent=recent, **tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return count_tables(learner.biases, *divided)


def history_of(
    items: Any, users: Any, times: Any, before: int | None, n_items: int,
    window: int = USUAL_WINDOW, weights: Any = None,
) -> History:  # fmt: skip
    """What was sold before an instant; ticks are counted from it."""
    events = Events(items, users, times, weights)
    if times is None or before is None:
        return history_before(count_sales(events, None, n_items), 1, n_items, window, timed=False)
    grid = Grid(before % DAY)
    sales = count_sales(events, grid.ticks(times), n_items)
    return history_before(sales, grid.tick(before), n_items, window)
