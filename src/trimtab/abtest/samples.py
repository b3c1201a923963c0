"""What is analysed: a row a user (or a mail) with its bucket, or counts of two buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.arrays import Codes, Flags, Floats
from trimtab.errors import DataError
from trimtab.tables.columns import BUCKET, USER
from trimtab.tables.frames import Table, column_names, read_frame, require_numbers
from trimtab.tables.ids import as_read_only, encode_ids, id_column

MAILS, OPENS, CLICKS, ORDERS, REVENUE = "mails", "opens", "clicks", "orders", "revenue"
DATE = "date"
BEFORE = "pre_"
MOST = 1e15  # beyond it sums of squares lose their meaning
COLUMNS = (MAILS, OPENS, CLICKS, ORDERS, REVENUE)
LABELS = (CONTROL, TREATMENT)

Sums = Mapping[str, Floats]


def sum_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Sums of values by group."""
    return np.bincount(groups, values, n).astype(np.float64)


def mean_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Means of values by group, of those that are known; nan where none is."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=n)
    sums = sum_by(groups[known], values[known], n)
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means


@dataclass(frozen=True)
class Sample:
    """Rows of both buckets.

    Attributes:
        columns: what was counted, by name; `mails` always.
        treated: whether a row is in the treatment.
        users: the user of each row; None where rows are units by themselves.
        dates: the date of each row, a code; None without dates.
        date_names: what the codes mean, ascending.
    """

    columns: Sums
    treated: Flags
    users: Codes | None
    dates: Codes | None
    date_names: Sequence[str]

    def arms(self, rows: Flags | None = None) -> tuple[Sums, Sums]:
        """Control and treatment, each with a number a unit; of some rows only, if so told."""
        return self._arm(False, rows), self._arm(True, rows)

    def _arm(self, treated: bool, rows: Flags | None) -> Sums:
        chosen = self.treated == treated
        if rows is not None:
            chosen &= rows
        taken = {name: values[chosen] for name, values in self.columns.items()}
        if self.users is None:
            return taken
        _, own = np.unique(self.users[chosen], return_inverse=True)
        n = int(own.max()) + 1 if len(own) else 0
        # What was before is a user's, however many rows say it.
        return {
            name: mean_by(own, values, n) if name.startswith(BEFORE) else sum_by(own, values, n)
            for name, values in taken.items()
        }

    def counts(self) -> tuple[int, int]:
        """How many units there are in each bucket."""
        first, second = self.arms()
        return len(first[MAILS]), len(second[MAILS])


def read_sample(
    table: Any, labels: Sequence[str] = LABELS, experiment: Experiment | None = None
) -> Sample:
    """Read and check a table.

    Args:
        table: bucket; opens, clicks, orders, revenue, as many as there are; mails, 1 a row if it
            is not there; user_id, for rows that belong together; date; pre_opens and so on, the
            same of the time before the test.
        labels: what control and treatment are called in the column bucket.
        experiment: tells the bucket by user_id; a column bucket must agree with it.
    """
    needed = (BUCKET,) if experiment is None else (USER,)
    read, columns = _read_columns(table, needed)
    treated = _buckets(read.columns, labels, experiment)
    users = _users(read)
    _check_apart(treated, users)
    date_names, dates = _dates(read.columns)
    return Sample(columns, treated, users, dates, date_names)


def read_baseline(table: Any, labels: Sequence[str] = LABELS) -> Sums:
    """What users did before any test, a number a unit: all rows, or those of control."""
    read, columns = _read_columns(table, ())
    users = _users(read)
    treated = np.zeros(len(read), bool)
    if read.has(BUCKET):
        text = read.columns[BUCKET].cast(pa.string())
        treated = ~np.array(pc.equal(text, labels[0]).to_numpy(zero_copy_only=False), bool)
    if treated.all():
        raise DataError(
            f"column '{BUCKET}' of table has no '{labels[0]}': drop the column, or pass what "
            f"control is called as labels"
        )
    return Sample(columns, treated, users, None, ()).arms()[0]


def _read_columns(table: Any, needed: tuple[str, ...]) -> tuple[Table, dict[str, Floats]]:
    """The table, and all that was counted."""
    found = column_names(table, "table")
    outcomes = COLUMNS[1:]
    if not any(name in found for name in outcomes):
        raise DataError(
            f"table has none of {', '.join(outcomes)}: there is nothing to compare; found "
            f"{', '.join(found)}"
        )
    names = [name for name in found if name.removeprefix(BEFORE) in COLUMNS]
    optional = tuple(name for name in (BUCKET, USER, DATE) if name not in needed)
    read = read_frame(table, "table", *needed, *names, optional=optional)
    columns = {name: _numbers(read, name) for name in names}
    columns.setdefault(MAILS, np.ones(len(read)))
    return read, columns


def _users(table: Table) -> Codes | None:
    return encode_ids([table.ids(USER)])[1][0] if table.has(USER) else None


def _numbers(table: Table, name: str) -> Floats:
    """A column as numbers, counts whole and at least 0; of the time before, some may lack."""
    column = table.columns[name]
    before = name.startswith(BEFORE)
    if column.null_count and not before:
        raise DataError(
            f"column '{name}' of table lacks a value in {column.null_count} of {len(column)} rows; "
            f"write 0 where there was nothing"
        )
    require_numbers(table, name)
    values: Floats = np.array(as_read_only(column.cast(pa.float64(), safe=False)), np.float64)
    given = values[~np.isnan(values)] if before else values
    bad = ~(np.abs(given) < MOST)
    if name.removeprefix(BEFORE) != REVENUE:
        bad |= (given < 0) | (given != np.floor(given))
    if bad.any():
        rule = f"{'a number' if name.endswith(REVENUE) else 'whole, at least 0'} and below {MOST:g}"
        raise DataError(
            f"column '{name}' of table has {given[bad][0]:g}: it must be {rule}; mend such rows"
        )
    return values


def _buckets(columns: pa.Table, labels: Sequence[str], experiment: Experiment | None) -> Flags:
    """Whether each row is in the treatment."""
    given = None
    if BUCKET in columns.column_names:
        given = _by_label(columns[BUCKET], labels)
    if experiment is None:
        assert given is not None
        return given
    treated = pc.equal(experiment.assign(columns[USER]), TREATMENT)
    told = np.array(treated.to_numpy(zero_copy_only=False), bool)
    if told.all() or not told.any():
        raise DataError(
            f"all users are in one bucket by salt '{experiment.salt}' and share "
            f"{experiment.share:g}: there is nothing to compare with"
        )
    if given is not None and (told != given).any():
        row = int(np.argmax(told != given))
        raise DataError(
            f"{int((told != given).sum())} of {len(told)} rows are in another bucket than salt "
            f"'{experiment.salt}' and share {experiment.share:g} say, the first for user_id "
            f"{columns[USER][row].as_py()}; pass the salt and share that the lists were made with"
        )
    return told


def _by_label(column: pa.ChunkedArray, labels: Sequence[str]) -> Flags:
    try:
        text = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column '{BUCKET}' of table holds {column.type}: it must be text, like "
            f"'{labels[0]}'; cast the column"
        ) from error
    known = pc.unique(text).to_pylist()
    strange = [value for value in known if value not in labels]
    if strange:
        raise DataError(
            f"column '{BUCKET}' of table has {strange[0]!r}: it must be '{labels[0]}' or "
            f"'{labels[1]}'; rename them, or pass what they are called as labels"
        )
    missing = [label for label in labels if label not in known]
    if missing:
        raise DataError(
            f"column '{BUCKET}' of table has no '{missing[0]}': there is nothing to compare with"
        )
    return np.array(pc.equal(text, labels[1]).to_numpy(zero_copy_only=False), bool)


def _check_apart(treated: Flags, users: Codes | None) -> None:
    """Refuse users in both buckets."""
    if users is None:
        return
    n = int(users.max()) + 1
    both = (np.bincount(users, treated, n) > 0) & (np.bincount(users, ~treated, n) > 0)
    if both.any():
        raise DataError(
            f"{int(both.sum())} of {n} users have rows in both buckets: each must be in one; drop "
            f"them, or leave out user_id if rows are independent"
        )


def _dates(columns: pa.Table) -> tuple[Sequence[str], Codes | None]:
    """The dates in words, ascending, and each row's."""
    if DATE not in columns.column_names:
        return (), None
    column = columns[DATE]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.date32(), safe=False)
    text = column.cast(pa.string()) if pa.types.is_date(column.type) else column
    names, (codes,) = encode_ids([id_column("table", DATE, text)])
    return [str(name) for name in pa.array(names).to_pylist()], codes


@dataclass(frozen=True)
class Counts:
    """Totals of one bucket: mails, opens, clicks, orders; revenue has no test of its own then."""

    totals: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, value in self.totals.items():
            if name not in COLUMNS:
                raise DataError(f"{name}={value}: must be one of {', '.join(COLUMNS)}")
            if name != REVENUE and not (value >= 0 and float(value).is_integer()):
                raise DataError(f"{name}={value:g}: must be whole and at least 0")
            if not abs(value) < MOST:
                raise DataError(f"{name}={value:g}: must be a number below {MOST:g}")
        if not self.totals.get(MAILS, 0) > 0:
            raise DataError("counts lack mails: say how many were delivered, like mails=400000")
        self._check_order()

    def _check_order(self) -> None:
        """Shares need trials that count at most once each."""
        pairs = ((OPENS, MAILS), (CLICKS, OPENS), (CLICKS, MAILS))
        for part, whole in pairs:
            if self.totals.get(part, 0) > self.totals.get(whole, math.inf):
                raise DataError(
                    f"{part}={self.totals[part]:g} is more than {whole}={self.totals[whole]:g}: "
                    f"counts must be of different mails; give a table with a row a user instead"
                )
