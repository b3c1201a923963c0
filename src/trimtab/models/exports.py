"""What leaves Python: biases in item vectors, in boosts for a search engine, and in SQL.

Vectors, for an index that ranks by inner product:

    additive   v becomes (v, b), a query u becomes (u, 1):     the product is u·v + b
    log        v becomes v·exp(b), a query stays as it is:     the product is u·v · exp(b)

A log bias multiplies scores above 0 and divides scores below 0. A vector can only multiply, but
scores keep their sign either way, so the ranking is right as far down as scores are at least 0:
every user needs k of those. Rows of excluded items are left out.

Boosts: Lucene rejects scores and boosts below 0, so the file has a `factor` that multiplies the
score, or a `boost` that is added to it, both at least 0. A number added to all items changes no
ranking, so `boost` is the bias minus the lowest bias, if that is below 0.

SQL re-ranks lists inside a database: one query for DuckDB and PostgreSQL.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.arrays import Codes, Floats, Ints, Singles, find_positions
from trimtab.checks import require_flag, require_k, require_number
from trimtab.errors import DataError, SettingError, warn
from trimtab.models.list_ranking import choose_depth
from trimtab.models.model import BiasTable
from trimtab.tables.columns import ITEM, RANK, SCORE, USER, ColumnMap, GivenColumns, read_ids
from trimtab.tables.files import require_suffix, write_atomically, write_table
from trimtab.tables.vocabulary import IdColumn, Vocabulary, id_column, in_one_piece

_LEAST_FOR_INDEX, _LEAST_TIMES_K = 500, 20
_LEAST_SHARE_ADDITIVE = 0.25  # of the items; docs/index-serving.md has what was measured
_ROWS_PER_BLOCK = 2**16
_USERS_PER_BLOCK, _ITEMS_PER_BLOCK = 2**9, 2**13  # 32 MB of products
_NAMES = ("user", "item", "score", "rank")  # in the query


@dataclass(frozen=True, eq=False, repr=False)
class ExportedBias(BiasTable):
    """Biases that can be written for other systems."""

    def fold_into(
        self,
        item_vectors: Any,
        item_ids: Any | None = None,
        *,
        multiplier: float = 1.0,
        allow_shallow: bool = False,
    ) -> Folded:
        """Return item vectors for an inner-product index that ranks by score plus bias.

        Learn such biases on deep lists, for example those of `tt.recs_from(model, n=1000)`: an
        index ranks all items, and a bias learned on short lists was never tested further down.
        Judge what the index returns with `tt.evaluate`, on purchases later than those learned from.

        Put `folded.vectors` into the index, search it with `folded.queries(user_vectors)`, and get
        the item ids with `folded.ids(rows)`. A log bias scales the item's vector, which gives the
        right ranking as far down as a user's scores are at least 0; an additive bias becomes one
        more coordinate, the last; a bias on the scale of each list (scale="list") cannot be folded.
        The products must be the scores that the biases were learned on. Every user gets the bias of
        every item, for any setting of `unlisted`; items without a learned bias have bias 0. Scores
        are float32. Rows of excluded items are left out: `folded.item_ids` gives the id of each
        remaining row. Do not use a cosine index: it normalises the vectors, which removes the
        biases.

        Args:
            item_vectors: 2-d array, one row per item; not modified.
            item_ids: id of each row; by default rows are the items 0, 1, 2, ...
            multiplier: power of two that multiplies all products, without changing any ranking.
                Use 2.0**20 with usearch and hnswlib: they rank by 1 - product in float32, which
                loses small scores.
            allow_shallow: fold biases even if they were learned on lists that are too short for an
                index. By default the depth (`bias.depth`) must be at least 500 and 20 k, and for
                additive biases a quarter of the rows; all rows are always enough.

        Example:
            >>> import numpy as np
            >>> import pyarrow as pa
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1], "item_id": [0, 1], "score": [0.9, 0.8]})
            >>> recent = pa.table({"user_id": [1], "item_id": [1]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> folded = bias.fold_into(np.eye(2))
            >>> (folded.queries([[0.9, 0.8]]) @ folded.vectors.T).argmax()
            np.int64(1)
        """
        require_flag("allow_shallow", allow_shallow)
        self.require_factors("be folded into vectors")
        require_number("multiplier", multiplier, 0)
        if math.frexp(multiplier)[0] != 0.5:  # another one would round the vectors
            raise SettingError(
                f"multiplier={multiplier!r}: must be a power of two, such as 2.0**20"
            )
        given = _read_vectors("item_vectors", item_vectors)
        n_rows, width = given.shape
        if given.size == 0:
            raise DataError(f"item_vectors has shape {given.shape}: it needs a row and a column")
        column, codes = self._read_row_ids(item_ids, n_rows)
        if not np.any(codes >= 0):
            warn("item_ids has no item with a learned bias; nothing changes: check that ids match")
        if not allow_shallow:
            _require_deep(self, n_rows)
        rows = np.flatnonzero(~np.append(self.excluded, False)[codes])
        learned, is_log = np.append(self.bias, 0.0)[codes], self.scale == "log"
        vectors = np.empty((len(rows), width + (not is_log)), np.float32)
        factors = float(multiplier) * (np.exp(learned) if is_log else np.ones(n_rows))
        if not is_log:
            _fill_singles("the bias table", vectors[:, width:], learned[:, None], rows, factors)
        _fill_singles("item_vectors", vectors[:, :width], given, rows, factors)
        ids = column.values if column.kind == "integers" else in_one_piece(column.values)
        return Folded(vectors, Vocabulary(ids).take(rows), self.scale, self.summary.k, width)

    def _read_row_ids(self, item_ids: Any | None, n_rows: int) -> tuple[IdColumn, Codes]:
        """Return the id of each row, each once, and its place in the bias table, or -1."""
        ends = [self.vocabulary[row] for row in (0, -1)] if len(self) and item_ids is None else []
        for item in ends:  # ids ascend
            if not (isinstance(item, np.integer) and 0 <= item < n_rows):
                raise DataError(
                    f"item_ids=None: rows would be the items 0 to {n_rows - 1}, but the bias table "
                    f"has {ITEM} {item}; pass the id of every row as item_ids"
                )
        given = np.arange(n_rows) if item_ids is None else item_ids
        column = id_column("item_ids", ITEM, read_ids(given, "item_ids", ITEM))
        if len(column) != n_rows:
            raise DataError(
                f"item_ids has {len(column)} ids but item_vectors has {n_rows} rows; pass one each"
            )
        items, (codes, ours) = Vocabulary.encode(column, self.vocabulary.column)
        counts = np.bincount(codes)
        if counts.max() > 1:
            repeated = items[counts.argmax()]
            raise DataError(f"item_ids has {repeated} more than once; keep one row per item")
        return column, find_positions(ours, codes)

    def export(self, path: str | Path, *, escape: bool = False) -> float:
        """Write boosts for a search engine, and return the boost of items not in the file.

        Args:
            path: file that ends in .jsonl (JSON lines) or .csv; it appears only when complete. One
                row per item, ids ascending: item_id, bias, factor or boost, excluded. `factor` (log
                bias) is above 0 and multiplies the score; `boost` (additive bias) is at least 0 and
                is added to it; biases on the scale of each list (scale="list") cannot be written as
                boosts. Filter out excluded items in the search engine.
            escape: in CSV, put an apostrophe before text ids that a spreadsheet may run as
                formulas. It changes these ids.
        """
        place = Path(path)
        require_ending(place)
        table, missing = _boosts(self)
        if place.suffix.lower() == ".csv":
            write_table(table, place, escape)
            return missing
        with write_atomically(place) as file:
            for batch in table.to_batches(max_chunksize=_ROWS_PER_BLOCK):
                for row in batch.to_pylist():
                    file.write(json.dumps(row, allow_nan=False).encode("ascii") + b"\n")
        return missing

    def sql(
        self,
        k: int = 10,
        *,
        lists: str = "lists",
        biases: str = "biases",
        exclude: str | None = None,
        allowed: str | None = None,
        columns: GivenColumns = None,
        depth: int | str | None = None,
    ) -> str:
        """Return a query that does what `apply` does inside DuckDB or PostgreSQL.

        The database must have the lists and `table()` as tables; it may have other biases of the
        same scale, depth and kind of ids, so tomorrow's biases need no new query. Each (user,
        item) pair must be on the lists once. Scores are score + bias, or score * exp(bias) for
        log biases; ties go to the smaller item id, also among scores of 0 that `apply` orders by
        log bias. Biases with scale="list" or unlisted="zero", and reserved slots (`explore`),
        are not possible in SQL.

        Args:
            k: slots per user; a user with fewer items gets fewer rows.
            lists: table with user_id, item_id, score. Dots separate the parts of a name, like
                shop.lists. All names are quoted.
            biases: table with item_id, bias, excluded.
            exclude: table with user_id, item_id of pairs that must not be shown.
            allowed: table with item_id of the only items that may be shown.
            columns: names of columns in lists, exclude, allowed and the result, like
                {"user": "customer", "item": "sku", "rank": "slot"}.
            depth: number of items of each list that are re-ranked, as in `apply`.

        Example:
            >>> import duckdb
            >>> import pyarrow as pa
            >>> import trimtab as tt
            >>> recs = pa.table({"user_id": [1, 1, 2, 2], "item_id": [7, 8, 7, 8],
            ...                  "score": [0.9, 0.8, 0.6, 0.5]})
            >>> recent = pa.table({"user_id": [1, 2], "item_id": [8, 8]})
            >>> bias = tt.BiasLearner(k=1, penalty=0).fit(recs, recent)
            >>> lists, biases = recs, bias.table()
            >>> duckdb.sql(bias.sql(k=1)).fetchall() == [
            ...     tuple(row.values()) for row in bias.apply(recs, k=1).to_pylist()
            ... ]
            True
        """
        require_k(k)
        self.require_factors("be applied by a query")
        deepest = choose_depth(self, depth)
        if self.unlisted == "zero":
            raise SettingError(
                "biases with unlisted='zero' cannot be applied by a query, which adds no items to "
                "lists; use bias.apply, or learn with unlisted='never'"
            )
        tables = {"lists": lists, "biases": biases, "exclude": exclude, "allowed": allowed}
        query: str = _read_template().render(
            _quote_columns(columns),
            **{name: _quote_table(name, own) for name, own in tables.items() if own is not None},
            k=k, depth=deepest, scale=self.scale, learned_item=ITEM,
            is_text=not isinstance(self.item_ids, np.ndarray),
        )  # fmt: skip
        return query


# Vectors ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Folded:
    """Item vectors that include the biases, made by `ItemBias.fold_into`.

    Attributes:
        vectors: float32, one row per item, for the index. Read-only.
        item_ids: id of each row: int64 array or Arrow strings.
        scale: scale of the biases, "additive" or "log".
        k: number of slots that the biases were learned for.
        n_dimensions: number of columns of the given item vectors.
    """

    vectors: Singles
    item_ids: Any
    scale: str
    k: int
    n_dimensions: int

    def __post_init__(self) -> None:
        self.vectors.flags.writeable = False

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        return f"Folded({len(self)} rows of {self.vectors.shape[1]} dimensions, {self.scale})"

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
            enough = min(self.k, len(self))
            counts = _count_not_negative(plain, self.vectors, enough)
            short = np.flatnonzero(counts < enough)
            if len(short):
                row = short[0]
                raise DataError(
                    f"user_vectors row {row} (from 0) has {counts[row]} items with a score of at "
                    f"least 0, but needs {enough}: a folded log bias ranks only those correctly; "
                    f"learn with BiasLearner(scale='additive')"
                )
        return queries

    def ids(self, rows: Any, counts: Any | None = None) -> Any:
        """Return the item ids of the row numbers that a search returned, in the same shape.

        Where nothing was found, there is -1 for integer ids and None for strings.

        Args:
            rows: row numbers; negative (or the largest unsigned number) where nothing was found.
            counts: number of valid entries in each line, if a library pads lines with valid row
                numbers, as usearch does (`matches.counts`).
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
        is_number = isinstance(self.item_ids, np.ndarray)
        none, kind = (-1, np.int64) if is_number else (None, object)
        ids = np.full(numbers.shape, none, kind)
        ids[found] = pa.array(Vocabulary(self.item_ids).take(numbers[found])).to_numpy(False)
        return ids

    @cached_property
    def _lowest(self) -> float:
        """The lowest coordinate of the vectors, at most 0."""
        return float(self.vectors.min(initial=0.0))


def _require_deep(bias: BiasTable, n_items: int) -> None:
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


def _read_vectors(name: str, vectors: Any) -> NDArray[Any]:
    """Return a 2-d array of real numbers, not copied; raise for anything else."""
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read ({error}); pass a 2-d array") from error
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise DataError(
            f"{name} has shape {array.shape} and holds {array.dtype}: it must be 2-d, real "
            f"numbers, one row per vector; reshape or cast the array"
        )
    return array


def _fill_singles(
    name: str, out: Singles, given: NDArray[Any], rows: Ints, factors: Floats
) -> None:
    """Fill `out` with the given rows times their factors, rounded once; raise if not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(given[rows], factors[rows, None], out=out, casting="unsafe", dtype=np.float64)
    bad = np.argwhere(~np.isfinite(out))
    if len(bad):
        row, place = rows[bad[0, 0]], bad[0, 1]
        raise DataError(
            f"{name} has {given[row, place]} in row {row} (from 0), which becomes "
            f"{out[tuple(bad[0])]} in float32: it must be finite; fix or scale the vectors"
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


# Boosts -------------------------------------------------------------------------------------------


def require_ending(path: Path) -> None:
    """Raise unless a file name ends in .jsonl or .csv."""
    require_suffix(path, (".jsonl", ".csv"))


def _boosts(bias: BiasTable) -> tuple[pa.Table, float]:
    """Return item_id, bias, factor or boost, excluded; and the factor or boost of other items."""
    bias.require_factors("be written as boosts")
    if bias.scale == "log":
        name, values, missing = "factor", np.exp(bias.bias), 1.0
    else:
        missing = -float(bias.bias.min(initial=0.0)) + 0.0  # never -0
        name, values = "boost", bias.bias + missing
    table = bias.table().select([ITEM, "bias", "excluded"])
    return table.add_column(2, name, pa.array(values)), missing


# Names in SQL -------------------------------------------------------------------------------------


def _read_template() -> Any:
    from jinja2 import Environment

    text = Path(__file__).with_name("rerank.sql.jinja").read_text(encoding="utf-8")
    return Environment(trim_blocks=True, keep_trailing_newline=True).from_string(text)


def _quote_columns(given: GivenColumns) -> dict[str, str]:
    """Return the caller's names of user, item, score and rank, in quotes."""
    needed, own = (USER, ITEM, SCORE, RANK), ColumnMap.of(given).own
    found = [name for column in needed for name in own.get(column, (column,))]
    if {*own} - {*needed} or len({*found}) < len(found) or len(found) > len(needed):
        raise SettingError(
            f"columns={dict(own)}: must give {', '.join(needed)} one name each, all different"
        )
    return {name: _quote("columns", own, own) for name, own in zip(_NAMES, found, strict=True)}


def _quote_table(setting: str, name: Any) -> str:
    """Return the name of a table in quotes; dots separate the parts, like shop.lists."""
    return ".".join(_quote(setting, part, name) for part in str(name).split("."))


def _quote(setting: str, part: str, given: Any) -> str:
    """Return a name in quotes; raise if it is empty or has characters that no name has."""
    if not part or not part.isprintable():
        raise SettingError(
            f"{setting}={given!r}: must be a name, without line breaks or empty parts"
        )
    return '"' + part.replace('"', '""') + '"'
