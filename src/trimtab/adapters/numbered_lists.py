"""Turn a model that numbers users and items into a table of lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.adapters.numbered_ids import NumberedIds
from trimtab.adapters.request import Request
from trimtab.arrays import Codes, Floats, Ints, Lists
from trimtab.metrics.ranking import rank_lists
from trimtab.tables.columns import ITEM, SCORE, USER
from trimtab.tables.lists import find_repeat, group_scored, merge_repeats
from trimtab.tables.vocabulary import take_ids

_BLOCKS_WITHOUT_BAR = 4
SCORE_LIMIT = 3.4e38  # libraries mark hidden items with the lowest float32 or minus infinity


class ListSource(Protocol):
    """A model that numbers users and items."""

    @property
    def n_users(self) -> int:
        """Number of users."""

    @property
    def n_items(self) -> int:
        """Number of items."""

    @property
    def users_per_block(self) -> int:
        """Number of users that fit into memory together."""

    def lists(self, rows: Ints, n: int, items: NumberedIds) -> Lists:
        """Return the n best items of each user, as codes, in the ranking order."""


class ScoredRows(NamedTuple):
    """Scored items of units, in any order."""

    units: NDArray[Any]  # positions of the requested users
    items: NDArray[Any]  # item numbers, or codes; below 0 for an empty slot
    scores: NDArray[Any]

    def with_codes(self, items: NumberedIds) -> ScoredRows:
        """Return the rows that are recommendations, with items as codes."""
        scores = self.scores.astype(np.float64)
        valid = (np.abs(scores) < SCORE_LIMIT) & (self.items >= 0)  # False for nan
        codes = items.codes[self.items[valid]]
        return ScoredRows(self.units[valid].astype(np.int32), codes, scores[valid])

    def rank(self, n_units: int, n: int, n_items: int) -> Lists:
        """Return the n best items of each unit, each once with its best score; items are codes."""
        lists = group_scored(*self, n_units)
        if find_repeat(lists, n_items):
            lists = merge_repeats(lists, "max")
        return rank_lists(lists, n, np.zeros(n_items))


def recs_from_source(
    source: ListSource, request: Request, user_ids: Any | None = None, item_ids: Any | None = None
) -> Any:
    """Return the table of lists: user_id, item_id, score.

    Args:
        source: the model.
        request: arguments of `recs_from`.
        user_ids: id of each user number, if the library has them; by default those of `request`.
        item_ids: id of each item number, if the library has them; by default those of `request`.
    """
    user_ids = request.user_ids if user_ids is None else user_ids
    item_ids = request.item_ids if item_ids is None else item_ids
    users = NumberedIds.read(user_ids, source.n_users, "user_ids", USER)
    items = NumberedIds.read(item_ids, source.n_items, "item_ids", ITEM)
    wanted = users.find(request.users)
    rows = users.numbers[wanted]
    n = min(request.n, source.n_items)
    starts = range(0, len(rows), source.users_per_block) if n else range(0)
    blocks = [
        source.lists(rows[start : start + source.users_per_block], n, items)
        for start in _with_progress_bar(starts)
    ]
    return write_recs(_columns(blocks, wanted, users, items), request.users)


def _with_progress_bar(starts: range) -> Iterable[int]:
    """Return the same range, with a progress bar on a terminal if it is long."""
    if len(starts) <= _BLOCKS_WITHOUT_BAR or not sys.stderr.isatty():
        return starts
    from rich.console import Console
    from rich.progress import track

    return track(starts, "listing", console=Console(stderr=True), transient=True)


def _columns(
    blocks: list[Lists], wanted: Ints, users: NumberedIds, items: NumberedIds
) -> dict[str, Any]:
    lengths: Ints = np.concatenate([np.empty(0, np.int64), *(np.diff(b.indptr) for b in blocks)])
    codes: Codes = np.concatenate([np.empty(0, np.int32), *(b.items for b in blocks)])
    scores: Floats = np.concatenate([np.empty(0), *(b.scores for b in blocks)])
    return {
        USER: take_ids(users.ids, np.repeat(wanted[: len(lengths)], lengths).astype(np.int32)),
        ITEM: take_ids(items.ids, codes),
        SCORE: scores,
    }


def write_recs(columns: dict[str, Any], users: Any | None) -> Any:
    """Return the columns as the type of frame of `users`, or else an Arrow table."""
    table = pa.table(columns)
    given = None if users is None else nw.from_native(users, pass_through=True)
    if not isinstance(given, nw.DataFrame | nw.LazyFrame):
        return table
    backend = given.implementation
    if not (backend.is_pandas_like() or backend.is_polars() or backend.is_pyarrow()):
        return table
    eager = nw.from_arrow(table, backend=backend)
    return (eager.lazy() if isinstance(given, nw.LazyFrame) else eager).to_native()
