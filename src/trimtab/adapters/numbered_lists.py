"""Lists of models that number their users and items: the best items by number, as a table of ids.

A source returns the lists of some users as codes of item ids, so that ties go to the smaller id.
There are three: dot products of factors, rows of a sparse matrix, and libraries that only return
the best k items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.adapters.requests import Request
from trimtab.arrays import Codes, Ints, Lists
from trimtab.engines.base import code_users
from trimtab.engines.factorization import list_factors
from trimtab.errors import DataError, warn
from trimtab.metrics.per_user import rank_lists
from trimtab.progress import show_parts
from trimtab.tables.columns import ITEM, SCORE, USER, Table, read_ids, write_frame
from trimtab.tables.lists import find_repeat, group_scored, group_sets, merge_repeats
from trimtab.tables.vocabulary import Vocabulary, id_column

_SCORE_LIMIT = 3.4e38  # libraries mark hidden items with the lowest float32 or minus infinity


def _read_numbered(
    values: Any | None, size: int, name: str, column: str
) -> tuple[Vocabulary, Codes]:
    """Return the ids of `size` numbers and the code of each; for None, the numbers themselves.

    Args:
        values: one distinct id for each number.
        size: number of ids needed.
        name: argument to name in errors.
        column: column that the ids belong to.
    """
    if values is None:
        codes = np.arange(size, dtype=np.int32)
        return Vocabulary(np.arange(size), "the model", column), codes
    given = read_ids(values, name, column)
    if len(given) != size:
        raise DataError(
            f"{name} has {len(given)} ids, but the model has {size}: pass one id for each, in "
            f"the order of the model"
        )
    found, (codes,) = Vocabulary.encode(id_column(name, column, given))
    if len(found) < size:
        repeated = found[np.bincount(codes).argmax()]
        raise DataError(f"{name} has {repeated} more than once; ids must be distinct")
    return Vocabulary(found.ids, "the model", column), codes


def find_users(known: Vocabulary, users: Any | None) -> Codes:
    """Return the codes of the given users, ascending; a warning counts the unknown ones."""
    if users is not None and len(known) == 0:  # ids of any type
        n_users = len(pc.unique(read_ids(users, "users", USER)))
        warn_of_missing(n_users, n_users, "the model has no users")
        return np.empty(0, np.int32)
    _, codes = code_users(users, known)
    warn_of_missing(int((codes < 0).sum()), len(codes), "the model does not know them")
    return codes[codes >= 0]


def warn_of_missing(n_missing: int, n_users: int, reason: str) -> None:
    """Warn that some of the users asked for get no list.

    Args:
        n_missing: number of them.
        n_users: distinct users asked for.
        reason: why, as part of a sentence.
    """
    if n_missing:
        warn(
            f"{n_missing} of {n_users} users get no list: {reason}; check that users and model "
            f"have the same ids"
        )


ScoredRows = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Scored items in any order: positions of requested users, item numbers (below 0 for an empty slot)
and scores."""


def rank_rows(rows: ScoredRows, item_codes: Codes, n_units: int, n: int) -> Lists:
    """Return the n best items of each unit as codes, each once with its best score.

    Rows that are no recommendations are left out: empty slots and scores that are not finite.
    """
    units, items, scores = rows
    valid = (np.abs(scores) < _SCORE_LIMIT) & (items >= 0)  # False for nan
    codes, heights = item_codes[items[valid]], scores[valid].astype(np.float64)
    lists = group_scored(units[valid].astype(np.int32), codes, heights, n_units)
    if find_repeat(lists, len(item_codes)):
        lists = merge_repeats(lists, "max")
    return rank_lists(lists, n, np.zeros(len(item_codes)))


class Source(NamedTuple):
    """A model that numbers users and items."""

    n_users: int
    n_items: int
    users_per_block: int  # that fit into memory together
    lists: Callable[[Ints, int, Codes], Lists]  # user numbers, n, item codes by number


def from_factors(users: NDArray[Any], items: NDArray[Any], known: Any | None) -> Source:
    """Return a source of exact lists from factors, in double precision.

    Args:
        users: users x factors.
        items: items x factors.
        known: user-item matrix of items to leave out.
    """

    def lists(rows: Ints, n: int, item_codes: Codes) -> Lists:
        hidden = None
        if known is not None:
            units, numbers = _entries(known[rows])
            hidden = group_sets(units.astype(np.int32), item_codes[numbers], len(rows))
        own, by_code = users[rows].astype(np.float64), items[np.argsort(item_codes)]
        return list_factors(own, by_code.astype(np.float64), n, hidden, limit=_SCORE_LIMIT)

    return Source(len(users), len(items), 65_536, lists)


def from_matrix(
    rows_of: Callable[[Ints], Any], shape: tuple[int, int], known: Any | None, block: int = 1024
) -> Source:
    """Return a source of the explicit entries of a sparse matrix of scores.

    Args:
        rows_of: user numbers to a CSR matrix with one row per user.
        shape: numbers of users and items.
        known: user-item matrix of items to leave out.
        block: users whose rows fit into memory together.
    """

    def lists(rows: Ints, n: int, item_codes: Codes) -> Lists:
        scored = rows_of(rows)
        units, numbers = _entries(scored)
        scores = scored.data
        if known is not None:
            hidden_units, hidden = _entries(known[rows])
            pairs = (units * shape[1] + numbers, hidden_units * shape[1] + hidden)
            scores = np.where(np.isin(*pairs), np.nan, scores)
        return rank_rows((units, numbers, scores), item_codes, len(rows), n)

    return Source(*shape, block, lists)


def _entries(matrix: Any) -> tuple[Ints, NDArray[Any]]:
    """Return row and column of each entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices


def from_best_k(
    query: Callable[[Ints, int], ScoredRows], n_users: int, n_items: int, block: int = 4096
) -> Source:
    """Return a source that asks for more items while scores tie at the n-th slot.

    A library orders equal scores in its own way. Asking until the score drops returns all tied
    items, and the smaller ids are kept.

    Args:
        query: user numbers and k to at most k items per user.
        n_users: number of users.
        n_items: number of items.
        block: users to ask for together.
    """

    def lists(rows: Ints, n: int, item_codes: Codes) -> Lists:
        numbers = np.argsort(item_codes)
        settled, waiting = [], np.arange(len(rows))
        k = min(n + 1, n_items)
        while len(waiting):
            ranked = rank_rows(query(rows[waiting], k), item_codes, len(waiting), k)
            done = np.diff(ranked.indptr) < k
            starts = ranked.indptr[:-1][~done]
            tied = ranked.scores[starts + n - 1] == ranked.scores[starts + k - 1]
            done[~done] = ~tied | (k == n_items)
            units = np.repeat(np.arange(len(waiting)), np.diff(ranked.indptr))
            found = (waiting[units], numbers[ranked.items], ranked.scores)
            settled.append([values[done[units]] for values in found])
            waiting = waiting[~done]
            k = min(2 * k, n_items)
        units, items, scores = map(np.concatenate, zip(*settled, strict=True))
        return rank_rows((units, items, scores), item_codes, len(rows), n)

    return Source(n_users, n_items, block, lists)


def write_lists(source: Source, request: Request, like: Table | None = None) -> Any:
    """Return the lists of the requested users, as the type of frame of `like` or of the users."""
    users, user_codes = _read_numbered(request.user_ids, source.n_users, "user_ids", USER)
    items, item_codes = _read_numbered(request.item_ids, source.n_items, "item_ids", ITEM)
    wanted = find_users(users, request.users)
    rows, n = np.argsort(user_codes)[wanted], min(request.n, source.n_items)
    block = source.users_per_block
    starts = range(0, len(rows) if n else 0, block)
    blocks = [Lists(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))]
    with show_parts(None, "listing") as show:
        for start in starts:
            blocks.append(source.lists(rows[start : start + block], n, item_codes))
            show(1, len(blocks) - 1, len(starts))
    lengths = np.concatenate([np.diff(part.indptr) for part in blocks])
    columns = {
        USER: users.take(np.repeat(wanted[: len(lengths)], lengths)),
        ITEM: items.take(np.concatenate([part.items for part in blocks])),
        SCORE: np.concatenate([part.scores for part in blocks]),
    }
    return _as_frame_of(columns, request.users) if like is None else write_frame(columns, like)


def _as_frame_of(columns: dict[str, Any], users: Any | None) -> Any:
    """Return columns as the type of frame of `users`, or as an Arrow table."""
    table = pa.table(columns)
    given = None if users is None else nw.from_native(users, pass_through=True)
    if not isinstance(given, nw.DataFrame | nw.LazyFrame):
        return table
    backend = given.implementation
    if not (backend.is_pandas_like() or backend.is_polars() or backend.is_pyarrow()):
        return table
    eager = nw.from_arrow(table, backend=backend)
    return (eager.lazy() if isinstance(given, nw.LazyFrame) else eager).to_native()
