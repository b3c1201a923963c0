"""Column names, in one place, and the checks that say what is wrong with a table or a setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trimtab.errors import DataError, SettingError

USER = "user_id"
ITEM = "item_id"
SCORE = "score"
RANK = "rank"
WINDOW = "window"
WEIGHT = "weight"
CATEGORY = "category"
COUNT = "count"
TIMESTAMP = "timestamp"
QUANTITY = "quantity"
PRICE = "price"
NAME = "name"
BUCKET = "bucket"

METRICS = ("acc", "map", "ndcg")

UNLISTED = ("never", "zero")
DUPLICATES = ("error", "max", "mean", "sum")


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
