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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.buckets import CONTROL, TREATMENT, Experiment
from trimtab.arrays import Flags, Floats, Ints
from trimtab.checks import require_no_nulls
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import BUCKET, USER, Table, column_names, read_frame, require_numbers
from trimtab.tables.vocabulary import Vocabulary, as_read_only, id_column, is_text

EMAILS, OPENS, CLICKS, ORDERS, REVENUE = "emails", "opens", "clicks", "orders", "revenue"
COLUMNS = (EMAILS, OPENS, CLICKS, ORDERS, REVENUE)
_TOTALS = COLUMNS[:-1]  # totals do not say how revenue varies
EMAIL = "email"  # the unit of totals
PER_USER = "user"  # the denominator that is 1 for every user
DATE = "date"
BEFORE = "pre_"
LABELS = (CONTROL, TREATMENT)
PER_OPEN, PER_EMAIL, GUARDRAIL, OWN = "per open", "per email", "guardrail", "own"
COUNT, AMOUNT = "count", "amount"
_EXPOSURE = "exposure"  # a denominator
_RULES = {AMOUNT: "a number", COUNT: "whole, at least 0", _EXPOSURE: "at least 0"}
_RESERVED = (PER_USER, USER, BUCKET, DATE)
_SINGULAR = ((r"ies$", "y"), (r"(ch|sh|ss|x|z)es$", r"\1"), (r"(?<!s)s$", ""))
_MOST = 1e15  # beyond it, sums of squares lose precision
_MOST_EMAILS = 1e9  # random redistributions of totals cannot have more
_UNEVEN = 0.001  # p-value below which shares differ from date to date
_DAY_OR_MONTH_FIRST = r"^\d{1,2}[./]\d{1,2}[./]\d{2,4}$"

Columns = Mapping[str, Floats]


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
    kinds = {metric.numerator: metric.kind for metric in found}
    for metric in found:
        if pairs.count(metric[:2]) > 1:
            raise SettingError(f"{'/'.join(metric[:2])} is given twice; give each metric once")
        if kinds[metric.numerator] != metric.kind:
            raise SettingError(f"{metric.numerator} is a count and an amount; choose one of them")
    return found


def _parse(text: str, kind: str) -> Metric:
    parts = [part.strip() for part in text.split("/")] if isinstance(text, str) else []
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise SettingError(f"{kind} {text}: must be like clicks/impressions or orders/user")
    for name in parts[:1] if parts[1] == PER_USER else parts:
        if name in _RESERVED or name.startswith(BEFORE):
            raise SettingError(f"{kind} {text}: '{name}' is not an outcome; name another column")
    return Metric(parts[0], parts[1], OWN, kind)


# Rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of buckets; in a sample, a row is a unit in a cell, and `dates` are the cells.

    Attributes:
        metrics: what is measured.
        columns: numbers by name; always `emails`, or `user` in a table of users.
        buckets: place of each row's bucket; 0 is control.
        users: the user code of each row; a code of its own for each row without users.
        dates: the date code of each row; 0 without dates.
        repeats: how often each row is there.
        positions: the hash of each row's user, from 0 to 1; None if unknown.
        unit: what is independent: user, row or email.
        date_names: the dates behind the codes, ascending.
    """

    metrics: Sequence[Metric]
    columns: Columns
    buckets: Ints
    users: Ints
    dates: Ints
    repeats: Floats
    positions: Floats | None = None
    unit: str = PER_USER
    date_names: Sequence[str] = ()

    @property
    def base(self) -> str:
        """What a test is planned in: email or user."""
        return PER_USER if PER_USER in self.columns else EMAIL

    @property
    def treated(self) -> Flags:
        """Whether rows are in the treatment group."""
        return self.buckets > 0

    @property
    def n_dates(self) -> int:
        """Number of dates, or of cells."""
        return int(self.dates.max(initial=-1)) + 1

    def size(self) -> float:
        """Return the number of emails or users."""
        if self.base == PER_USER:
            return float(len(np.unique(self.users)))
        return float(self.columns[EMAILS] @ self.repeats)

    def counts(self, n_buckets: int) -> list[float]:
        """Return the number of units in each bucket; on the first date of each unit."""
        order = np.argsort(self.dates, kind="stable")
        first = order[np.unique(self.users[order], return_index=True)[1]]
        return [float(n) for n in np.bincount(self.buckets[first], self.repeats[first], n_buckets)]

    def take(self, chosen: Flags | Ints) -> Rows:
        """Return some rows."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: Any = {name: v[chosen] for name, v in own.items() if isinstance(v, np.ndarray)}
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return replace(self, columns=columns, **taken)

    def shares_change(self) -> bool:
        """Return whether the shares of the buckets change from date to date beyond chance."""
        from scipy.stats import chi2_contingency
        from scipy.stats.contingency import crosstab

        table = crosstab(self.dates, self.buckets).count
        return len(table) > 1 and float(chi2_contingency(table).pvalue) < _UNEVEN

    def users_change(self) -> bool:
        """Return whether a user is in several buckets."""
        return _count_changes(self.users, self.buckets)[0] > 0

    def cells(self) -> Ints:
        """Return the date of each row; the first one of its user if users stay in their bucket."""
        if self.users_change():
            return self.dates
        first = np.full(int(self.users.max(initial=-1)) + 1, self.n_dates, np.int64)
        np.minimum.at(first, self.users, self.dates)
        return first[self.users]


def read_rows(
    table: Any, metrics: Sequence[Metric], labels: Sequence[str], experiment: Experiment | None
) -> Rows:
    """Read and check a table of users with metrics of one's own; without, of a test by email."""
    rows, read = _read(table, metrics, (BUCKET,) if experiment is None else (USER,))
    if read.has(BUCKET):
        rows = replace(rows, buckets=_read_labels(read, labels))
    if experiment is not None:
        rows = _by_salt(rows, experiment, read)
    _require_apart(rows)
    return rows


def read_past(table: Any, metrics: Sequence[Metric], labels: Sequence[str]) -> Rows:
    """Return rows from before any test; of a table with buckets, those of control."""
    rows, read = _read(table, metrics)
    if not read.has(BUCKET):
        return rows
    control = as_read_only(pc.equal(read.columns[BUCKET].cast(pa.string()), labels[0]))
    if not control.any():
        name = read.own_name(BUCKET)
        raise DataError(f"column '{name}' of table has no '{labels[0]}'; drop it, or pass labels=")
    return rows.take(control)


def read_totals(*totals: Mapping[str, float]) -> Rows:
    """Return the emails behind the totals of each bucket: a row for each kind of email."""
    names, kinds = list(totals[0]), []
    for bucket, own in enumerate(totals):
        _check_totals(own)
        if lacking := set(names) ^ set(own):
            raise DataError(f"{min(lacking)} is given for one bucket only; give it for both")
        for low, high in itertools.pairwise(sorted({0.0, *own.values()})):
            kinds.append((bucket, high - low, *(float(own[name] >= high) for name in names)))
    buckets, repeats, *values = np.array(kinds, float).T
    columns, places = dict(zip(names, values, strict=True)), np.arange(len(kinds))
    return Rows(email_metrics(columns), columns, buckets.astype(np.int64), places,
                np.zeros_like(places), repeats, unit=EMAIL)  # fmt: skip


def _check_totals(totals: Mapping[str, float]) -> None:
    for name, value in totals.items():
        if name not in _TOTALS or not (0 <= value < _MOST_EMAILS and value == int(value)):
            known = f"one of {', '.join(_TOTALS)}, whole, at least 0 and below {_MOST_EMAILS:g}"
            raise DataError(f"{name}={value:g}: must be {known}; anything else needs a table")
    if not totals.get(EMAILS, 0) > 0:
        raise DataError("emails: missing or 0; give the emails delivered, like emails=400000")
    for part, whole in ((OPENS, EMAILS), (CLICKS, OPENS), (CLICKS, EMAILS), (ORDERS, EMAILS)):
        if totals.get(part, 0) > totals.get(whole, math.inf):
            more = f"{part}={totals[part]:g} is more than {whole}={totals[whole]:g}"
            raise DataError(f"{more}: count each email once, or give a table of users")


# Columns -----------------------------------------------------------------------------------------


def _read(table: Any, own: Sequence[Metric], needed: Sequence[str] = ()) -> tuple[Rows, Table]:
    """Return the rows of a table, all as if in one bucket, and its columns."""
    found = column_names(table, "table")
    metrics = own or email_metrics(found)
    if not metrics:
        known = f"{', '.join(COLUMNS[1:])}; found {', '.join(found)}"
        raise DataError(f"table has none of {known}. Or name counts and amounts of your own")
    kinds = _find_kinds(metrics)
    one = PER_USER if own else EMAILS  # is 1 in each row
    if own or EMAILS not in found:
        kinds.pop(one, None)
    names = [*kinds, *(BEFORE + name for name in kinds if BEFORE + name in found)]
    optional = tuple(name for name in (BUCKET, USER, DATE) if name not in needed)
    read = read_frame(table, "table", *needed, *names, optional=optional)
    columns = {name: _read_numbers(read, name, kinds.get(name, AMOUNT)) for name in names}
    n = len(read)
    columns.setdefault(one, np.ones(n))
    users, buckets = np.arange(n), np.zeros(n, np.int64)
    if read.has(USER):
        users = Vocabulary.encode(read.ids(USER))[1][0].astype(np.int64)
    dates, date_names = _read_dates(read)
    unit = PER_USER if own or read.has(USER) else "row"
    return Rows(metrics, columns, buckets, users, dates, np.ones(n), None, unit, date_names), read


def _find_kinds(metrics: Sequence[Metric]) -> dict[str, str]:
    """Return what each column of metrics holds."""
    kinds = {} if metrics[0].family == OWN else {EMAILS: COUNT}
    kinds |= {metric.numerator: metric.kind for metric in metrics}
    for metric in metrics:
        if kinds.get(metric.denominator) != COUNT:
            kinds[metric.denominator] = _EXPOSURE
    return kinds


def _read_numbers(table: Table, name: str, kind: str) -> Floats:
    """Return a column as numbers; only pre_ columns may have gaps, and hold any numbers."""
    may_have_gaps = name.startswith(BEFORE)
    if not may_have_gaps:
        require_no_nulls("table", table.own_name(name), table.columns[name])
    require_numbers(table, name)
    values: Floats = as_read_only(table.columns[name].cast(pa.float64(), safe=False)).copy()
    given = values[~np.isnan(values)] if may_have_gaps else values
    bad = ~(np.abs(given) < _MOST)
    bad |= (kind != AMOUNT) & (given < 0)
    bad |= (kind == COUNT) & (given != np.floor(given))
    if bad.any():
        raise DataError(
            f"column '{table.own_name(name)}' of table has {given[bad][0]:g}: must be "
            f"{_RULES[kind]} and below {_MOST:g}; fix such rows"
        )
    return values


def _read_labels(table: Table, labels: Sequence[str]) -> Ints:
    """Return the place in `labels` of each row's bucket."""
    column, about = table.columns[BUCKET], f"column '{table.own_name(BUCKET)}' of table"
    try:
        text = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{about} holds {column.type}: must be text; cast the column") from error
    known = pc.unique(text).to_pylist()
    wrong = [repr(own) for own in known if own not in labels]
    wrong += [f"no '{label}'" for label in labels if label not in known]
    if wrong:
        listed = " or ".join(f"'{label}'" for label in labels)
        raise DataError(
            f"{about} has {wrong[0]}: must be {listed}, with rows of each; rename or add buckets, "
            f"or pass labels="
        )
    places = pc.index_in(text, pa.array(labels, text.type))
    return np.array(places.to_numpy(zero_copy_only=False), np.int64)


def _read_dates(table: Table) -> tuple[Ints, Sequence[str]]:
    """Return the date code of each row, and the dates as text, ascending."""
    if not table.has(DATE):
        return np.zeros(len(table), np.int64), ()
    column = table.columns[DATE]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.date32(), safe=False)
    if pa.types.is_date(column.type):
        column = column.cast(pa.string())
    names, (codes,) = Vocabulary.encode(id_column("table", table.own_name(DATE), column))
    known = [str(name) for name in pa.array(names.ids).to_pylist()]
    for name in known if is_text(column.type) else ():
        if re.match(_DAY_OR_MONTH_FIRST, name):  # the order of such text is not that of dates
            own = table.own_name(DATE)
            raise DataError(f"column '{own}' of table has '{name}': write dates like 2026-10-30")
    return codes.astype(np.int64), known


# Users in buckets --------------------------------------------------------------------------------


def _by_salt(rows: Rows, experiment: Experiment, table: Table) -> Rows:
    """Return rows in the buckets that hashes of users give; known buckets must agree with them.

    With dates, the share may change: in each cell, users up to some position are then treated.
    """
    users = table.columns[USER]
    positions = experiment.positions(users)
    expected = (positions < experiment.share).astype(np.int64)
    by = f"salt='{experiment.salt}' and share={experiment.share:g}"
    if not table.has(BUCKET):
        if len(np.unique(expected)) < 2:
            raise DataError(f"{by} put all users into one bucket; add users of the other bucket")
        return replace(rows, buckets=expected, positions=positions)
    wrong = expected != rows.buckets
    if wrong.any() and rows.date_names:
        cells, treated = rows.cells(), rows.treated
        first = np.full(rows.n_dates, np.inf)
        np.minimum.at(first, cells[~treated], positions[~treated])
        wrong = treated & (positions >= first[cells])
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum())} of {len(wrong)} rows are not in the bucket that {by} give, like "
            f"user_id {users[int(np.argmax(wrong))].as_py()}; pass the salt and share that the "
            f"lists were made with"
        )
    return replace(rows, positions=positions)


def _require_apart(rows: Rows) -> None:
    """Refuse users in several buckets, unless shares change and it is one bucket on each date."""
    ramp = rows.shares_change()
    keys = rows.users * rows.n_dates + rows.dates if ramp else rows.users
    several, n = _count_changes(keys, rows.buckets)
    if several:
        where = "both" if rows.buckets.max() == 1 else "several"
        raise DataError(
            f"{several} of {n} users have rows in {where} buckets{' on one date' if ramp else ''}; "
            f"drop these users, or leave out user_id if rows are independent"
        )


def _count_changes(keys: Ints, buckets: Ints) -> tuple[int, int]:
    """Return how often a key is in another bucket too, and the number of keys."""
    n = len(np.unique(keys))
    pairs = keys * (int(buckets.max(initial=0)) + 1) + buckets
    return len(np.unique(pairs)) - n, n
