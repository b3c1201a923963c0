"""From raw logs to a row a mail: an order counts when it follows a click in the same session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.abtest.samples import CLICKS, DATE, MAILS, OPENS, ORDERS, REVENUE
from trimtab.arrays import Codes, Floats, Ints
from trimtab.errors import DataError, SettingError
from trimtab.tables.columns import BUCKET, TIMESTAMP, USER
from trimtab.tables.frames import Table, read_frame, read_scores
from trimtab.tables.ids import IdColumn, encode_ids
from trimtab.tables.timestamps import as_utc, has_zone, microseconds

MAIL, SESSION = "mail_id", "session_id"
_MINUTE = 60_000_000


def attribute(
    mails: Any, opens: Any, clicks: Any, orders: Any, *, session_minutes: float = 30.0
) -> pa.Table:
    """What came of each mail: an Arrow table to analyse, in the order of `mails`.

    Clicks and orders of a user fall into sessions: by `session_id` where both tables have it, and
    otherwise by time, a session ending where nothing happens for `session_minutes`. An order
    belongs to the last mail that was clicked on in the same session, at its time or before; orders
    without such a click belong to none.

    Args:
        mails: mail_id, user_id, and bucket, date if they are known.
        opens: mail_id, a row an open.
        clicks: mail_id, timestamp, a row a click.
        orders: user_id, timestamp, and revenue if it is known, a row an order.
        session_minutes: how long a session lasts without a click or an order.

    Returns:
        mail_id, user_id (bucket, date), mails (always 1), opens, clicks, orders, revenue.
    """
    if not session_minutes > 0:
        raise SettingError(f"session_minutes={session_minutes}: must be above 0, like 30")
    sent = read_frame(mails, "mails", MAIL, USER, optional=(BUCKET, DATE))
    opened = read_frame(opens, "opens", MAIL, may_be_empty=True)
    clicked = read_frame(clicks, "clicks", MAIL, TIMESTAMP, optional=(SESSION,), may_be_empty=True)
    bought = read_frame(
        orders, "orders", USER, TIMESTAMP, optional=(REVENUE, SESSION), may_be_empty=True
    )
    opened_mails, clicked_mails = (_mail_rows(sent, table) for table in (opened, clicked))
    owner = _credit(sent, clicked, clicked_mails, bought, session_minutes)
    counted = owner >= 0
    n = len(sent)
    columns = {
        MAILS: np.ones(n, np.int64),
        OPENS: np.bincount(opened_mails, minlength=n),
        CLICKS: np.bincount(clicked_mails, minlength=n),
        ORDERS: np.bincount(owner[counted], minlength=n),
    }
    if bought.has(REVENUE):
        money = _money(bought)
        columns[REVENUE] = np.bincount(owner[counted], money[counted], n)
    table = sent.columns
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _money(bought: Table) -> Floats:
    return read_scores(bought, REVENUE)[0] if len(bought) else np.empty(0)


def _mail_rows(sent: Table, table: Table) -> Codes:
    """The row in `mails` of every row; refuses mails that were never sent, or sent twice."""
    ids, (own, others) = encode_ids([sent.ids(MAIL), _ids(table, MAIL, sent)])
    if len(np.unique(own)) < len(own):
        raise DataError(f"column '{MAIL}' of mails has an id more than once; give each mail a row")
    rows = np.full(len(ids), -1, np.int64)
    rows[own] = np.arange(len(own))
    found = rows[others]
    if (found < 0).any():
        first = table.columns[MAIL][int(np.argmax(found < 0))].as_py()
        raise DataError(
            f"{int((found < 0).sum())} rows of {table.name} have a '{MAIL}' that is not in mails, "
            f"the first {first!r}; give the mails of all of them, or drop those rows"
        )
    return found.astype(np.int32)


def _ids(table: Table, name: str, like: Table) -> IdColumn:
    """A column of ids; without rows, of the kind of the other table's."""
    if len(table):
        return table.ids(name)
    return IdColumn(table.name, name, like.ids(name).values[:0])


def _credit(
    sent: Table, clicked: Table, clicked_mails: Codes, bought: Table, session_minutes: float
) -> Ints:
    """The row in `mails` that each order belongs to; -1 for none."""
    n_orders = len(bought)
    if n_orders == 0 or len(clicked) == 0:
        return np.full(n_orders, -1, np.int64)
    _, (senders, buyers) = encode_ids([sent.ids(USER), bought.ids(USER)])
    users = np.concatenate([senders[clicked_mails], buyers])
    times = np.concatenate(_times(clicked, bought))
    mails = np.concatenate([clicked_mails.astype(np.int64), np.full(n_orders, -1, np.int64)])
    if clicked.has(SESSION) and bought.has(SESSION):
        _, sessions = encode_ids([clicked.ids(SESSION), bought.ids(SESSION)])
        own = np.concatenate(sessions)
        order = np.lexsort((mails < 0, times, own, users))
        new = _changes(users[order]) | _changes(own[order])
    else:
        order = np.lexsort((mails < 0, times, users))
        gaps = np.diff(times[order], prepend=times[order][0]) > session_minutes * _MINUTE
        new = _changes(users[order]) | gaps
    credited = np.empty(len(order), np.int64)
    credited[order] = _last_click(mails[order], new)
    return credited[len(clicked) :]


def _times(clicked: Table, bought: Table) -> list[Ints]:
    """Instants of both tables; times without a zone are of one place, whichever it is."""
    tables = (clicked, bought)
    zoned = [has_zone(table.columns[TIMESTAMP], table.name) for table in tables]
    if zoned[0] != zoned[1]:
        have, lack = (tables[zoned.index(answer)].name for answer in (True, False))
        raise DataError(
            f"column '{TIMESTAMP}' says its time zone in {have} but not in {lack}; give it to both"
        )
    return [microseconds(as_utc(t.columns[TIMESTAMP], "UTC", t.name)[0]) for t in tables]


def _changes(values: Codes) -> Any:
    """Where a value differs from the one before; the first counts as different."""
    changed = np.ones(len(values), bool)
    changed[1:] = values[1:] != values[:-1]
    return changed


def _last_click(mails: Ints, new: Any) -> Ints:
    """For each row in order, the mail of the last click so far in its session; -1 for none."""
    places = np.where(mails >= 0, np.arange(len(mails)), -1)
    last = np.maximum.accumulate(places)
    starts = np.maximum.accumulate(np.where(new, np.arange(len(mails)), 0))
    return np.where(last >= starts, mails[np.maximum(last, 0)], -1)
