"""Files with more rows than are read into memory, for commands that can work on parts of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from trimtab.errors import TrimtabError
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.parquet import fit
from trimtab.replay import large_lists
from trimtab.tables.columns import COUNT, ITEM, SCORE, USER, WEIGHT, ColumnMap
from trimtab.tables.files import is_csv, match_id_types, read_table
from trimtab.tables.rows import ParquetRows


def is_large(path: str | None) -> bool:
    """Return whether a file or folder has more rows than are read into memory at once."""
    if path is None or is_csv(path):
        return False
    try:
        return ParquetRows(path).n_rows > large_lists.LARGE
    except TrimtabError:  # told of when it is read
        return False


def open_tables(
    *paths: str | None,
    text: Collection[str] = (),
    columns: ColumnMap,
    needed: Collection[str] = (USER, ITEM, SCORE),
) -> list[Any]:
    """Return Parquet files as they are, and CSV files as tables with matching types of ids.

    The arguments are those of `read_tables`.
    """
    found = [None if path is None else _look_into(path, columns) for path in paths]
    columns.warn_of_unused(found, but=needed)
    from_csv = [path is not None and is_csv(path) for path in paths]
    matched = match_id_types(found, from_csv, text)
    return [
        table if is_read else path
        for path, table, is_read in zip(paths, matched, from_csv, strict=True)
    ]


def fit_large(
    learner: BiasLearner | RerankLearner, recs: str, recent: str, *, history: str | None,
    items: str | None, weights: str | None, duplicates: str, columns: ColumnMap,
    needed: Collection[str] = (USER, ITEM, SCORE),
) -> Any | None:  # fmt: skip
    """Return what a learner learns from large lists, part by part; None to read all into memory.

    The arguments are those of the commands that fit.
    """
    biases = learner.biases if isinstance(learner, RerankLearner) else learner
    if not (is_large(recs) and biases.is_hierarchy):
        return None
    lists, sales, past, catalogue, by_user = open_tables(
        recs, recent, history, items, weights, columns=columns, needed=needed
    )
    if not _are_events(sales, past, columns):
        return None
    return fit(
        learner, lists, sales, history=past, items=catalogue, weights=by_user,
        duplicates=duplicates, columns=columns,
    )  # fmt: skip


def _are_events(recent: Any, history: Any, columns: ColumnMap) -> bool:
    """Return whether both tables hold single events that all count alike, as in parts they must."""
    for table in (recent, history):
        if table is None:
            continue
        found = table if isinstance(table, pa.Table) else _look_into(table, columns)
        if USER not in found.column_names or {COUNT, WEIGHT} & set(found.column_names):
            return False
    return True


def _look_into(path: str, columns: ColumnMap) -> Any:
    """Return a CSV file as a table, and a Parquet file as one without rows."""
    if is_csv(path):
        return read_table(path, columns=columns)
    return ParquetRows(path, columns=columns).schema.empty_table()
