"""What each user bought before an instant, read from events; and lists widened by it."""

from __future__ import annotations

import time
from datetime import UTC
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.arrays import LISTED, OWN, TRENDING, Codes, Flags, Floats, Ints, Lists, entries_of
from trimtab.errors import DataError, SettingError
from trimtab.metrics.per_user import read_event_weights
from trimtab.models.list_ranking import AlignedLists
from trimtab.models.model import LeftOut
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, WEIGHT, read_frame
from trimtab.tables.times import (
    DAY,
    as_datetime,
    as_utc,
    has_zone,
    instant_of,
    microseconds,
    read_moment,
    tick_length,
)
from trimtab.tables.vocabulary import Vocabulary
from trimtab.threads import run_ranges

SOURCES = {"trending": TRENDING, "own": OWN}
TERMS = ("bought_before", "times_bought", "time_since", "bought_lately")
PRODUCTS = {  # further terms: features of the item, where the user bought it before
    "sales_if_bought": "sales_of_window", "repeats_if_bought": "repeat_rate",
}  # fmt: skip
USUAL_WINDOW = 3 * DAY  # of rerankers that were saved without it
MOST_ADDED = 30  # items from each source
WIDEN = ("any", "listed", "none")  # what may be added to lists
_FADING = 10.0  # windows; a purchase this old counts 1/e of a new one
_FEW, _FAR = 1_000, 30 * DAY  # one in so many events must not be so far after all others


# Purchases ----------------------------------------------------------------------------------------


class Purchases(NamedTuple):
    """The items that each user bought, ascending; one row per user.

    The items of user u are at indptr[u] to indptr[u] + lengths[u]. Purchases of one item in one
    tick count once: a day, or a twelfth of a window shorter than a day.
    """

    indptr: Ints
    lengths: Ints
    items: Codes
    times: Floats  # ticks in which the user bought the item
    ages: Floats  # ticks since the last time, from 1
    recent: Floats  # `times` with older purchases counting less


def sum_purchases(
    users: Codes, items: Codes, times: Ints, instant: int, window: int, n_users: int,
    counts: Floats | None = None,
) -> Purchases:  # fmt: skip
    """What each user bought before an instant, from single purchases in any order.

    Args:
        users: of purchases, from 0 to n_users - 1.
        items: of purchases.
        times: of purchases, before the instant; both in microseconds.
        instant: that ages are counted back from.
        window: length of a window, which says how finely time is counted and how fast it fades.
        n_users: number of users.
        counts: number of ticks that each purchase stands for; 1 each if None.
    """
    from trimtab.kernels import user_purchases as kernels

    indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=n_users))])
    n = len(users)
    keys, counted = np.empty(n, np.int64), np.empty(n)
    each = np.ones(n) if counts is None else counts
    tick = tick_length(window)
    ticks = (instant - 1 - times) // tick
    kernels.group_purchases(users, items, ticks, each, indptr[:-1].copy(), keys, counted)
    lengths = np.empty(n_users, np.int64)
    columns = np.empty(n, np.int32), np.empty(n), np.empty(n), np.empty(n)
    fading = _FADING * window / tick
    run_ranges(kernels.sum_purchases, n_users, indptr, keys, counted, fading, lengths, *columns)
    return Purchases(indptr, lengths, *columns)


def read_events(
    history: Any | None, as_of: Any | None, aligned: AlignedLists, learned_until: int, zoned: bool,
    window: int,
) -> tuple[Purchases, LeftOut]:  # fmt: skip
    """Return what the users of lists bought before an instant, and what is left out.

    Without a history, they bought nothing.

    Args:
        history: user_id, item_id, timestamp; events of `weight` 0 are ignored.
        as_of: the instant; None for the end of what is known.
        aligned: the lists.
        learned_until: end of what the Reranker learned from.
        zoned: whether its timestamps had a time zone.
        window: length of the windows that it learned from.
    """
    users = Vocabulary(aligned.coded.units.users, "recs", USER)
    if history is None:
        no_times: Ints = np.empty(0, np.int64)
        instant = choose_instant(as_of, no_times, learned_until, zoned)  # checks it
        none: Codes = np.empty(0, np.int32)
        return sum_purchases(none, none, no_times, instant, window, len(users)), LeftOut()
    events = read_frame(
        history, "history", USER, ITEM, TIMESTAMP, optional=(WEIGHT,), may_be_empty=True
    )
    if len(events) and events.has(WEIGHT):
        events, _ = read_event_weights(events, WEIGHT)
    name = events.own_name(TIMESTAMP)
    found = has_zone(events.columns[TIMESTAMP], "history", name) if len(events) else zoned
    if found != zoned:
        raise DataError(
            f"column '{name}' of history has {_zone(found)}, but what the reranker learned "
            f"from has {_zone(zoned)}; use the same in both"
        )
    times = microseconds(as_utc(events.columns[TIMESTAMP], "UTC", "history", name)[0])
    instant = choose_instant(as_of, times, learned_until, zoned)
    early = times < instant
    rows, items = users.codes(events.ids(USER)), aligned.items.codes(events.ids(ITEM))
    used = np.flatnonzero(early & (rows >= 0) & (items >= 0))
    reasons = (~early, early & (rows < 0), early & (rows >= 0) & (items < 0))
    left_out = LeftOut(*(int(np.count_nonzero(reason)) for reason in reasons))
    purchases = sum_purchases(rows[used], items[used], times[used], instant, window, len(users))
    return purchases, left_out


def choose_instant(
    as_of: Any, times: Ints, learned_until: int, zoned: bool, counts: Ints | None = None
) -> int:
    """Return the instant that lists are made for, in microseconds of UTC.

    Args:
        as_of: a datetime, a date or ISO text; None for the end of what is known.
        times: of events.
        learned_until: end of what the Reranker learned from.
        zoned: whether its timestamps had a time zone.
        counts: number of events of each time, if `times` is what `latest_by_day` returns.
    """
    if as_of is None:
        if len(times) == 0:
            return learned_until
        if counts is None:
            times, counts = latest_by_day(times)
        _require_end(times, counts, learned_until)
        by_day = not np.any(times % DAY)
        return max(learned_until, int(times.max()) + (DAY if by_day else 1))
    moment = read_moment(as_of)
    if moment is None:
        raise SettingError(f"as_of={as_of!r}: must be a datetime like 2026-03-01T00:00:00")
    if (moment.tzinfo is not None) != zoned:
        raise SettingError(
            f"as_of={str(as_of)!r} has {_zone(not zoned)}, but the events have {_zone(zoned)}; "
            f"use the same in both"
        )
    instant = instant_of(moment if zoned else moment.replace(tzinfo=UTC))
    if instant < learned_until:
        end = as_datetime(learned_until).strftime("%Y-%m-%d %H:%M:%S")
        raise SettingError(
            f"as_of={str(as_of)!r}: must not be before {end} UTC, the end of what the reranker "
            f"learned from; move as_of, or learn from earlier windows"
        )
    return instant


def latest_by_day(times: Ints) -> tuple[Ints, Ints]:
    """Return the latest time of each day, and the number of events: all that a default needs."""
    ordered = np.sort(times)
    last = np.flatnonzero(np.diff(ordered // DAY, append=np.iinfo(np.int64).max))
    return ordered[last], np.diff(last, prepend=-1)


def _require_end(times: Ints, counts: Ints, learned_until: int) -> None:
    """Refuse events whose latest does not tell what is now: of the future, or far from all others.

    A reranker that itself learned from times to come is about a made-up log.
    """
    present = int(time.time() * 1e6) + DAY  # clocks of time zones differ by less
    latest, found = int(times.max()), None
    if latest > present >= learned_until:
        found = "after the present time"
    order = np.argsort(times)
    n_later = np.cumsum(counts[order][::-1])[::-1]  # events from each time on
    is_far = np.diff(times[order], prepend=times.min()) > _FAR
    if np.any(is_far & (n_later * _FEW <= n_later[0])):
        found = f"more than {_FAR // DAY} days after almost all others"
    if found:
        raise DataError(
            f"history: the latest of {n_later[0]} events, of {as_datetime(latest):%Y-%m-%d %H:%M} "
            f"UTC, is {found}, so it does not tell which instant the lists are for; pass "
            f"as_of=, or leave such events out"
        )


def _zone(has: bool) -> str:
    return "a time zone" if has else "no time zone"


# Wider lists --------------------------------------------------------------------------------------


class WiderLists(NamedTuple):
    """Lists with added items, which have the score of the list's last item."""

    lists: Lists
    sources: NDArray[np.int8]  # by entry
    terms: Floats  # by [entry, term]; see TERMS

    def take(self, units: Ints) -> WiderLists:
        """The lists of some units."""
        indptr, entries = entries_of(self.lists.indptr, units)
        lists = Lists(indptr, self.lists.items[entries], self.lists.scores[entries])
        return WiderLists(lists, self.sources[entries], self.terms[entries])

    def only(self, sources: int) -> tuple[WiderLists, Flags]:
        """These lists with additions from some sources, and the entries that are left."""
        kept: Flags = (self.sources == LISTED) | ((self.sources & sources) > 0)
        chosen = self._choose(kept)
        return chosen._replace(sources=chosen.sources & np.int8(sources)), kept

    def without_repeats(self) -> WiderLists:
        """These lists without added items that the user already bought."""
        return self._choose((self.sources == LISTED) | (self.terms[:, 0] == 0))

    def _choose(self, kept: Flags) -> WiderLists:
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.lists.indptr]
        lists = Lists(indptr, self.lists.items[kept], self.lists.scores[kept])
        return WiderLists(lists, self.sources[kept], self.terms[kept])

    def added(self, sources: int) -> Floats:
        """Whether an entry was added, by [entry, source].

        What is both trending and the user's own counts as the user's own.
        """
        flags = {TRENDING: self.sources == TRENDING, OWN: (self.sources & OWN) > 0}
        added = np.stack([*flags.values()], axis=1).astype(np.float64)
        return added[:, [bool(source & sources) for source in flags]]


def widen(
    lists: Lists, users: Codes, purchases: Purchases, may_add: Flags, trending: Codes, sources: int
) -> WiderLists:
    """Lists with what trends and with what the user bought most and last.

    Args:
        lists: scored items by unit.
        users: row of each unit's user in the purchases; -1 for none.
        purchases: by user.
        may_add: by item: whether it may be added.
        trending: items to add, best first.
        sources: to add from: TRENDING, OWN, their sum, or 0.
    """
    from trimtab.kernels.user_purchases import N_TERMS, widen_lists

    trending = trending[:MOST_ADDED] if sources & TRENDING else trending[:0]
    most_own = MOST_ADDED if sources & OWN else 0
    room = np.diff(lists.indptr) + len(trending) + most_own
    indptr = np.concatenate([[0], np.cumsum(room)])
    n = int(indptr[-1])
    items, scores = np.empty(n, np.int32), np.empty(n)
    found, terms = np.empty(n, np.int8), np.empty((n, N_TERMS))
    lengths = np.empty(lists.n_units, np.int64)
    run_ranges(
        widen_lists, lists.n_units, *lists, users, *purchases, may_add, trending, most_own, indptr,
        items, scores, found, terms, lengths,
    )  # fmt: skip
    filled = np.arange(n) < np.repeat(indptr[:-1] + lengths, room)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return WiderLists(Lists(ends, items[filled], scores[filled]), found[filled], terms[filled])
