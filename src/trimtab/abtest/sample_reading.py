"""From a table to samples: control and one treatment each, with one row per user or email."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.bucket_column import check_apart, read_buckets
from trimtab.abtest.buckets import Experiment
from trimtab.abtest.metrics import Metric
from trimtab.abtest.outcome_columns import read_columns
from trimtab.abtest.samples import (
    BEFORE,
    DATE,
    LABELS,
    PER_USER,
    Sample,
    Sums,
    mean_by,
    sum_by,
)
from trimtab.abtest.written_dates import parse_dates
from trimtab.arrays import Codes, Flags
from trimtab.errors import DataError
from trimtab.tables.columns import BUCKET, USER
from trimtab.tables.frames import Table
from trimtab.tables.vocabulary import Vocabulary, id_column


def read_samples(
    table: Any, labels: Sequence[str] = LABELS, experiment: Experiment | None = None,
    metrics: Sequence[Metric] = (), covariates: Sequence[str] = (),
) -> list[Sample]:  # fmt: skip
    """Read and check a table; return control with each treatment.

    Args:
        table: bucket; the columns of metrics; user_id, if rows belong together; date; pre_ columns,
            the same before the test.
        labels: names of control and of the treatments in the column bucket.
        experiment: gives the bucket by user_id; a column bucket must agree with it.
        metrics: metrics of one's own. Without any, it is a test by email: any of opens, clicks,
            orders, revenue; emails (default: 1 per row).
        covariates: columns known before the test.
    """
    needed = (BUCKET,) if experiment is None else (USER,)
    read, columns = read_columns(table, needed, metrics, covariates)
    buckets = read_buckets(read.columns, labels, experiment)
    users = _read_users(read)
    check_apart(buckets, users)
    names, dates = _read_dates(read.columns)
    whole = Sample(columns, buckets > 0, users, dates, names)
    if len(labels) == 2:
        return [_one_row_per_date(whole)]
    places = range(1, len(labels))
    return [_one_row_per_date(_take(whole, (buckets == 0) | (buckets == at))) for at in places]


def read_baseline(
    table: Any, labels: Sequence[str] = LABELS, metrics: Sequence[Metric] = ()
) -> Sums:
    """Return sums per unit before any test: of all rows, or of control."""
    read, columns = read_columns(table, (), metrics)
    users = _read_users(read)
    treated = np.zeros(len(read), bool)
    if read.has(BUCKET):
        text = read.columns[BUCKET].cast(pa.string())
        treated = ~np.array(pc.equal(text, labels[0]).to_numpy(zero_copy_only=False), bool)
    if treated.all():
        raise DataError(
            f"column '{BUCKET}' of table has no '{labels[0]}'; drop the column, or pass labels="
        )
    return Sample(columns, treated, users, None, ()).arms()[0]


def _read_users(table: Table) -> Codes | None:
    return Vocabulary.encode(table.ids(USER))[1][0] if table.has(USER) else None


def _read_dates(columns: pa.Table) -> tuple[Sequence[str], Codes | None]:
    """Return the dates as text, ascending, and the date code of each row."""
    if DATE not in columns.column_names:
        return (), None
    column = columns[DATE]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.date32(), safe=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = parse_dates(column, DATE)
    text = column.cast(pa.string()) if pa.types.is_date(column.type) else column
    names, (codes,) = Vocabulary.encode(id_column("table", DATE, text))
    return [str(name) for name in pa.array(names.ids).to_pylist()], codes


def _take(sample: Sample, rows: Flags) -> Sample:
    """Return some rows, with the dates that they have."""
    columns = {name: values[rows] for name, values in sample.columns.items()}
    users = None if sample.users is None else sample.users[rows]
    if sample.dates is None:
        return Sample(columns, sample.treated[rows], users, None, ())
    known, dates = np.unique(sample.dates[rows], return_inverse=True)
    names = [sample.date_names[place] for place in known]
    return Sample(columns, sample.treated[rows], users, dates.astype(np.int32), names)


def _one_row_per_date(sample: Sample) -> Sample:
    """Return a sample of users with one row per user and date, since a user counts once there."""
    if PER_USER not in sample.columns or sample.users is None or sample.dates is None:
        return sample
    keys = sample.users.astype(np.int64) * len(sample.date_names) + sample.dates
    _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
    columns = {
        name: (mean_by if name == PER_USER or name.startswith(BEFORE) else sum_by)(rows, values)
        for name, values in sample.columns.items()
    }
    return Sample(
        columns, sample.treated[first], sample.users[first], sample.dates[first], sample.date_names
    )
