"""Events earlier than their own email do not count: a clock or an id must be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from trimtab.abtest.samples import DATE
from trimtab.abtest.written_dates import parse_dates
from trimtab.arrays import Codes, Ints
from trimtab.errors import DataError, warn
from trimtab.tables.columns import TIMESTAMP
from trimtab.tables.frames import Table
from trimtab.tables.times import as_utc, has_zone, microseconds

_EARLIEST_ZONE = 14 * 3_600_000_000  # in UTC+14 a date begins so long before it does in UTC


def drop_early(sent: Table, table: Table, rows: Codes) -> tuple[Table, Codes]:
    """Return the events that are not earlier than their own email; warn of the others.

    Args:
        sent: emails, with the time each was sent, or its date; all events count without either.
        table: events; all of them count without timestamps.
        rows: row in `sent` of each event.
    """
    if not len(table) or not table.has(TIMESTAMP):
        return table, rows
    if sent.has(TIMESTAMP):
        begins, times = read_times([sent, table])
    elif (dates := _read_dates(sent)) is not None:
        begins, (times,) = dates, read_times([table])
        if _is_zoned(table):
            begins = begins - _EARLIEST_ZONE
    else:
        return table, rows
    kept = times >= begins[rows]
    if n := int((~kept).sum()):
        warn(
            f"{table.name}: {n:,} of {len(table):,} are earlier than their own email and do not "
            f"count; check clocks and ids"
        )
    return dataclasses.replace(table, columns=table.columns.filter(pa.array(kept))), rows[kept]


def read_times(tables: Sequence[Table]) -> list[Ints]:
    """Return the instants of tables; times without a zone are taken as one place's."""
    zoned = [_is_zoned(table) for table in tables]
    if any(zoned) and not all(zoned):
        have, lack = (tables[zoned.index(answer)].name for answer in (True, False))
        raise DataError(
            f"column '{TIMESTAMP}' has a time zone in {have} but not in {lack}; add it to both"
        )
    return [
        microseconds(as_utc(t.columns[TIMESTAMP], "UTC", t.name, t.own_name(TIMESTAMP))[0])
        for t in tables
    ]


def _is_zoned(table: Table) -> bool:
    return has_zone(table.columns[TIMESTAMP], table.name, table.own_name(TIMESTAMP))


def _read_dates(sent: Table) -> Ints | None:
    """Return when the date of each email begins in UTC; None if dates are only names."""
    if not sent.has(DATE) or sent.columns[DATE].null_count:
        return None
    column = sent.columns[DATE]
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = parse_dates(column, DATE)
        elif not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            return None
        return microseconds(column.cast(pa.date32(), safe=False).cast(pa.timestamp("us")))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, DataError):
        return None
