"""Fold biases into item vectors, so an inner-product index ranks by the biased score.

    additive   v becomes (v, b), a query u becomes (u, 1):     the product is u·v + b
    log        v becomes v·exp(b), a query stays as it is:     the product is u·v · exp(b)

A log bias multiplies scores above 0 and divides scores below 0. A vector can only multiply, but
scores keep their sign either way, so the ranking is right as far down as scores are at least 0:
every user needs k of those. Rows of excluded items are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Floats, Ints, Singles
from trimtab.checks import require_number
from trimtab.errors import DataError, SettingError, warn
from trimtab.models.list_ranking import spread
from trimtab.models.model import BiasTable
from trimtab.tables.columns import ITEM
from trimtab.tables.frames import read_ids
from trimtab.tables.vocabulary import Vocabulary, id_column

_LEAST_FOR_INDEX, _LEAST_TIMES_K = 500, 20
_LEAST_SHARE_ADDITIVE = 0.25  # of the items; docs/index-serving.md has what was measured
_ROWS_PER_BLOCK = 2**16
_USERS_PER_BLOCK, _ITEMS_PER_BLOCK = 2**9, 2**13  # 32 MB of products


@dataclass(frozen=True, eq=False)
class Folded:
    """Item vectors that include the biases, made by `ItemBias.fold_into`.

    Attributes:
        vectors: float32, one row per item, for the index. Read-only.
        item_ids: id of each row: int64 array or Arrow strings.
        scale: scale of the biases, "additive" or "log".
        k: number of slots that the biases were learned for.
        multiplier: factor of all products.
        n_dimensions: number of columns of the given item vectors.
        n_unknown: number of rows without a learned bias (bias 0).
    """

    vectors: Singles
    item_ids: Any
    scale: str
    k: int
    multiplier: float
    n_dimensions: int
    n_unknown: int

    def __post_init__(self) -> None:
        for array in (self.vectors, self.item_ids):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        return (
            f"Folded({len(self)} rows of {self.vectors.shape[1]} dimensions, {self.scale}; "
            f"{self.n_unknown} without a learned bias)"
        )

    def queries(self, user_vectors: Any, *, check: bool = True) -> Singles:
        """Return the queries to search the index with: float32, one row per user.

        Args:
            user_vectors: one row per user, with as many columns as the item vectors had.
            check: on the log scale, raise if a user has fewer than k items with a score of at
                least 0. This costs much less than an exact search.
        """
        users = _read_vectors("user_vectors", user_vectors)
        if users.shape[1] != self.n_dimensions:
            raise DataError(
                f"user_vectors has {users.shape[1]} columns but item_vectors had "
                f"{self.n_dimensions}; pass vectors of the same model"
            )
        queries = np.ones((len(users), self.vectors.shape[1]), np.float32)
        plain, rows = queries[:, : self.n_dimensions], np.arange(len(users))
        _fill_singles("user_vectors", plain, users, rows, np.ones(len(users)))
        if check and self.scale == "log" and min(self._lowest, plain.min(initial=0.0)) < 0:
            self._require_enough_above_zero(plain)
        return queries

    def ids(self, rows: Any, counts: Any | None = None, missing: Any | None = None) -> Any:
        """Return the item ids of the row numbers that a search returned, in the same shape.

        Args:
            rows: row numbers; negative (or the largest unsigned number) where nothing was found.
            counts: number of valid entries in each line, if a library pads lines with valid row
                numbers, as usearch does (`matches.counts`).
            missing: value where nothing was found; by default -1 for integer ids and None for
                strings.
        """
        numbers = np.asarray(rows)
        if numbers.dtype.kind not in "iu":
            raise DataError(f"rows holds {numbers.dtype}: pass the row numbers of a search")
        numbers = numbers.astype(np.int64)  # the largest unsigned number becomes -1
        if numbers.max(initial=-1) >= len(self):
            raise DataError(
                f"rows has {numbers.max()} but the index has {len(self)} rows, from 0; pass row "
                f"numbers of an index made from these vectors, not ids"
            )
        found = np.asarray(numbers >= 0)
        if counts is not None:
            found &= np.arange(numbers.shape[-1]) < np.asarray(counts)[..., None]
        if not isinstance(self.item_ids, np.ndarray):
            texts = np.full(numbers.shape, missing, object)
            texts[found] = self.item_ids.take(pa.array(numbers[found])).to_pylist()
            return texts
        missing = -1 if missing is None else missing
        if not found.all() and (self.item_ids == missing).any():
            raise SettingError(f"missing={missing}: is the id of an item; pass another number")
        ids = np.full(numbers.shape, missing, np.int64)
        ids[found] = self.item_ids[numbers[found]]
        return ids

    @cached_property
    def _lowest(self) -> float:
        """The lowest coordinate of the vectors, at most 0."""
        return float(self.vectors.min(initial=0.0))

    def _require_enough_above_zero(self, users: Singles) -> None:
        enough = min(self.k, len(self))
        counts = _count_not_negative(users, self.vectors, enough)
        short = np.flatnonzero(counts < enough)
        if len(short):
            raise DataError(
                f"user_vectors row {short[0]} (from 0) has {counts[short[0]]} items with a score "
                f"of at least 0, but needs {enough}: a folded log bias ranks only those "
                f"correctly; learn with BiasLearner(scale='additive')"
            )


def fold(bias: BiasTable, item_vectors: Any, item_ids: Any, multiplier: float) -> Folded:
    """Return item vectors that include the biases; see `ItemBias.fold_into`."""
    bias.require_common_scale("be folded into vectors")
    require_number("multiplier", multiplier, 0)
    if math.frexp(multiplier)[0] != 0.5:  # another one would round the vectors
        raise SettingError(f"multiplier={multiplier!r}: must be a power of two, such as 2.0**20")
    given = _read_vectors("item_vectors", item_vectors)
    n_rows, width = given.shape
    if given.size == 0:
        raise DataError(
            f"item_vectors has shape {given.shape}: it needs at least one row and one column"
        )
    if item_ids is None:
        _require_row_numbers(n_rows, bias.item_ids)
        item_ids = np.arange(n_rows)
    column = id_column("item_ids", ITEM, read_ids(item_ids, "item_ids", ITEM))
    if len(column) != n_rows:
        raise DataError(
            f"item_ids has {len(column)} ids but item_vectors has {n_rows} rows; pass one id per "
            f"row"
        )
    items, (codes, ours) = Vocabulary.encode(column, bias.vocabulary.column)
    counts = np.bincount(codes, minlength=len(items))
    if counts.max() > 1:
        raise DataError(
            f"item_ids has {items[counts.argmax()]} more than once; keep one row per item"
        )
    columns = (bias.bias, bias.excluded, np.ones(len(bias), bool))
    learned, excluded, known = (spread(own, ours, len(items))[codes] for own in columns)
    if not known.any():
        warn("item_ids has no item with a learned bias, so nothing changes; check that ids match")
    rows = np.flatnonzero(~excluded)
    is_log = bias.scale == "log"
    vectors = np.empty((len(rows), width + (not is_log)), np.float32)
    with np.errstate(over="ignore"):
        factors = float(multiplier) * (np.exp(learned) if is_log else np.ones(n_rows))
    if not is_log:
        _fill_singles("the bias table", vectors[:, width:], learned[:, None], rows, factors)
    _fill_singles("item_vectors", vectors[:, :width], given, rows, factors)
    values = column.values
    is_array = isinstance(values, np.ndarray)
    folded_ids = values[rows] if is_array else values.combine_chunks().take(pa.array(rows))
    if is_log:
        _require_no_underflow(vectors, given[rows], folded_ids)
    n_unknown = int(np.count_nonzero(~known[rows]))
    return Folded(
        vectors, folded_ids, bias.scale, bias.summary.k, float(multiplier), width, n_unknown
    )


def _require_no_underflow(vectors: Singles, given: NDArray[Any], ids: Any) -> None:
    """Raise if a bias is so low that its row becomes 0 in float32, which would lose the order."""
    largest = np.abs(vectors).max(axis=1)
    lost = np.flatnonzero((largest < np.finfo(np.float32).tiny) & given.any(axis=1))
    if len(lost):
        raise DataError(
            f"{ITEM} {ids[int(lost[0])]} has a bias so low that its vector becomes 0 in float32; "
            f"learn with max_bias=, or fold with a larger multiplier="
        )


def _require_row_numbers(n_rows: int, learned: Any) -> None:
    """Raise unless all learned ids can be numbers of rows."""
    if not isinstance(learned, np.ndarray):
        raise DataError(
            "item_ids=None: rows would be the items 0, 1, 2, ..., but the ids of the bias table "
            "are strings; pass the id of every row as item_ids"
        )
    beyond = learned[(learned < 0) | (learned >= n_rows)]
    if len(beyond):
        raise DataError(
            f"item_ids=None: rows would be the items 0 to {n_rows - 1}, but the bias table has "
            f"{ITEM} {beyond[0]}; pass the id of every row as item_ids"
        )


def require_deep(bias: BiasTable, n_items: int) -> None:
    """Raise if biases were learned on lists too short for an index, which ranks all items.

    An additive bias can lift an item for every user, however low the engine ranks it; a log bias
    leaves low scores low. So additive biases need lists with a good part of all items.
    """
    least_of_log = least = min(max(_LEAST_FOR_INDEX, _LEAST_TIMES_K * bias.summary.k), n_items)
    if bias.scale == "additive":
        least = max(least, math.ceil(_LEAST_SHARE_ADDITIVE * n_items))
    if bias.depth is None or bias.depth >= least:
        return
    scale = "with scale='log', which needs less depth, " if least_of_log < least else ""
    raise SettingError(
        f"biases were learned on lists of {bias.depth}, but an index ranks all {n_items} items: "
        f"scale={bias.scale!r} needs lists of at least {least}; learn {scale}on "
        f"tt.recs_from(model, n={max(least_of_log, 1000)}), or pass allow_shallow=True if "
        f"what the index returns gains on later purchases by tt.evaluate"
    )


# Vectors in bounded memory ------------------------------------------------------------------------


def _read_vectors(name: str, vectors: Any) -> NDArray[Any]:
    """Return a 2-d array of real numbers, not copied; raise for anything else."""
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read ({error}); pass a 2-d array") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} holds {array.dtype}: it must be real numbers; cast the array")
    if array.ndim != 2:
        raise DataError(
            f"{name} has shape {array.shape}: it must be 2-d, one row per vector; pass "
            f"vector[None, :] for a single vector"
        )
    return array


def _fill_singles(
    name: str, out: Singles, given: NDArray[Any], rows: Ints, factors: Floats
) -> None:
    """Fill `out` with the given rows times their factors, rounded once; raise if not finite."""
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        part = rows[start : start + _ROWS_PER_BLOCK]
        block = out[start : start + len(part)]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:] = given[part] * factors[part, None]
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, place = part[bad[0, 0]], bad[0, 1]
            raise DataError(
                f"{name} has {given[row, place]} in row {row} (from 0), which becomes "
                f"{block[tuple(bad[0])]} in float32: it must be finite; fix or scale the vectors"
            )


def _count_not_negative(users: Singles, items: Singles, enough: int) -> Ints:
    """Return how many products of each user, in float64, are at least 0.

    A user's items are counted only until there are enough: the first block of items mostly is.
    """
    counts = np.zeros(len(users), np.int64)
    for start in range(0, len(items), _ITEMS_PER_BLOCK):
        block = items[start : start + _ITEMS_PER_BLOCK].astype(np.float64).T
        left = np.flatnonzero(counts < enough)
        for first in range(0, len(left), _USERS_PER_BLOCK):
            some = left[first : first + _USERS_PER_BLOCK]
            products = users[some].astype(np.float64) @ block
            counts[some] += np.count_nonzero(products >= 0, axis=1)
    return counts
