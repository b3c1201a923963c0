"""Times: instants in microseconds of UTC, and days in the shop's time zone.

Numbers are the time since 1970, in a unit that their size tells. The units differ by a factor of
1000, so a number between 1980 and 2100 in one of them is in 1970 or after the year 11,000 in all
others. Days written as numbers, like 20260301, are in none of them.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.arrays import Ints
from trimtab.checks import require_no_nulls
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import TIMESTAMP
from trimtab.tables.vocabulary import as_read_only, is_text

DAY = 86_400_000_000  # microseconds
_TICKS = 12  # of a window shorter than a day
HOUR, MINUTE = DAY // 24, DAY // 1440
_UNITS = {"d": DAY, "h": HOUR, "min": MINUTE}
_DURATION = re.compile(r"(\d{1,6})(d|h|min)")
_CALENDAR = (date(2, 1, 1), date(9999, 1, 1))  # with a year of room for zones and windows
_STORED = pa.timestamp("us", tz="UTC")
_FIRST, _END = 315_532_800, 4_102_444_800  # the years 1980 and 2100, in seconds since 1970
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00+00:00")
_PASS_TZ = "pass the shop's time zone, like tz='Europe/London'"


def require_zone(tz: Any) -> ZoneInfo:
    """Return the time zone of a name; raise if there is none."""
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise SettingError(
            f"tz={tz!r}: must be a time zone like 'Europe/London' or 'UTC'"
        ) from error


def as_utc(
    column: pa.ChunkedArray, tz: str | None, table: str = "events", name: str = TIMESTAMP
) -> tuple[pa.ChunkedArray, str]:
    """Return timestamps as microseconds of UTC, and the time zone in which days begin.

    A local time that occurs twice when clocks go back means the earlier instant; one that is
    skipped when clocks go forward means the instant of the change. Numbers are the time since
    1970 in UTC, so they have a time zone.
    """
    require_no_nulls(table, name, column)
    column = _parse_timestamps(column, table, name)
    zone = column.type.tz if tz is None else tz
    if zone is None or (tz is None and zone[:1] in "+-"):
        found = "no time zone" if zone is None else f"the offset {zone}, not a time zone"
        raise DataError(f"column '{name}' of {table} has {found}: {_PASS_TZ}")
    if zone != "UTC":  # for which no database of time zones is needed
        require_zone(zone)
        if column.type.tz is None:
            local = column.cast(pa.timestamp("us"), safe=False)
            column = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
    return column.cast(_STORED, safe=False), zone


def _require_calendar(column: pa.ChunkedArray, table: str, name: str) -> None:
    """Raise unless a column has dates or timestamps, all inside the calendar of any time zone."""
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise DataError(
            f"column '{name}' of {table} holds {kind}: it must be timestamps, dates, ISO text "
            f"or seconds since 1970; cast the column"
        )
    if getattr(kind, "unit", "") == "ns":
        return  # nanoseconds cannot leave it
    lowest, highest = pc.min_max(column).values()
    first, last = (pa.scalar(day).cast(kind) for day in _CALENDAR)
    for found, low, high in ((lowest, lowest, first), (highest, last, highest)):
        if pc.less(low, high).as_py():
            raise DataError(
                f"column '{name}' of {table} holds {kind} and has {found.value}: it must be in the "
                f"years {_CALENDAR[0].year} to {_CALENDAR[1].year - 1}; fix or drop such rows"
            )


def _parse_timestamps(column: pa.ChunkedArray, table: str, name: str) -> pa.ChunkedArray:
    if is_epoch_type(column.type):
        return parse_epochs(column, table, name)
    if is_text(column.type):
        column = _parse_text(column, table, name)
    _require_calendar(column, table, name)
    return column.cast(pa.timestamp("us")) if pa.types.is_date(column.type) else column


def _parse_text(column: pa.ChunkedArray, table: str, name: str) -> pa.ChunkedArray:
    text = column.cast(pa.large_string())
    for target in (pa.timestamp("us"), _STORED):
        with contextlib.suppress(pa.ArrowInvalid):
            return text.cast(target)
    raise DataError(
        f"column '{name}' of {table} has text that is not an ISO timestamp (the first row is "
        f"{column[0].as_py()!r}); write times like 2026-03-01 10:00:00, with at most "
        f"microseconds, all with an offset or all without"
    )


def has_zone(column: pa.ChunkedArray, table: str = "events", name: str = TIMESTAMP) -> bool:
    """Return whether timestamps have a time zone."""
    return _parse_timestamps(column, table, name).type.tz is not None


def microseconds(column: pa.ChunkedArray) -> Ints:
    """Return a column of timestamps as microseconds since 1970."""
    return as_read_only(column.cast(_STORED, safe=False).cast(pa.int64()))


class Moment(datetime):
    """What the shop's clock shows, without a zone: a day is its midnight, and is said as a day."""

    @staticmethod
    def of(moment: date) -> Moment:
        """Return a day, or a time of the shop's clock, as a moment."""
        shown = moment if isinstance(moment, datetime) else datetime.combine(moment, time(0))
        return Moment.combine(shown.date(), shown.time())

    @staticmethod
    def at(instant: int, tz: str) -> Moment:
        """Return what the shop's clock shows at an instant."""
        return Moment.of(as_datetime(instant).astimezone(require_zone(tz)).replace(tzinfo=None))

    def instant(self, tz: str) -> int:
        """Return when it is in a time zone, in microseconds since 1970."""
        return instant_of(self.replace(tzinfo=require_zone(tz)))

    def __str__(self) -> str:
        return self.strftime("%Y-%m-%d" if self.time() == time(0) else "%Y-%m-%dT%H:%M")


def local_day(instant: int, tz: str) -> Moment:
    """Return the day of an instant in a time zone."""
    return Moment.of(Moment.at(instant, tz).date())


def read_day(name: str, value: Any) -> Moment:
    """Return a day, or a time of the shop's clock, given as such or as text like 2017-11-01T14:00.

    An instant with a zone is no time of the shop's clock.
    """
    moment = read_moment(value)
    if moment is None or moment.tzinfo is not None or (moment.second or moment.microsecond):
        raise SettingError(
            f"{name}={value!r}: must be a day like 2017-11-01, or a time of the shop's clock like "
            f"2017-11-01T14:00"
        )
    return Moment.of(moment)


def read_instant(name: str, value: Any) -> int:
    """Return a datetime with a time zone (or its ISO text) as microseconds since 1970."""
    moment = read_moment(value)
    if moment is None or moment.tzinfo is None:
        raise SettingError(
            f"{name}={value!r}: must be a datetime with a time zone, like 2017-11-01T00:00-04:00"
        )
    return instant_of(moment)


def read_moment(value: Any) -> datetime | None:
    """Return a datetime, a date (its first instant) or ISO text as a datetime; None if it is none.

    ISO text of a day alone is its first instant too. A missing time (pandas.NaT) is none.
    """
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(value)
        return None
    if isinstance(value, datetime):
        return None if math.isnan(value.year) else value
    return datetime.combine(value, time(0)) if isinstance(value, date) else None


def instant_of(moment: datetime) -> int:
    """Return a datetime with a time zone as microseconds since 1970."""
    return round((moment - _EPOCH) / timedelta(microseconds=1))


def as_datetime(instant: int) -> datetime:
    """Return an instant as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=int(instant))


def read_duration(name: str, value: Any) -> int:
    """Return the length of a window like 3d, 6h or 15min, in microseconds.

    It is some whole days, or a part of a day that is at least a minute.
    """
    length = None
    if isinstance(value, timedelta):
        length = value // timedelta(microseconds=1)
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        length = int(found[1]) * _UNITS[found[2]]
    if length is None or length < _UNITS["min"] or (length > DAY and length % DAY):
        raise SettingError(
            f"{name}={value!r}: must be whole days like 3d, or less than a day like 6h or 15min"
        )
    return length


def duration_name(length: int) -> str:
    """Return a length of time as text like 3d, 6h or 15min."""
    unit = next(unit for unit, size in _UNITS.items() if length % size == 0)
    return f"{length // _UNITS[unit]}{unit}"


def spoken_duration(length: int) -> str:
    """Return a length of time in words, like 3 days, 6 hours or 1 minute."""
    unit = next(unit for unit, size in _UNITS.items() if length % size == 0)
    n, word = length // _UNITS[unit], {"d": "day", "h": "hour", "min": "minute"}[unit]
    return f"{n} {word}{'' if n == 1 else 's'}"


def tick_length(window: int) -> int:
    """Return how finely time is counted for windows of a length: in days, or twelfths of them."""
    return DAY if window >= DAY else window // _TICKS


def require_before(times: Ints, instant: int, name: str = "events") -> None:
    """Raise if there are events at or after an instant: training on them would leak the future."""
    latest = int(times.max(initial=instant - 1))
    if latest >= instant:
        late = int(np.count_nonzero(times >= instant))
        raise DataError(
            f"{name} has {late} rows at or after as_of={as_datetime(instant):%Y-%m-%d %H:%M} UTC, "
            f"the last at {as_datetime(latest):%Y-%m-%d %H:%M}: training must not see them; drop "
            f"them or move as_of"
        )


def is_epoch_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type can hold the time since 1970."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def parse_epochs(column: pa.ChunkedArray, table: str, name: str) -> pa.ChunkedArray:
    """Return seconds, milliseconds, microseconds or nanoseconds since 1970 as instants of UTC.

    Args:
        column: integers or floats, all in the same unit.
        table: table to name in errors.
        name: column to name in errors.
    """
    if len(column) == column.null_count:
        return pa.chunked_array([pa.nulls(len(column), _STORED)])
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        low = high = math.nan
    for unit, per_second in _PER_SECOND.items():
        if _FIRST * per_second <= low and high < _END * per_second:
            if pa.types.is_integer(column.type):
                return column.cast(pa.int64()).cast(pa.timestamp(unit, tz="UTC"))
            scaled = pc.multiply(column.cast(pa.float64()), pa.scalar(1e6 / per_second))
            return pc.round(scaled).cast(pa.int64()).cast(_STORED)
    raise DataError(
        f"column '{name}' of {table} holds {column.type} from {low} to {high}, which are "
        f"not times between 1980 and 2100 in one unit: write seconds, milliseconds or "
        f"microseconds since 1970 (UTC), or ISO text like 2026-03-01 10:00:00"
    )
