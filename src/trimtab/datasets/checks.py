"""Checks of the generators' settings."""

from __future__ import annotations

import numbers
from typing import Any

from trimtab.errors import SettingError

MOST_CODES = 2**31 - 1
MOST_PURCHASES = 1_000_000


def check_whole(name: str, value: Any, low: int, high: int | None, rule: str = "") -> None:
    """Refuse anything but a whole number from `low` to `high`."""
    bounds = rule or (f"at least {low}" if high is None else f"between {low} and {high}")
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        raise SettingError(f"{name}={value!r}: must be a whole number, {bounds}")


def check_drift(drift: Any) -> None:
    """Refuse a drift strength outside 0 to 1."""
    if not isinstance(drift, numbers.Real) or not 0.0 <= float(drift) <= 1.0:
        raise SettingError(f"drift={drift!r}: must be between 0 and 1")


def check_purchases(purchases_per_user: Any) -> None:
    """Refuse a mean number of purchases that nobody has."""
    value = purchases_per_user
    if not isinstance(value, numbers.Real) or not 0.0 < float(value) <= MOST_PURCHASES:
        rule = f"must be above 0 and at most {MOST_PURCHASES}"
        raise SettingError(f"purchases_per_user={value!r}: {rule}")


def check_items(n_items: Any, n_categories: Any, drift: Any, seed: Any) -> None:
    """Refuse settings of a catalogue that cannot be drawn."""
    check_whole("n_items", n_items, 1, MOST_CODES)
    if n_categories is not None:
        rule = f"between 1 and n_items={n_items}"
        check_whole("n_categories", n_categories, 1, n_items, rule)
    check_drift(drift)
    check_whole("seed", seed, 0, None)
