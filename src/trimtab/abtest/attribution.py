"""From raw logs to one row per email: an order counts if it follows a click in the session."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.table import CLICKS, DATE, EMAILS, OPENS, ORDERS, REVENUE
from trimtab.arrays import Ints
from trimtab.checks import require_positive
from trimtab.errors import DataError, warn
from trimtab.tables.columns import BUCKET, TIMESTAMP, USER, Table, read_frame, read_scores
from trimtab.tables.times import as_utc, has_zone, microseconds

EMAIL_ID, SESSION = "email_id", "session_id"
_MINUTE = 60_000_000
_EARLIEST_ZONE = 14 * 60 * _MINUTE  # in UTC+14 a date begins so long before it does in UTC
_LONGEST = 1e9  # minutes


def attribute(
    emails: Any, opens: Any, clicks: Any, orders: Any, *, session_minutes: float = 30.0
) -> pa.Table:
    """Return the outcome of each email, in the order of `emails`: an Arrow table to analyse.

    Clicks and orders of a user form sessions: by `session_id` if both tables have it, otherwise by
    time, where a session ends after `session_minutes` without a click or an order. An order belongs
    to the last email clicked in the same session, at the time of the order or before; an order
    without such a click belongs to no email. An email counts as opened, and as clicked, at most
    once, since people and mail programs open it again. Opens and clicks earlier than their own
    email do not count, and a warning says how many there are. Ids are joined as they are written:
    7 is '7'.

    Args:
        emails: email_id, user_id; bucket and date if known; timestamp, when each was sent.
        opens: email_id, and timestamp if known; one row per open, also of the same email.
        clicks: email_id, timestamp; one row per click, also on the same email.
        orders: user_id, timestamp, and revenue if known; one row per order.
        session_minutes: minutes without a click or an order that end a session.

    Returns:
        email_id, user_id (bucket, date), emails (always 1), opens and clicks (0 or 1), orders,
        revenue.
    """
    require_positive("session_minutes", session_minutes, _LONGEST)
    sent = read_frame(emails, "emails", EMAIL_ID, USER, optional=(BUCKET, DATE, TIMESTAMP))
    if len(pc.unique(_text(sent, EMAIL_ID))) < len(sent):
        name = sent.own_name(EMAIL_ID)
        raise DataError(f"column '{name}' of emails has duplicate ids; keep one row per email")
    n, columns = len(sent), {EMAILS: np.ones(len(sent), np.int64)}
    opened, clicked = (
        _read_events(sent, *own)
        for own in ((opens, "opens", [EMAIL_ID]), (clicks, "clicks", [EMAIL_ID, TIMESTAMP]))
    )
    for name, (_, rows) in ((OPENS, opened), (CLICKS, clicked)):
        # Once per email, however often: mail programs load images again.
        columns[name] = (np.bincount(rows, minlength=n) > 0).astype(np.int64)
    more = (REVENUE, SESSION)
    bought = read_frame(orders, "orders", USER, TIMESTAMP, optional=more, may_be_empty=True)
    owner = _find_owners(sent, *clicked, bought, session_minutes)
    columns[ORDERS] = np.bincount(owner[owner >= 0], minlength=n)
    if bought.has(REVENUE):
        revenue = read_scores(bought, REVENUE) if len(bought) else np.empty(0)
        columns[REVENUE] = np.bincount(owner[owner >= 0], revenue[owner >= 0], n)
    table = sent.columns.drop_columns([TIMESTAMP] if sent.has(TIMESTAMP) else [])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _text(table: Table, name: str) -> pa.ChunkedArray:
    """Return ids as they are written: 7 as a number is '7' as text, but not '007'."""
    if len(table):
        table.ids(name)  # refuses gaps, and what cannot be an id
    return table.columns[name].cast(pa.string())


def _read_events(sent: Table, frame: Any, name: str, needed: Sequence[str]) -> tuple[Table, Ints]:
    """Return opens or clicks that are not earlier than their own email, and its row in `emails`.

    Emails that were never sent are refused; with earlier events, a clock or an id must be wrong.
    All count if emails have neither times nor dates, or the events have no times.
    """
    more = (TIMESTAMP, SESSION)[len(needed) - 1 :]
    events = read_frame(frame, name, *needed, optional=more, may_be_empty=True)
    places = pc.index_in(_text(events, EMAIL_ID), _text(sent, EMAIL_ID))
    if places.null_count:
        first = events.columns[EMAIL_ID].filter(pc.is_null(places))[0].as_py()
        raise DataError(
            f"column '{events.own_name(EMAIL_ID)}' of {name} has {first!r}, which is not in emails "
            f"(and {places.null_count - 1} more); add these emails, or drop the rows"
        )
    rows = np.array(places.to_numpy(zero_copy_only=False), np.int64)
    if not len(events) or not events.has(TIMESTAMP):
        return events, rows
    kept = _is_later(sent, events, rows)
    if n := int((~kept).sum()):
        warn(
            f"{name}: {n:,} of {len(events):,} are earlier than their own email and do not count; "
            f"check clocks and ids"
        )
    return replace(events, columns=events.columns.filter(pa.array(kept))), rows[kept]


def _is_later(sent: Table, events: Table, rows: Ints) -> Any:
    """Return whether events are not earlier than their own email, by its time or its date."""
    if sent.has(TIMESTAMP):
        begins, times = _read_times([sent, events])
        return times >= begins[rows]
    (times,) = _read_times([events])
    with contextlib.suppress(DataError):  # dates that are only names
        if sent.has(DATE):
            begins = microseconds(as_utc(sent.columns[DATE], "UTC")[0])
            return times >= begins[rows] - _EARLIEST_ZONE * _is_zoned(events)
    return np.ones(len(events), bool)


def _find_owners(
    sent: Table, clicked: Table, clicked_emails: Ints, bought: Table, session_minutes: float
) -> Ints:
    """Return the row in `emails` that each order belongs to; -1 for none."""
    nobody = np.full(len(bought), -1, np.int64)
    if not len(bought) or not len(clicked):
        return nobody
    keys = [_encode(_text(sent, USER).take(pa.array(clicked_emails)), _text(bought, USER))]
    if has_sessions := clicked.has(SESSION) and bought.has(SESSION):
        keys.append(_encode(_text(clicked, SESSION), _text(bought, SESSION)))
    times = np.concatenate(_read_times([clicked, bought]))
    emails = np.concatenate([clicked_emails, nobody])
    order = np.lexsort((emails < 0, times, *keys))
    new = np.any([np.diff(key[order], prepend=-1) != 0 for key in keys], axis=0)
    if not has_sessions:
        new |= np.diff(times[order], prepend=times[order][0]) > session_minutes * _MINUTE
    places, clicks = np.arange(len(order)), emails[order]
    last = np.maximum.accumulate(np.where(clicks >= 0, places, -1))  # click so far
    starts = np.maximum.accumulate(np.where(new, places, 0))
    credited = np.empty(len(order), np.int64)
    credited[order] = np.where(last >= starts, clicks[np.maximum(last, 0)], -1)
    return credited[len(clicked) :]


def _encode(first: pa.ChunkedArray, second: pa.ChunkedArray) -> Ints:
    """Return both columns after each other, as codes."""
    both = pa.chunked_array([*first.chunks, *second.chunks])
    return np.array(pc.index_in(both, pc.unique(both)).to_numpy(zero_copy_only=False), np.int64)


def _read_times(tables: Sequence[Table]) -> list[Ints]:
    """Return the instants of tables; times without a zone are taken as one place's."""
    zones = {_is_zoned(table): table.name for table in tables}
    if len(zones) > 1:
        raise DataError(
            f"column '{TIMESTAMP}' has a time zone in {zones[True]} but not in {zones[False]}; add "
            f"it to both"
        )
    return [
        microseconds(as_utc(t.columns[TIMESTAMP], "UTC", t.name, t.own_name(TIMESTAMP))[0])
        for t in tables
    ]


def _is_zoned(table: Table) -> bool:
    return has_zone(table.columns[TIMESTAMP], table.name, table.own_name(TIMESTAMP))
