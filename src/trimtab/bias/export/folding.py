"""Biases folded into item vectors, so that an inner-product index serves the biased score.

    additive   v becomes (v, b), a query u becomes (u, 1):     the product is u·v + b
    log        v becomes v·exp(b), a query stays as it is:     the product is u·v · exp(b)

A log bias multiplies scores above 0 and divides those below, which no vector can do: it is folded
only where scores are at least 0. A masked row has -2^60 for a bias, so that it scores about that
for everybody; on the log scale it is (0, -2^60), which takes one more coordinate there too.
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
from trimtab.bias.export.vectors import fill_singles, lowest_product, read_vectors
from trimtab.bias.table import BiasTable
from trimtab.checks import require_choice
from trimtab.errors import DataError, SettingError, warn
from trimtab.tables.columns import ITEM
from trimtab.tables.frames import known_ids, take_ids
from trimtab.tables.ids import IdColumn, encode_ids, id_column

EXCLUDED = ("drop", "mask")
MASKED = -(2.0**60)  # its square still fits in a float32: graphs multiply rows with each other
_ADVICE = "learn with BiasLearner(scale='additive')"


@dataclass(frozen=True, eq=False)
class Folded:
    """Item vectors with the biases in them, and the rule for queries; made by `fold_into`.

    Attributes:
        vectors: float32, a row an item: what goes into the index. Read-only.
        item_ids: ids of the rows: int64 array or Arrow strings.
        masked: rows that stand for excluded items.
        scale: that of the biases, "additive" or "log".
        multiplier: what all products are times of.
        n_dimensions: of the item vectors as they were given.
        n_unknown: rows whose items have no learned bias; it counts as 0.
    """

    vectors: Singles
    item_ids: Any
    masked: Flags
    scale: str
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
        """What to search the index with: float32, a row a user.

        Args:
            user_vectors: a row a user, as many columns as the item vectors had.
            check: on the log scale, refuse users with a product below 0. Where all coordinates
                are at least 0 this costs nothing; otherwise as much as an exact search.
        """
        users = read_vectors("user_vectors", user_vectors)
        if users.shape[1] != self.n_dimensions:
            raise DataError(
                f"user_vectors has {users.shape[1]} columns but item_vectors had "
                f"{self.n_dimensions}; pass vectors of the same model"
            )
        found = np.ones((len(users), self.vectors.shape[1]), np.float32)
        plain = found[:, : self.n_dimensions]
        fill_singles("user_vectors", plain, users, np.arange(len(users)), np.ones(len(users)))
        if check and self.scale == "log":
            self._require_scores_of_zero_up(plain)
        if self.masked.any():
            self._require_above_masked(found)
        return found

    def ids(self, rows: Any, counts: Any | None = None, missing: Any | None = None) -> Any:
        """The item ids behind the row numbers that a search returned, in the same shape.

        Args:
            rows: row numbers; below 0 (or the largest unsigned one) where nothing was found.
            counts: how many of each line are real, where a library pads with valid row numbers:
                usearch does, pass its `matches.counts`.
            missing: stands where nothing was found, and for masked rows; if left out, -1 for
                integer ids and None for strings.
        """
        places = np.asarray(rows)
        if places.dtype.kind not in "iu":
            raise DataError(f"rows holds {places.dtype}: pass the row numbers that a search gave")
        places = places.astype(np.int64)  # the largest unsigned number becomes -1
        if places.max(initial=-1) >= len(self):
            raise DataError(
                f"rows has {places.max()} but the index has {len(self)} rows, from 0; pass row "
                f"numbers of an index made from these vectors, not ids"
            )
        known = np.asarray(~np.append(self.masked, True)[np.maximum(places, -1)])
        if counts is not None:
            known &= np.arange(places.shape[-1]) < np.asarray(counts)[..., None]
        return self._named(places, known, missing)

    def _named(self, places: Ints, known: Flags, missing: Any) -> Any:
        if not isinstance(self.item_ids, np.ndarray):
            names = np.full(places.shape, missing, object)
            names[known] = self.item_ids.take(pa.array(places[known])).to_pylist()
            return names
        missing = -1 if missing is None else missing
        if not known.all() and (self.item_ids == missing).any():
            raise SettingError(f"missing={missing}: is the id of an item; pass another")
        ids = np.full(places.shape, missing, np.int64)
        ids[known] = self.item_ids[places[known]]
        return ids

    @property
    def _plain(self) -> Singles:
        """The vectors without the coordinate that meets a query's 1."""
        return self.vectors[:, : self.n_dimensions]

    @cached_property
    def _lowest(self) -> float:
        """The lowest coordinate of the vectors, 0 if none is below."""
        return float(self._plain.min(initial=0.0))

    @cached_property
    def _largest(self) -> float:
        """The largest coordinate by size, marks of masked rows aside."""
        last = np.abs(self.vectors[~self.masked, -1]).max(initial=0.0)
        return max(-self._lowest, float(self._plain.max(initial=0.0)), float(last))

    def _require_scores_of_zero_up(self, users: Singles) -> None:
        if self._lowest >= 0 and users.min(initial=0.0) >= 0:
            return
        lowest, user, row = lowest_product(users, self._plain)
        if lowest < 0:
            (item,) = take_ids(self.item_ids, np.array([row]))
            raise DataError(
                f"user_vectors gives row {user} (from 0) a score of {lowest / self.multiplier:g} "
                f"with {ITEM} {item}: a log bias can be folded only where scores are at least 0; "
                f"{_ADVICE}"
            )

    def _require_above_masked(self, queries: Singles) -> None:
        """Refuse queries whose scores could come near those of masked rows."""
        sizes = np.abs(queries).sum(axis=1, dtype=np.float64)
        if sizes.max(initial=0.0) * self._largest >= -MASKED / 2:
            raise DataError(
                f"user_vectors allows of scores as low as {MASKED:g}, those of masked rows; scale "
                f"the vectors down or fold with excluded='drop'"
            )


def fold(
    bias: BiasTable, item_vectors: Any, item_ids: Any, excluded: str, user_vectors: Any,
    multiplier: float,
) -> Folded:  # fmt: skip
    """Item vectors with the biases in them; see `ItemBias.fold_into`."""
    require_choice("excluded", excluded, EXCLUDED)
    _require_power_of_two(multiplier)
    given = read_vectors("item_vectors", item_vectors)
    if given.size == 0:
        raise DataError(f"item_vectors has shape {given.shape}: it needs a row and a column")
    column = _read_ids(item_ids, len(given), bias)
    by_row, is_out, known = _align(column, bias)
    rows = np.flatnonzero(~is_out) if excluded == "drop" else np.arange(len(given))
    masked = is_out[rows]
    longer = bias.scale == "additive" or excluded == "mask"
    folded = Folded(
        vectors=_fold_rows(given, by_row, rows, masked, bias.scale, longer, multiplier),
        item_ids=_plain_ids(column, rows),
        masked=masked,
        scale=bias.scale,
        multiplier=float(multiplier),
        n_dimensions=given.shape[1],
        n_unknown=int(np.count_nonzero(~known[rows])),
    )
    if bias.scale == "log":
        _require_sizes(folded, given[rows])
        _require_proof(folded, user_vectors)
    return folded


def _require_sizes(folded: Folded, given: NDArray[Any]) -> None:
    """Refuse biases so low that rows come to nothing in float32: their order would be lost."""
    largest = np.abs(folded._plain).max(axis=1)
    lost = (largest < np.finfo(np.float32).tiny) & given.any(axis=1) & ~folded.masked
    if lost.any():
        (item,) = take_ids(folded.item_ids, np.flatnonzero(lost)[:1].astype(np.int32))
        raise DataError(
            f"{ITEM} {item} has a bias so low that no float32 holds its vector; learn again with a "
            f"cap, max_bias=, or fold with a larger multiplier="
        )


def _fold_rows(
    given: NDArray[Any], bias: Floats, rows: Ints, masked: Flags, scale: str, longer: bool,
    multiplier: float,
) -> Singles:  # fmt: skip
    width = given.shape[1]
    vectors = np.zeros((len(rows), width + longer), np.float32)
    plain = factors = np.full(len(given), float(multiplier))
    if scale == "log":
        with np.errstate(over="ignore"):
            factors = plain * np.exp(bias)
    else:
        fill_singles("the bias table", vectors[:, -1:], bias[:, None], rows, plain)
    fill_singles("item_vectors", vectors[:, :width], given, rows, factors)
    if masked.any():
        vectors[masked, -1] = MASKED
        if scale == "log":  # or their scores would have to be checked too
            vectors[masked, :width] = 0.0
    return vectors


def _require_power_of_two(multiplier: Any) -> None:
    """Anything else would round the vectors."""
    try:
        fits = multiplier > 0 and math.frexp(multiplier)[0] == 0.5
    except TypeError:
        fits = False
    if not fits:
        raise SettingError(f"multiplier={multiplier!r}: must be a power of two, such as 2.0**20")


def _read_ids(item_ids: Any, n_rows: int, bias: BiasTable) -> IdColumn:
    if item_ids is None:
        return _row_numbers(n_rows, bias)
    try:
        if isinstance(item_ids, pa.ChunkedArray) or hasattr(item_ids, "__arrow_c_stream__"):
            values = pa.chunked_array(item_ids)
        else:
            values = pa.chunked_array([pa.array(item_ids)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"item_ids cannot be read ({error}); pass one list of integers or of strings"
        ) from error
    if len(values) != n_rows:
        raise DataError(
            f"item_ids has {len(values)} ids but item_vectors has {n_rows} rows; pass one id a row"
        )
    return id_column("item_ids", ITEM, values)


def _row_numbers(n_rows: int, bias: BiasTable) -> IdColumn:
    ours = bias.item_ids
    if not isinstance(ours, np.ndarray):
        raise DataError(
            "item_ids=None: rows then are the items 0, 1, 2, ..., but the ids of the bias table "
            "are strings; pass the id of every row as item_ids"
        )
    beyond = ours[(ours < 0) | (ours >= n_rows)]
    if len(beyond):
        raise DataError(
            f"item_ids=None: rows then are the items 0 to {n_rows - 1}, but the bias table has "
            f"{ITEM} {beyond[0]}; pass the id of every row as item_ids"
        )
    return known_ids("item_ids", ITEM, np.arange(n_rows))


def _align(column: IdColumn, bias: BiasTable) -> tuple[Floats, Flags, Flags]:
    """Bias, whether excluded and whether known at all, row by row."""
    ids, (theirs, ours) = encode_ids([column, known_ids("the bias table", ITEM, bias.item_ids)])
    counts = np.bincount(theirs, minlength=len(ids))
    if counts.max() > 1:
        (item,) = take_ids(ids, np.array([counts.argmax()]))
        raise DataError(f"item_ids has {item} more than once; give each item one row")
    learned, is_out, known = np.zeros(len(ids)), np.zeros(len(ids), bool), np.zeros(len(ids), bool)
    learned[ours], is_out[ours], known[ours] = bias.bias, bias.excluded, True
    if not known[theirs].any():
        warn("item_ids has no item with a learned bias: nothing changes; check that ids match")
    return learned[theirs], is_out[theirs], known[theirs]


def _plain_ids(column: IdColumn, rows: Ints) -> Any:
    if isinstance(column.values, np.ndarray):
        return column.values[rows]
    return pa.concat_arrays(column.values.chunks).take(pa.array(rows))


def _require_proof(folded: Folded, user_vectors: Any) -> None:
    """Refuse a log bias where item vectors allow of scores below 0 and no users show otherwise."""
    if user_vectors is not None:
        folded.queries(user_vectors)
    elif folded._lowest < 0:
        raise DataError(
            f"item_vectors has coordinates below 0, so scores may be below 0 too, and there a log "
            f"bias cannot be folded; {_ADVICE}, or pass as user_vectors all users, to show that "
            f"their scores are at least 0"
        )
