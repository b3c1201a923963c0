"""Instants and days: timestamps in microseconds of UTC, days in the shop's own time zone."""

from __future__ import annotations

import contextlib
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import TIMESTAMP
from trimtab.tables.ids import as_read_only

DAY = 86_400_000_000  # microseconds
_STORED = pa.timestamp("us", tz="UTC")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00+00:00")


def require_zone(tz: Any) -> ZoneInfo:
    """The time zone of a name; refuses names that are none."""
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise SettingError(
            f"tz={tz!r}: must be a time zone like 'Europe/London' or 'UTC'"
        ) from error


def as_utc(
    column: pa.ChunkedArray, tz: str | None, table: str = "events", name: str = TIMESTAMP
) -> tuple[pa.ChunkedArray, str]:
    """Timestamps as microseconds of UTC, and the zone that days begin in.

    Local times that occur twice when clocks go back are taken as the earlier instant, and those
    that are skipped when clocks go forward as the instant of the change.
    """
    if column.null_count:
        raise DataError(
            f"column '{name}' of {table} lacks a value in {column.null_count} of "
            f"{len(column)} rows; drop those rows"
        )
    column = _parsed(column, table, name)
    if column.type.tz is not None:
        zone = column.type.tz if tz is None else tz
        if tz is None and zone[:1] in "+-":
            raise DataError(
                f"column '{name}' of {table} has the offset {zone}, which is no time zone: "
                f"pass tz=, the shop's own, like tz='Europe/London' (--tz on the command line)"
            )
        require_zone(zone)
        return column.cast(_STORED, safe=False), zone
    if tz is None:
        raise DataError(
            f"column '{name}' of {table} says no time zone: pass tz=, the shop's own, like "
            f"tz='Europe/London' (--tz on the command line)"
        )
    local = column.cast(pa.timestamp("us"), safe=False)
    if tz == "UTC":
        return local.cast(pa.int64()).cast(_STORED), tz
    zoned = pc.assume_timezone(local, tz, ambiguous="earliest", nonexistent="latest")
    return zoned.cast(_STORED), tz


def _parsed(column: pa.ChunkedArray, table: str, name: str = TIMESTAMP) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us"))
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"column '{name}' of {table} holds {kind}: it must be timestamps, dates or ISO "
            f"text; cast the column"
        )
    for target in (pa.timestamp("us"), _STORED):
        with contextlib.suppress(pa.ArrowInvalid):
            return column.cast(target)
    raise DataError(
        f"column '{name}' of {table} has text that is no ISO timestamp (the first is "
        f"{column[0].as_py()!r}); write times like 2026-03-01 10:00:00, to the microsecond at "
        f"most, all with an offset or all without"
    )


def has_zone(column: pa.ChunkedArray, table: str = "events") -> bool:
    """Whether times are instants, not the clock of some place."""
    return _parsed(column, table).type.tz is not None


def microseconds(column: pa.ChunkedArray) -> Ints:
    """A column of `as_utc` as whole numbers."""
    values: Ints = as_read_only(column.cast(_STORED, safe=False).cast(pa.int64()))
    return values


def day_start(day: date, tz: str) -> int:
    """The instant at which a day begins in a time zone, in microseconds since 1970."""
    begins = datetime.combine(day, time(0), require_zone(tz))
    return round((begins - _EPOCH) / timedelta(microseconds=1))


def local_day(instant: int, tz: str) -> date:
    """The day that an instant falls on in a time zone."""
    moment = _EPOCH + timedelta(microseconds=int(instant))
    return moment.astimezone(require_zone(tz)).date()


def read_day(name: str, value: Any) -> date:
    """A day given as a date or as text like 2017-11-01."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name}={value!r}: must be a day like 2017-11-01") from error


def read_instant(name: str, value: Any) -> int:
    """An aware datetime (also as ISO text) as microseconds since 1970."""
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise SettingError(
            f"{name}={value!r}: must be a datetime with its time zone, like 2017-11-01T00:00-04:00"
        )
    return round((moment - _EPOCH) / timedelta(microseconds=1))


def as_datetime(instant: int) -> datetime:
    """An instant as an aware datetime, in UTC."""
    return _EPOCH + timedelta(microseconds=int(instant))


def local_months(instants: Ints, tz: str) -> Any:
    """The month each instant falls in, as text like 2017-03."""
    stamps = pa.array(np.asarray(instants)).cast(pa.timestamp("us", tz="UTC"))
    local = pc.local_timestamp(stamps.cast(pa.timestamp("us", tz=tz)))
    return pc.strftime(local, format="%Y-%m")


def require_before(times: Ints, instant: int, name: str = "events") -> None:
    """Refuse events at or after an instant: what is trained on them would know the future."""
    latest = int(times.max(initial=instant - 1))
    if latest >= instant:
        late = int(np.count_nonzero(times >= instant))
        raise DataError(
            f"{name} has {late} rows at or after {as_datetime(instant):%Y-%m-%d %H:%M} UTC, the "
            f"last at {as_datetime(latest):%Y-%m-%d %H:%M}: what is trained must not see them; "
            f"drop them or move as_of"
        )
