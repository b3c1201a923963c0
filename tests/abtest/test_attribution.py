"""Orders that follow a click in the same session, worked out by hand."""

from __future__ import annotations

from datetime import date

import polars as pl
import pyarrow as pa
import pytest

from made_emails import CLICKS, EMAILS, OPENS, ORDERS, at
from trimtab.abtest import analyse, attribute
from trimtab.errors import DataError, SettingError, TrimtabWarning
from trimtab.tables.columns import with_column

LOGS = (EMAILS, OPENS, CLICKS, ORDERS)


def columns_of(*logs, **options):
    return attribute(*logs, **options).to_pydict()


def test_by_hand():
    found = columns_of(*LOGS)
    assert list(found) == [
        "email_id", "user_id", "bucket", "emails", "opens", "clicks", "orders", "revenue",
    ]  # fmt: skip
    assert found["emails"] == [1, 1, 1, 1]
    assert found["opens"] == found["clicks"] == [1, 1, 1, 0]  # email 1 was opened twice
    assert found["orders"] == [0, 2, 1, 0]  # bob's, at the time of the click, counts
    assert found["revenue"] == [0.0, 30.0, 160.0, 0.0]
    assert columns_of(*LOGS, session_minutes=20)["orders"] == [0, 1, 1, 0]
    verdicts = analyse(attribute(*LOGS))
    assert verdicts.of("orders", "opens").control.rate == pytest.approx(2 / 2)
    assert verdicts.unit == "user"


def test_the_same_logs_in_another_form():
    """An email is opened and clicked once, however often; ids join as they are written."""
    numbers = {"ann": "1", "bob": "2", "cid": "3", "dan": "4"}
    users = [pa.array([numbers[u] for u in t["user_id"].to_pylist()]) for t in (EMAILS, ORDERS)]
    forms = [
        (EMAILS, *(pa.concat_tables([table] * 3) for table in LOGS[1:3]), ORDERS),
        (EMAILS, *(table.take(list(range(table.num_rows))[::-1]) for table in LOGS[1:])),
        (with_column(EMAILS, "user_id", users[0].cast("int64")), OPENS, CLICKS,
         with_column(ORDERS, "user_id", users[1])),
        *((*map(kind, LOGS[:3]), ORDERS) for kind in (pa.Table.to_pandas, pl.from_arrow)),
        *((EMAILS, *(with_column(t, "email_id", t["email_id"].cast(kind)) for t in LOGS[1:3]),
           ORDERS) for kind in (pa.string(), pa.int32(), pa.large_string())),
    ]  # fmt: skip
    expected = {name: own for name, own in columns_of(*LOGS).items() if name != "user_id"}
    for form in forms:
        found = columns_of(*form)
        found.pop("user_id")
        assert found == expected
    text = with_column(EMAILS, "email_id", pa.array(["1", "2", "3", "004"]))
    assert columns_of(text, *LOGS[1:])["email_id"][3] == "004"
    with pytest.raises(DataError, match=r"'email_id' of opens has '4', which is not in emails"):
        attribute(text, pa.table({"email_id": ["4"]}), CLICKS, ORDERS)


def test_sessions_by_session_id():
    clicks = CLICKS.append_column("session_id", pa.array(["a", "b", "c"]))
    sessions = pa.array(["a", "b", "a", "c", "x", "c", "c"])
    found = columns_of(EMAILS, OPENS, clicks, ORDERS.append_column("session_id", sessions))
    # ann's first and third are in session a, whose only click is on email 1; bob's first came
    # before his click and his second in a session without one; cid's session c is not bob's.
    assert found["orders"] == [2, 1, 0, 0]
    assert found["revenue"] == [50.0, 20.0, 0.0, 0.0]


def test_nobody_clicked_or_bought():
    for clicks, orders in ((CLICKS.slice(0, 0), ORDERS), (CLICKS, ORDERS.slice(0, 0))):
        found = columns_of(EMAILS, OPENS.slice(0, 0), clicks, orders)
        assert found["orders"] == found["opens"] == [0] * 4


def test_bad_logs_are_refused():
    naive = with_column(CLICKS, "timestamp", at(0, 5, 0).cast(pa.timestamp("us")))
    for logs, message in (
        ((EMAILS.slice(1), *LOGS[1:]), r"'email_id' of opens has 1.*\b1 more"),
        ((pa.concat_tables([EMAILS, EMAILS]), *LOGS[1:]), "'email_id' of emails"),
        ((EMAILS, OPENS, naive, ORDERS), "'timestamp'.* in orders .* in clicks"),
        ((EMAILS, OPENS, CLICKS.select(["email_id"]), ORDERS), "'timestamp' in clicks"),
        ((EMAILS, pa.table({"email_id": [1.5]}), CLICKS, ORDERS),
         "'email_id' of opens holds double: .*integers or strings"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            attribute(*logs)
    with pytest.raises(SettingError, match="session_minutes=0: "):
        attribute(*LOGS, session_minutes=0)


def test_events_before_their_own_email_do_not_count():
    sent = EMAILS.append_column("timestamp", at(-60, 6, -60, -60))  # email 2 after its click
    opens = OPENS.append_column("timestamp", at(0, 1, 2, 3))
    with pytest.warns(TrimtabWarning) as warned:
        found = columns_of(sent, opens, CLICKS, ORDERS)
    texts = [str(own.message) for own in warned]
    assert "opens: 1 of 4 are earlier than their own email" in texts[0]
    assert "clicks: 1 of 3 are earlier than their own email" in texts[1]
    assert list(found) == list(columns_of(*LOGS))
    assert found["opens"] == found["clicks"] == [1, 0, 1, 0]
    assert found["orders"] == [2, 0, 1, 0]  # ann's belong to the email she had


def test_dates_of_emails_show_early_events():
    """At noon in UTC it is the next day already in UTC+14; dates may also be names."""
    for day in ("2026-11-04", date(2026, 11, 4)):
        with pytest.warns(TrimtabWarning, match=r"clicks: 3 of 3"):
            found = columns_of(EMAILS.append_column("date", pa.array([day] * 4)), *LOGS[1:])
        assert found["orders"] == [0] * 4
    for day in ("2026-11-03", "wave 1", 20261104):
        found = columns_of(EMAILS.append_column("date", pa.array([day] * 4)), *LOGS[1:])
        assert found["clicks"] == [1, 1, 1, 0]
