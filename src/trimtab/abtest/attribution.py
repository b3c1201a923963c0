"""From raw logs to one row per email: an order counts if it follows a click in the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.abtest.table import CLICKS, DATE, EMAILS, OPENS, ORDERS, REVENUE
from trimtab.arrays import Codes, Ints
from trimtab.errors import DataError, SettingError, warn
from trimtab.tables.columns import BUCKET, TIMESTAMP, USER, Table, read_frame, read_scores
from trimtab.tables.times import as_utc, has_zone, microseconds
from trimtab.tables.vocabulary import is_text

EMAIL_ID, SESSION = "email_id", "session_id"
_MINUTE = 60_000_000
_EARLIEST_ZONE = 14 * 60 * _MINUTE  # in UTC+14 a date begins so long before it does in UTC


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
    if not session_minutes > 0:
        raise SettingError(f"session_minutes={session_minutes}: must be above 0, like 30")
    sent = read_frame(emails, "emails", EMAIL_ID, USER, optional=(BUCKET, DATE, TIMESTAMP))
    if len(pc.unique(_text(sent, EMAIL_ID))) < len(sent):
        name = sent.own_name(EMAIL_ID)
        raise DataError(f"column '{name}' of emails has duplicate ids; keep one row per email")
    opened = read_frame(opens, "opens", EMAIL_ID, optional=(TIMESTAMP,), may_be_empty=True)
    clicked = read_frame(
        clicks, "clicks", EMAIL_ID, TIMESTAMP, optional=(SESSION,), may_be_empty=True
    )
    bought = read_frame(
        orders, "orders", USER, TIMESTAMP, optional=(REVENUE, SESSION), may_be_empty=True
    )
    opened, opened_emails = _drop_early(sent, opened, _email_rows(sent, opened))
    clicked, clicked_emails = _drop_early(sent, clicked, _email_rows(sent, clicked))
    owner = _find_owners(sent, clicked, clicked_emails, bought, session_minutes)
    counted, n = owner >= 0, len(sent)
    columns: dict[str, Any] = {
        EMAILS: np.ones(n, np.int64),
        # Once per email, however often: mail programs load images again.
        OPENS: (np.bincount(opened_emails, minlength=n) > 0).astype(np.int64),
        CLICKS: (np.bincount(clicked_emails, minlength=n) > 0).astype(np.int64),
        ORDERS: np.bincount(owner[counted], minlength=n),
    }
    if bought.has(REVENUE):
        revenue = read_scores(bought, REVENUE) if len(bought) else np.empty(0)
        columns[REVENUE] = np.bincount(owner[counted], revenue[counted], n)
    table = sent.columns.drop_columns([TIMESTAMP] if sent.has(TIMESTAMP) else [])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _text(table: Table, name: str) -> pa.ChunkedArray:
    """Return ids as they are written: 7 as a number is '7' as text, but not '007'."""
    if len(table):
        table.ids(name)  # refuses gaps, and what cannot be an id
    return table.columns[name].cast(pa.string())


def _email_rows(sent: Table, table: Table) -> Codes:
    """Return the row in `emails` of every row; refuses emails that were never sent."""
    rows = pc.index_in(_text(table, EMAIL_ID), _text(sent, EMAIL_ID))
    if rows.null_count:
        first = table.columns[EMAIL_ID].filter(pc.is_null(rows))[0].as_py()
        raise DataError(
            f"column '{table.own_name(EMAIL_ID)}' of {table.name} has {first!r}, which is not in "
            f"emails (and {rows.null_count - 1} more); add these emails, or drop the rows"
        )
    return np.array(rows.to_numpy(zero_copy_only=False), np.int32)


# Sessions ----------------------------------------------------------------------------------------


def _find_owners(
    sent: Table, clicked: Table, clicked_emails: Codes, bought: Table, session_minutes: float
) -> Ints:
    """Return the row in `emails` that each order belongs to; -1 for none."""
    n_orders = len(bought)
    if n_orders == 0 or len(clicked) == 0:
        return np.full(n_orders, -1, np.int64)
    clickers = _text(sent, USER).take(pa.array(clicked_emails))
    users = _encode(clickers, _text(bought, USER))
    times = np.concatenate(_read_times([clicked, bought]))
    emails = np.concatenate([clicked_emails.astype(np.int64), np.full(n_orders, -1, np.int64)])
    if clicked.has(SESSION) and bought.has(SESSION):
        sessions = _encode(_text(clicked, SESSION), _text(bought, SESSION))
        order = np.lexsort((emails < 0, times, sessions, users))
        new = _changes(users[order]) | _changes(sessions[order])
    else:
        order = np.lexsort((emails < 0, times, users))
        gaps = np.diff(times[order], prepend=times[order][0]) > session_minutes * _MINUTE
        new = _changes(users[order]) | gaps
    credited = np.empty(len(order), np.int64)
    credited[order] = _last_click(emails[order], new)
    return credited[len(clicked) :]


def _encode(first: pa.ChunkedArray, second: pa.ChunkedArray) -> Ints:
    """Return both columns after each other, as codes."""
    both = pa.chunked_array([*first.chunks, *second.chunks])
    return np.array(pc.index_in(both, pc.unique(both)).to_numpy(zero_copy_only=False), np.int64)


def _changes(values: Ints) -> Any:
    """Return where a value differs from the one before; the first counts as different."""
    return np.concatenate([[True], values[1:] != values[:-1]])


def _last_click(emails: Ints, new: Any) -> Ints:
    """Return, for each row, the email of the last click so far in its session; -1 for none."""
    places = np.where(emails >= 0, np.arange(len(emails)), -1)
    last = np.maximum.accumulate(places)
    starts = np.maximum.accumulate(np.where(new, np.arange(len(emails)), 0))
    return np.where(last >= starts, emails[np.maximum(last, 0)], -1)


# Events earlier than their own email: a clock or an id must be wrong ------------------------------


def _drop_early(sent: Table, table: Table, rows: Codes) -> tuple[Table, Codes]:
    """Return the events that are not earlier than their own email; warn of the others.

    All count if emails have neither times nor dates, or the events have no times.
    """
    if not len(table) or not table.has(TIMESTAMP):
        return table, rows
    if sent.has(TIMESTAMP):
        begins, times = _read_times([sent, table])
    elif (dates := _read_dates(sent)) is not None:
        (times,) = _read_times([table])
        begins = dates - (_EARLIEST_ZONE if _is_zoned(table) else 0)
    else:
        return table, rows
    kept = times >= begins[rows]
    if n := int((~kept).sum()):
        warn(
            f"{table.name}: {n:,} of {len(table):,} are earlier than their own email and do not "
            f"count; check clocks and ids"
        )
    return replace(table, columns=table.columns.filter(pa.array(kept))), rows[kept]


def _read_times(tables: Sequence[Table]) -> list[Ints]:
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
    column = sent.columns[DATE] if sent.has(DATE) else pa.nulls(0)
    if column.null_count or not (pa.types.is_temporal(column.type) or is_text(column.type)):
        return None
    try:
        return microseconds(column.cast(pa.date32(), safe=False).cast(pa.timestamp("us")))
    except pa.ArrowInvalid:
        return None
