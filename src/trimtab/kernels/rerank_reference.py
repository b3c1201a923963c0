"""What users bought and their wider lists, for reading: plain Python, without speed.

`user_purchases` has the compiled versions, which must give the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

FADING_DAYS = 30.0
BY_TIMES = 1e-3


class Bought(NamedTuple):
    """What a user did with one item before an instant."""

    times: float  # different days on which the user bought it
    age: float  # days since the last of them, from 1
    lately: float  # `times`, where a purchase of 30 days ago counts 1/e


class Entry(NamedTuple):
    """An item on a wider list."""

    item: int
    score: float
    sources: frozenset[str]  # empty for listed items
    terms: tuple[float, float, float, float]


def sum_purchases(purchases: Iterable[tuple[int, int]]) -> dict[int, Bought]:
    """What a user bought, by item in ascending order.

    Args:
        purchases: item and day of each; day 0 are the 24 hours before the instant. Purchases of an
            item on one day count once.
    """
    days_of: dict[int, set[int]] = {}
    for item, day in purchases:
        days_of.setdefault(item, set()).add(day)
    return {
        item: Bought(
            times=float(len(days)),
            age=float(min(days) + 1),
            lately=sum(math.exp(-(day + 1) / FADING_DAYS) for day in sorted(days)),
        )
        for item, days in sorted(days_of.items())
    }


def choose_own(bought: Mapping[int, Bought], may_add: Collection[int], most: int) -> list[int]:
    """The items that a user bought most and last, best first; of equals the first in order."""

    def worth(item: int) -> float:
        return bought[item].lately + BY_TIMES * bought[item].times

    return sorted((i for i in sorted(bought) if i in may_add), key=lambda i: -worth(i))[:most]


def wider_list(
    listed: Mapping[int, float], bought: Mapping[int, Bought], may_add: Collection[int],
    trending: Sequence[int], most_own: int,
) -> list[Entry]:  # fmt: skip
    """A user's list with what trends and what the user bought most and last.

    What is added has the score of the list's last item. An empty list stays empty.

    Args:
        listed: scores by item.
        bought: by the user, before the list is shown.
        may_add: items that may be added.
        trending: items to add, best first.
        most_own: number of the user's own items to add at most.
    """
    if not listed:
        return []
    own = choose_own(bought, may_add, most_own)
    sources: dict[int, set[str]] = {item: set() for item in listed}
    for name, items in (("trending", trending), ("own", own)):
        for item in items:
            if item in may_add and item not in listed:
                sources.setdefault(item, set()).add(name)
    last = min(listed.values())
    return [
        Entry(item, listed.get(item, last), frozenset(found), terms_of(bought.get(item)))
        for item, found in sources.items()
    ]


def terms_of(bought: Bought | None) -> tuple[float, float, float, float]:
    """The personal terms of an item: 0 for what the user never bought."""
    if bought is None:
        return (0.0, 0.0, 0.0, 0.0)
    return (1.0, math.log(bought.times), math.log(bought.age), math.log(1.0 + bought.lately))
