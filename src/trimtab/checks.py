"""Checks of settings and tables: each says name, value, rule and next step."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from trimtab.errors import DataError, SettingError

METRICS = ("acc", "map", "ndcg")

UNLISTED = ("never", "zero")
DUPLICATES = ("error", "max", "mean", "sum")
MOST_CODES = 2**31 - 1
MOST_PURCHASES = 1_000_000


def require_columns(table: str, found: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse a table that lacks a column."""
    for column in needed:
        if column not in found:
            names = ", ".join(map(str, found)) or "no columns"
            raise DataError(
                f"missing column '{column}' in {table}; found {names}. Rename the column that "
                f"holds it to '{column}'"
            )


def require_rows(table: str, n_rows: int) -> None:
    """Refuse an empty table."""
    if n_rows == 0:
        raise DataError(f"{table} is empty: it needs at least one row")


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a word that is not one of the choices."""
    if value not in choices:
        raise SettingError(f"{name}={value!r}: must be one of {', '.join(choices)}")


def require_whole(name: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SettingError(f"{name}={value!r}: must be a whole number of at least {least}")
    if value < least:
        raise SettingError(f"{name}={value}: must be at least {least}")


def require_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Refuse anything but a finite number from `least` to `most`."""
    bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
    try:
        fits = not isinstance(value, bool) and math.isfinite(value) and least <= value <= most
    except TypeError:
        fits = False
    if not fits:
        raise SettingError(f"{name}={value!r}: must be a finite number, {bounds}")


def require_flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if value is not True and value is not False:
        raise SettingError(f"{name}={value!r}: must be True or False")


def require_k(k: Any) -> None:
    """Refuse a k below 1."""
    require_whole("k", k, 1)


def require_whole_between(
    name: str, value: Any, low: int, high: int | None, rule: str = ""
) -> None:
    """Refuse anything but a whole number from `low` to `high`."""
    bounds = rule or (f"at least {low}" if high is None else f"between {low} and {high}")
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        raise SettingError(f"{name}={value!r}: must be a whole number, {bounds}")


def require_drift(drift: Any) -> None:
    """Refuse a drift strength outside 0 to 1."""
    if not isinstance(drift, numbers.Real) or not 0.0 <= float(drift) <= 1.0:
        raise SettingError(f"drift={drift!r}: must be between 0 and 1")


def require_purchases(purchases_per_user: Any) -> None:
    """Refuse a mean number of purchases that nobody has."""
    value = purchases_per_user
    if not isinstance(value, numbers.Real) or not 0.0 < float(value) <= MOST_PURCHASES:
        rule = f"must be above 0 and at most {MOST_PURCHASES}"
        raise SettingError(f"purchases_per_user={value!r}: {rule}")


def require_item_settings(n_items: Any, n_categories: Any, drift: Any, seed: Any) -> None:
    """Refuse settings of a catalogue that cannot be drawn."""
    require_whole_between("n_items", n_items, 1, MOST_CODES)
    if n_categories is not None:
        rule = f"between 1 and n_items={n_items}"
        require_whole_between("n_categories", n_categories, 1, n_items, rule)
    require_drift(drift)
    require_whole_between("seed", seed, 0, None)
