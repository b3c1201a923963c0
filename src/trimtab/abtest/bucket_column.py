"""The bucket of each row: by a column, by the salt of a test, or both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import TREATMENT, Experiment
from trimtab.arrays import Codes
from trimtab.errors import DataError
from trimtab.tables.columns import BUCKET, USER, own_names


def read_buckets(columns: pa.Table, labels: Sequence[str], experiment: Experiment | None) -> Codes:
    """Return the place in `labels` of each row's bucket; 0 is control."""
    given = None
    if BUCKET in columns.column_names:
        own = own_names(columns).get(BUCKET, BUCKET)
        given = _by_label(columns[BUCKET], labels, own)
    if experiment is None:
        assert given is not None
        return given
    treated = pc.equal(experiment.assign(columns[USER]), TREATMENT)
    expected: Codes = np.array(treated.to_numpy(zero_copy_only=False), np.int32)
    if expected.all() or not expected.any():
        raise DataError(
            f"salt='{experiment.salt}' and share={experiment.share:g} put all users into one "
            f"bucket; add users of the other bucket"
        )
    if given is not None and (expected != given).any():
        row = int(np.argmax(expected != given))
        raise DataError(
            f"{int((expected != given).sum())} of {len(expected)} rows are not in the bucket that "
            f"salt='{experiment.salt}' and share={experiment.share:g} give, like user_id "
            f"{columns[USER][row].as_py()}; pass the salt and share that the lists were made with"
        )
    return expected


def _by_label(column: pa.ChunkedArray, labels: Sequence[str], name: str) -> Codes:
    try:
        text = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column '{name}' of table holds {column.type}: must be text like '{labels[0]}'; "
            f"cast the column"
        ) from error
    text = _as_written(text, column.type, labels)
    known = pc.unique(text).to_pylist()
    strange = [value for value in known if value not in labels]
    if strange:
        listed = [f"'{label}'" for label in labels]
        raise DataError(
            f"column '{name}' of table has {strange[0]!r}: must be {', '.join(listed[:-1])} or "
            f"{listed[-1]}; rename it, or pass labels="
        )
    missing = [label for label in labels if label not in known]
    if missing:
        every = "both" if len(labels) == 2 else "all"
        raise DataError(
            f"column '{name}' of table has no '{missing[0]}'; add rows of {every} buckets"
        )
    places = pc.index_in(text, pa.array(labels, text.type))
    codes: Codes = np.array(places.to_numpy(zero_copy_only=False), np.int32)
    return codes


def _as_written(text: pa.ChunkedArray, kind: pa.DataType, labels: Sequence[str]) -> pa.ChunkedArray:
    """Return buckets with the labels that a CSV file's numbers, or true and false, stand for."""
    if pa.types.is_boolean(kind):
        meant = {label.lower(): label for label in labels}
    elif pa.types.is_integer(kind):
        meant = {str(int(label)): label for label in labels if label.strip("+-").isdecimal()}
    else:
        return text
    return pa.chunked_array([pa.array([meant.get(v, v) for v in text.to_pylist()], pa.string())])


def check_apart(buckets: Codes, users: Codes | None) -> None:
    """Refuse users in several buckets."""
    if users is None:
        return
    n = int(users.max()) + 1
    lowest, highest = np.full(n, len(buckets), np.int64), np.full(n, -1, np.int64)
    np.minimum.at(lowest, users, buckets)
    np.maximum.at(highest, users, buckets)
    several = highest > lowest
    if several.any():
        where = "both" if buckets.max() == 1 else "several"
        raise DataError(
            f"{int(several.sum())} of {n} users have rows in {where} buckets; drop these users, or "
            f"leave out user_id if rows are independent"
        )
