"""Sales by item and tick, and what they say as of an instant.

Time is counted in ticks of a fixed grid: days, or twelfths of a window shorter than a day. A user
who buys an item several times in a tick counts once. Any horizon before an instant on the grid is a
sum of ticks. Horizons and ages are measured in windows, so that what is learned is the same at any
pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Codes, Floats, Ints
from trimtab.parts.packing import packable
from trimtab.tables.times import DAY, tick_length

USUAL_WINDOW = 3  # ticks, if it is not known
# Horizons in windows, each with the next longer one; the last two only of windows below a day.
HORIZONS = {"27_windows": 27.0, "9_windows": 9.0, "3_windows": 3.0, "window": 1.0}
SHORT_HORIZONS = {"third": 1 / 3, "twelfth": 1 / 12}
NEVER = 100.0  # windows since the last sale of what was never sold
_LEAST_BEFORE = 0.1  # sales in the ticks before a window, over those in the newest window
_MIDDLE = 2**31  # ticks before 1970 are below 0


@packable
class Grid(NamedTuple):
    """Ticks of the same length, counted from an origin; both in microseconds."""

    origin: int
    length: int = DAY

    @staticmethod
    def of(window: int | None) -> Grid | None:
        """Return the grid of windows shorter than a day; None for windows of whole days."""
        return Grid(0, tick_length(window)) if window is not None and window < DAY else None

    @staticmethod
    def through(starts: list[int]) -> Grid:
        """Return the grid of days that lies closest before all windows.

        Windows begin with their first purchase, a little after the shop's midnight. A tick begins
        with the earliest of these times of day, around the clock, so that what was sold in a window
        is never counted as sold before it.
        """
        times = np.array(starts)
        late = [int(((times - start) % DAY).max()) for start in starts]
        return Grid(starts[int(np.argmin(late))] % DAY)

    def ticks(self, times: Ints) -> Codes:
        """Return the tick that each time is in."""
        ticks: Codes = ((times - self.origin) // self.length).astype(np.int32)
        return ticks

    def tick(self, time: int) -> int:
        """Return the tick that a time is in."""
        return (time - self.origin) // self.length

    def start(self, tick: int) -> int:
        """Return when a tick begins."""
        return self.origin + tick * self.length


@packable
class Events(NamedTuple):
    """Events as columns; those that are not known are None."""

    items: Codes
    users: Codes | None = None
    times: Ints | None = None  # in microseconds
    weights: Floats | None = None  # 1 each if None; or how many sales a row stands for

    def take(self, chosen: Ints) -> Events:
        """Return some of the events."""
        columns: list[Any] = [None if column is None else column[chosen] for column in self]
        return Events(*columns)


@packable
class Sales(NamedTuple):
    """Sales by item and tick, in the order of both; they add up over parts of the users."""

    items: Codes
    ticks: Codes
    visits: Floats  # users who bought, by the weights of events
    buyers: Ints  # those of them who bought the item for the first time
    firsts: Floats  # the visits of these
    n_users: int = 0  # to whom something was sold

    def __add__(self, other: Sales) -> Sales:  # type: ignore[override]
        pairs: Any = zip(self[:5], other[:5], strict=True)
        columns: list[Any] = [np.concatenate(own) for own in pairs]
        items, ticks, *counts = columns
        n_users = self.n_users + other.n_users
        if len(items) == 0:
            return Sales(*columns[:5], n_users)  # type: ignore[call-arg]
        keys = (items.astype(np.int64) << 32) + ticks + _MIDDLE
        order = np.argsort(keys, kind="stable")  # two runs in order: they are merged
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        chosen = order[first]
        visits, buyers, firsts = (np.add.reduceat(column[order], first) for column in counts)
        return Sales(items[chosen], ticks[chosen], visits, buyers, firsts, n_users)


_COLUMNS = (np.int32, np.int32, np.float64, np.int64, np.float64)
NO_SALES = Sales(*(np.empty(0, kind) for kind in _COLUMNS))  # type: ignore[arg-type]


def count_sales(events: Events, ticks: Codes | None, n_items: int) -> Sales:
    """Return the sales of events in any order.

    Args:
        events: without users, each is by a user of its own.
        ticks: of the events; None if they are not known: each is then a visit of its own.
        n_items: number of item codes.
    """
    from trimtab.kernels import counting as kernels

    items, users, weights = events.items, events.users, events.weights
    n_users = 0 if users is None else int(np.count_nonzero(np.bincount(users)))
    timed = ticks is not None
    if ticks is None:
        if weights is not None and users is not None:  # so that the order of rows does not matter
            order = np.lexsort((weights, users, items))
            items, users, weights = items[order], users[order], weights[order]
        ticks = np.arange(len(items), dtype=np.int32)
    if users is None:
        users = np.arange(len(items), dtype=np.int32)
    if np.any(ticks[1:] < ticks[:-1]):
        order = np.argsort(ticks, kind="stable")
        items, users, ticks = items[order], users[order], ticks[order]
        weights = None if weights is None else weights[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=n_items))])
    grouped = np.empty((len(items), 2), np.int32)
    kernels.group_events(items, users, ticks, starts[:-1].copy(), grouped)
    each = np.ones(len(items), bool) if weights is None else _weigh_visits(items, grouped, weights)
    out: Any = [np.empty(len(items), kind) for kind in _COLUMNS]
    seen = np.full((int(users.max(initial=-1)) + 1, 2), -1, np.int32)
    n = kernels.count_sales(starts, grouped, each, seen, *out)
    sales = Sales(*(column[:n].copy() for column in out))._replace(n_users=n_users)
    return sales if timed else sales._replace(ticks=np.zeros(n, np.int32)) + NO_SALES


def _weigh_visits(items: Codes, grouped: Codes, weights: Floats) -> Floats:
    """The largest weight of each event's visit, in the order of the grouped events."""
    if len(items) == 0:
        return np.empty(0)
    by_item = np.argsort(items, kind="stable")
    items, weights = items[by_item], weights[by_item]
    order = np.lexsort((weights, grouped[:, 1], grouped[:, 0], items))
    keys = np.stack([items[order], *grouped[order].T])
    last = np.r_[np.any(keys[:, 1:] != keys[:, :-1], axis=0), True]
    visit = np.cumsum(last) - last  # number of each event's visit
    largest = np.empty(len(items))
    largest[order] = weights[order][last][visit]
    return largest


# Sales before an instant, by item; what is not known is not there. A visit is a user and a tick
# with a purchase.
#
#     long      visits
#     buyers    different users
#     again     visits of users who had bought the item before
#     27_windows, ..., window, third, twelfth    visits of so long before; see `HORIZONS`
#     since     windows since the last sale
#     age       windows since the first sale
History = dict[str, Floats]


def history_before(
    sales: Sales, tick: int, n_items: int, window: int, short: bool = False, timed: bool = True
) -> History:
    """Return what was sold before a tick.

    Args:
        sales: of all users.
        tick: the first that does not count.
        n_items: number of item codes.
        window: ticks of a window.
        short: whether it is shorter than a day.
        timed: whether the ticks of sales are known.
    """
    early = sales.ticks < tick
    items, visits, ago = sales.items[early], sales.visits[early], tick - 1 - sales.ticks[early]

    def count(values: Floats | Ints, chosen: Any = slice(None)) -> Floats:
        return np.bincount(items[chosen], values[chosen], minlength=n_items).astype(np.float64)

    found = {"long": count(visits)}
    if sales.n_users:
        found["buyers"] = count(sales.buyers[early])
        found["again"] = found["long"] - count(sales.firsts[early])
    if timed:
        for name, windows in (HORIZONS | (SHORT_HORIZONS if short else {})).items():
            found[name] = count(visits, ago < round(windows * window))
        found["since"], found["age"] = np.full(n_items, NEVER), np.zeros(n_items)
        np.minimum.at(found["since"], items, ago / window)
        np.maximum.at(found["age"], items, ago / window)
    return found


@dataclass(frozen=True)
class Histories:
    """Sales before each window, and before now: the end of the newest window.

    Args:
        before: each window; empty without history.
        now: None if timestamps are missing, or what sold just before the newest window.
        window: length of a window, in microseconds.
        starts: of the windows, in microseconds; empty if they are not known.
        end: of the newest window.
        n_users: that the sales were to; 0 if users or timestamps are missing.
    """

    before: tuple[History, ...] = ()
    now: History | None = None
    window: int = USUAL_WINDOW * DAY
    starts: tuple[int, ...] = ()
    end: int | None = None
    n_users: int = 0

    @property
    def usable(self) -> list[bool]:
        """Whether what sold just before each window is known, so that features can be as of it."""
        assert self.now is not None
        least = _LEAST_BEFORE * float(self.now["window"].sum())
        return [float(history["window"].sum()) >= least for history in self.before]
