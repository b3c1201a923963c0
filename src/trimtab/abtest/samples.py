"""The data of an analysis: one row per user (or email) with its bucket, or totals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.abtest.written_dates import parse_dates
from trimtab.arrays import Codes, Flags, Floats
from trimtab.errors import DataError
from trimtab.tables.column_map import own_names
from trimtab.tables.columns import BUCKET, USER
from trimtab.tables.frames import Table, column_names, read_frame, require_numbers
from trimtab.tables.ids import as_read_only, encode_ids, id_column

EMAILS, OPENS, CLICKS, ORDERS, REVENUE = "emails", "opens", "clicks", "orders", "revenue"
DATE = "date"
BEFORE = "pre_"
_OLD_NAMES = {"mails": EMAILS, "pre_mails": BEFORE + EMAILS, "mail_id": "email_id"}
MOST = 1e15  # beyond it, sums of squares lose precision
COLUMNS = (EMAILS, OPENS, CLICKS, ORDERS, REVENUE)
LABELS = (CONTROL, TREATMENT)

Sums = Mapping[str, Floats]


def find_old_names(names: Collection[str]) -> dict[str, str]:
    """Return the new names of columns or totals that have old ones: mails, mail_id."""
    return {old: new for old, new in _OLD_NAMES.items() if old in names and new not in names}


def rename_old_columns(table: Any, name: str) -> Any:
    """Return a table with emails and email_id for columns named mails and mail_id."""
    found = find_old_names(column_names(table, name))
    return nw.from_native(table).rename(found).to_native() if found else table


def sum_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Return sums of values by group."""
    return np.bincount(groups, values, n).astype(np.float64)


def mean_by(groups: Any, values: Floats, n: int = 0) -> Floats:
    """Return means of the known values by group; nan without any."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=n)
    sums = sum_by(groups[known], values[known], n)
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means


@dataclass(frozen=True)
class Sample:
    """Rows of both buckets.

    Attributes:
        columns: counts by name; always `emails`.
        treated: whether a row is in the treatment group.
        users: the user code of each row; None if each row is a unit.
        dates: the date code of each row; None without dates.
        date_names: the dates behind the codes, ascending.
    """

    columns: Sums
    treated: Flags
    users: Codes | None
    dates: Codes | None
    date_names: Sequence[str]

    def arms(self, rows: Flags | None = None) -> tuple[Sums, Sums]:
        """Return sums per unit of control and of treatment, over all rows or some."""
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
        # Numbers from before the test belong to the user: rows repeat them.
        return {
            name: mean_by(own, values, n) if name.startswith(BEFORE) else sum_by(own, values, n)
            for name, values in taken.items()
        }

    def counts(self) -> tuple[int, int]:
        """Return the number of units in each bucket."""
        first, second = self.arms()
        return len(first[EMAILS]), len(second[EMAILS])


def read_sample(
    table: Any, labels: Sequence[str] = LABELS, experiment: Experiment | None = None
) -> Sample:
    """Read and check a table.

    Args:
        table: bucket; any of opens, clicks, orders, revenue; emails (default: 1 per row); user_id,
            if rows belong together; date; pre_opens and so on, the same before the test.
        labels: names of control and treatment in the column bucket.
        experiment: gives the bucket by user_id; a column bucket must agree with it.
    """
    needed = (BUCKET,) if experiment is None else (USER,)
    read, columns = _read_columns(table, needed)
    treated = _buckets(read.columns, labels, experiment)
    users = _users(read)
    _check_apart(treated, users)
    date_names, dates = _dates(read.columns)
    return Sample(columns, treated, users, dates, date_names)


def read_baseline(table: Any, labels: Sequence[str] = LABELS) -> Sums:
    """Return sums per unit before any test: of all rows, or of control."""
    read, columns = _read_columns(table, ())
    users = _users(read)
    treated = np.zeros(len(read), bool)
    if read.has(BUCKET):
        text = read.columns[BUCKET].cast(pa.string())
        treated = ~np.array(pc.equal(text, labels[0]).to_numpy(zero_copy_only=False), bool)
    if treated.all():
        raise DataError(
            f"column '{BUCKET}' of table has no '{labels[0]}'; drop the column, or pass labels="
        )
    return Sample(columns, treated, users, None, ()).arms()[0]


def _read_columns(table: Any, needed: tuple[str, ...]) -> tuple[Table, dict[str, Floats]]:
    """Return the table, and its counts by name."""
    table = rename_old_columns(table, "table")
    found = column_names(table, "table")
    outcomes = COLUMNS[1:]
    if not any(name in found for name in outcomes):
        raise DataError(f"table has none of {', '.join(outcomes)}; found {', '.join(found)}")
    names = [name for name in found if name.removeprefix(BEFORE) in COLUMNS]
    optional = tuple(name for name in (BUCKET, USER, DATE) if name not in needed)
    read = read_frame(table, "table", *needed, *names, optional=optional)
    columns = {name: _numbers(read, name) for name in names}
    columns.setdefault(EMAILS, np.ones(len(read)))
    return read, columns


def _users(table: Table) -> Codes | None:
    return encode_ids([table.ids(USER)])[1][0] if table.has(USER) else None


def _numbers(table: Table, name: str) -> Floats:
    """Return a column as numbers: counts whole and at least 0; pre_ columns may have gaps."""
    column = table.columns[name]
    before = name.startswith(BEFORE)
    if column.null_count and not before:
        raise DataError(
            f"column '{table.own_name(name)}' of table has no value in {column.null_count} of "
            f"{len(column)} rows; use 0 instead"
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
            f"column '{table.own_name(name)}' of table has {given[bad][0]:g}: must be {rule}; fix "
            f"such rows"
        )
    return values


def _buckets(columns: pa.Table, labels: Sequence[str], experiment: Experiment | None) -> Flags:
    """Return whether each row is in the treatment group."""
    given = None
    if BUCKET in columns.column_names:
        own = own_names(columns).get(BUCKET, BUCKET)
        given = _by_label(columns[BUCKET], labels, own)
    if experiment is None:
        assert given is not None
        return given
    treated = pc.equal(experiment.assign(columns[USER]), TREATMENT)
    expected = np.array(treated.to_numpy(zero_copy_only=False), bool)
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


def _by_label(column: pa.ChunkedArray, labels: Sequence[str], name: str) -> Flags:
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
        raise DataError(
            f"column '{name}' of table has {strange[0]!r}: must be '{labels[0]}' or "
            f"'{labels[1]}'; rename it, or pass labels="
        )
    missing = [label for label in labels if label not in known]
    if missing:
        raise DataError(f"column '{name}' of table has no '{missing[0]}'; add rows of both buckets")
    return np.array(pc.equal(text, labels[1]).to_numpy(zero_copy_only=False), bool)


def _as_written(text: pa.ChunkedArray, kind: pa.DataType, labels: Sequence[str]) -> pa.ChunkedArray:
    """Return buckets with the labels that a CSV file's numbers, or true and false, stand for."""
    if pa.types.is_boolean(kind):
        meant = {label.lower(): label for label in labels}
    elif pa.types.is_integer(kind):
        meant = {str(int(label)): label for label in labels if label.strip("+-").isdecimal()}
    else:
        return text
    return pa.chunked_array([pa.array([meant.get(v, v) for v in text.to_pylist()], pa.string())])


def _check_apart(treated: Flags, users: Codes | None) -> None:
    """Refuse users in both buckets."""
    if users is None:
        return
    n = int(users.max()) + 1
    both = (np.bincount(users, treated, n) > 0) & (np.bincount(users, ~treated, n) > 0)
    if both.any():
        raise DataError(
            f"{int(both.sum())} of {n} users have rows in both buckets; drop these users, or leave "
            f"out user_id if rows are independent"
        )


def _dates(columns: pa.Table) -> tuple[Sequence[str], Codes | None]:
    """Return the dates as text, ascending, and the date code of each row."""
    if DATE not in columns.column_names:
        return (), None
    column = columns[DATE]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.date32(), safe=False)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = parse_dates(column, DATE)
    text = column.cast(pa.string()) if pa.types.is_date(column.type) else column
    names, (codes,) = encode_ids([id_column("table", DATE, text)])
    return [str(name) for name in pa.array(names).to_pylist()], codes


@dataclass(frozen=True)
class Counts:
    """Totals of one bucket: emails, opens, clicks, orders, revenue."""

    totals: Mapping[str, float]

    @staticmethod
    def of(given: Mapping[str, float]) -> Counts:
        """Return checked totals; the old name mails is accepted for emails."""
        renamed = find_old_names(given)
        return Counts({renamed.get(name, name): value for name, value in given.items()})

    def __post_init__(self) -> None:
        for name, value in self.totals.items():
            if name not in COLUMNS:
                raise DataError(f"{name}={value}: must be one of {', '.join(COLUMNS)}")
            if name != REVENUE and not (value >= 0 and float(value).is_integer()):
                raise DataError(f"{name}={value:g}: must be whole and at least 0")
            if not abs(value) < MOST:
                raise DataError(f"{name}={value:g}: must be a number below {MOST:g}")
        if not self.totals.get(EMAILS, 0) > 0:
            raise DataError("emails: missing or 0; give the emails delivered, like emails=400000")
        self._check_order()

    def _check_order(self) -> None:
        """Refuse more clicks than opens, or more of either than emails."""
        pairs = ((OPENS, EMAILS), (CLICKS, OPENS), (CLICKS, EMAILS))
        for part, whole in pairs:
            if self.totals.get(part, 0) > self.totals.get(whole, math.inf):
                raise DataError(
                    f"{part}={self.totals[part]:g} is more than {whole}={self.totals[whole]:g}: "
                    f"count each email once, or give a table with one row per user"
                )
