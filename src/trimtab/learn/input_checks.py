"""Checks of a fit's tables, as functions over counts: a local fit and a Spark fit call the same."""

from __future__ import annotations

from typing import Any

from trimtab.errors import DataError, warn
from trimtab.models import ItemBias
from trimtab.tables.columns import COUNT, SCORE, TIMESTAMP

_LEAST_OVERLAP = 0.05  # share of the purchases; below it, a fit warns


def check_overlap(name: str, n_matching: int, n_purchases: int, example: str = "") -> None:
    """Refuse recent purchases that match no list; warn if few match.

    Args:
        name: of the column that must match.
        n_matching: purchases whose value of that column is in `recs`.
        n_purchases: all purchases.
        example: an id of each table, to show in the error.
    """
    if n_matching == 0:
        raise DataError(
            f"no {name} in recent is also in recs{example}: there is nothing to learn from; check "
            f"that both tables use the same ids"
        )
    if n_matching < _LEAST_OVERLAP * n_purchases:
        warn(
            f"only {n_matching} of {n_purchases} purchases in recent have a {name} that is in "
            f"recs: little can be learned; check that both tables come from the same log"
        )


def require_positive_scores(lowest: float) -> None:
    """Refuse scores of 0 or below for an ascent on the log scale."""
    if lowest <= 0:
        raise DataError(
            f"column '{SCORE}' of recs has {lowest:g}: the ascent with scale='log' needs scores "
            f"above 0; drop those rows or use scale='additive'"
        )


def check_same_clock(history_has_zone: bool, recent_has_zone: bool) -> None:
    """Refuse timestamps with a time zone in one table and without one in the other."""
    if history_has_zone != recent_has_zone:
        have, lack = ("history", "recent") if history_has_zone else ("recent", "history")
        raise DataError(
            f"column '{TIMESTAMP}' has a time zone in {have} but not in {lack}: add it to both "
            f"tables or remove it from both"
        )


def require_counts(lowest: float) -> None:
    """Refuse negative sales counts."""
    if lowest < 0:
        raise DataError(
            f"column '{COUNT}' of history has {lowest:g}: counts must be at least 0; drop those "
            f"rows"
        )


def warn_of_untimed_windows(n_windows: int) -> None:
    """Warn that the history of earlier windows may contain their own sales."""
    if n_windows > 1:
        warn(
            f"recent has {n_windows} windows, but history or recent has no '{TIMESTAMP}': the "
            f"history of earlier windows may include their own sales; add timestamps to both tables"
        )


def warn_of_unused_tables(history: Any, items: Any) -> None:
    """Warn that the ascent does not use history or items."""
    if history is not None or items is not None:
        warn("history and items are used by the hierarchy only; the ascent ignores them")


def check_start(start: Any) -> None:
    """Refuse to start from anything but an ItemBias or None."""
    if start is not None and not isinstance(start, ItemBias):
        raise DataError(
            f"start is a {type(start).__name__}: pass an ItemBias, for example from "
            f"ItemBias.load(folder)"
        )
