"""Fits, lists and metrics from Parquet files larger than memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trimtab.checks import require_columns, require_k, require_no_nulls, require_rows
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.coded_part import COLUMNS as FIT_COLUMNS
from trimtab.learn.counted import sort_tables
from trimtab.metrics.evaluation import finish, judge_part
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.applying import COLUMNS, item_type, look_ahead, rank_part
from trimtab.models.list_ranking import choose_depth, warn_of
from trimtab.models.model import LeftOut
from trimtab.parts.files import open_files, open_table, read_into_memory, write_parts
from trimtab.progress import Progress, show_parts
from trimtab.tables.columns import COUNT, ITEM, RANK, SCORE, USER, WINDOW, GivenColumns, own_names
from trimtab.tables.files import require_suffix, require_writable_folder
from trimtab.tables.frames import Table, read_frame
from trimtab.tables.rows import Rows
from trimtab.tables.user_ranges import ROWS_PER_PART

__all__ = ["WrittenLists", "apply", "evaluate", "fit"]


def fit(
    learner: BiasLearner | RerankLearner,
    recs: Any,
    recent: Any,
    *,
    history: Any | None = None,
    items: Any | None = None,
    weights: Any | None = None,
    start: ItemBias | None = None,
    duplicates: str = "error",
    progress: bool | Progress | None = None,
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
) -> ItemBias | Reranker:
    """Return what the learner's own `fit` returns for the same tables in memory, to the byte.

    Tables are read part by part, by ranges of user ids. If their row groups are not in the order
    of user ids, their rows are copied once to temporary files, and so are the coded lists: have
    about 15 bytes per row of `recs` free on disk.

    Args:
        learner: the settings, a `BiasLearner` or a `RerankLearner`.
        recs: user_id, item_id, score; like all tables here, a Parquet file, a folder of them, an
            address, or an Arrow table.
        recent: user_id, item_id, and timestamp if known.
        history: sales before the window, as for `BiasLearner.fit`. Counts of items, and events
            without users, are read into memory.
        items: item_id, category; read into memory.
        weights: user_id, weight.
        start: biases to start from; not for a Reranker.
        duplicates: what to do when `recs` has a (user, item) pair twice.
        progress: as for `BiasLearner.fit`.
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the system's.
    """
    given = {
        "recs": recs, "recent": recent, "history": history, "items": items, "weights": weights,
    }  # fmt: skip
    tables = {
        name: open_table(name, source, *FIT_COLUMNS[name], columns)
        for name, source in given.items()
        if source is not None
    }
    return fit_rows(learner, tables, duplicates, None, start, progress, rows_per_part, folder)


def fit_rows(
    learner: BiasLearner | RerankLearner, tables: Mapping[str, Rows], duplicates: str,
    labels: dict[str, str] | None = None, start: ItemBias | None = None,
    progress: bool | Progress | None = None, rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
) -> ItemBias | Reranker:  # fmt: skip
    """Return what a learner learns from open tables; see `fit`.

    Args:
        learner: the settings.
        tables: by name.
        duplicates: as for `fit`.
        labels: windows of the tables of lists, if each has its own: "recs" and others by any name.
        start: as for `fit`.
        progress: as for `fit`.
        rows_per_part: as for `fit`.
        folder: as for `fit`.
    """
    columns = {name: list(rows.schema.names) for name, rows in tables.items()}

    def read(name: str) -> Table:
        return read_frame(tables[name].read(), name, *columns[name])

    by_user, shared, reading = sort_tables(learner, columns, read, duplicates, labels)
    for name in by_user:
        require_rows(name, tables[name].n_rows)
    with open_files({name: tables[name] for name in by_user}, rows_per_part, folder) as parts:
        return learner.fit_parts(parts, shared, reading, start, progress)


class WrittenLists(NamedTuple):
    """What was written."""

    n_rows: int
    n_unknown: int  # listed items without a learned bias
    n_events: int  # of the history
    left_out: LeftOut


def apply(
    model: Model,
    recs: Any,
    out: str | Path,
    k: int = 10,
    *,
    exclude: Any | None = None,
    allowed: Any | None = None,
    duplicates: str = "error",
    depth: int | str | None = None,
    history: Any | None = None,
    as_of: Any | None = None,
    tz: str | None = None,
    columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART,
    folder: Path | None = None,
    progress: bool | Progress | None = None,
) -> WrittenLists:
    """Write the top k of every user to a Parquet file: the table that `model.apply` returns.

    Tables are read part by part, by ranges of user ids. If their row groups are not in the order
    of user ids, their rows are copied once to a temporary file.

    Args:
        model: biases, or a Reranker.
        recs: user_id, item_id, score (and window, if there are several): the engine's lists. Like
            all tables here, a Parquet file, a folder of them, an address, or an Arrow table.
        out: file to write, which ends in .parquet; it appears only when complete.
        k: slots per user; a user with fewer items gets fewer rows.
        exclude: user_id, item_id of pairs that must not be shown.
        allowed: item_id of the only items that may be shown; read into memory.
        duplicates: what to do if `recs` has a (user, item) pair twice: "error", or merge the scores
            by "max", "mean" or "sum".
        depth: as for `ItemBias.apply`.
        history: user_id, item_id, timestamp: what users bought; for a Reranker only.
        as_of: the instant that the lists are for, as for `Reranker.apply`.
        tz: time zone of timestamps in `history` that have none, if the Reranker learned from
            timestamps with one.
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the folder of `out`.
        progress: True or False to show a progress bar or not, by default on a terminal; or a
            function that is called with 1, the parts done and their number.

    Returns:
        The number of rows, of listed items that have no learned bias, of events, and of events that
        were left out.
    """
    path = Path(out)
    require_suffix(path, (".parquet",))
    require_writable_folder(path.parent)
    require_k(k)
    choose_depth(model.item_bias, depth)
    model.refuse_events(history, as_of)
    given = {"recs": recs, "exclude": exclude, "history": history}
    tables = {
        name: open_table(name, source, *COLUMNS[name], columns)
        for name, source in given.items()
        if source is not None
    }
    require_rows("recs", tables["recs"].n_rows)
    options: dict[str, Any] = {"duplicates": duplicates, "depth": depth, "as_of": as_of}
    if allowed is not None:
        options["allowed"] = read_into_memory(allowed, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_files(tables, rows_per_part, folder or path.parent) as parts:
        n_unknown = None
        if history is not None:
            learned = model
            model, options["as_of"] = look_ahead(model, parts, as_of, duplicates, tz)
            n_unknown = len(model.item_bias) - len(learned.item_bias)
        kind = item_type(model, tables["recs"].schema.field(ITEM).type)
        with write_parts(path) as file, show_parts(progress, "ranking") as report:
            total = None
            for done, part in enumerate(parts.map(rank_part, model, k, options, tz), start=1):
                report(1, done, len(parts.parts))
                if part.top is not None:
                    file.add(_with_items(part.top, kind))
                total = part if total is None else total + part
    assert total is not None
    warn_of(model, total, k, depth, of_later=False)
    n_unknown = len(total.unknown) if n_unknown is None else n_unknown
    n_events = tables["history"].n_rows if "history" in tables else 0
    return WrittenLists(file.n_rows, n_unknown, n_events, total.left_out)


def _with_items(top: pa.Table, kind: pa.DataType) -> pa.Table:
    """Return lists with item ids of one type in all parts."""
    if top.schema.field(ITEM).type.equals(kind):
        return top
    place = top.column_names.index(ITEM)
    return top.set_column(place, ITEM, top[ITEM].cast(kind))


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
    by_user = None if weights is None else read_into_memory(weights, columns)
    sales = None if past is None else _count_sales(past)
    with (
        open_files(tables, rows_per_part, folder) as parts,
        show_parts(progress, "evaluating") as report,
    ):
        judged = []
        for part in parts.map(judge_part, k, weight):
            judged.append(part)
            report(1, len(judged), len(parts.parts))
    return finish(reduce(add, judged), by_user, sales, weight)


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
        return history.read()
    sales = pa.table({ITEM: history.schema.empty_table()[ITEM], COUNT: pa.array([], pa.int64())})
    for batch in history.batches():
        require_no_nulls("history", history.own_name(ITEM), batch[0])
        counted = history.finish(batch).group_by(ITEM).aggregate([([], "count_all")])
        both = pa.concat_tables([sales, counted.rename_columns([ITEM, COUNT])])
        sales = both.group_by(ITEM).aggregate([(COUNT, "sum")]).rename_columns([ITEM, COUNT])
    return sales.replace_schema_metadata(history.schema.metadata)
