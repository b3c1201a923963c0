"""The inputs of the default fit on Spark: what the partitioned fit needs, counted by Spark."""

from __future__ import annotations

from trimtab.arrays import Ints
from trimtab.learn.inputs import read_categories
from trimtab.learn.partitions.global_counts import sum_totals
from trimtab.learn.partitions.partitioned_fit import PartitionedInputs
from trimtab.spark.fit_session import FitSession
from trimtab.spark.history_counts import count_histories_on_spark
from trimtab.tables.columns import ITEM
from trimtab.tables.frames import Table
from trimtab.tables.vocabulary import as_id_column, encode_ids


def read_partitioned(session: FitSession) -> PartitionedInputs:
    """The tables of a session, with counts over all of them."""
    learner = session.learner
    survey = session.survey()
    return PartitionedInputs(
        units=session.units,
        item_ids=session.item_ids,
        n_windows=len(session.windows),
        window=session.window,
        survey=survey,
        totals=sum_totals(session.units, learner.k, learner.metric, survey.counts),
        histories=count_histories_on_spark(session),
        categories=_read_categories(session),
    )


def _read_categories(session: FitSession) -> Ints | None:
    """The category of each item, read on the driver: the table has one row per item."""
    if session.tables.items is None:
        return None
    table = Table("items", session.tables.items.toArrow(), None, False)
    known = as_id_column("all tables", ITEM, session.item_ids)
    _, (_, codes) = encode_ids([known, table.ids(ITEM)])
    return read_categories(table, codes, len(session.item_ids))
