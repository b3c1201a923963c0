"""Tables of a fit coded and counted, and users divided into parts that all lie in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import trimtab as tt
from trimtab.learn.coded_part import Reading, is_by_user
from trimtab.learn.counted import Counted, count_tables
from trimtab.learn.learners import divide
from trimtab.learn.sales import USUAL_WINDOW, Events, Grid, History, count_sales, history_before
from trimtab.tables.columns import USER
from trimtab.tables.times import DAY

DEFAULT = tt.BiasLearner()


class ManyParts(NamedTuple):
    """Several parts of the users in memory, in the order of their ids."""

    values: list[Any]

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        return (function(value, *given) for value in self.values)

    def keep(self, function: Callable[..., Any], *given: Any) -> ManyParts:
        return ManyParts(list(self.map(function, *given)))


def count(
    recs: Any, recent: Any, learner: Any = DEFAULT, duplicates: str = "error", **tables: Any
) -> Counted:
    """What a fit in memory counts before it learns."""
    return _count(learner, *divided(recs, recent, learner, duplicates, **tables))


def divided(
    recs: Any, recent: Any, learner: Any = DEFAULT, duplicates: str = "error", **tables: Any
) -> tuple[Any, dict[str, Any], Reading]:
    """All users in one part, the other tables, and how they are read."""
    return divide(learner, duplicates, recs=recs, recent=recent, **tables)


def count_in_parts(n_parts: int, learner: Any = DEFAULT, **tables: pa.Table) -> Counted:
    """The same for users in so many parts, of about as many users each."""
    _, shared, reading = divided(**tables, learner=learner)
    return _count(learner, cut(tables, n_parts), shared, reading)


def cut(tables: Mapping[str, pa.Table], n_parts: int) -> ManyParts:
    """Tables by user, divided by ranges of user ids; some parts may lack rows of a table."""
    own = {name: t for name, t in tables.items() if is_by_user(name, t.column_names)}
    users = np.unique(np.concatenate([_users(table) for table in own.values()]))
    bounds = [group[0] for group in np.array_split(users, n_parts)]

    def part_of(table: pa.Table) -> Any:
        return np.searchsorted(bounds, _users(table), "right") - 1

    return ManyParts(
        [
            {name: table.filter(pa.array(part_of(table) == part)) for name, table in own.items()}
            for part in range(n_parts)
        ]
    )


def _users(table: pa.Table) -> Any:
    return table[USER].to_numpy(zero_copy_only=False)


def _count(learner: Any, parts: Any, shared: dict[str, Any], reading: Reading) -> Counted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tt.TrimtabWarning)
        return count_tables(learner.biases, parts, shared, reading)


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
