"""Models that number their users and items: what they are given, and their lists, as tables of ids.

A source returns the lists of some users as codes of item ids, so that ties go to the smaller id.
There are three: dot products of factors, rows of a sparse matrix, and libraries that only return
the best k items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Codes, Ints, Lists
from trimtab.checks import require_scipy_sparse
from trimtab.engines.base import code_users
from trimtab.engines.factorization import list_factors
from trimtab.errors import DataError, warn
from trimtab.metrics.per_user import rank_lists
from trimtab.progress import progress_reporter
from trimtab.tables.columns import ITEM, SCORE, USER, Table, read_frame, read_ids, write_frame
from trimtab.tables.lists import find_repeat, group_scored, group_sets, merge_repeats
from trimtab.tables.vocabulary import Vocabulary, id_column

_SCORE_LIMIT = 3.4e38  # libraries mark hidden items with the lowest float32 or minus infinity


class UserItems(NamedTuple):
    """A matrix of how often each user bought each item, and the ids of its rows and columns."""

    matrix: Any  # scipy.sparse.csr_matrix of float64, users x items
    user_ids: Any  # id of each row, ascending: int64 array or Arrow strings
    item_ids: Any  # id of each column, ascending


def user_items(events: Any) -> UserItems:
    """Return how often each user bought each item, as a sparse matrix with its ids.

    Args:
        events: user_id, item_id; other columns are ignored.

    Returns:
        `matrix`, a SciPy CSR matrix of counts, users x items; `user_ids` by row and `item_ids` by
        column, both ascending. Pass it to `recs_from` as `data=`; it includes the ids.

    Example:
        >>> import pyarrow as pa
        >>> bought = user_items(pa.table({"user_id": [7, 7, 9], "item_id": ["b", "b", "a"]}))
        >>> bought.matrix.toarray().tolist(), bought.user_ids.tolist()
        ([[0.0, 2.0], [1.0, 0.0]], [7, 9])
    """
    table = read_frame(events, "events", USER, ITEM)
    users, (user_codes,) = Vocabulary.encode(table.ids(USER))
    items, (item_codes,) = Vocabulary.encode(table.ids(ITEM))
    entries = (np.ones(len(table)), (user_codes, item_codes))
    sparse = require_scipy_sparse("a sparse matrix")
    return UserItems(sparse.csr_matrix(entries, (len(users), len(items))), users.ids, items.ids)


@dataclass
class Request:
    """The arguments of `recs_from`, without the model; ids of `UserItems` where none were given."""

    users: Any | None
    n: int
    data: Any | None
    user_ids: Any | None
    item_ids: Any | None
    user_features: Any | None
    item_features: Any | None
    exclude_known: bool

    def __post_init__(self) -> None:
        if isinstance(self.data, UserItems):
            self.user_ids = self.data.user_ids if self.user_ids is None else self.user_ids
            self.item_ids = self.data.item_ids if self.item_ids is None else self.item_ids
            self.data = self.data.matrix

    def matrix(self, what: str, n_users: int | None = None, n_items: int | None = None) -> Any:
        """Return `data` as a CSR matrix, users x items; raise if it is missing or misshapen."""
        if self.data is None:
            raise DataError(
                f"data=None: {what} the user-item matrix that the model was trained on; pass a "
                f"scipy.sparse matrix or trimtab.user_items(events)"
            )
        if not is_sparse(self.data):
            raise DataError(
                f"data is a {type(self.data).__name__}: it must be a scipy.sparse matrix, users x "
                f"items; pass trimtab.user_items(events)"
            )
        shape = tuple(self.data.shape)
        if shape != (n_users or shape[0], n_items or shape[1]):
            raise DataError(
                f"data has {shape[0]} users and {shape[1]} items, but the model has {n_users} and "
                f"{n_items}; pass the matrix that the model was trained on"
            )
        return require_scipy_sparse("a sparse matrix").csr_matrix(self.data)

    def known_matrix(self, n_users: int, n_items: int) -> Any | None:
        """Return the matrix of items that users already have, or None if they may stay."""
        if self.data is None and not self.exclude_known:
            return None
        matrix = self.matrix("exclude_known=True needs", n_users, n_items)
        return matrix if self.exclude_known else None

    def dataset(self, library: str, name: str, *parts: str) -> tuple[Any, ...]:
        """Return attributes of a library's dataset; raise if `data` is missing or something else.

        Args:
            library: which models need it, as in "RecTools models".
            name: its class.
            parts: the attributes.
        """
        if not all(hasattr(self.data, part) for part in parts):
            given = "missing" if self.data is None else f"a {type(self.data).__name__}"
            raise DataError(f"data is {given}: {library} need their training dataset, a {name}")
        return tuple(getattr(self.data, part) for part in parts)


def is_sparse(value: Any) -> bool:
    """Return whether a value is a SciPy sparse matrix or array, without importing SciPy."""
    return any(kind.__module__.startswith("scipy.sparse") for kind in type(value).__mro__)


# Lists --------------------------------------------------------------------------------------------


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


def from_matrix(matrix: Any, known: Any | None) -> Source:
    """Return a source of the explicit entries of a CSR matrix of scores; repeated ones are summed.

    Args:
        matrix: users x items.
        known: user-item matrix of items to leave out.
    """
    n_users, n_items = matrix.shape

    def lists(rows: Ints, n: int, item_codes: Codes) -> Lists:
        scored = matrix[rows].astype(np.float64)
        scored.sum_duplicates()
        units, numbers = _entries(scored)
        scores = scored.data
        if known is not None:
            hidden_units, hidden = _entries(known[rows])
            pairs = (units * n_items + numbers, hidden_units * n_items + hidden)
            scores = np.where(np.isin(*pairs), np.nan, scores)
        return rank_rows((units, numbers, scores), item_codes, len(rows), n)

    return Source(n_users, n_items, 1024, lists)


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
    _, codes = code_users(request.users, users)
    wanted = codes[codes >= 0]
    if len(wanted) < len(codes):
        warn(
            f"{len(codes) - len(wanted)} of {len(codes)} users get no list: the model does not "
            f"know them; check that users and model have the same ids"
        )
    rows, n = np.argsort(user_codes)[wanted], min(request.n, source.n_items)
    block = source.users_per_block
    starts = range(0, len(rows) if n else 0, block)
    blocks = [Lists(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))]
    with progress_reporter(None, label="listing") as show:
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
    table, given = pa.table(columns), as_frame(users)
    if given is None:
        return table
    eager = nw.from_arrow(table, backend=given.head(0).lazy().collect().implementation)
    return (eager.lazy() if isinstance(given, nw.LazyFrame) else eager).to_native()


def as_frame(given: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any] | None:
    """Return any data frame as one of narwhals; None for anything else."""
    frame = nw.from_native(given, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame | nw.LazyFrame) else None
