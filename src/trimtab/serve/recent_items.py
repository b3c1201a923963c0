"""The recent items in a request: checks of their values, and their days before the instant."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from msgspec import UnsetType

from trimtab.arrays import Floats, Ints
from trimtab.errors import SettingError
from trimtab.models import Reranker
from trimtab.models.events import choose_instant
from trimtab.models.widening import days_before
from trimtab.serve.refusals import RefusalError, shorten
from trimtab.serve.wire import RecentItem, RerankRequest
from trimtab.tables.times import DAY, instant_of

_MOST_DAYS = 1 << 20  # more days count as this many
_MOST_CHARACTERS = 50  # of a timestamp
_NO_TIMES = np.empty(0, np.int64)


class RecentItems(NamedTuple):
    """What a user bought before an instant, in the order of the request."""

    ids: list[Any]
    days: Ints  # before the instant, from 0
    counts: Floats  # number of days that each stands for
    later: int  # entries left out: at or after the instant


def check_recent(asked: RerankRequest, table: Reranker | None) -> None:
    """Refuse recent items whose time or count cannot be used, and a bad `as_of`.

    Args:
        asked: The request.
        table: The reranker being served, if there is one.
    """
    recent = [] if isinstance(asked.recent, UnsetType) else asked.recent
    for position, entry in enumerate(recent):
        try:
            _check_entry(entry, table)
        except RefusalError as refusal:
            raise RefusalError(422, f"recent[{position}]: {refusal.sentence}") from None
    if not isinstance(asked.as_of, UnsetType):
        _read_as_of(asked.as_of, table)
    elif table is not None and not table.has_zone and any(map(_has_timestamp, recent)):
        raise RefusalError(
            422, "as_of is missing: the version learned from times without a time zone, so the "
            "clock of the service does not tell which timestamps are earlier; send as_of",
        )  # fmt: skip


def read_recent(asked: RerankRequest, table: Reranker) -> RecentItems:
    """Return what the user bought before the instant of a request that was checked."""
    recent = [] if isinstance(asked.recent, UnsetType) else asked.recent
    instant = _choose_instant(asked, table)
    times = np.array([_time_of(entry, instant, table) for entry in recent], np.int64)
    early = np.flatnonzero(times < instant)
    used = [recent[place] for place in early.tolist()]
    return RecentItems(
        [entry.item_id for entry in used],
        days_before(instant, times[early]),
        np.array([entry.count for entry in used], np.float64),
        len(recent) - len(used),
    )


def _check_entry(entry: RecentItem, table: Reranker | None) -> None:
    if isinstance(entry.days_ago, UnsetType) == isinstance(entry.timestamp, UnsetType):
        state = "both given" if _has_timestamp(entry) else "both missing"
        raise RefusalError(422, f"days_ago and timestamp are {state}: send exactly one of them")
    if not isinstance(entry.days_ago, UnsetType) and entry.days_ago < 0:
        raise RefusalError(
            422, f"days_ago={entry.days_ago:g}: must be at least 0, which is for the 24 hours "
            f"before as_of; leave out what comes later",
        )  # fmt: skip
    if entry.count < 1:
        raise RefusalError(
            422, f"count={entry.count}: must be at least 1, the number of different days; leave "
            f"out items that were not bought",
        )  # fmt: skip
    if not isinstance(entry.timestamp, UnsetType):
        _read_timestamp(entry.timestamp, table)


def _has_timestamp(entry: RecentItem) -> bool:
    return not isinstance(entry.timestamp, UnsetType)


def _choose_instant(asked: RerankRequest, table: Reranker) -> int:
    """Return the instant of a request; now, or the end of what was learned from if that is later.

    Where times have no time zone, the clock is not used: all entries are then in days.
    """
    if not isinstance(asked.as_of, UnsetType):
        return _read_as_of(asked.as_of, table)
    now = time.time_ns() // 1000 if table.has_zone else 0
    return max(now, table.learned_until)


def _read_as_of(text: str, table: Reranker | None) -> int:
    if table is None or len(text) > _MOST_CHARACTERS:
        return instant_of(_as_utc(_parse("as_of", text)))
    try:
        return choose_instant(text, _NO_TIMES, table.learned_until, table.has_zone)
    except SettingError as error:
        raise RefusalError(422, str(error)) from None


def _time_of(entry: RecentItem, instant: int, table: Reranker) -> int:
    """Return a time on the day of an entry, in microseconds of UTC."""
    if not isinstance(entry.timestamp, UnsetType):
        return _read_timestamp(entry.timestamp, table)
    assert not isinstance(entry.days_ago, UnsetType)
    return instant - 1 - int(min(entry.days_ago, _MOST_DAYS)) * DAY


def _read_timestamp(text: str, table: Reranker | None) -> int:
    moment = _parse("timestamp", text)
    if table is not None and (moment.tzinfo is not None) != table.has_zone:
        state, remedy = (
            ("no time zone, but the version learned from times with one", "add an offset, like Z")
            if table.has_zone
            else ("a time zone, but the version learned from times without", "leave off the offset")
        )
        raise RefusalError(422, f"timestamp={shorten(text)} has {state}; {remedy}")
    return instant_of(_as_utc(moment))


def _parse(name: str, text: str) -> datetime:
    if len(text) <= _MOST_CHARACTERS:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    raise RefusalError(
        422, f"{name}={shorten(text)}: must be a time like 2026-03-01T10:00:00Z; send ISO text"
    )


def _as_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
