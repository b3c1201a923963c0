"""evaluate: metrics of lists in Parquet files larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.arrays import Floats
from trimtab.checks import require_columns, require_k, require_rows
from trimtab.errors import DataError
from trimtab.metrics.coded_tables import CodedTables, code_tables, warn_of_missing_lists
from trimtab.metrics.evaluation import Buyers, Judged, compare, judge, summarize
from trimtab.parquet.event_columns import drop_weightless, weights_differ
from trimtab.parquet.item_counts import ItemCounts, add_sales
from trimtab.parquet.row_tables import open_table, read_into_memory, recheck
from trimtab.progress import Progress, show_parts
from trimtab.tables.columns import COUNT, ITEM, RANK, SCORE, USER, WINDOW, GivenColumns, own_names
from trimtab.tables.lists import Units, read_weights
from trimtab.tables.rows import Rows
from trimtab.tables.user_ranges import ROWS_PER_PART, UserPart, divide_by_user
from trimtab.tables.vocabulary import as_id_column, encode_ids, take_ids


def evaluate(
    topk: Any,
    truth: Any,
    k: int = 10,
    weights: Any | None = None,
    *,
    weight: str | None = None,
    baseline: Any | None = None,
    history: Any | None = None,
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
    progress: bool | Progress | None = None,
) -> dict[str, float | int]:
    """Return what `trimtab.evaluate` returns for the same tables in memory, to the last digit.

    Tables are read part by part, by ranges of user ids. If their row groups are not in the order
    of user ids, their rows are copied once to a temporary file. Of each user who bought something
    a few numbers are kept.

    Args:
        topk: user_id, item_id and rank (from 1), or score instead of rank. Like all tables here, a
            Parquet file, a folder of them, an address, or an Arrow table.
        truth: user_id, item_id of purchases; repeated rows count once.
        k: number of slots to evaluate.
        weights: user_id, weight; read into memory.
        weight: a column of `truth` with the weight of each purchase.
        baseline: other lists for the same users, to compare with.
        history: earlier sales, one row each or with a column `count`, for novelty.
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the system's.
        progress: as for `trimtab.parquet.apply`.
    """
    require_k(k)
    tables = {"topk": _open_lists("topk", topk, columns)}
    if baseline is not None:
        tables["baseline"] = _open_lists("baseline", baseline, columns)
    lists = list(tables)
    needed = dict.fromkeys((USER, ITEM) if weight is None else (USER, ITEM, weight))
    tables["truth"] = open_table("truth", truth, tuple(needed), (WINDOW,), columns)
    for name, rows in tables.items():
        require_rows(name, rows.n_rows)
    past = None if history is None else open_table("history", history, (ITEM,), (COUNT,), columns)
    if past is not None:
        require_rows("history", past.n_rows)
    by_user = None if weights is None else read_into_memory(weights, columns)
    with _telling_of_all_rows(tables, past):
        evaluation = _Evaluation(lists, k, weight, tables["truth"])
        with (
            divide_by_user(tables, None, rows_per_part, folder) as parts,
            show_parts(progress, "evaluating") as report,
        ):
            for done, part in enumerate(parts):
                report(1, done, parts.n_parts)
                evaluation.add(part)
        evaluation.require_common_users(tables)
        return evaluation.finish(by_user, past)


def _open_lists(name: str, source: Any, columns: GivenColumns) -> Rows:
    rows = open_table(name, source, (USER, ITEM), (RANK, SCORE, WINDOW), columns)
    if RANK in rows.schema.names:
        return open_table(name, source, (USER, ITEM), (RANK, WINDOW), columns)
    empty = rows.schema.empty_table()
    require_columns(name, empty.column_names, [SCORE], own_names(empty))
    return rows


@contextmanager
def _telling_of_all_rows(tables: Mapping[str, Rows], history: Rows | None) -> Iterator[None]:
    """Raise the errors of tables in memory, which number and count the rows of all parts."""
    try:
        yield
    except DataError:
        for name, rows in tables.items():
            recheck(name, rows, (USER, WINDOW, ITEM), ())
        if history is not None:
            recheck("history", history, (ITEM,), (COUNT,))
        for name in (name for name in tables if name != "truth"):
            recheck(name, tables[name], (), (RANK, SCORE))
        raise


class _Evaluation:
    """What is known of the parts so far: the metrics of each buyer, and what was shown."""

    def __init__(self, lists: list[str], k: int, weight: str | None, truth: Rows) -> None:
        self._lists, self._k, self._weight = lists, k, weight
        self._is_weighted = weight is not None and weights_differ("truth", truth, weight)
        self._users: list[Any] = []
        self._values: dict[str, list[dict[str, Floats]]] = {name: [] for name in lists}
        self._heaviest: list[Floats] = []
        self._items = ItemCounts(*lists, "sales")
        self._common: set[str] = set()
        self._n_skipped = self._n_missing = 0

    def add(self, part: UserPart) -> None:
        """Add the metrics of a part."""
        tables = {name: part[name] for name in part}
        truth = self._read_truth(tables.pop("truth"))
        if not truth.num_rows and not any(table.num_rows for table in tables.values()):
            return
        coded = code_tables(
            tables, truth, self._k, self._weight, None, may_be_empty=True,
            is_weighted=self._is_weighted,
        )  # fmt: skip
        judged = {name: judge(coded, name) for name in self._lists}
        self._items.add(coded.item_ids, {name: found.shown for name, found in judged.items()})
        for name, found in judged.items():
            self._values[name].append(found.values)
        self._add_users(coded)

    def _add_users(self, coded: CodedTables) -> None:
        buys = coded.buys
        self._users.append(take_ids(coded.units.users, coded.units.user_codes[buys]))
        self._n_skipped += int(np.count_nonzero(~buys))
        self._common |= {name for name in self._lists if coded.has_common_users(name)}
        if len(self._lists) > 1:
            self._n_missing += coded.count_missing_lists()
        if coded.event_weights is not None:
            self._heaviest.append(coded.event_weights.heaviest[buys])

    def _read_truth(self, truth: pa.Table) -> pa.Table:
        return truth if self._weight is None else drop_weightless(truth, self._weight)

    def require_common_users(self, tables: Mapping[str, Rows]) -> None:
        """Raise if lists and purchases have no user in common; it shows the first of each."""
        for name in (name for name in self._lists if name not in self._common):
            rows = tables["truth"]
            batches = (self._read_truth(rows.finish(batch)) for batch in rows.batches())
            bought = next(batch.slice(0, 1) for batch in batches if batch.num_rows)
            listed = tables[name].finish(next(tables[name].batches()).slice(0, 1))
            code_tables({name: listed}, bought, self._k, None, None).require_common_users()

    def finish(self, weights: pa.Table | None, history: Rows | None) -> dict[str, float | int]:
        """Return the metrics of all parts together."""
        buyers = self._buyers(weights)
        sales = None
        if history is not None:
            add_sales(self._items, history)
            sales = self._items["sales"].astype(np.float64)
        ours, *others = (self._judged(name) for name in self._lists)
        if not others:
            return summarize(ours, buyers, sales)
        warn_of_missing_lists(self._n_missing, len(buyers.user_codes), self._lists)
        return compare(ours, others[0], buyers, sales)

    def _buyers(self, weights: pa.Table | None) -> Buyers:
        """Return the users who bought something, and how much each counts."""
        columns = [as_id_column("topk", USER, ids) for ids in self._users]
        users, codes = encode_ids(columns)
        user_codes = np.concatenate(codes)
        by_user = None
        if weights is not None:
            units = Units(users, user_codes, None, None)
            by_user = read_weights(weights, units, np.ones(len(user_codes), bool), "topk")
        if self._is_weighted:
            heaviest = np.concatenate(self._heaviest)
            by_user = heaviest if by_user is None else by_user * heaviest
        return Buyers(user_codes, by_user, self._n_skipped)

    def _judged(self, name: str) -> Judged:
        found = self._values[name]
        values = {metric: np.concatenate([part[metric] for part in found]) for metric in found[0]}
        return Judged(values, self._items[name])
