"""Fits, lists and metrics from Parquet files larger than memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trimtab import from_parts
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models import ItemBias, Model, Reranker
from trimtab.models.applying import item_type, look_ahead, rank_part
from trimtab.models.list_ranking import warn_of
from trimtab.models.model import LeftOut
from trimtab.parts.files import ROWS_PER_PART, open_files, open_table, write_parts
from trimtab.progress import Progress, progress_reporter
from trimtab.tables.columns import ITEM, GivenColumns, with_column
from trimtab.tables.files import require_suffix, require_writable_folder

__all__ = ["WrittenLists", "apply", "evaluate", "fit"]


def fit(
    learner: BiasLearner | RerankLearner, recs: Any, recent: Any, *, history: Any | None = None,
    items: Any | None = None, weights: Any | None = None, start: ItemBias | None = None,
    duplicates: str = "error", progress: bool | Progress | None = None,
    columns: GivenColumns = None, rows_per_part: int = ROWS_PER_PART, folder: Path | None = None,
) -> ItemBias | Reranker:  # fmt: skip
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
    return from_parts.fit(
        partial(open_table, columns=columns),
        partial(open_files, rows_per_part=rows_per_part, folder=folder),
        learner, start, duplicates, progress,
        recs=recs, recent=recent, history=history, items=items, weights=weights,
    )  # fmt: skip


class WrittenLists(NamedTuple):
    """What was written."""

    n_rows: int
    n_unknown: int  # listed items without a learned bias
    n_events: int  # of the history
    left_out: LeftOut


def apply(
    model: Model, recs: Any, out: str | Path, k: int = 10, *, exclude: Any | None = None,
    allowed: Any | None = None, duplicates: str = "error", depth: int | str | None = None,
    history: Any | None = None, as_of: Any | None = None, tz: str | None = None,
    columns: GivenColumns = None, rows_per_part: int = ROWS_PER_PART, folder: Path | None = None,
    progress: bool | Progress | None = None,
) -> WrittenLists:  # fmt: skip
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
    tables, options = from_parts.open_apply(
        partial(open_table, columns=columns), model, k, recs, exclude, allowed, history,
        duplicates=duplicates, depth=depth, as_of=as_of,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_files(tables, rows_per_part, folder or path.parent) as parts:
        if history is not None:
            options |= look_ahead(model, parts, as_of, duplicates, tz)
        kind = item_type(model, tables["recs"].schema.field(ITEM).type)
        with write_parts(path) as file, progress_reporter(progress, label="ranking") as report:
            total = None
            for done, part in enumerate(parts.map(rank_part, model, k, options, tz), start=1):
                report(1, done, parts.n_parts)
                if part.top is not None:  # ids of one type in all parts
                    file.add(with_column(part.top, ITEM, part.top[ITEM].cast(kind)))
                total = part if total is None else total + part
    assert total is not None
    warn_of(model, total, k, depth, of_later=False)
    n_events = tables["history"].n_rows if "history" in tables else 0
    return WrittenLists(file.n_rows, len(total.unknown), n_events, total.left_out)


def evaluate(
    topk: Any, truth: Any, k: int = 10, weights: Any | None = None, *, weight: str | None = None,
    baseline: Any | None = None, columns: GivenColumns = None,
    rows_per_part: int = ROWS_PER_PART, folder: Path | None = None,
    progress: bool | Progress | None = None,
) -> dict[str, float | int]:  # fmt: skip
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
        columns: the names that columns have in the files.
        rows_per_part: about how many rows of the largest table are held at once.
        folder: for temporary files; by default the system's.
        progress: as for `trimtab.parquet.apply`.
    """
    return from_parts.evaluate(
        partial(open_table, columns=columns),
        partial(open_files, rows_per_part=rows_per_part, folder=folder),
        topk, truth, k, weights, weight, baseline, progress,
    )  # fmt: skip
