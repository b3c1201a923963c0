"""Checks of settings and tables; errors give the name, the value, the rule and the next step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.errors import DataError, SettingError, TrimtabError

METRICS = ("acc", "map", "ndcg")

SCALES = ("additive", "log", "list")
UNLISTED = ("never", "zero")
DUPLICATES = ("error", "max", "mean", "sum")
MOST_DAYS = 36_500
MOST_K = 1_000_000_000


def require_columns(
    table: str,
    found: Sequence[str],
    needed: Sequence[str],
    own_names: Mapping[str, str] | None = None,
) -> None:
    """Raise if a table lacks a column.

    Args:
        table: name of the table.
        found: columns that it has.
        needed: columns that it must have.
        own_names: the caller's names of columns, by Trimtab's, where they differ.
    """
    own = own_names or {}
    for column in needed:
        if column not in found:
            listed = ", ".join(str(own.get(name, name)) for name in found) or "no columns"
            missing, step = f"'{own.get(column)}' ({column})", "Check columns="
            if column not in own:
                missing = f"'{column}'"
                step = f"Rename the column that holds it to {missing}, or map its name"
            raise DataError(
                f"missing column {missing} in {table}; found {listed}. {step} (--columns on the "
                f"command line)"
            )


def require_rows(table: str, n_rows: int) -> None:
    """Raise if a table is empty."""
    if n_rows == 0:
        raise DataError(f"{table} is empty: it needs at least one row")


def require_no_nulls(table: str, name: str, column: Any) -> None:
    """Raise if an Arrow column has missing values."""
    refuse_missing(table, name, column.null_count, len(column))


def refuse_missing(table: str, name: str, n_missing: int, n_rows: int) -> None:
    """Raise if a column has no value in some rows."""
    if n_missing:
        raise DataError(
            f"column '{name}' of {table} has no value in {n_missing} of {n_rows} rows; drop those "
            f"rows"
        )


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise if a value is not one of the choices."""
    if value not in choices:
        raise SettingError(f"{name}={value!r}: must be one of {', '.join(choices)}")


def require_whole(
    name: str, value: Any, least: int, most: int | None = None, most_name: str = ""
) -> None:
    """Raise unless a value is a whole number from `least` to `most`.

    Args:
        name: setting to name in the error.
        value: value to check.
        least: smallest value allowed.
        most: largest value allowed; None for no limit.
        most_name: setting that `most` comes from, if any.
    """
    limit = f"{most_name}={most}" if most_name else most
    bounds = f"at least {least}" if most is None else f"between {least} and {limit}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SettingError(f"{name}={value!r}: must be a whole number, {bounds}")
    if value < least or (most is not None and value > most):
        raise SettingError(f"{name}={value}: must be {bounds}")


def require_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise unless a value is a finite number from `least` to `most`."""
    bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
    if not _is_finite(value) or not least <= value <= most:
        raise SettingError(f"{name}={value!r}: must be a finite number, {bounds}")


def require_positive(name: str, value: Any, most: float) -> None:
    """Raise unless a value is a number above 0, and at most `most`."""
    if not _is_finite(value) or not 0 < value <= most:
        raise SettingError(f"{name}={value!r}: must be a number above 0 and at most {most:g}")


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except TypeError:
        return False


def require_flag(name: str, value: Any) -> None:
    """Raise unless a value is True or False."""
    if value is not True and value is not False:
        raise SettingError(f"{name}={value!r}: must be True or False")


def require_k(k: Any) -> None:
    """Raise unless k is a whole number of at least 1 that a kernel can hold."""
    require_whole("k", k, 1)
    if k > MOST_K:
        raise SettingError(f"k={k}: must be at most {MOST_K}")


def require_fitted(model: Any, is_fitted: bool) -> None:
    """Raise if a model is not fitted."""
    if not is_fitted:
        raise TrimtabError(f"this {type(model).__name__} is not fitted yet: call fit first")


def require_scipy_sparse(purpose: str) -> Any:
    """Return `scipy.sparse`; raise if SciPy is not installed.

    Args:
        purpose: what needs it, to begin the error with.
    """
    try:
        from scipy import sparse
    except ModuleNotFoundError as error:
        raise TrimtabError(f"{purpose} needs SciPy: pip install 'trimtab[engines]'") from error
    return sparse
