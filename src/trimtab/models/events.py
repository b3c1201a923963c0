"""Reads the events of users before an instant, and counts those that cannot be used."""

from __future__ import annotations

import time
from datetime import UTC
from typing import Any

import numpy as np

from trimtab.arrays import Codes, Ints
from trimtab.errors import DataError, SettingError
from trimtab.metrics.event_weights import read_event_weights
from trimtab.models.list_ranking import AlignedLists
from trimtab.models.model import LeftOut
from trimtab.models.widening import Purchases, days_before, sum_purchases
from trimtab.tables.columns import ITEM, TIMESTAMP, USER, WEIGHT
from trimtab.tables.frames import read_frame
from trimtab.tables.times import (
    DAY,
    as_datetime,
    as_utc,
    has_zone,
    instant_of,
    microseconds,
    read_moment,
)
from trimtab.tables.vocabulary import Vocabulary

_FEW, _FAR = 1_000, 30 * DAY  # one in so many events must not be so far after all others


def read_events(
    history: Any | None, as_of: Any | None, aligned: AlignedLists, learned_until: int, zoned: bool
) -> tuple[Purchases, LeftOut]:
    """Return what the users of lists bought before an instant, and what is left out.

    Without a history, they bought nothing.

    Args:
        history: user_id, item_id, timestamp; events of `weight` 0 are ignored.
        as_of: the instant; None for the end of what is known.
        aligned: the lists.
        learned_until: end of what the Reranker learned from.
        zoned: whether its timestamps had a time zone.
    """
    users = Vocabulary(aligned.coded.units.users, "recs", USER)
    if history is None:
        choose_instant(as_of, np.empty(0, np.int64), learned_until, zoned)  # checks it
        none: Codes = np.empty(0, np.int32)
        return sum_purchases(none, none, np.empty(0, np.int64), len(users)), LeftOut()
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
    days = days_before(instant, times[used])
    return sum_purchases(rows[used], items[used], days, len(users)), left_out


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
            f"UTC, is {found}, so it does not tell which instant the lists are for; pass as_of "
            f"(--as-of), or leave such events out"
        )


def _zone(has: bool) -> str:
    return "a time zone" if has else "no time zone"
