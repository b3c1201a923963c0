"""fit: learns from Parquet files that may be larger than memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.bias import ItemBias
from trimtab.checks import require_rows
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.learn.coding import COLUMNS, Reading, is_by_user
from trimtab.learn.counted import SharedTables
from trimtab.parquet.row_tables import open_table
from trimtab.parts.files import open_files
from trimtab.progress import Progress
from trimtab.rerank import Reranker
from trimtab.tables.column_map import GivenColumns
from trimtab.tables.frames import read_frame
from trimtab.tables.parquet_rows import Rows
from trimtab.tables.user_ranges import ROWS_PER_PART


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
        name: open_table(name, source, *COLUMNS[name], columns)
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
    names = learner.choose_tables({name: rows.schema.names for name, rows in tables.items()})
    for name in names:
        require_rows(name, tables[name].n_rows)
    columns = {name: list(tables[name].schema.names) for name in names}
    reading = Reading.of(columns, learner.biases.unlisted, duplicates, labels)
    by_user = {name: tables[name] for name in names if is_by_user(name, columns[name])}
    others = {
        name: read_frame(_whole(tables[name]), name, *columns[name])
        for name in names
        if name not in by_user
    }
    shared = SharedTables(others.get("items"), others.get("history"))
    with open_files(by_user, rows_per_part, folder) as parts:
        return learner.fit_parts(parts, shared, reading, start, progress)


def _whole(rows: Rows) -> Any:
    """Return all rows of a table in memory."""
    import pyarrow as pa

    return rows.finish(pa.concat_tables([rows.plain_schema.empty_table(), *rows.batches()]))
