"""From a model that knows users and items by number to a table of lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.adapters.request import Request
from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.columns import ITEM, SCORE, USER
from trimtab.tables.frames import find_repeat, group_scored, merge_repeats, take_ids
from trimtab.tables.id_labels import Labels

_FEW = 4  # blocks of users; with more there is a bar to look at
MOST = 3.4e38  # libraries mark what must not be shown by the lowest float32, or minus infinity


class Source(Protocol):
    """A model that knows users and items by number."""

    @property
    def n_users(self) -> int:
        """How many users it knows."""

    @property
    def n_items(self) -> int:
        """How many items it knows."""

    @property
    def at_once(self) -> int:
        """Users that fit into memory together."""

    def lists(self, rows: Ints, n: int, items: Labels) -> Lists:
        """The n best items of each row, as codes, in the one total order."""


class Found(NamedTuple):
    """Rows of lists in any order."""

    units: NDArray[Any]  # places among the users asked for
    items: NDArray[Any]  # numbers, or codes; below 0 for a place that is not taken
    scores: NDArray[Any]

    def coded(self, items: Labels) -> Found:
        """Those that are recommendations at all, items as codes."""
        scores = self.scores.astype(np.float64)
        real = (np.abs(scores) < MOST) & (self.items >= 0)  # false for nan
        codes = items.codes[self.items[real]]
        return Found(self.units[real].astype(np.int32), codes, scores[real])

    def ranked(self, n_units: int, n: int, n_items: int) -> Lists:
        """The n best of each unit, each item once at its best score; items must be codes."""
        lists = group_scored(*self, n_units)
        if find_repeat(lists, n_items):
            lists = merge_repeats(lists, "max")
        return rank_lists(lists, n, np.zeros(n_items))


def recs_of(
    source: Source, request: Request, own_users: Any | None = None, own_items: Any | None = None
) -> Any:
    """The table of lists: user_id, item_id, score.

    Args:
        source: the model.
        request: what was asked for.
        own_users: ids by number, if the library has them.
        own_items: the same of items.
    """
    given_users = request.user_ids if own_users is None else own_users
    given_items = request.item_ids if own_items is None else own_items
    users = Labels.read(given_users, source.n_users, "user_ids", USER)
    items = Labels.read(given_items, source.n_items, "item_ids", ITEM)
    wanted = users.find(request.users)
    rows = users.numbers[wanted]
    n = min(request.n, source.n_items)
    starts = range(0, len(rows), source.at_once) if n else range(0)
    blocks = [
        source.lists(rows[start : start + source.at_once], n, items) for start in _shown(starts)
    ]
    return write_recs(_columns(blocks, wanted, users, items), request.users)


def _shown(starts: range) -> Iterable[int]:
    """The same, with a bar on a terminal if there are many."""
    if len(starts) <= _FEW or not sys.stderr.isatty():
        return starts
    from rich.console import Console
    from rich.progress import track

    return track(starts, "listing", console=Console(stderr=True), transient=True)


def _columns(blocks: list[Lists], wanted: Ints, users: Labels, items: Labels) -> dict[str, Any]:
    lengths: Ints = np.concatenate([np.empty(0, np.int64), *(np.diff(b.indptr) for b in blocks)])
    codes: Codes = np.concatenate([np.empty(0, np.int32), *(b.items for b in blocks)])
    scores: Floats = np.concatenate([np.empty(0), *(b.scores for b in blocks)])
    return {
        USER: take_ids(users.ids, np.repeat(wanted[: len(lengths)], lengths).astype(np.int32)),
        ITEM: take_ids(items.ids, codes),
        SCORE: scores,
    }


def write_recs(columns: dict[str, Any], users: Any | None) -> Any:
    """An Arrow table; the same kind of data frame as `users` if that is one."""
    table = pa.table(columns)
    given = None if users is None else nw.from_native(users, pass_through=True)
    if not isinstance(given, nw.DataFrame | nw.LazyFrame):
        return table
    backend = given.implementation
    if not (backend.is_pandas_like() or backend.is_polars() or backend.is_pyarrow()):
        return table
    eager = nw.from_arrow(table, backend=backend)
    return (eager.lazy() if isinstance(given, nw.LazyFrame) else eager).to_native()
