"""A fit on lists that are too large for memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.daily.large_lists import DayLists, LargeLists, StackedLists
from trimtab.daily.training_tables import TrainingTables
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.models.item_bias import ItemBias
from trimtab.parquet import fit_rows
from trimtab.tables.columns import CATEGORY, ITEM
from trimtab.tables.rows import Rows, TableRows


def fit_large(
    learner: BiasLearner | RerankLearner, recs: StackedLists, tables: TrainingTables,
    duplicates: str, room: Path, start: ItemBias | None = None,
) -> Any:  # fmt: skip
    """Return what a learner learns from large lists.

    Args:
        learner: settings.
        recs: the lists.
        tables: the other tables.
        duplicates: what to do with repeated rows.
        room: folder for temporary files.
        start: biases to start from.
    """
    lists = {f"recs {n}" if n else "recs": _rows(own) for n, own in enumerate(recs.lists)}
    others = {"recent": TableRows(tables.recent)}
    if learner.biases.is_hierarchy:
        others["history"] = TableRows(tables.history)
    if learner.biases.is_hierarchy and tables.catalogue is not None:
        others["items"] = TableRows(tables.catalogue.select([ITEM, CATEGORY]))
    labels = dict(zip(lists, recs.windows or (), strict=False))
    return fit_rows(learner, {**lists, **others}, duplicates, labels, start, folder=room)


def _rows(lists: DayLists) -> Rows:
    return lists.rows if isinstance(lists, LargeLists) else TableRows(lists)
