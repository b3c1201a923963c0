"""From a table, or from totals, to units in two buckets: what a test compares.

A row of a table is an email, a user, or a user on a date. Rows of one user belong together: they
are added up, so that a user counts once however many rows there are.

Where the treatment's share changes from date to date, units are compared within *cells*: rows of
one date, or, if a user keeps the bucket of the first date, users with the same first date. Then a
share that rises while sales rise does not look like an effect. Otherwise there is one cell.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.arrays import Codes, Flags, Floats, Ints
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import (
    BUCKET,
    USER,
    Table,
    column_names,
    own_names,
    read_frame,
    require_numbers,
)
from trimtab.tables.vocabulary import Vocabulary, as_read_only, id_column, is_text

EMAILS, OPENS, CLICKS, ORDERS, REVENUE = "emails", "opens", "clicks", "orders", "revenue"
COLUMNS = (EMAILS, OPENS, CLICKS, ORDERS, REVENUE)
PER_USER = "user"  # the denominator that is 1 for every user
DATE = "date"
BEFORE = "pre_"
COVARIATE = f"{BEFORE}covariate "  # before the name of one of the caller's own
LABELS = (CONTROL, TREATMENT)
PER_OPEN, PER_EMAIL, GUARDRAIL, OWN = "per open", "per email", "guardrail", "own"
COUNT, AMOUNT = "count", "amount"
_EXPOSURE = "exposure"  # a denominator
_RULES = {AMOUNT: "a number", COUNT: "whole, at least 0", _EXPOSURE: "at least 0"}
_RESERVED = (PER_USER, USER, BUCKET, DATE)
_SINGULAR = ((r"ies$", "y"), (r"(ch|sh|ss|x|z)es$", r"\1"), (r"(?<!s)s$", ""))
_MOST = 1e15  # beyond it, sums of squares lose precision
_MOST_EMAILS = 1e9  # random redistributions of totals cannot have more
_ROWS_PER_COVARIATE = 20  # fewer, and what covariates explain is chance
_UNEVEN = 0.001  # p-value below which shares differ from date to date
_DAY_OR_MONTH_FIRST = r"^\d{1,2}[./]\d{1,2}[./]\d{2,4}$"

Columns = Mapping[str, Floats]
T = TypeVar("T", bound=Any)


# Metrics -----------------------------------------------------------------------------------------


class Metric(NamedTuple):
    """A ratio of two columns.

    Attributes:
        numerator: name of a column.
        denominator: name of a column, or `user`, which is 1 for every user.
        family: p-values are adjusted within it; `own` for metrics of one's own.
        kind: count, of whole numbers of at least 0, or amount.
    """

    numerator: str
    denominator: str
    family: str = OWN
    kind: str = COUNT

    @property
    def title(self) -> str:
        """The title, like 'Clicks per open'."""
        words = f"{self.numerator} per {make_singular(self.denominator)}".replace("_", " ")
        return words[:1].upper() + words[1:]


def make_singular(name: str) -> str:
    """Return the singular of an English plural."""
    for ending, singular in _SINGULAR:
        if re.search(ending, name):
            return re.sub(ending, singular, name)
    return name


def email_metrics(columns: Collection[str]) -> list[Metric]:
    """Return the metrics of a test by email that columns allow, the most important first."""
    kinds = {CLICKS: COUNT, ORDERS: COUNT, REVENUE: AMOUNT}
    outcomes = [name for name in kinds if name in columns]
    found = [Metric(name, EMAILS, PER_EMAIL, kinds[name]) for name in outcomes]
    if OPENS in columns:
        per_open = [Metric(name, OPENS, PER_OPEN, kinds[name]) for name in outcomes]
        found = [*per_open, *found, Metric(OPENS, EMAILS, GUARDRAIL)]
    return found


def own_metrics(counts: Sequence[str] = (), amounts: Sequence[str] = ()) -> list[Metric]:
    """Return metrics of one's own, counts first.

    Args:
        counts: counts per anything, like `clicks/impressions` or `orders/user`.
        amounts: amounts per anything, like `revenue/user`.

    Example:
        >>> [metric.title for metric in own_metrics(["clicks/impressions"], ["revenue/user"])]
        ['Clicks per impression', 'Revenue per user']
    """
    found = [_parse(text, COUNT) for text in counts] + [_parse(text, AMOUNT) for text in amounts]
    pairs = [metric[:2] for metric in found]
    if repeated := [pair for pair in pairs if pairs.count(pair) > 1]:
        raise SettingError(f"{'/'.join(repeated[0])} is given twice; give each metric once")
    kinds = {metric.numerator: metric.kind for metric in found}
    for metric in found:
        if kinds[metric.numerator] != metric.kind:
            raise SettingError(f"{metric.numerator} is a count and an amount; choose one of them")
    return found


def _parse(text: str, kind: str) -> Metric:
    parts = [part.strip() for part in text.split("/")] if isinstance(text, str) else []
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise SettingError(
            f"{kind} {text}: must be two columns, like clicks/impressions, or a column per user, "
            f"like orders/user"
        )
    for name in (parts[0], parts[1] if parts[1] != PER_USER else ""):
        if name in _RESERVED or name.startswith(BEFORE):
            raise SettingError(f"{kind} {text}: '{name}' is not an outcome; name another column")
    return Metric(parts[0], parts[1], OWN, kind)


# Rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The rows of all buckets.

    Attributes:
        columns: numbers by name; always `emails`, or `user` in a table of users.
        buckets: place of each row's bucket; 0 is control.
        users: the user code of each row; a code of its own for each row without users.
        unit: what is independent: user, row or email.
        dates: the date code of each row; None without dates.
        date_names: the dates behind the codes, ascending.
        positions: the hash of each row's user, from 0 to 1; None if unknown.
        repeats: how often each row is there; None for once.
    """

    columns: Columns
    buckets: Codes
    users: Codes
    unit: str
    dates: Codes | None = None
    date_names: Sequence[str] = ()
    positions: Floats | None = None
    repeats: Floats | None = None

    @property
    def base(self) -> str:
        """What a test is planned in: email or user."""
        return PER_USER if PER_USER in self.columns else make_singular(EMAILS)

    def size(self) -> float:
        """Return the number of emails or users."""
        if self.base == PER_USER:
            return float(len(np.unique(self.users)))
        emails = self.columns[EMAILS]
        return float(emails.sum() if self.repeats is None else emails @ self.repeats)

    def counts(self, n_buckets: int) -> list[float]:
        """Return the number of units in each bucket; on the first date of each unit."""
        order = np.arange(len(self.users)) if self.dates is None else np.argsort(self.dates)
        _, first = np.unique(self.users[order], return_index=True)
        repeats = None if self.repeats is None else self.repeats[order[first]]
        return [float(n) for n in np.bincount(self.buckets[order[first]], repeats, n_buckets)]

    def shares_change(self) -> bool:
        """Return whether the shares of the buckets change from date to date beyond chance."""
        if self.dates is None or len(np.unique(self.dates)) < 2:
            return False
        from scipy.stats import chi2_contingency

        table = np.zeros((len(self.date_names), int(self.buckets.max()) + 1))
        np.add.at(table, (self.dates, self.buckets), 1)
        return float(chi2_contingency(table[table.any(axis=1)]).pvalue) < _UNEVEN

    def users_change(self) -> bool:
        """Return whether a user is in several buckets."""
        return _count_changes(self.users, self.buckets)[0] > 0

    def cells(self) -> Ints:
        """Return the date of each row; the first one of its user if users stay in their bucket."""
        assert self.dates is not None
        dates = self.dates.astype(np.int64)
        if self.users_change():
            return dates
        first = np.full(int(self.users.max(initial=-1)) + 1, len(self.date_names), np.int64)
        np.minimum.at(first, self.users, dates)
        return first[self.users]


def take_rows(data: T, rows: Flags) -> T:
    """Return some rows of data whose arrays have a value per row."""
    own = {field.name: getattr(data, field.name) for field in fields(data)}
    taken = {name: v[rows] for name, v in own.items() if isinstance(v, np.ndarray)}
    columns = {name: values[rows] for name, values in own["columns"].items()}
    return replace(data, columns=columns, **taken)


def read_rows(
    table: Any, labels: Sequence[str] = LABELS, experiment: Experiment | None = None,
    metrics: Sequence[Metric] = (), covariates: Sequence[str] = (),
) -> Rows:  # fmt: skip
    """Read and check a table.

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
    read, columns = _read_columns(table, needed, metrics, covariates)
    dates, names = _read_dates(read.columns)
    unit = PER_USER if metrics or read.has(USER) else "row"
    buckets = np.zeros(len(read), np.int32)
    if read.has(BUCKET):
        own = own_names(read.columns).get(BUCKET, BUCKET)
        buckets = _read_labels(read.columns[BUCKET], labels, own)
    rows = Rows(columns, buckets, _read_users(read), unit, dates, names)
    if experiment is not None:
        rows = _by_salt(rows, experiment, read.columns[USER], read.has(BUCKET))
    _require_apart(rows)
    return rows


def read_past(table: Any, labels: Sequence[str] = LABELS, metrics: Sequence[Metric] = ()) -> Rows:
    """Return rows from before any test: all, or those of control."""
    read, columns = _read_columns(table, (), metrics, ())
    rows = Rows(columns, np.zeros(len(read), np.int32), _read_users(read), PER_USER)
    if not read.has(BUCKET):
        return rows
    control = pc.equal(read.columns[BUCKET].cast(pa.string()), labels[0])
    if not pc.any(control).as_py():
        raise DataError(
            f"column '{BUCKET}' of table has no '{labels[0]}'; drop the column, or pass labels="
        )
    return take_rows(rows, np.array(control.to_numpy(zero_copy_only=False), bool))


def read_totals(*totals: Mapping[str, float]) -> Rows:
    """Return the emails behind the totals of each bucket: a row for each kind of email."""
    names = list(totals[0])
    for name in {name for own in totals for name in own}:
        if not all(name in own for own in totals):
            raise DataError(f"{name} is given for one bucket only; give it for both")
    kinds = []
    for bucket, own in enumerate(totals):
        _check_totals(own)
        edges = sorted({0.0, *(own[name] for name in names if name != REVENUE)})
        for low, high in itertools.pairwise(edges):
            kinds.append((bucket, high - low, *(float(own[name] >= high) for name in names)))
    bucket, repeats, *values = np.array(kinds, float).T
    columns = dict(zip(names, values, strict=True))
    columns.pop(REVENUE, None)  # totals do not say how it varies
    n = len(bucket)
    return Rows(columns, bucket.astype(np.int32), np.arange(n, dtype=np.int32), "email",
                repeats=repeats)  # fmt: skip


def _check_totals(totals: Mapping[str, float]) -> None:
    for name, value in totals.items():
        if name not in COLUMNS:
            raise DataError(f"{name}={value}: must be one of {', '.join(COLUMNS)}")
        if name != REVENUE and not (value >= 0 and float(value).is_integer()):
            raise DataError(f"{name}={value:g}: must be whole and at least 0")
        most = _MOST if name == REVENUE else _MOST_EMAILS
        if not abs(value) < most:
            raise DataError(f"{name}={value:g}: must be a number below {most:g}")
    if not totals.get(EMAILS, 0) > 0:
        raise DataError("emails: missing or 0; give the emails delivered, like emails=400000")
    for part, whole in ((OPENS, EMAILS), (CLICKS, OPENS), (CLICKS, EMAILS), (ORDERS, EMAILS)):
        if totals.get(part, 0) > totals.get(whole, math.inf):
            raise DataError(
                f"{part}={totals[part]:g} is more than {whole}={totals[whole]:g}: count each email "
                f"once, or give a table with one row per user"
            )


def _read_users(table: Table) -> Codes:
    if table.has(USER):
        return Vocabulary.encode(table.ids(USER))[1][0]
    return np.arange(len(table), dtype=np.int32)


# Numbers -----------------------------------------------------------------------------------------


def _read_columns(
    table: Any, needed: tuple[str, ...], metrics: Sequence[Metric], covariates: Sequence[str]
) -> tuple[Table, dict[str, Floats]]:
    """Return a table, and its numbers by name."""
    found = column_names(table, "table")
    kinds = _own_kinds(metrics) if metrics else _email_kinds(found)
    _check_covariates(covariates, kinds)
    names = [*kinds, *(BEFORE + name for name in kinds if BEFORE + name in found)]
    also = [name for name in covariates if name not in names]
    optional = tuple(name for name in (BUCKET, USER, DATE) if name not in needed)
    read = read_frame(table, "table", *needed, *names, *also, optional=optional)
    columns = {name: _read_numbers(read, name, kinds[name.removeprefix(BEFORE)]) for name in names}
    columns |= {COVARIATE + name: _read_numbers(read, name, AMOUNT, True) for name in covariates}
    columns.setdefault(PER_USER if metrics else EMAILS, np.ones(len(read)))
    most = len(read) // _ROWS_PER_COVARIATE
    if len(covariates) > most:
        raise DataError(
            f"{len(covariates)} covariates for {len(read)} rows: at most {most}, one for every "
            f"{_ROWS_PER_COVARIATE}; name fewer"
        )
    return read, columns


def _own_kinds(metrics: Sequence[Metric]) -> dict[str, str]:
    """Return what each column of one's own metrics holds."""
    kinds = {metric.numerator: metric.kind for metric in metrics}
    for metric in metrics:
        if metric.denominator != PER_USER and kinds.get(metric.denominator) != COUNT:
            kinds[metric.denominator] = _EXPOSURE
    return kinds


def _email_kinds(found: Collection[str]) -> dict[str, str]:
    known = {name.removeprefix(BEFORE) for name in found}
    if not known.intersection(found, COLUMNS[1:]):
        raise DataError(f"table has none of {', '.join(COLUMNS[1:])}; found {', '.join(found)}")
    return {name: AMOUNT if name == REVENUE else COUNT for name in COLUMNS if name in known}


def _check_covariates(covariates: Sequence[str], outcomes: Collection[str]) -> None:
    for name in covariates:
        if name in (*outcomes, BUCKET, USER, DATE):
            raise SettingError(
                f"covariate {name}: must be known before the test, not a part of it; name another "
                f"column"
            )
        if list(covariates).count(name) > 1:
            raise SettingError(f"covariate {name} is given twice; give each once")


def _read_numbers(table: Table, name: str, kind: str, is_covariate: bool = False) -> Floats:
    """Return a column as numbers; only covariates and pre_ columns may have gaps."""
    column, own = table.columns[name], table.own_name(name)
    may_have_gaps = is_covariate or name.startswith(BEFORE)
    if column.null_count and not may_have_gaps:
        raise DataError(
            f"column '{own}' of table has no value in {column.null_count} of {len(column)} rows; "
            f"use 0 instead"
        )
    require_numbers(table, name)
    values: Floats = np.array(as_read_only(column.cast(pa.float64(), safe=False)), np.float64)
    given = values[~np.isnan(values)] if may_have_gaps else values
    bad = ~(np.abs(given) < _MOST)
    if kind != AMOUNT:
        bad |= given < 0
    if kind == COUNT:
        bad |= given != np.floor(given)
    if bad.any():
        raise DataError(
            f"column '{own}' of table has {given[bad][0]:g}: must be {_RULES[kind]} and below "
            f"{_MOST:g}; fix such rows"
        )
    return values


# Buckets -----------------------------------------------------------------------------------------


def _by_salt(rows: Rows, experiment: Experiment, users: pa.ChunkedArray, is_known: bool) -> Rows:
    """Return rows in the buckets that hashes of users give; known buckets must agree with them.

    With dates, the share may change: in each cell, users up to some position are then treated.
    """
    positions = experiment.positions(users)
    expected = (positions < experiment.share).astype(np.int32)
    by = f"salt='{experiment.salt}' and share={experiment.share:g}"
    if not is_known:
        if expected.all() or not expected.any():
            raise DataError(f"{by} put all users into one bucket; add users of the other bucket")
        return replace(rows, buckets=expected, positions=positions)
    wrong = expected != rows.buckets
    if wrong.any() and rows.dates is not None:
        cells, control = rows.cells(), rows.buckets == 0
        first = np.full(int(cells.max()) + 1, np.inf)
        np.minimum.at(first, cells[control], positions[control])
        wrong = ~control & (positions >= first[cells])
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{int(wrong.sum())} of {len(wrong)} rows are not in the bucket that {by} give, like "
            f"user_id {users[row].as_py()}; pass the salt and share that the lists were made with"
        )
    return replace(rows, positions=positions)


def _read_labels(column: pa.ChunkedArray, labels: Sequence[str], name: str) -> Codes:
    """Return the place in `labels` of each row's bucket."""
    try:
        text = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column '{name}' of table holds {column.type}: must be text like '{labels[0]}'; "
            f"cast the column"
        ) from error
    known = pc.unique(text).to_pylist()
    if strange := [value for value in known if value not in labels]:
        listed = [f"'{label}'" for label in labels]
        raise DataError(
            f"column '{name}' of table has {strange[0]!r}: must be {', '.join(listed[:-1])} or "
            f"{listed[-1]}; rename it, or pass labels="
        )
    if missing := [label for label in labels if label not in known]:
        every = "both" if len(labels) == 2 else "all"
        raise DataError(
            f"column '{name}' of table has no '{missing[0]}'; add rows of {every} buckets"
        )
    places = pc.index_in(text, pa.array(labels, text.type))
    return np.array(places.to_numpy(zero_copy_only=False), np.int32)


def _require_apart(rows: Rows) -> None:
    """Refuse users in several buckets, unless shares change and it is one bucket on each date."""
    ramp = rows.shares_change()
    keys = rows.users.astype(np.int64)
    if ramp and rows.dates is not None:
        keys = keys * len(rows.date_names) + rows.dates
    several, n = _count_changes(keys, rows.buckets)
    if several:
        where = "both" if rows.buckets.max() == 1 else "several"
        raise DataError(
            f"{several} of {n} users have rows in {where} buckets{' on one date' if ramp else ''}; "
            f"drop these users, or leave out user_id if rows are independent"
        )


def _count_changes(keys: Any, buckets: Codes) -> tuple[int, int]:
    """Return how often a key is in another bucket too, and the number of keys."""
    n = len(np.unique(keys))
    pairs = keys.astype(np.int64) * (int(buckets.max(initial=0)) + 1) + buckets
    return len(np.unique(pairs)) - n, n


# Dates -------------------------------------------------------------------------------------------


def _read_dates(columns: pa.Table) -> tuple[Codes | None, Sequence[str]]:
    """Return the date code of each row, and the dates as text, ascending."""
    if DATE not in columns.column_names:
        return None, ()
    column = columns[DATE]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.date32(), safe=False)
    if is_text(column.type):
        require_sortable(column, DATE)
    text = column.cast(pa.string()) if pa.types.is_date(column.type) else column
    names, (codes,) = Vocabulary.encode(id_column("table", DATE, text))
    return codes, [str(name) for name in pa.array(names.ids).to_pylist()]


def require_sortable(column: pa.ChunkedArray, name: str) -> None:
    """Refuse dates whose text has another order, like 30.10.2026 or 10/11/2026."""
    known = pc.unique(column).drop_null()
    unsorted = known.filter(pc.match_substring_regex(known, _DAY_OR_MONTH_FIRST))
    if len(unsorted):
        raise DataError(
            f"column '{name}' of table has '{unsorted[0].as_py()}': dates must be written with the "
            f"year first; write 2026-10-30"
        )
