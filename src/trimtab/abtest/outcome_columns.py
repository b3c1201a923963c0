"""The columns that an analysis reads: outcomes, the same before the test, and covariates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.abtest.metrics import AMOUNT, COUNT, Metric
from trimtab.abtest.samples import (
    BEFORE,
    COLUMNS,
    COVARIATE,
    DATE,
    EMAILS,
    MOST,
    PER_USER,
    REVENUE,
)
from trimtab.arrays import Floats
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import BUCKET, USER
from trimtab.tables.frames import Table, column_names, read_frame, require_numbers
from trimtab.tables.vocabulary import as_read_only

_EXPOSURE = "exposure"  # a denominator: at least 0
_RULES = {AMOUNT: "a number", COUNT: "whole, at least 0", _EXPOSURE: "at least 0"}
_UNITS_PER_COVARIATE = 20  # fewer, and what covariates explain is chance


def read_columns(
    table: Any, needed: tuple[str, ...], metrics: Sequence[Metric] = (),
    covariates: Sequence[str] = (),
) -> tuple[Table, dict[str, Floats]]:  # fmt: skip
    """Return a table, and its numbers by name.

    Args:
        table: the caller's table.
        needed: columns that are needed beside numbers.
        metrics: metrics of one's own; without any, the columns of a test by email.
        covariates: columns that were known before the test.
    """
    found = column_names(table, "table")
    kinds = own_kinds(metrics) if metrics else _email_kinds(found)
    names = [*kinds, *(BEFORE + name for name in kinds if BEFORE + name in found)]
    _check_covariates(covariates, kinds)
    also = [name for name in covariates if name not in names]
    optional = tuple(name for name in (BUCKET, USER, DATE) if name not in needed)
    read = read_frame(table, "table", *needed, *names, *also, optional=optional)
    columns = {name: _read_numbers(read, name, kinds[name.removeprefix(BEFORE)]) for name in names}
    columns |= {COVARIATE + name: _read_numbers(read, name, AMOUNT, True) for name in covariates}
    if metrics:
        columns[PER_USER] = np.ones(len(read))
    else:
        columns.setdefault(EMAILS, np.ones(len(read)))
    _require_units(len(read), covariates)
    return read, columns


def own_kinds(metrics: Sequence[Metric]) -> dict[str, str]:
    """Return what each column of one's own metrics holds."""
    kinds = {metric.numerator: metric.kind for metric in metrics}
    for metric in metrics:
        if metric.denominator != PER_USER and kinds.get(metric.denominator) != COUNT:
            kinds[metric.denominator] = _EXPOSURE
    return kinds


def _email_kinds(found: Collection[str]) -> dict[str, str]:
    outcomes = COLUMNS[1:]
    if not any(name in found for name in outcomes):
        raise DataError(f"table has none of {', '.join(outcomes)}; found {', '.join(found)}")
    known = {name.removeprefix(BEFORE) for name in found}
    if "mails" in known and EMAILS not in known:  # each row would count as one email
        raise DataError("column 'mails' of table is not read; rename it to 'emails'")
    kinds = {name: AMOUNT if name == REVENUE else COUNT for name in COLUMNS}
    return {name: kind for name, kind in kinds.items() if name in known}


def _check_covariates(covariates: Sequence[str], outcomes: Collection[str]) -> None:
    for name in covariates:
        if name in (*outcomes, BUCKET, USER, DATE):
            raise SettingError(
                f"covariate {name}: must be known before the test, not a part of it; name another "
                f"column"
            )
        if list(covariates).count(name) > 1:
            raise SettingError(f"covariate {name} is given twice; give each once")


def _require_units(n: int, covariates: Sequence[str]) -> None:
    most = n // _UNITS_PER_COVARIATE
    if len(covariates) > most:
        raise DataError(
            f"{len(covariates)} covariates for {n} rows: at most {most}, one for every "
            f"{_UNITS_PER_COVARIATE}; name fewer"
        )


def _read_numbers(table: Table, name: str, kind: str, is_covariate: bool = False) -> Floats:
    """Return a column as numbers; only covariates and pre_ columns may have gaps."""
    column = table.columns[name]
    may_have_gaps = is_covariate or name.startswith(BEFORE)
    if column.null_count and not may_have_gaps:
        raise DataError(
            f"column '{table.own_name(name)}' of table has no value in {column.null_count} of "
            f"{len(column)} rows; use 0 instead"
        )
    require_numbers(table, name)
    values: Floats = np.array(as_read_only(column.cast(pa.float64(), safe=False)), np.float64)
    given = values[~np.isnan(values)] if may_have_gaps else values
    bad = ~(np.abs(given) < MOST)
    if kind != AMOUNT:
        bad |= given < 0
    if kind == COUNT:
        bad |= given != np.floor(given)
    if bad.any():
        raise DataError(
            f"column '{table.own_name(name)}' of table has {given[bad][0]:g}: must be "
            f"{_RULES[kind]} and below {MOST:g}; fix such rows"
        )
    return values
