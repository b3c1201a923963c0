"""What makes the lists of a backtest: Trimtab's engines, one's own in Python, or dated lists.

An engine is trained anew on the events before each instant. Supplied lists were made before, by an
engine that Trimtab does not know; those made before an instant are looked up.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple, Protocol

from trimtab.engines.base import Engine
from trimtab.tables.times import as_datetime


class OwnEngine(Protocol):
    """An engine that is not one of Trimtab's."""

    def fit(self, events: Any, as_of: Any) -> Any:
        """Learn from the events before an instant, and return the engine."""

    def recommend(self, users: Any | None = None, n: int = 50) -> Any:
        """Return user_id, item_id, score: the n best items of users, of all users if None."""

    def describe(self) -> dict[str, Any]:
        """Return what the lists depend on, besides the events; `kind` is its name."""


class SuppliedLists(ABC):
    """Lists of days in the past, as an engine made them."""

    @abstractmethod
    def find(self, instant: int, as_of: date, users: Any | None) -> Any:
        """Return the newest lists whose engine saw nothing after an instant.

        Args:
            instant: start of a window, in microseconds since 1970.
            as_of: the date that is judged; lists of later days did not exist then.
            users: users to return the lists of; None for all.

        Raises:
            DataError: there are no such lists, or none of these users.
        """

    @abstractmethod
    def describe(self, as_of: date | None = None) -> dict[str, Any]:
        """Return what the lists up to a day are, of all days if None; `kind` is their name."""

    @abstractmethod
    def require_lists(self, as_of: date, recent_days: int) -> None:
        """Refuse a date without lists made before its recent window."""

    @abstractmethod
    def recent_dates(self, recent_days: int, test_days: int, every: int) -> Sequence[date]:
        """Return the dates of the last weeks that can be judged, `every` days apart or more."""

    @abstractmethod
    def catalogue(self) -> Any | None:
        """Return item_id, category, of items that were never sold too; None without categories."""


ListMaker = Engine | OwnEngine | SuppliedLists


class Moment(NamedTuple):
    """When lists are made: from the events before an instant, for a date that is judged."""

    events: Any
    instant: int  # microseconds since 1970
    as_of: date


def make_lists(maker: ListMaker, moment: Moment, users: Any | None, n: int) -> Any:
    """Return lists as of a moment, of some users or of all.

    Supplied lists are as long as they are; those of an engine have at most n items.
    """
    if isinstance(maker, SuppliedLists):
        return maker.find(moment.instant, moment.as_of, users)
    unfitted = copy.copy(maker)
    return unfitted.fit(moment.events, as_datetime(moment.instant)).recommend(users, n)


def describe_maker(maker: ListMaker, as_of: date | None = None) -> dict[str, Any]:
    """Return what lists depend on, besides the events, as values that JSON has."""
    if isinstance(maker, SuppliedLists):
        return maker.describe(as_of)
    if isinstance(maker, Engine):
        shown = {k: v for k, v in vars(maker).items() if not k.startswith("_") and k != "items"}
        return {"kind": type(maker).__name__, **shown}
    return maker.describe()
