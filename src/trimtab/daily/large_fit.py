"""A fit on lists that are too large for memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.daily.large_lists import DayLists, LargeLists, StackedLists
from trimtab.daily.training_tables import TrainingTables
from trimtab.learn import BiasLearner, RerankLearner
from trimtab.parquet.fit_parquet import fit_sources
from trimtab.parquet.fit_sources import FitSources
from trimtab.tables.columns import CATEGORY, ITEM, WEIGHT
from trimtab.tables.frames import Table
from trimtab.tables.rows import Rows, TableRows


def can_learn_from_files(learner: BiasLearner | RerankLearner, tables: TrainingTables) -> bool:
    """Return whether a learner can read these lists in parts."""
    biases = learner.biases if isinstance(learner, RerankLearner) else learner
    weighted = any(WEIGHT in own.column_names for own in (tables.recent, tables.history))
    return biases.is_hierarchy and not weighted


def fit_large(
    learner: BiasLearner | RerankLearner, recs: StackedLists, tables: TrainingTables,
    duplicates: str, room: Path,
) -> Any:  # fmt: skip
    """Return what a learner learns from large lists.

    Args:
        learner: settings.
        recs: the lists.
        tables: the other tables.
        duplicates: what to do with repeated rows.
        room: folder for temporary files.
    """
    newest, *earlier = (_rows(own) for own in recs.lists)
    items = tables.catalogue
    sources = FitSources(
        recs=newest,
        recent=TableRows(tables.recent),
        history=TableRows(tables.history),
        items=None
        if items is None
        else Table("items", items.select([ITEM, CATEGORY]), None, False),
        earlier=tuple(earlier),
        windows=tuple(recs.windows or ()),
    )
    sources.check()
    return fit_sources(learner, sources, duplicates, folder=room)


def _rows(lists: DayLists) -> Rows:
    return lists.rows if isinstance(lists, LargeLists) else TableRows(lists)
