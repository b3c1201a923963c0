"""From raw logs to one row per email: an order counts if it follows a click in the session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.abtest.early_events import drop_early, read_times
from trimtab.abtest.log_ids import EMAIL_ID, SESSION, encode_as_written, read_log
from trimtab.abtest.samples import (
    CLICKS,
    DATE,
    EMAILS,
    OPENS,
    ORDERS,
    REVENUE,
)
from trimtab.arrays import Codes, Floats, Ints
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import BUCKET, TIMESTAMP, USER
from trimtab.tables.frames import Table, read_scores

_MINUTE = 60_000_000


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
    sent = read_log(
        emails, "emails", EMAIL_ID, USER, optional=(BUCKET, DATE, TIMESTAMP), may_be_empty=False
    )
    opened = read_log(opens, "opens", EMAIL_ID, optional=(TIMESTAMP,))
    clicked = read_log(clicks, "clicks", EMAIL_ID, TIMESTAMP, optional=(SESSION,))
    bought = read_log(orders, "orders", USER, TIMESTAMP, optional=(REVENUE, SESSION))
    opened, opened_emails = drop_early(sent, opened, _email_rows(sent, opened))
    clicked, clicked_emails = drop_early(sent, clicked, _email_rows(sent, clicked))
    owner = _find_owners(sent, clicked, clicked_emails, bought, session_minutes)
    counted = owner >= 0
    n = len(sent)
    columns = {
        EMAILS: np.ones(n, np.int64),
        OPENS: _count_once(opened_emails, n),
        CLICKS: _count_once(clicked_emails, n),
        ORDERS: np.bincount(owner[counted], minlength=n),
    }
    if bought.has(REVENUE):
        revenue = _read_revenue(bought)
        columns[REVENUE] = np.bincount(owner[counted], revenue[counted], n)
    table = sent.columns.drop_columns([TIMESTAMP] if sent.has(TIMESTAMP) else [])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _count_once(rows: Codes, n: int) -> Ints:
    """Return 1 for each email with any event, however many: mail programs load images again."""
    return (np.bincount(rows, minlength=n) > 0).astype(np.int64)


def _read_revenue(bought: Table) -> Floats:
    return read_scores(bought, REVENUE)[0] if len(bought) else np.empty(0)


def _email_rows(sent: Table, table: Table) -> Codes:
    """Return the row in `emails` of every row; refuses emails never sent, or sent twice."""
    ids, (own, others) = encode_as_written(sent.ids(EMAIL_ID), table.ids(EMAIL_ID))
    if len(np.unique(own)) < len(own):
        name = sent.own_name(EMAIL_ID)
        raise DataError(f"column '{name}' of emails has duplicate ids; keep one row per email")
    rows = np.full(len(ids), -1, np.int64)
    rows[own] = np.arange(len(own))
    found = rows[others]
    if (found < 0).any():
        first = table.columns[EMAIL_ID][int(np.argmax(found < 0))].as_py()
        raise DataError(
            f"column '{table.own_name(EMAIL_ID)}' of {table.name} has {first!r}, which is not in "
            f"emails (and {int((found < 0).sum()) - 1} more); add these emails, or drop the rows"
        )
    return found.astype(np.int32)


def _find_owners(
    sent: Table, clicked: Table, clicked_emails: Codes, bought: Table, session_minutes: float
) -> Ints:
    """Return the row in `emails` that each order belongs to; -1 for none."""
    n_orders = len(bought)
    if n_orders == 0 or len(clicked) == 0:
        return np.full(n_orders, -1, np.int64)
    _, (senders, buyers) = encode_as_written(sent.ids(USER), bought.ids(USER))
    users = np.concatenate([senders[clicked_emails], buyers])
    times = np.concatenate(read_times([clicked, bought]))
    emails = np.concatenate([clicked_emails.astype(np.int64), np.full(n_orders, -1, np.int64)])
    if clicked.has(SESSION) and bought.has(SESSION):
        _, sessions = encode_as_written(clicked.ids(SESSION), bought.ids(SESSION))
        own = np.concatenate(sessions)
        order = np.lexsort((emails < 0, times, own, users))
        new = _changes(users[order]) | _changes(own[order])
    else:
        order = np.lexsort((emails < 0, times, users))
        gaps = np.diff(times[order], prepend=times[order][0]) > session_minutes * _MINUTE
        new = _changes(users[order]) | gaps
    credited = np.empty(len(order), np.int64)
    credited[order] = _last_click(emails[order], new)
    return credited[len(clicked) :]


def _changes(values: Codes) -> Any:
    """Return where a value differs from the one before; the first counts as different."""
    changed = np.ones(len(values), bool)
    changed[1:] = values[1:] != values[:-1]
    return changed


def _last_click(emails: Ints, new: Any) -> Ints:
    """Return, for each row, the email of the last click so far in its session; -1 for none."""
    places = np.where(emails >= 0, np.arange(len(emails)), -1)
    last = np.maximum.accumulate(places)
    starts = np.maximum.accumulate(np.where(new, np.arange(len(emails)), 0))
    return np.where(last >= starts, emails[np.maximum(last, 0)], -1)
