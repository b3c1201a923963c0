"""Fold biases into item vectors, so an inner-product index ranks by the biased score.

    additive   v becomes (v, b), a query u becomes (u, 1):     the product is u·v + b
    log        v becomes v·exp(b), a query stays as it is:     the product is u·v · exp(b)

A log bias multiplies scores above 0 and divides scores below 0. A vector can only multiply, but
scores keep their sign either way, so the ranking is right as far down as scores are at least 0:
every user needs k of those. A masked row has the bias -2^60, so it scores about that for every
user; on the log scale it is (0, -2^60), which needs one more coordinate there too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Flags, Floats, Ints, Singles
from trimtab.checks import require_choice
from trimtab.errors import DataError, SettingError, warn
from trimtab.models.bias_table import BiasTable, require_common_scale
from trimtab.models.list_ranking import spread
from trimtab.tables.columns import ITEM
from trimtab.tables.vocabulary import IdColumn, Vocabulary, id_column

EXCLUDED = ("drop", "mask")
MASKED = -(2.0**60)  # its square fits in a float32: graph indexes multiply rows with each other
_ADVICE = "learn with BiasLearner(scale='additive')"
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
        masked: whether each row is an excluded item.
        scale: scale of the biases, "additive" or "log".
        k: number of slots that the biases were learned for.
        multiplier: factor of all products.
        n_dimensions: number of columns of the given item vectors.
        n_unknown: number of rows without a learned bias (bias 0).
    """

    vectors: Singles
    item_ids: Any
    masked: Flags
    scale: str
    k: int
    multiplier: float
    n_dimensions: int
    n_unknown: int

    def __post_init__(self) -> None:
        for array in (self.vectors, self.item_ids, self.masked):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        return (
            f"Folded({len(self)} rows of {self.vectors.shape[1]} dimensions, {self.scale}; "
            f"{int(self.masked.sum())} masked, {self.n_unknown} without a learned bias)"
        )

    def queries(self, user_vectors: Any, *, check: bool = True) -> Singles:
        """Return the queries to search the index with: float32, one row per user.

        Args:
            user_vectors: one row per user, with as many columns as the item vectors had.
            check: on the log scale, raise if a user has fewer than k items with a score of at
                least 0. This costs much less than an exact search.
        """
        users = read_vectors("user_vectors", user_vectors)
        if users.shape[1] != self.n_dimensions:
            raise DataError(
                f"user_vectors has {users.shape[1]} columns but item_vectors had "
                f"{self.n_dimensions}; pass vectors of the same model"
            )
        queries = np.ones((len(users), self.vectors.shape[1]), np.float32)
        plain = queries[:, : self.n_dimensions]
        fill_singles("user_vectors", plain, users, np.arange(len(users)), np.ones(len(users)))
        if check and self.scale == "log":
            self._require_enough_above_zero(plain)
        if self.masked.any():
            self._require_above_masked(queries)
        return queries

    def ids(self, rows: Any, counts: Any | None = None, missing: Any | None = None) -> Any:
        """Return the item ids of the row numbers that a search returned, in the same shape.

        Args:
            rows: row numbers; negative (or the largest unsigned number) where nothing was found.
            counts: number of valid entries in each line, if a library pads lines with valid row
                numbers, as usearch does (`matches.counts`).
            missing: value for masked rows and where nothing was found; by default -1 for integer
                ids and None for strings.
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
        found = np.asarray(~np.append(self.masked, True)[np.maximum(numbers, -1)])
        if counts is not None:
            found &= np.arange(numbers.shape[-1]) < np.asarray(counts)[..., None]
        return self._ids_of_rows(numbers, found, missing)

    def _ids_of_rows(self, numbers: Ints, found: Flags, missing: Any) -> Any:
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

    @property
    def _plain(self) -> Singles:
        """The vectors without the coordinate of the bias."""
        return self.vectors[:, : self.n_dimensions]

    @cached_property
    def _lowest(self) -> float:
        """The lowest coordinate of the vectors, at most 0."""
        return float(self._plain.min(initial=0.0))

    @cached_property
    def _largest(self) -> float:
        """The largest absolute coordinate, without masked rows."""
        last = np.abs(self.vectors[~self.masked, -1]).max(initial=0.0)
        return max(-self._lowest, float(self._plain.max(initial=0.0)), float(last))

    def _require_enough_above_zero(self, users: Singles) -> None:
        if self._lowest >= 0 and users.min(initial=0.0) >= 0:
            return
        shown = self._plain[~self.masked] if self.masked.any() else self._plain
        enough = min(self.k, len(shown))
        counts = count_not_negative(users, shown, enough)
        short = np.flatnonzero(counts < enough)
        if len(short):
            raise DataError(
                f"user_vectors row {short[0]} (from 0) has {counts[short[0]]} items with a score "
                f"of at least 0, but needs {enough}: a folded log bias ranks only those "
                f"correctly; {_ADVICE}"
            )

    def _require_above_masked(self, queries: Singles) -> None:
        """Raise if scores could come near those of masked rows."""
        sizes = np.abs(queries).sum(axis=1, dtype=np.float64)
        if sizes.max(initial=0.0) * self._largest >= -MASKED / 2:
            raise DataError(
                f"user_vectors allows scores as low as {MASKED:g}, the score of masked rows; scale "
                f"the vectors down or fold with excluded='drop'"
            )


def fold(
    bias: BiasTable, item_vectors: Any, item_ids: Any, excluded: str, user_vectors: Any,
    multiplier: float,
) -> Folded:  # fmt: skip
    """Return item vectors that include the biases; see `ItemBias.fold_into`."""
    require_choice("excluded", excluded, EXCLUDED)
    require_common_scale(bias, "be folded into vectors")
    _require_power_of_two(multiplier)
    given = read_vectors("item_vectors", item_vectors)
    if given.size == 0:
        raise DataError(
            f"item_vectors has shape {given.shape}: it needs at least one row and one column"
        )
    column = _read_row_ids(item_ids, len(given), bias)
    row_bias, row_excluded, known = _align(column, bias)
    rows = np.flatnonzero(~row_excluded) if excluded == "drop" else np.arange(len(given))
    masked = row_excluded[rows]
    one_more = bias.scale == "additive" or excluded == "mask"
    folded = Folded(
        vectors=_fold_rows(given, row_bias, rows, masked, bias.scale, one_more, multiplier),
        item_ids=_take_ids(column, rows),
        masked=masked,
        scale=bias.scale,
        k=bias.summary.k,
        multiplier=float(multiplier),
        n_dimensions=given.shape[1],
        n_unknown=int(np.count_nonzero(~known[rows])),
    )
    if bias.scale == "log":
        _require_no_underflow(folded, given[rows])
        _require_known_signs(folded, user_vectors)
    return folded


def _require_no_underflow(folded: Folded, given: NDArray[Any]) -> None:
    """Raise if a bias is so low that its row becomes 0 in float32, which would lose the order."""
    largest = np.abs(folded._plain).max(axis=1)
    lost = (largest < np.finfo(np.float32).tiny) & given.any(axis=1) & ~folded.masked
    if lost.any():
        (item,) = Vocabulary(folded.item_ids).take(np.flatnonzero(lost)[:1])
        raise DataError(
            f"{ITEM} {item} has a bias so low that its vector becomes 0 in float32; learn with "
            f"max_bias=, or fold with a larger multiplier="
        )


def _fold_rows(
    given: NDArray[Any], bias: Floats, rows: Ints, masked: Flags, scale: str, one_more: bool,
    multiplier: float,
) -> Singles:  # fmt: skip
    width = given.shape[1]
    vectors = np.zeros((len(rows), width + one_more), np.float32)
    plain = factors = np.full(len(given), float(multiplier))
    if scale == "log":
        with np.errstate(over="ignore"):
            factors = plain * np.exp(bias)
    else:
        fill_singles("the bias table", vectors[:, -1:], bias[:, None], rows, plain)
    fill_singles("item_vectors", vectors[:, :width], given, rows, factors)
    if masked.any():
        vectors[masked, -1] = MASKED
        if scale == "log":  # otherwise their scores would need a check too
            vectors[masked, :width] = 0.0
    return vectors


def _require_power_of_two(multiplier: Any) -> None:
    """Raise unless the multiplier is a power of two: others would round the vectors."""
    try:
        fits = multiplier > 0 and math.frexp(multiplier)[0] == 0.5
    except TypeError:
        fits = False
    if not fits:
        raise SettingError(f"multiplier={multiplier!r}: must be a power of two, such as 2.0**20")


def _read_row_ids(ids: Any, n_rows: int, bias: BiasTable) -> IdColumn:
    """Return the id of each row of item vectors; without ids, rows are numbered from 0."""
    if ids is None:
        return _row_numbers(n_rows, bias)
    try:
        if isinstance(ids, pa.ChunkedArray) or hasattr(ids, "__arrow_c_stream__"):
            values = pa.chunked_array(ids)
        else:
            values = pa.chunked_array([pa.array(ids)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"item_ids cannot be read ({error}); pass one list of integers or of strings"
        ) from error
    if len(values) != n_rows:
        raise DataError(
            f"item_ids has {len(values)} ids but item_vectors has {n_rows} rows; pass one id per "
            f"row"
        )
    return id_column("item_ids", ITEM, values)


def _row_numbers(n_rows: int, bias: BiasTable) -> IdColumn:
    ours = bias.item_ids
    if not isinstance(ours, np.ndarray):
        raise DataError(
            "item_ids=None: rows would be the items 0, 1, 2, ..., but the ids of the bias table "
            "are strings; pass the id of every row as item_ids"
        )
    beyond = ours[(ours < 0) | (ours >= n_rows)]
    if len(beyond):
        raise DataError(
            f"item_ids=None: rows would be the items 0 to {n_rows - 1}, but the bias table has "
            f"{ITEM} {beyond[0]}; pass the id of every row as item_ids"
        )
    return Vocabulary(np.arange(n_rows), "item_ids", ITEM).column


def _align(column: IdColumn, bias: BiasTable) -> tuple[Floats, Flags, Flags]:
    """Return the bias of each row, whether it is excluded, and whether the bias table has it."""
    items, (rows, ours) = Vocabulary.encode(column, bias.vocabulary.column)
    counts = np.bincount(rows, minlength=len(items))
    if counts.max() > 1:
        (item,) = items.take(np.array([counts.argmax()]))
        raise DataError(f"item_ids has {item} more than once; keep one row per item")
    columns = (bias.bias, bias.excluded, np.ones(len(bias), bool))
    learned, excluded, known = (spread(own, ours, len(items))[rows] for own in columns)
    if not known.any():
        warn("item_ids has no item with a learned bias, so nothing changes; check that ids match")
    return learned, excluded, known


def _take_ids(column: IdColumn, rows: Ints) -> Any:
    if isinstance(column.values, np.ndarray):
        return column.values[rows]
    return pa.concat_arrays(column.values.chunks).take(pa.array(rows))


def _require_known_signs(folded: Folded, user_vectors: Any) -> None:
    """Raise if scores could be below 0 and no users are given to check them."""
    if user_vectors is not None:
        folded.queries(user_vectors)
    elif folded._lowest < 0:
        raise DataError(
            f"item_vectors has negative coordinates, so scores may be below 0, where a folded log "
            f"bias ranks wrongly; pass all users as user_vectors to check that each has "
            f"{folded.k} scores of at least 0, or {_ADVICE}"
        )


# How deep lists must be ---------------------------------------------------------------------------


def require_deep(bias: BiasTable, n_items: int) -> None:
    """Raise if biases were learned on lists too short for an index, which ranks all items.

    An additive bias can lift an item for every user, however low the engine ranks it; a log bias
    leaves low scores low. So additive biases need lists with a good part of all items.
    """
    depth = bias.depth
    least = depth_for_index(bias.scale, bias.summary.k, n_items)
    if depth is None or depth >= least:
        return
    least_of_log = depth_for_index("log", bias.summary.k, n_items)
    scale = "with scale='log', which needs less depth, " if least_of_log < least else ""
    raise SettingError(
        f"biases were learned on lists of {depth}, but an index ranks all {n_items} items: "
        f"scale={bias.scale!r} needs lists of at least {least}; learn {scale}on "
        f"tt.recs_from(model, n={max(least_of_log, 1000)}), or pass allow_shallow=True if "
        f"what the index returns gains on later purchases by tt.evaluate"
    )


def depth_for_index(scale: str, k: int, n_items: int) -> int:
    """Return the least depth of lists for biases that an index of so many items serves."""
    least = max(_LEAST_FOR_INDEX, _LEAST_TIMES_K * k)
    if scale == "additive":
        least = max(least, math.ceil(_LEAST_SHARE_ADDITIVE * n_items))
    return min(least, n_items)


# Vectors in bounded memory ------------------------------------------------------------------------


def read_vectors(name: str, vectors: Any) -> NDArray[Any]:
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


def fill_singles(name: str, out: Singles, given: NDArray[Any], rows: Ints, factors: Floats) -> None:
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


def count_not_negative(users: Singles, items: Singles, enough: int) -> Ints:
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
