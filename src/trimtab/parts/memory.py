"""Users in memory: one part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


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
