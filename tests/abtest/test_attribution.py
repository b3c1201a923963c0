"""Orders that follow a click in the same session, worked out by hand."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from made_emails import CLICKS, EMAILS, OPENS, ORDERS, at
from trimtab.abtest import analyse, attribute
from trimtab.errors import DataError, SettingError


def test_by_hand():
    found = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    assert found.column_names == [
        "email_id", "user_id", "bucket", "emails", "opens", "clicks", "orders", "revenue",
    ]  # fmt: skip
    assert found["emails"].to_pylist() == [1, 1, 1, 1]
    assert found["opens"].to_pylist() == [2, 1, 1, 0]
    assert found["clicks"].to_pylist() == [1, 1, 1, 0]
    assert found["orders"].to_pylist() == [0, 2, 1, 0]  # bob's, at the time of the click, counts
    assert found["revenue"].to_pylist() == [0.0, 30.0, 160.0, 0.0]


def test_old_names_of_columns_are_accepted():
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    old = {"email_id": "mail_id"}
    for kind in (lambda table: table, pa.Table.to_pandas, pl.from_arrow):
        tables = (kind(t.rename_columns(old)) for t in (EMAILS, OPENS, CLICKS))
        assert attribute(*tables, ORDERS).to_pydict() == expected.to_pydict()


def test_shorter_sessions():
    found = attribute(EMAILS, OPENS, CLICKS, ORDERS, session_minutes=20)
    assert found["orders"].to_pylist() == [0, 1, 1, 0]


def test_sessions_by_session_id():
    clicks = CLICKS.append_column("session_id", pa.array(["a", "b", "c"]))
    sessions = pa.array(["a", "b", "a", "c", "x", "c", "c"])
    found = attribute(EMAILS, OPENS, clicks, ORDERS.append_column("session_id", sessions))
    # ann's first and third are in session a, whose only click is on email 1; bob's first came
    # before his click and his second in a session without one; cid's session c is not bob's.
    assert found["orders"].to_pylist() == [2, 1, 0, 0]
    assert found["revenue"].to_pylist() == [50.0, 20.0, 0.0, 0.0]


def test_nobody_clicked_or_bought():
    for clicks, orders in ((CLICKS.slice(0, 0), ORDERS), (CLICKS, ORDERS.slice(0, 0))):
        found = attribute(EMAILS, OPENS.slice(0, 0), clicks, orders)
        assert found["orders"].to_pylist() == [0] * 4
        assert found["opens"].to_pylist() == [0] * 4


def test_order_of_rows_does_not_matter():
    expected = attribute(EMAILS, OPENS, CLICKS, ORDERS)
    turned = [table.take(list(range(table.num_rows))[::-1]) for table in (OPENS, CLICKS, ORDERS)]
    assert attribute(EMAILS, *turned).equals(expected)


def test_it_can_be_analysed():
    found = analyse(attribute(EMAILS, OPENS, CLICKS, ORDERS))
    assert found.of("orders", "opens").control.rate == pytest.approx(2 / 3)
    assert found.unit == "user"


@pytest.mark.parametrize(
    ("emails", "clicks", "orders", "message"),
    [
        (EMAILS.slice(1), CLICKS, ORDERS, r"'email_id' of opens has 1.*\b1 more"),
        (pa.concat_tables([EMAILS, EMAILS]), CLICKS, ORDERS, "'email_id' of emails"),
        (
            EMAILS,
            CLICKS.set_column(1, "timestamp", at(0, 5, 0).cast(pa.timestamp("us"))),
            ORDERS,
            "'timestamp'.* in orders .* in clicks",
        ),
        (EMAILS, CLICKS.select(["email_id"]), ORDERS, "'timestamp' in clicks"),
    ],
)
def test_bad_logs_are_refused(emails, clicks, orders, message):
    with pytest.raises(DataError, match=message):
        attribute(emails, OPENS, clicks, orders)


def test_sessions_need_a_length():
    with pytest.raises(SettingError, match="session_minutes=0: "):
        attribute(EMAILS, OPENS, CLICKS, ORDERS, session_minutes=0)
