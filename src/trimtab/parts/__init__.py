"""Three front doors with one method: run a function on every part of the users.

All rows of a user, of all tables, are in one part, and parts follow the order of user ids. What
functions return adds up, so where the users are and how many parts there are changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Parts(Protocol):
    """Values by part of the users: at first, tables by name."""

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        ...

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on every part, in the order of users.

        Args:
            function: takes the value of a part and the given arguments; defined in a module.
            given: arguments, the same for all parts.
        """
        ...

    def keep(self, function: Callable[..., Any], *given: Any) -> Parts:
        """Return parts whose values are the results of a function, computed once."""
        ...


@dataclass(frozen=True)
class MemoryParts:
    """All users in one part."""

    value: Any
    n_parts: int = 1

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """Yield the result of a function on all users."""
        yield function(self.value, *given)

    def keep(self, function: Callable[..., Any], *given: Any) -> MemoryParts:
        """Return the result of a function as the value of the part."""
        return MemoryParts(function(self.value, *given))
