"""evaluate: metrics of lists in Parquet files larger than memory."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa

from trimtab.checks import require_columns, require_k, require_no_nulls, require_rows
from trimtab.metrics.evaluation import Judged, finish, judge
from trimtab.parquet.event_columns import check_weights, drop_weightless
from trimtab.parquet.row_tables import open_table, read_into_memory
from trimtab.progress import Progress, show_parts
from trimtab.tables.columns import GivenColumns, own_names
from trimtab.tables.columns import COUNT, ITEM, RANK, SCORE, USER, WINDOW
from trimtab.tables.rows import Rows
from trimtab.tables.user_ranges import ROWS_PER_PART, UserPart, divide_by_user


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
    given = {"topk": topk} if baseline is None else {"topk": topk, "baseline": baseline}
    tables = {name: _open_lists(name, lists, columns) for name, lists in given.items()}
    needed = dict.fromkeys((USER, ITEM) if weight is None else (USER, ITEM, weight))
    tables["truth"] = open_table("truth", truth, tuple(needed), (WINDOW,), columns)
    past = None if history is None else open_table("history", history, (ITEM,), (COUNT,), columns)
    for name, rows in tables.items():
        require_rows(name, rows.n_rows)
    if weight is not None:
        check_weights("truth", tables["truth"], weight)
    by_user = None if weights is None else read_into_memory(weights, columns)
    sales = None if past is None else _count_sales(past)
    with (
        divide_by_user(tables, None, rows_per_part, folder) as parts,
        show_parts(progress, "evaluating") as report,
    ):

        def judge_part(part: UserPart) -> Judged:
            report(1, part.number, parts.n_parts)
            own = {name: part[name] for name in part}
            bought = own.pop("truth")
            counted = bought if weight is None else drop_weightless(bought, weight)
            return judge(own, counted, k, weight, is_part=True)

        judged = reduce(add, map(judge_part, parts))
    return finish(judged, by_user, sales)


def _open_lists(name: str, source: Any, columns: GivenColumns) -> Rows:
    rows = open_table(name, source, (USER, ITEM), (RANK, SCORE, WINDOW), columns)
    if RANK in rows.schema.names:
        return open_table(name, source, (USER, ITEM), (RANK, WINDOW), columns)
    empty = rows.schema.empty_table()
    require_columns(name, empty.column_names, [SCORE], own_names(empty))
    return rows


def _count_sales(history: Rows) -> pa.Table:
    """Return sales by item, or the rows if they have counts already."""
    if COUNT in history.schema.names:
        return history.finish(pa.concat_tables(history.batches()))
    sales = pa.table({ITEM: history.schema.empty_table()[ITEM], COUNT: pa.array([], pa.int64())})
    for batch in history.batches():
        require_no_nulls("history", history.own_name(ITEM), batch[0])
        counted = history.finish(batch).group_by(ITEM).aggregate([([], "count_all")])
        both = pa.concat_tables([sales, counted.rename_columns([ITEM, COUNT])])
        sales = both.group_by(ITEM).aggregate([(COUNT, "sum")]).rename_columns([ITEM, COUNT])
    return sales.replace_schema_metadata(history.schema.metadata)
